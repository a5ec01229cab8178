"""The layer's tar: its bytes are a format, and every reader must agree about what is in it."""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.memory_store import MemoryStore
from reprobuild.adapters.oci.tarstream import PIECE, Overrides, tar_pieces
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core import filelist
from reprobuild.core.imagetar import (
    BLOCK,
    DIRECTORY,
    END,
    REGULAR,
    SYMLINK,
    Attributes,
    Headers,
    header,
    pad,
)
from reprobuild.core.tree import File, Tree
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore
from support.trees import Given, make

PLAIN = Attributes(0o644, mtime=1)


def read_one(data: bytes) -> tarfile.TarInfo:
    with tarfile.open(
        fileobj=io.BytesIO(data + END), encoding="utf-8", errors="surrogateescape"
    ) as archive:
        info = archive.next()
        assert info is not None
        return info


def test_the_plain_header_to_the_byte() -> None:
    got = header(REGULAR, b"a/b", PLAIN, size=5)
    expected = (
        b"a/b".ljust(100, b"\0")
        + b"0000644\0"
        + b"0000000\0" * 2
        + b"00000000005\0"
        + b"00000000001\0"
        + b"006012\0 "
        + b"0"
        + bytes(100)
        + b"ustar\x0000"
        + bytes(64)
        + b"0000000\0" * 2
        + bytes(155 + 12)
    )
    assert len(got) == BLOCK
    assert got[:148] == expected[:148]
    assert got[156:] == expected[156:]
    checksum = sum(got[:148]) + 8 * 32 + sum(got[156:])
    assert got[148:156] == b"%06o\0 " % checksum


def test_directories_end_with_a_slash() -> None:
    assert header(DIRECTORY, b"d", PLAIN)[:3] == b"d/\0"


@pytest.mark.parametrize("length", [99, 100, 101, 155, 255, 1000])
def test_long_names(length: int) -> None:
    path = b"/".join([b"n" * 50] * 20)[:length].rstrip(b"/")
    for kind in (REGULAR, DIRECTORY, SYMLINK):
        info = read_one(header(kind, path, PLAIN, target=path if kind == SYMLINK else b""))
        assert info.name.encode() == path
        if kind == SYMLINK:
            assert info.linkname.encode() == path


def test_an_extended_header_only_where_one_is_needed() -> None:
    assert len(header(REGULAR, b"n" * 100, PLAIN)) == BLOCK
    assert len(header(DIRECTORY, b"n" * 99, PLAIN)) == BLOCK
    assert len(header(DIRECTORY, b"n" * 100, PLAIN)) == 3 * BLOCK
    assert len(header(REGULAR, "ä".encode(), PLAIN)) == 3 * BLOCK
    assert len(header(REGULAR, b"n", PLAIN, size=8**11 - 1)) == BLOCK
    assert len(header(REGULAR, b"n", PLAIN, size=8**11)) == 3 * BLOCK


def test_pax_lengths_around_the_turn_of_digits() -> None:
    for length in range(80, 1010):
        data = header(REGULAR, b"d/" + b"n" * length, PLAIN)
        if len(data) == BLOCK:
            continue
        size = int(data[124:135], 8)
        record = data[BLOCK : BLOCK + size]
        assert int(record.split(b" ")[0]) == len(record)


def test_large_numbers() -> None:
    attributes = Attributes(0o755, uid=3_000_000, gid=4_000_000, mtime=2**40)
    info = read_one(header(REGULAR, b"n", attributes, size=2**40))
    assert (info.uid, info.gid, info.mtime, info.size) == (3_000_000, 4_000_000, 2**40, 2**40)


def test_extended_attributes() -> None:
    attributes = Attributes(
        0o755, xattrs={"security.capability": b"\1\0\0\2\xff=\n", "user.a": b""}
    )
    info = read_one(header(REGULAR, b"n", attributes))
    got = info.pax_headers["SCHILY.xattr.security.capability"]
    assert got.encode("utf-8", "surrogateescape") == b"\1\0\0\2\xff=\n"
    assert info.pax_headers["SCHILY.xattr.user.a"] == ""


