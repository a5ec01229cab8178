from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.builders import builtins
from reprobuild.core.encoding import Value
from reprobuild.errors import ReprobuildError
from support.archives import PACKERS, tar, tar_entry, zipped
from support.trees import Given, listing, make

REG, LNK, DIR = 0o100000, 0o120000, 0o040000


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "store")


def unpack(store: MemoryStore, *archives: bytes, **params: Value) -> Mapping[str, Given]:
    inputs = {f"archive-{n}": make(store, {f"{n}.bin": data}) for n, data in enumerate(archives)}
    return listing(store, builtins()["unpack"].build(params, inputs, store)["out"])


@pytest.mark.parametrize("packed", sorted(PACKERS))
def test_tar_in_every_packing(store: MemoryStore, packed: str) -> None:
    data = tar(
        [
            tar_entry("./", kind=tarfile.DIRTYPE),
            tar_entry("./d/", kind=tarfile.DIRTYPE, mode=0o700),
            tar_entry("./d/run", b"#!", mode=0o4755),
            tar_entry("./d/text", b"x" * 70_000, mode=0o664),
            tar_entry("./empty/", kind=tarfile.DIRTYPE),
            tar_entry("./link", kind=tarfile.SYMTYPE, link="/etc/passwd"),
            tar_entry("./hard", kind=tarfile.LNKTYPE, link="./d/run"),
        ],
        packed,
    )
    assert unpack(store, data) == {
        "d/run": (b"#!", True),
        "d/text": b"x" * 70_000,
        "empty": None,
        "link": "/etc/passwd",
        "hard": (b"#!", True),
    }


def test_zip(store: MemoryStore) -> None:
    data = zipped(
        [
            ("d/", b"", DIR | 0o755),
            ("d/run", b"#!", REG | 0o755),
            ("d/plain", b"text", REG | 0o644),
            ("d/modeless", b"text", 0),
            ("d/ä", b"umlaut", REG | 0o644),
            ("link", b"d/run", LNK | 0o777),
        ]
    )
    assert unpack(store, data) == {
        "d/run": (b"#!", True),
        "d/plain": b"text",
        "d/modeless": b"text",
        "d/ä": b"umlaut",
        "link": "d/run",
    }


def test_names_are_bytes(store: MemoryStore) -> None:
    out = io.BytesIO()
    with tarfile.open(
        fileobj=out, mode="w", format=tarfile.GNU_FORMAT, encoding="latin-1"
    ) as archive:
        archive.addfile(tarfile.TarInfo("n\xff"))
        archive.addfile(tarfile.TarInfo("l" * 200 + "\xff"))
    assert unpack(store, out.getvalue()) == {"n\\xff": b"", "l" * 200 + "\\xff": b""}


def test_names_that_differ_in_case_are_two(store: MemoryStore) -> None:
    assert unpack(store, zipped([("A", b"1", 0), ("a", b"2", 0)])) == {"A": b"1", "a": b"2"}


def test_strip_include_exclude_prefix(store: MemoryStore) -> None:
    data = tar(
        [
            tar_entry("top.txt", b"gone: nothing is left of its name"),
            tar_entry("pkg-1/a.py", b"a"),
            tar_entry("pkg-1/a.pyc", b"c"),
            tar_entry("pkg-1/sub/b.py", b"b"),
            tar_entry("pkg-1/other/c", b"c"),
        ]
    )
    got = unpack(
        store, data, strip=1, include=["*.py*", "sub"], exclude=["**/*.pyc"], prefix="opt/./x/"
    )
    assert got == {"opt/x/a.py": b"a", "opt/x/sub/b.py": b"b"}


def test_a_hard_link_to_an_entry_that_is_left_out_keeps_its_content(store: MemoryStore) -> None:
    data = tar(
        [
            tar_entry("doc/first", b"content", mode=0o755),
            tar_entry("bin/second", kind=tarfile.LNKTYPE, link="doc/first"),
            tar_entry("bin/third", b"3"),
        ],
        "gz",
    )
    assert unpack(store, data, exclude=["doc"]) == {
        "bin/second": (b"content", True),
        "bin/third": b"3",
    }


def test_gnu_sparse_files(store: MemoryStore, tmp_path: Path) -> None:
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as out:
        out.seek(300_000)
        out.write(b"end")
    for form in ("gnu", "posix"):
        data = subprocess.run(
            ["tar", "-c", "-S", f"--format={form}", "-C", str(tmp_path), "sparse"],
            check=True,
            capture_output=True,
        ).stdout
        assert len(data) < 100_000  # it is sparse in the archive
        assert unpack(store, data) == {"sparse": bytes(300_000) + b"end"}


def test_several_archives_merge(store: MemoryStore) -> None:
    one = tar([tar_entry("d/a", b"1"), tar_entry("same", b"s")])
    two = zipped([("d/b", b"2", 0), ("same", b"s", 0)])
    assert unpack(store, one, two) == {"d/a": b"1", "d/b": b"2", "same": b"s"}


def test_several_archives_must_not_disagree(store: MemoryStore) -> None:
    with pytest.raises(ReprobuildError) as error:
        unpack(store, tar([tar_entry("d/a", b"1")]), zipped([("d/a", b"2", 0)]))
    assert error.value.code == "E-TREE-CONFLICT"
    assert error.value.facts == {"path": "d/a", "first": "0.bin", "second": "1.bin"}


@pytest.mark.parametrize("files", [{}, {"a": b"", "b": b""}, {"a": "link"}, {"d/a": b""}], ids=str)
def test_an_input_that_is_no_single_file(store: MemoryStore, files: dict[str, Given]) -> None:
    with pytest.raises(ReprobuildError) as error:
        builtins()["unpack"].build({}, {"archive": make(store, files)}, store)
    assert error.value.code == "E-PARAMS"


def test_unknown_inputs_are_refused(store: MemoryStore) -> None:
    tree = make(store, {"a": tar([])})
    for inputs in ({}, {"archive": tree, "extra": tree}):
        with pytest.raises(ReprobuildError) as error:
            builtins()["unpack"].build({}, inputs, store)
        assert error.value.code == "E-PARAMS"


def test_building_twice_gives_one_tree(store: MemoryStore) -> None:
    tree = make(store, {"a": tar([tar_entry("b", b"1"), tar_entry("a", b"2")])})
    other = make(store, {"a": tar([tar_entry("a", b"2", mode=0o600), tar_entry("b", b"1")])})
    results = {
        builtins()["unpack"].build(None, {"archive": t}, store)["out"] for t in (tree, other)
    }
    assert len(results) == 1


def test_hard_links_to_hard_links_that_are_left_out(store: MemoryStore) -> None:
    data = tar(
        [
            tar_entry("doc/first", b"content"),
            tar_entry("doc/second", kind=tarfile.LNKTYPE, link="doc/first"),
            tar_entry("bin/third", kind=tarfile.LNKTYPE, link="doc/second"),
        ]
    )
    assert unpack(store, data, exclude=["doc"]) == {"bin/third": b"content"}
