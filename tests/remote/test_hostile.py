"""Servers that send what nobody asked for, or far more than they say."""

from __future__ import annotations

import threading
import tracemalloc
from typing import Any

import pytest

pytest.importorskip("grpc", reason="the extra `remote` is not installed")

from fakes.memory_store import MemoryStore
from reprobuild.adapters.remote.access import Access
from reprobuild.adapters.remote.download import Downloader
from reprobuild.adapters.remote.listing import Listing
from reprobuild.adapters.remote.naming import Namers
from reprobuild.adapters.remote.server import Abilities, Server
from reprobuild.adapters.remote.stubs import stubs
from reprobuild.core.digest import Digest
from reprobuild.core.remote import wire
from reprobuild.core.remote.function import SHA256
from reprobuild.core.remote.wire import Blob, WireFile
from reprobuild.core.tree import MAX_DEPTH, Tree
from reprobuild.errors import ReprobuildError
from support.remote import DictMemo, files_of

RUN = 128 * 2**10
"""Bytes of the longest block that a zstd frame may hold."""


class Told(Server):
    """A server that answers as it is told, over no connection."""

    def __init__(self, pieces: list[bytes] | None = None, batch: Any = None) -> None:
        super().__init__("told:1", "", Access(), secure=False)
        self._abilities = Abilities(
            2**20, True, True, True, frozenset({SHA256}), frozenset({SHA256})
        )
        self.pieces, self.batch = pieces or [], batch

    @property
    def stream(self) -> Any:
        return self

    @property
    def cas(self) -> Any:
        return self

    def Read(self, request: Any, **more: Any) -> Any:
        return (stubs().stream.ReadResponse(data=piece) for piece in self.pieces)

    def BatchReadBlobs(self, request: Any, **more: Any) -> Any:
        return self.batch


def downloader(server: Server, store: MemoryStore | None = None) -> Downloader:
    namer = Namers(store or MemoryStore(), DictMemo()).of(SHA256)
    return Downloader(server, namer, threading.Event())


# -- compressed streams -------------------------------------------------------------------------


def runs(blocks: int) -> bytes:
    """A zstd frame that repeats one byte (RFC 8878, 3.1.1): four bytes for `RUN` ones."""
    header = b"\x28\xb5\x2f\xfd" + bytes([0, 7 << 3])  # a window of 2**(10 + 7) bytes
    block = RUN << 3 | 1 << 1
    each = block.to_bytes(3, "little") + b"r"
    last = (block | 1).to_bytes(3, "little") + b"r"
    return header + each * (blocks - 1) + last


@pytest.mark.parametrize("step", [3, 100, 10**6])
def test_a_stream_is_read_to_its_end_however_it_is_cut(step: int) -> None:
    data = b"r" * RUN * 30
    frames = runs(10) + runs(20)
    pieces = [b"", *(frames[at : at + step] for at in range(0, len(frames), step)), b""]
    assert downloader(Told(pieces)).read(SHA256.blob(data), 2**30) == data


def test_a_small_piece_that_stands_for_much_is_not_held() -> None:
    bomb = runs(400)
    assert len(bomb) < 2000
    blob = Blob("0" * 64, 2**20 - 1)
    down = downloader(Told([bomb]))
    tracemalloc.start()
    try:
        with pytest.raises(ReprobuildError, match="gave more than 1048575 bytes") as caught:
            down.read(blob, 2**30)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.code == "E-REMOTE-LIED"
    assert peak < 10 * 2**20 < 400 * RUN


# -- batches ------------------------------------------------------------------------------------


def answer(*rows: tuple[bytes, bytes, int]) -> Any:
    """A batch of blobs' names, contents and statuses."""
    out = stubs().re.BatchReadBlobsResponse()
    for name, data, code in rows:
        blob = SHA256.blob(name)
        row = out.responses.add(data=data)
        row.digest.hash, row.digest.size_bytes = blob.hash, blob.size
        row.status.code = code
    return out


@pytest.mark.parametrize(
    "unasked", [(b"more", b"more", 0), (b"more", b"false", 0), (b"more", b"", 5), (b"", b"", 5)]
)
def test_what_nobody_asked_for_counts_for_nothing(unasked: tuple[bytes, bytes, int]) -> None:
    data = wire.tree(wire.directory([WireFile("f", SHA256.blob(b"one"), False)], (), ()), ())
    store = MemoryStore()
    server = Told(batch=answer(unasked, (data, data, 0), (b"one", b"one", 0), unasked))
    tree, came = downloader(server, store).tree(SHA256.blob(data), 2**20)
    assert files_of(store, tree) == {"f": b"one"}
    assert came == len(data) + 3
    assert set(store.blobs.values()) == {b"one"}


# -- trees --------------------------------------------------------------------------------------


def doubled(levels: int) -> bytes:
    """A Tree whose directories each name the one below twice; the lowest holds nothing."""
    children = [wire.directory((), (), ())]
    for _ in range(levels - 1):
        below = SHA256.blob(children[-1])
        children.append(wire.directory((), [("a", below), ("b", below)], ()))
    return wire.tree(children.pop(), children)


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """How often a directory of a Tree was looked up; soon too often."""
    made: list[None] = []
    plain = Listing._child

    def child(self: Listing, digest: Any) -> Any:
        made.append(None)
        assert len(made) < 5000, "each place is walked"
        return plain(self, digest)

    monkeypatch.setattr(Listing, "_child", child)
    return made


def test_a_directory_in_many_places_is_walked_once(lookups: list[None]) -> None:
    listing = Listing("told:1", doubled(20), 2**40, SHA256)
    nodes: dict[Digest, Tree] = {}
    assert listing.build({}, nodes) in nodes
    assert len(nodes) == 20
    assert lookups


@pytest.mark.parametrize("levels", [35, 500])
def test_a_directory_in_many_places_counts_in_each(lookups: list[None], levels: int) -> None:
    with pytest.raises(ReprobuildError) as caught:
        Listing("told:1", doubled(levels), 2**40, SHA256)
    assert caught.value.code == "E-OUTPUT-SIZE"


@pytest.mark.parametrize("over", [False, True])
def test_the_sum_over_all_places_is_exact(over: bool) -> None:
    # 2 + 4 + … + 2**10 entries, the lowest of which hold a file
    low = wire.directory([WireFile("f", Blob("0" * 64, 10**6), False)], (), ())
    children = [low]
    for _ in range(10):
        below = SHA256.blob(children[-1])
        children.append(wire.directory((), [("a", below), ("b", below)], ()))
    data = wire.tree(children.pop(), children)
    limit = 64 * (2**11 - 2) + (10**6 + 64) * 2**10 - 2**24
    if not over:
        Listing("told:1", data, limit, SHA256)
        return
    with pytest.raises(ReprobuildError) as caught:
        Listing("told:1", data, limit - 1, SHA256)
    assert caught.value.code == "E-OUTPUT-SIZE"


def test_the_depth_is_that_of_the_longest_way() -> None:
    children = [wire.directory((), (), ())]
    for _ in range(MAX_DEPTH):
        rows = [("deep", SHA256.blob(children[-1])), ("flat", SHA256.blob(children[0]))]
        children.append(wire.directory((), rows, ()))
    Listing("told:1", wire.tree(children[-1], children[:-1]), 2**40, SHA256)
    children.append(wire.directory((), [("a", SHA256.blob(children[-1]))], ()))
    with pytest.raises(ReprobuildError) as caught:
        Listing("told:1", wire.tree(children[-1], children[:-1]), 2**40, SHA256)
    assert caught.value.code == "E-TREE"