NAMES = st.binary(min_size=1, max_size=120).filter(
    lambda n: n not in (b".", b"..") and not set(n) & {0, 47}
)
VALUES = st.one_of(
    st.binary(max_size=1500),
    st.tuples(st.binary(max_size=10), st.just(True)),
    st.none(),
    st.text(alphabet="ab/.", min_size=1, max_size=150),
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, max_size=4), max_size=4))
def test_another_reader_finds_the_same_tree(
    tmp_path_factory: pytest.TempPathFactory, found: dict[bytes, dict[bytes, Given]]
) -> None:
    store = MemoryStore(tmp_path_factory.mktemp("store"))
    files: dict[str | bytes, Given] = {
        b"/".join((top, name)): value
        for top, below in found.items()
        for name, value in below.items()
    }
    tree = make(store, files)
    data = b"".join(tar_pieces(store, tree, Overrides(1)))
    assert len(data) % BLOCK == 0
    got: dict[bytes, Given] = {}
    order: list[bytes] = []
    with tarfile.open(
        fileobj=io.BytesIO(data), encoding="utf-8", errors="surrogateescape"
    ) as archive:
        for info in archive:
            name = info.name.encode("utf-8", "surrogateescape")
            order.append(name)
            assert (info.uid, info.gid, info.uname, info.gname, info.mtime) == (0, 0, "", "", 1)
            if info.isreg():
                source = archive.extractfile(info)
                assert source is not None
                content = source.read()
                got[name] = (content, True) if info.mode == 0o755 else content
            elif info.issym():
                got[name] = info.linkname
            else:
                assert info.isdir() and info.mode == 0o755
    assert {k: v for k, v in files.items() if v is not None} == got
    assert order == sorted(order, key=lambda n: n.split(b"/"))


@given(
    st.sampled_from([REGULAR, DIRECTORY]),
    st.one_of(NAMES, st.integers(97, 102).map(lambda n: b"n" * n)),
    st.one_of(st.integers(0, 9999), st.sampled_from([8**11 - 1, 8**11, 2**40])),
    st.sampled_from(
        [
            PLAIN,
            Attributes(0o4755, 1, 2, 3),
            Attributes(0o644, 8**7, 8**7 - 1, 8**11),
            Attributes(0o644, xattrs={"user.a": b"%b"}),
        ]
    ),
)
def test_headers_that_are_laid_out_once(
    kind: bytes, path: bytes, size: int, attributes: Attributes
) -> None:
    end = b"/" if kind == DIRECTORY else b""
    got = Headers(kind, attributes).of(path + end, size)
    assert got == header(kind, path, attributes, size=size)


SAMPLE: dict[str, Given] = {
    "bin": "usr/bin",
    "etc/empty": None,
    "etc/passwd": b"root:x:0:0::/root:/bin/sh\n",
    "usr/bin/tool": (b"#!/bin/sh\n", True),
    "usr/share/" + "long-name-" * 12: b"long",
    "usr/share/ümlaut": "ziel/" + "ä" * 60,
    "zero": b"",
}


def sample(store: MemoryStore) -> bytes:
    tree = make(store, SAMPLE)
    capability = {"security.capability": bytes(20)}
    special = {
        b"usr/bin/tool": Attributes(0o4755, 0, 42, 7, capability),
        b"etc/empty": Attributes(0o1777, 5, 6, 7),
    }
    return b"".join(tar_pieces(store, tree, Overrides(1_700_000_000, special)))


def test_golden_tar(tmp_path: Path) -> None:
    # Moves only together with the version of the `layer` built-in.
    data = sample(MemoryStore(tmp_path / "store"))
    assert (
        hashlib.sha256(data).hexdigest()
        == "7deb52f191a22bfdb26e2a030e51c8efcf2ce16f5112d1e2f25037532cf43c05"
    )


