"""Bundles made to deceive or to exhaust: found, named, and nothing of them is seen."""

from __future__ import annotations

import importlib.util
import itertools
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reprobuild.adapters.bundle.reader import BundleReader
from reprobuild.adapters.bundle.writer import compress
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.bundle import format as layout
from reprobuild.core.bundle.format import Entry, Piece, Trailer
from reprobuild.core.bundle.signing import BUNDLE, parse_signatures, trusted_by
from reprobuild.core.digest import Digest
from reprobuild.core.tree import Directory, Symlink, Tree
from reprobuild.errors import ReprobuildError
from support.bundles import (
    Release,
    TestSigner,
    TestTrust,
    bring,
    forged,
    make_release,
    write,
)

BUNDLE_CODES = {"E-BUNDLE", "E-BUNDLE-LIMIT", "E-BUNDLE-INCOMPLETE", "E-BUNDLE-UNTRUSTED"}
INDEX_CODES = BUNDLE_CODES | {"E-BUNDLE-BASE", "E-DISK-SPACE", "E-STORE-DAMAGED", ""}
SIGNER = TestSigner()


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    made = make_release(tmp_path_factory.mktemp("release") / "store")
    yield made
    made.store.close()


@pytest.fixture(scope="module")
def whole(release: Release, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A signed bundle of several pieces."""
    path = tmp_path_factory.mktemp("whole") / "b"
    piece, layout.PIECE = layout.PIECE, 2000
    try:
        release.export(path, signer=SIGNER)
    finally:
        layout.PIECE = piece
    return path.read_bytes()


@pytest.fixture(scope="module")
def original(release: Release, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A signed bundle of one piece."""
    path = tmp_path_factory.mktemp("original") / "b"
    release.export(path, signer=SIGNER)
    return path.read_bytes()


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "PIECE", 2000)


def attempt(data: bytes, place: Path) -> str:
    """The code with which an import of these bytes fails, empty when it does not.

    Nothing may be left that is seen or damaged, and nothing beside the store.
    """
    path = place / "bundle"
    path.write_bytes(data)
    store_path = place / "store"
    with LocalStore.open(store_path, create=True) as store:
        before = store.roots()
        try:
            with BundleReader(path) as bundle:
                signatures = parse_signatures(bundle.signatures())
                trust = TestTrust(SIGNER.key)
                if trusted_by(trust, signatures, BUNDLE, bundle.digest) is None:
                    raise ReprobuildError("E-BUNDLE-UNTRUSTED", "not signed")
            bring(path, store)
        except ReprobuildError as error:
            assert store.roots() == before, error
            assert {p.name for p in place.iterdir()} == {"bundle", "store"}
            return error.code
    return ""


def test_the_original_passes(whole: bytes, tmp_path: Path, small_pieces: None) -> None:
    assert attempt(whole, tmp_path) == ""


