from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import random
import tarfile
import threading
import time
import tracemalloc
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.oci import gzipstream
from reprobuild.adapters.oci.gzipstream import (
    MEMBER,
    check_compressor,
    compressed_members,
    gzip_stream,
    members,
)
from reprobuild.adapters.oci.streams import Measure, Memory, Piece, PieceReader, ahead
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value, decode
from reprobuild.core.tree import File
from reprobuild.errors import ReprobuildError
from support.archives import tar_entry
from support.images import foreign_image, layer
from support.trees import Given, listing, make


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "store")


def opened(store: MemoryStore, outputs: Mapping[str, Digest]) -> tuple[dict[str, Value], bytes]:
    """layer.json and the uncompressed tar, after checking one against the other."""
    found = listing(store, outputs["out"])
    document = decode(found.pop("layer.json"))  # type: ignore[arg-type]
    assert isinstance(document, dict)
    assert found.pop("files") is not None
    ((name, packed),) = found.items()
    assert isinstance(packed, bytes)
    plain = gzip.decompress(packed) if name == "layer.tar.gz" else packed
    assert document["digest"] == hashlib.sha256(packed).hexdigest()
    assert document["diff_id"] == hashlib.sha256(plain).hexdigest()
    assert document["size"] == len(packed)
    assert document["uncompressed_size"] == len(plain)
    return document, plain