@pytest.mark.parametrize("size", [3, 2**16, 2**16 + 1, 3 * PIECE + 5])
@pytest.mark.parametrize("stated", [-1, 1])
def test_a_tree_that_lies_about_a_size(tmp_path: Path, size: int, stated: int) -> None:
    """Whatever its blob holds: a header with another size would make a tar of something else."""
    with LocalStore.open(tmp_path / "store", create=True) as store:
        file = store.add_blob(io.BytesIO(bytes(range(251)) * (size // 251) + bytes(size % 251)))
        tree = Tree.of({b"a": File(file.digest, file.size + stated)})
        stack = SimpleNamespace(
            tree=lambda _: tree, open_blob=store.open_blob, read_blob=store.read_blob
        )
        with pytest.raises(ReprobuildError) as error:
            list(tar_pieces(cast(ContentStore, stack), tree.digest, Overrides(1)))
        assert (error.value.code, error.value.exit_status) == ("E-STORE-DAMAGED", 7)


@pytest.mark.parametrize("size", [3, 2**16, 2**16 + 1, 3 * PIECE + 5])
def test_damage_ends_it(tmp_path: Path, size: int) -> None:
    """One bit, in any place, of a file of any size."""
    with LocalStore.open(tmp_path / "store", create=True) as store:
        file = store.add_blob(io.BytesIO(bytes(size)))
        tree = Tree.of({b"a": file})
        store.add_trees({tree.digest: tree})
        store.barrier()
        assert len(b"".join(tar_pieces(store, tree.digest, Overrides(1)))) % BLOCK == 0
        (path,) = (tmp_path / "store/blobs").glob("*/*")
        path.chmod(0o644)
        with path.open("r+b") as blob:
            blob.seek(size - 1)
            blob.write(b"x")
        with pytest.raises(ReprobuildError) as error:
            list(tar_pieces(store, tree.digest, Overrides(1)))
        assert error.value.code == "E-STORE-DAMAGED"


def test_pieces_have_one_size(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path / "store")
    for size in (PIECE - 512, PIECE, 3 * PIECE - 700, 5):
        tree = make(store, {"a": bytes(size), "b/c": b"x" * 70_000})
        lines: list[str] = []
        pieces = list(tar_pieces(store, tree, Overrides(1), lines))
        assert {len(p) for p in pieces[:-1]} <= {PIECE}
        assert 0 < len(pieces[-1]) <= PIECE
        listed = [entry.path for entry in filelist.parse("".join(lines).encode())]
        assert listed == [b"a", b"b", b"b/c"]


def test_many_small_files_make_pieces_of_one_size(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path / "store")
    sizes = {f"d{n % 7}/f{n:04}": (n * 37) % 4099 + (n == 900) * 70_000 for n in range(1500)}
    tree = make(store, {name: bytes([n % 251]) * n for name, n in sizes.items()})
    pieces = list(tar_pieces(store, tree, Overrides(1)))
    assert [len(p) for p in pieces[:-1]] == [PIECE] * (len(pieces) - 1)
    assert len(pieces) > 4
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
        files = {info.name: archive.extractfile(info) for info in archive if info.isreg()}
        read = {name: file.read() for name, file in files.items() if file is not None}
    assert read == {name: bytes([n % 251]) * n for name, n in sizes.items()}


@pytest.mark.skipif(not shutil.which("tar"), reason="GNU tar is not installed")
def test_gnu_tar_extracts_it(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path / "store")
    (tmp_path / "layer.tar").write_bytes(sample(store))
    out = tmp_path / "out"
    out.mkdir()
    run = subprocess.run(
        ["tar", "-x", "-p", "--no-same-owner", "-f", tmp_path / "layer.tar", "-C", out],
        capture_output=True,
        text=True,
        env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert store.capture(out) == make(store, SAMPLE)
    assert (out / "etc/empty").stat().st_mode & 0o7777 == 0o1777
    assert (out / "etc/passwd").stat().st_mode & 0o7777 == 0o644
    assert (out / "etc/passwd").stat().st_mtime == 1_700_000_000


def test_padding() -> None:
    assert pad(b"") == b""
    assert len(pad(b"x")) == len(pad(bytes(512))) == BLOCK