def test_every_flipped_byte_is_found(whole: bytes, tmp_path: Path, small_pieces: None) -> None:
    for position in range(0, len(whole), max(1, len(whole) // 150)):
        data = bytearray(whole)
        data[position] ^= 0x20
        assert attempt(bytes(data), tmp_path) in BUNDLE_CODES, position


def test_every_cut_is_found(whole: bytes, tmp_path: Path, small_pieces: None) -> None:
    for length in (0, 1, 22, layout.TRAILER_SIZE, len(whole) // 2, len(whole) - 1):
        assert attempt(whole[:length], tmp_path) in BUNDLE_CODES, length
    assert attempt(whole + b"\0", tmp_path) in BUNDLE_CODES
    assert attempt(b"\0" + whole, tmp_path) in BUNDLE_CODES


def test_pieces_that_change_places_are_found(
    whole: bytes, tmp_path: Path, small_pieces: None
) -> None:
    (tmp_path / "b").write_bytes(whole)
    with BundleReader(tmp_path / "b") as bundle:
        sizes = [p.size for p in bundle.index.pieces]
        start = bundle.trailer.head
    (tmp_path / "b").unlink()
    assert len(sizes) > 4
    cuts = [start]
    for size in sizes:
        cuts.append(cuts[-1] + size)
    pieces = [whole[a:b] for a, b in itertools.pairwise(cuts)]
    for order in ([1, 0, *range(2, len(pieces))], [0, 0, *range(2, len(pieces))]):
        data = whole[:start] + b"".join(pieces[n] for n in order) + whole[cuts[-1] :]
        assert attempt(data, tmp_path) in BUNDLE_CODES
    data = whole[:start] + b"".join([*pieces, pieces[0]]) + whole[cuts[-1] :]
    assert attempt(data, tmp_path) in BUNDLE_CODES
    data = whole[:start] + b"".join(pieces[1:]) + whole[cuts[-1] :]
    assert attempt(data, tmp_path) in BUNDLE_CODES


def test_another_s_signature_does_not_do(
    release: Release, tmp_path: Path, whole: bytes, small_pieces: None
) -> None:
    release.export(tmp_path / "b", signer=TestSigner(9))
    data = (tmp_path / "b").read_bytes()
    (tmp_path / "b").unlink()
    assert attempt(data, tmp_path) == "E-BUNDLE-UNTRUSTED"
    release.export(tmp_path / "b", sources=False, signer=SIGNER)
    with BundleReader(tmp_path / "b") as bundle:
        stolen = bundle._signatures
    (tmp_path / "b").unlink()
    assert attempt(_with_signatures(data, stolen), tmp_path) == "E-BUNDLE-UNTRUSTED"


def _with_signatures(data: bytes, signatures: bytes) -> bytes:
    trailer = Trailer.decode(data[-layout.TRAILER_SIZE :], len(data))
    start = trailer.head + trailer.pieces + trailer.index
    rest = data[start + trailer.signatures : -layout.TRAILER_SIZE]
    changed = replace(trailer, signatures=len(signatures))
    return data[:start] + signatures + rest + changed.encode()


# -- forged content, in bundles that are consistent in themselves -----------------------------


def test_content_under_another_s_name_is_found(release: Release, tmp_path: Path) -> None:
    shipment = release.plan()
    kinds = set()
    for entry in shipment.entries:
        if not entry.size:
            continue
        with shipment.open(entry) as source:
            data = bytearray(source.read())
        data[-1] ^= 1
        kinds.add(entry.kind)
        write(tmp_path / "b", shipment, open_=forged(entry, bytes(data), shipment), signer=SIGNER)
        data_ = (tmp_path / "b").read_bytes()
        (tmp_path / "b").unlink()
        assert attempt(data_, tmp_path) in BUNDLE_CODES, entry
    assert kinds == set(layout.ORDER)


def test_a_tree_cannot_lead_outside(release: Release, tmp_path: Path) -> None:
    shipment = release.plan()
    for name in (b"..", b".", b"a/b", b"", b"x" * 300):
        node = b"d" + name + b"\0" + release.trees[0].raw
        digest = _tree_digest(node)
        entry = Entry(layout.TREE, digest, len(node))
        entries = _insert(shipment.entries, entry)
        write(
            tmp_path / "b",
            shipment,
            entries=entries,
            open_=forged(entry, node, shipment),
            signer=SIGNER,
        )
        data = (tmp_path / "b").read_bytes()
        (tmp_path / "b").unlink()
        assert attempt(data, tmp_path) == "E-BUNDLE", name


def test_a_link_in_a_project_is_written_as_a_link(tmp_path: Path) -> None:
    from reprobuild.adapters.bundle.projecttree import write_project

    with LocalStore.open(tmp_path / "store", create=True) as store:
        inner = Tree.of({b"passwd": Symlink(b"/etc/passwd")})
        outer = Tree.of({b"a": Symlink(b"/tmp"), b"b": Directory(inner.digest)})
        store.add_trees({inner.digest: inner, outer.digest: outer})
        write_project(store, outer.digest, tmp_path / "project")
        assert os.readlink(tmp_path / "project/a") == "/tmp"
        assert os.readlink(tmp_path / "project/b/passwd") == "/etc/passwd"
        other = Tree.of({b"a": Directory(inner.digest)})
        store.add_trees({other.digest: other})
        with pytest.raises(ReprobuildError) as caught:  # never through the link that is there
            write_project(store, other.digest, tmp_path / "project")
        assert caught.value.code == "E-USAGE"


def test_a_node_that_contains_itself_ends(release: Release, tmp_path: Path) -> None:
    """No such node can exist; one that claims to is found by its digest."""
    shipment = release.plan()
    victim = next(e for e in shipment.entries if e.kind == layout.TREE)
    node = b"dself\0" + victim.digest.raw
    entry = replace(victim, size=len(node))
    entries = [entry if e == victim else e for e in shipment.entries]
    write(
        tmp_path / "b",
        shipment,
        entries=entries,
        open_=forged(entry, node, shipment),
        signer=SIGNER,
    )
    data = (tmp_path / "b").read_bytes()
    (tmp_path / "b").unlink()
    assert attempt(data, tmp_path) == "E-BUNDLE"


# -- exhaustion -------------------------------------------------------------------------------


def _index_bundle(raw: bytes, pieces: bytes = b"", *, index_size: int | None = None) -> bytes:
    from reprobuild.adapters.bundle.head import make_boot

    boot, packed = make_boot(b""), compress(raw)
    trailer = Trailer(
        0,
        len(pieces),
        len(packed),
        len(raw) if index_size is None else index_size,
        2,
        len(boot),
        layout.index_digest(raw),
    )
    return pieces + packed + b"[]" + boot + trailer.encode()


def test_sizes_that_nobody_has_are_refused(tmp_path: Path) -> None:
    one = layout.pack_objects([Entry(layout.BLOB, Digest.of(b""), 2**61)])
    raw = layout.encode_index({}, [], one)
    assert attempt(_index_bundle(raw), tmp_path) in BUNDLE_CODES
    many = layout.pack_objects(
        Entry(layout.BLOB, Digest.of(bytes([n])), 2**62 - 1) for n in range(9)
    )
    assert attempt(_index_bundle(layout.encode_index({}, [], many)), tmp_path) == "E-BUNDLE-LIMIT"
    huge = layout.encode_index({}, [Piece(1, Digest.of(b""))] * 70_000, b"")
    assert attempt(_index_bundle(huge), tmp_path) in BUNDLE_CODES
    assert attempt(_index_bundle(b"", index_size=2**40), tmp_path) == "E-BUNDLE-LIMIT"
    assert attempt(_index_bundle(b"", index_size=2**28), tmp_path) == "E-BUNDLE"


@pytest.mark.parametrize("kind", ["fifo", "device", "directory"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.bundle"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(ReprobuildError) as caught:
        BundleReader(path)
    assert caught.value.code == "E-USAGE"
    assert "regular file" in caught.value.message or kind == "directory"


def test_a_piece_that_grows_without_end_stops(release: Release, tmp_path: Path) -> None:
    bomb = compress(bytes(64 * 2**20))
    blob = Entry(layout.BLOB, Digest.of(b"x"), 1000)
    raw = layout.encode_index({}, [Piece(len(bomb), Digest.of(bomb))], layout.pack_objects([blob]))
    path = tmp_path / "b"
    path.write_bytes(_index_bundle(raw, bomb).replace(b"", b""))
    with pytest.raises(ReprobuildError) as caught, BundleReader(path) as bundle:
        bundle.piece(0)
    assert caught.value.code == "E-BUNDLE"


def test_the_disk_is_asked_first(
    release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release.export(tmp_path / "b")
    with LocalStore.open(tmp_path / "store", create=True) as store:
        monkeypatch.setattr(store, "free_bytes", lambda: 1000)
        with pytest.raises(ReprobuildError) as caught:
            bring(tmp_path / "b", store)
        assert caught.value.code == "E-DISK-SPACE"
        assert store.info().kinds["blobs"].count == 0


# -- fuzzing ----------------------------------------------------------------------------------


def _mutate(data: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    out = bytearray(data)
    for position, length, new in changes:
        at = position % (len(out) + 1)
        out[at : at + length] = new
    return bytes(out)


CHANGES = st.lists(
    st.tuples(
        st.integers(0, 2**20), st.integers(0, 40), st.binary(max_size=40) | st.just(bytes(8))
    ),
    min_size=1,
    max_size=4,
)


def _fuzz(whole: bytes, place: Path, changes: list[tuple[int, int, bytes]]) -> None:
    data = _mutate(whole, changes)
    if data == whole:
        return
    assert attempt(data, place) in BUNDLE_CODES


def _fuzz_index(data: bytes, place: Path, changes: list[tuple[int, int, bytes]]) -> None:
    raw = index_of(data)
    changed = _mutate(raw, changes)
    if changed != raw:
        code = attempt(with_index(data, changed), place)
        assert code in INDEX_CODES, code


def index_of(data: bytes) -> bytes:
    """The unpacked index of a bundle."""
    import zstandard

    trailer = Trailer.decode(data[-layout.TRAILER_SIZE :], len(data))
    start = trailer.head + trailer.pieces
    return zstandard.ZstdDecompressor().decompress(data[start : start + trailer.index])


def with_index(data: bytes, changed: bytes) -> bytes:
    """A bundle with another index, and everything around it made to agree, signature included."""
    from reprobuild.adapters.bundle.head import make_boot
    from reprobuild.core.bundle.signing import sign
    from reprobuild.core.encoding import encode

    trailer = Trailer.decode(data[-layout.TRAILER_SIZE :], len(data))
    digest = layout.index_digest(changed)
    packed = compress(changed)
    signatures = encode({"proofs": [], "signatures": sign(SIGNER, BUNDLE, digest)})
    new = replace(
        trailer,
        index=len(packed),
        index_size=len(changed),
        signatures=len(signatures),
        digest=digest,
    )
    start = trailer.head + trailer.pieces
    return data[:start] + packed + signatures + make_boot(b"") + new.encode()


FUZZ = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
# In slices on a shared machine: REPROBUILD_FUZZ=10000 pytest --hypothesis-seed=1, 2, …
MANY = settings(FUZZ, max_examples=int(os.environ.get("REPROBUILD_FUZZ", "50000")), database=None)


@FUZZ
@given(changes=CHANGES)
def test_mutated_bundles(
    whole: bytes, tmp_path: Path, small_pieces: None, changes: list[tuple[int, int, bytes]]
) -> None:
    _fuzz(whole, tmp_path, changes)


@FUZZ
@given(changes=CHANGES)
def test_mutated_indexes(
    original: bytes, tmp_path: Path, changes: list[tuple[int, int, bytes]]
) -> None:
    _fuzz_index(original, tmp_path, changes)


@pytest.mark.slow
@MANY
@given(changes=CHANGES)
def test_a_great_many_mutated_bundles(
    whole: bytes, tmp_path: Path, small_pieces: None, changes: list[tuple[int, int, bytes]]
) -> None:
    _fuzz(whole, tmp_path, changes)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2 * 2**20  # KiB


@pytest.mark.slow
@MANY
@given(changes=CHANGES)
def test_a_great_many_mutated_indexes(
    original: bytes, tmp_path: Path, changes: list[tuple[int, int, bytes]]
) -> None:
    _fuzz_index(original, tmp_path, changes)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2 * 2**20  # KiB


def _tree_digest(node: bytes) -> Digest:
    from reprobuild.core.digest import tagged
    from reprobuild.core.tree import DOMAIN

    return tagged(DOMAIN, node)


def _insert(entries: tuple[Entry, ...], entry: Entry) -> list[Entry]:
    place = next(n for n, e in enumerate(entries) if e.kind == layout.DRV)
    return [*entries[:place], entry, *entries[place:]]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["index", "file"])
def test_mutations_that_coverage_leads(what: str, tmp_path: Path) -> None:
    """libFuzzer finds its way into the reader; see fuzz_bundle.py."""
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed (pip install atheris)")
    program = Path(__file__).with_name("fuzz_bundle.py")
    runs = os.environ.get("REPROBUILD_FUZZ", "50000")
    words = [
        sys.executable,
        str(program),
        what,
        str(tmp_path),
        f"-runs={runs}",
        "-rss_limit_mb=2048",
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"Done {runs} runs" in done.stderr