def entries(plain: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        return {info.name: info for info in archive}


FILES: dict[str, Given] = {"a/run": (b"#!", True), "a/text": b"text", "l": "a"}


def test_a_layer_says_what_it_is(store: MemoryStore) -> None:
    document, plain = opened(store, layer(store, FILES))
    assert document["media_type"] == "application/vnd.oci.image.layer.v1.tar+gzip"
    found = entries(plain)
    assert {n: i.mode for n, i in found.items()} == {
        "a": 0o755,
        "a/run": 0o755,
        "a/text": 0o644,
        "l": 0o777,
    }
    assert {i.mtime for i in found.values()} == {1}


def test_without_compression_the_content_is_the_same(store: MemoryStore) -> None:
    packed, _ = opened(store, layer(store, FILES))
    plain, _ = opened(store, layer(store, FILES, compression="none"))
    assert plain["media_type"] == "application/vnd.oci.image.layer.v1.tar"
    assert plain["diff_id"] == packed["diff_id"] == plain["digest"]


def test_levels_move_the_blob_and_not_the_content(store: MemoryStore) -> None:
    files: dict[str, Given] = {"x": bytes(range(256)) * 400}
    documents = [opened(store, layer(store, files, level=level))[0] for level in (1, 6, 12)]
    assert len({str(d["digest"]) for d in documents}) == 3
    assert len({str(d["diff_id"]) for d in documents}) == 1


def test_prefix_and_owners(store: MemoryStore) -> None:
    outputs = layer(
        store,
        FILES,
        prefix="opt/x",
        mtime=99,
        owners={
            "opt/x/a": {"mode": "1777", "uid": 5, "gid": 6},
            "/opt/x/a/run": {"mode": "4755", "xattrs": {"user.a": "AP8="}},
            "opt/x/a/text": {"uid": 7},
            "opt/x/l": {"gid": 8},
        },
    )
    assert listing(store, outputs["tree"]) == {f"opt/x/{k}": v for k, v in FILES.items()}
    found = entries(opened(store, outputs)[1])
    facts = {n: (i.mode, i.uid, i.gid, i.mtime) for n, i in found.items()}
    assert facts == {
        "opt": (0o755, 0, 0, 99),
        "opt/x": (0o755, 0, 0, 99),
        "opt/x/a": (0o1777, 5, 6, 99),
        "opt/x/a/run": (0o4755, 0, 0, 99),
        "opt/x/a/text": (0o644, 7, 0, 99),
        "opt/x/l": (0o777, 0, 8, 99),
    }
    xattr = found["opt/x/a/run"].pax_headers["SCHILY.xattr.user.a"]
    assert xattr.encode("utf-8", "surrogateescape") == b"\0\xff"


@pytest.mark.parametrize(
    "params",
    [
        {"owners": {"missing": {"uid": 1}}},
        {"owners": {"a": {"mode": "999"}}},
        {"owners": {"a": {"mode": "0x1ff"}}},
        {"owners": {"a": {"mode": ""}}},
        {"owners": {"a": {"uid": -1}}},
        {"owners": {"a": {"xattrs": {"user.a": "no base64!"}}}},
        {"owners": {"a": {"xattrs": {"a=b.c": ""}}}},
        {"level": 0},
        {"level": 13},
        {"compression": "lzma"},
        {"mtime": -1},
    ],
    ids=str,
)
def test_parameters_that_are_off(store: MemoryStore, params: dict[str, Value]) -> None:
    with pytest.raises(ReprobuildError) as error:
        layer(store, FILES, {}, **params)
    assert error.value.code == "E-PARAMS"


# -- over something ------------------------------------------------------------------------------

ROOT: dict[str, Given] = {
    "bin": "usr/bin",
    "lib": "usr/lib",
    "usr/bin/sh": (b"sh", True),
    "usr/lib/libc": b"c",
    "var/run": "/run",
    "run": None,
    "loop": "loop",
}


def test_directories_go_where_links_beneath_lead(store: MemoryStore) -> None:
    below = layer(store, ROOT)["tree"]
    files: dict[str, Given] = {
        "lib/python3/a.py": b"a",
        "bin/tool": (b"t", True),
        "var/run/x/pid": b"1",
        "new/x": b"",
    }
    placed = layer(store, files, {"below-0": below})["tree"]
    assert listing(store, placed) == {
        "usr/lib/python3/a.py": b"a",
        "usr/bin/tool": (b"t", True),
        "run/x/pid": b"1",
        "var": None,
        "new/x": b"",
    }
    placed = layer(store, {"a.py": b"a"}, {"below-0": below}, prefix="lib/python3")["tree"]
    assert listing(store, placed) == {"usr/lib/python3/a.py": b"a"}


@pytest.mark.parametrize(
    ("files", "path"),
    [
        ({"usr/bin": b"file over a directory"}, "usr/bin"),
        ({"usr/bin": "link-over-a-directory"}, "usr/bin"),
        ({"usr/lib/libc": b"another"}, "usr/lib/libc"),
        ({"bin": "usr/sbin"}, "bin"),
        ({"usr/lib/libc/below-a-file": b""}, "usr/lib/libc"),
        ({"lib/libc": b"through the link"}, "usr/lib/libc"),
    ],
)
def test_what_would_destroy_something_beneath(
    store: MemoryStore, files: dict[str, Given], path: str
) -> None:
    below = layer(store, ROOT)["tree"]
    with pytest.raises(ReprobuildError) as error:
        layer(store, files, {"below-0": below}, name="new")
    assert error.value.code == "E-IMAGE-OVERLAP"
    assert error.value.facts == {"path": path, "second": "new"}


def test_a_loop_of_links_beneath(store: MemoryStore) -> None:
    below = layer(store, ROOT)["tree"]
    with pytest.raises(ReprobuildError) as error:
        layer(store, {"loop/x": b""}, {"below-0": below})
    assert error.value.code == "E-IMAGE"


def test_replacing_on_purpose(store: MemoryStore) -> None:
    below = layer(store, ROOT)["tree"]
    files: dict[str, Given] = {"lib/libc": b"another"}
    placed = layer(store, files, {"below-0": below}, replace=["usr/lib/*"])["tree"]
    assert listing(store, placed) == {"usr/lib/libc": b"another"}


def test_equal_content_may_lie_on_itself(store: MemoryStore) -> None:
    below = layer(store, ROOT)["tree"]
    files: dict[str, Given] = {"bin": "usr/bin", "usr/lib/libc": b"c"}
    assert listing(store, layer(store, files, {"below-0": below})["tree"]) == files


def base_image(store: MemoryStore) -> Digest:
    special = tar_entry("opt", kind=tarfile.DIRTYPE, mode=0o2775)
    special[0].uid, special[0].gid, special[0].mtime = 10, 20, 1234
    return foreign_image(
        store,
        [
            [
                tar_entry("./usr/", kind=tarfile.DIRTYPE, mode=0o755),
                tar_entry("./usr/lib/", kind=tarfile.DIRTYPE, mode=0o755),
                tar_entry("lib", kind=tarfile.SYMTYPE, link="usr/lib"),
                special,
                tar_entry("opt/old/file", b"old"),
                tar_entry("gone", b"x"),
                tar_entry("dir/inside", b"x"),
                tar_entry("was-a-directory/x", b"x"),
            ],
            [
                tar_entry(".wh.gone"),
                tar_entry("dir/.wh..wh..opq"),
                tar_entry("was-a-directory", b"now a file"),
            ],
        ],
    )


def test_parents_keep_what_the_base_image_says(store: MemoryStore) -> None:
    outputs = layer(
        store,
        {"opt/new": b"", "lib/x": b"", "gone/now-a-directory": b"", "dir/inside": b"new"},
        {"base-0": base_image(store)},
        mtime=77,
    )
    found = entries(opened(store, outputs)[1])
    opt = found["opt"]
    assert (opt.mode, opt.uid, opt.gid, opt.mtime) == (0o2775, 10, 20, 1234)
    assert found["usr/lib/x"].mtime == 77
    assert "lib" not in found
    assert found["gone"].isdir()
    assert found["dir/inside"].isreg()


@pytest.mark.parametrize("path", ["opt/old/file", "lib", "was-a-directory/y", "opt"])
def test_the_base_images_files_stay(store: MemoryStore, path: str) -> None:
    with pytest.raises(ReprobuildError) as error:
        layer(store, {path: b"mine"}, {"base-0": base_image(store)})
    assert error.value.code == "E-IMAGE-OVERLAP"


def test_directories_beneath_keep_their_stated_owners(store: MemoryStore) -> None:
    below = layer(store, {"tmp": None, "usr/x": b""})["tree"]
    outputs = layer(
        store,
        {"tmp/x": b"", "usr/y": b""},
        {"below-0": below},
        beneath_owners={"tmp": {"mode": "1777"}},
    )
    found = entries(opened(store, outputs)[1])
    assert (found["tmp"].mode, found["usr"].mode) == (0o1777, 0o755)


def test_a_base_is_read_once_for_all_its_layers(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = foreign_image(store, [[tar_entry("only-here/x", b"1")]])
    reads: list[Digest] = []
    real = store.open_blob

    def counting(digest: Digest) -> BinaryIO:
        reads.append(digest)
        return real(digest)

    monkeypatch.setattr(store, "open_blob", counting)
    layer(store, {"a": b""}, {"base-0": base})
    first = len(reads)
    layer(store, {"a": b""}, {"base-0": base})
    assert len(reads) == first > 0  # an empty file is not opened; the base would be


# -- the stream ----------------------------------------------------------------------------------


def test_gzip_is_one_stream_however_it_is_cut_and_spread() -> None:
    data = random.Random(1).randbytes(MEMBER + 5) + bytes(2 * MEMBER)
    whole = b"".join(gzip_stream([data], 6, threads=1))
    assert gzip.decompress(whole) == data
    for size, threads in ((1000, 1), (MEMBER - 1, 2), (MEMBER, 3), (MEMBER + 1, 8)):
        pieces = (data[at : at + size] for at in range(0, len(data), size))
        assert b"".join(gzip_stream(pieces, 6, threads=threads)) == whole


def test_gzip_members_have_no_time_and_no_system() -> None:
    packed = list(gzip_stream([bytes(MEMBER), b"x"], 6))
    assert len(packed) == 2
    for member in packed:
        assert member[:10] == b"\x1f\x8b\x08\0\0\0\0\0\0\xff"


def test_members_of_nothing() -> None:
    assert list(members([])) == []
    assert list(members([b"", b""])) == []


def test_a_compressor_with_other_bytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_compressor()
    check_compressor.cache_clear()  # what holds is asked once a process
    monkeypatch.setattr(gzipstream, "known_text", lambda: b"stands for another compressor")
    with pytest.raises(ReprobuildError) as error:
        check_compressor()
    assert error.value.code == "E-COMPRESSOR"
    for many in (0, 1, 100):
        stream = gzip_stream((bytes(MEMBER) for _ in range(many)), 1)
        with pytest.raises(ReprobuildError) as error:
            next(stream)
        assert error.value.code == "E-COMPRESSOR"


def test_an_error_while_compressing_comes_out() -> None:
    def pieces() -> Iterator[bytes]:
        yield bytes(3 * MEMBER)
        raise ReprobuildError("E-IMAGE", "the source broke off")

    with pytest.raises(ReprobuildError):
        list(gzip_stream(pieces(), 6, threads=2))


def test_the_reader_reads_piece_by_piece() -> None:
    reader = PieceReader(iter([b"", b"ab", b"", b"cdef", b"g", b""]))
    assert [reader.read(n) for n in (1, 3, 0, 3, 2, 100, 1)] == [
        b"a", b"b", b"", b"cde", b"f", b"g", b"",
    ]  # fmt: skip
    assert reader.size == 7
    assert reader.sha256.hexdigest() == hashlib.sha256(b"abcdefg").hexdigest()


def test_what_was_read_stays_when_the_memory_is_used_again() -> None:
    room = bytearray(b"abcdef")
    reader = PieceReader(iter([memoryview(room), b"gh"]))
    parts = [reader.read(4), reader.read(1)]
    room[:] = b"XXXXXX"
    assert parts == [b"abcd", b"e"]
    assert reader.read() == b"Xgh"


def test_memory_is_used_again_when_it_was_given_back() -> None:
    memory = Memory(3)
    first, second = memory.take(), memory.take()
    first[:], second[:] = b"one", b"two"
    memory.give_back(first[:2])  # another object: of what is still read
    memory.give_back(b"one")  # not its own
    assert memory.take() is not first
    memory.give_back(first)
    memory.give_back(first)  # only once
    assert memory.take() is first
    assert memory.take() is not first
    assert bytes(second) == b"two"


def test_memory_comes_back_when_all_have_read_it() -> None:
    """The compressor first, the hash last: until then nobody writes to a piece."""
    log: list[tuple[str, int]] = []
    memory = Memory(MEMBER)

    def pieces() -> Iterator[Piece]:
        for n in range(100):
            room = memory.take()
            room[:] = bytes([n]) * MEMBER
            yield room

    def compress(member: Piece) -> bytes:
        number = member[0]
        if number == 50:  # the others are done by then, and it is waited for
            time.sleep(0.3)
        log.append(("compressed", number))
        return hashlib.sha256(member).digest()

    def done(piece: Piece) -> None:
        log.append(("free", piece[0]))
        cast(memoryview, piece)[:] = b"\xff" * MEMBER  # as its next user would
        memory.give_back(piece)

    measure = Measure(done)
    packed = list(
        compressed_members(pieces(), compress, measure.show, check=check_compressor, threads=3)
    )
    expected = [bytes([n]) * MEMBER for n in range(100)]
    assert packed == [hashlib.sha256(piece).digest() for piece in expected]
    assert measure.size == 100 * MEMBER
    assert measure.sha256.digest() == hashlib.sha256(b"".join(expected)).digest()
    assert [n for what, n in log if what == "free"] == list(range(100))
    assert all(log.index(("compressed", n)) < log.index(("free", n)) for n in range(100))


def test_what_is_made_ahead_comes_in_order_and_errors_in_their_place() -> None:
    assert list(ahead(iter([b"%d" % n for n in range(500)]))) == [b"%d" % n for n in range(500)]
    assert list(ahead(iter([]))) == []

    def broken() -> Iterator[bytes]:
        yield b"1"
        yield b"2"
        raise ReprobuildError("E-IMAGE", "the source broke off")

    made = ahead(broken())
    assert [next(made), next(made)] == [b"1", b"2"]
    with pytest.raises(ReprobuildError, match="broke off"):
        next(made)


def test_who_stops_early_ends_what_is_made_ahead() -> None:
    log: list[int | str] = []

    def endless() -> Iterator[bytes]:
        try:
            for number in itertools.count():
                log.append(number)
                yield b"x"
        finally:
            log.append("closed")

    before = threading.active_count()
    made = ahead(endless(), 3)
    assert next(made) == b"x"
    cast(Generator[bytes], made).close()
    assert threading.active_count() == before
    assert log[-1] == "closed"
    assert len(log) <= 1 + 1 + 3 + 1  # taken, waiting, in hand


@pytest.mark.parametrize("compression", ["gzip", "none", "zstd"])
def test_a_store_that_fails_leaves_no_thread(tmp_path: Path, compression: str) -> None:
    """Full when the first bytes come, and damaged at the last: nothing goes on behind it."""
    from reprobuild.adapters.builders.layer import pack
    from reprobuild.adapters.oci.tarstream import Overrides

    class Full(MemoryStore):
        def add_blob(self, source: BinaryIO, *, executable: bool = False, size: int = -1) -> File:
            if not isinstance(source, PieceReader):
                return super().add_blob(source, executable=executable, size=size)
            source.read(1)
            raise ReprobuildError("E-STORE-WRITE", "no room")

    class Damaged(MemoryStore):
        def read_blob(self, file: File) -> bytes:
            if file.size == 5:
                raise ReprobuildError("E-STORE-DAMAGED", "not what it was")
            return super().read_blob(file)

    for kind, code in ((Full, "E-STORE-WRITE"), (Damaged, "E-STORE-DAMAGED")):
        store = kind(tmp_path / kind.__name__)
        files = {f"{n:03}": random.Random(n).randbytes(60_000) for n in range(200)}
        tree = make(store, {**files, "last": b"12345"})
        before = threading.active_count()
        with pytest.raises(ReprobuildError) as error:
            pack(store, tree, Overrides(1), compression, 1)
        assert error.value.code == code
        assert threading.active_count() == before


class Zeros(MemoryStore):
    """A store with a file of zeros that is never in memory, and which forgets what it is given."""

    SIZE = 192 * 2**20

    def open_blob(self, digest: Digest) -> BinaryIO:
        return cast(BinaryIO, _Zeros(self.SIZE))

    def add_blob(self, source: BinaryIO, *, executable: bool = False, size: int = -1) -> File:
        hasher, total = hashlib.blake2b(digest_size=32), 0
        while chunk := source.read(2**20):
            hasher.update(chunk)
            total += len(chunk)
        return File(Digest(hasher.hexdigest()), total, executable)


class _Zeros(io.RawIOBase):
    def __init__(self, left: int) -> None:
        self.left = left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self.left)
        buffer[:count] = bytes(count)
        self.left -= count
        return count


def test_a_large_file_streams(tmp_path: Path) -> None:
    from reprobuild.adapters.builders.layer import pack
    from reprobuild.adapters.oci.tarstream import Overrides
    from reprobuild.core.tree import Tree

    store = Zeros(tmp_path)
    tree = Tree.of({b"big": File(Digest("0" * 64), Zeros.SIZE)})
    store.trees[tree.digest] = tree
    tracemalloc.start()
    document, _ = pack(store, tree.digest, Overrides(1), "gzip", 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert document["uncompressed_size"] == Zeros.SIZE + 512 + 1024
    assert peak < Zeros.SIZE // 4


def test_a_file_of_whole_blocks_is_not_the_end(store: MemoryStore) -> None:
    files: dict[str, Given] = {"a": bytes(1024), "b": b"after"}
    for compression in ("none", "gzip"):
        _, plain = opened(store, layer(store, files, compression=compression))
        assert set(entries(plain)) == {"a", "b"}
