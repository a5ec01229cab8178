"""Long files are read in pieces, some by other processes: same tree, nothing left open."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from reprobuild.adapters.store import taking
from reprobuild.adapters.store.shelf import IN_MEMORY
from reprobuild.adapters.store.store import LocalStore
from reprobuild.adapters.store.taking import LONG, LongFile
from reprobuild.adapters.store.treedigest import tree_digest
from reprobuild.errors import ReprobuildError

SIZES = (0, 1, 65535, 65536, LONG - 1, LONG, LONG + 1, 300_000)


def descriptors() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


def fill(directory: Path, count: int) -> None:
    directory.mkdir()
    for number in range(count):
        size = SIZES[number % len(SIZES)]
        (directory / f"f{number}").write_bytes(bytes([number % 251]) * size)


@pytest.mark.parametrize("count", [len(SIZES), 600])
@pytest.mark.parametrize("worth", [0, 2**62], ids=["shared", "alone"])
def test_the_tree_is_the_same_by_pieces_and_at_once(
    count: int, worth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = tmp_path / "content"
    fill(content, count)
    monkeypatch.setattr(taking, "WORTH", worth)
    with LocalStore.open(tmp_path / "store", create=True) as store:
        tree = store.capture(content)
        store.barrier()
        assert store.verify().problems == []
        path = store.materialise(tree)
        for file in content.iterdir():
            assert (path / file.name).read_bytes() == file.read_bytes()
    monkeypatch.setattr(taking, "LONG", 2**62)
    assert tree_digest(content) == tree


def test_no_thread_and_no_descriptor_is_left(tmp_path: Path) -> None:
    fill(tmp_path / "content", 40)
    with LocalStore.open(tmp_path / "store", create=True) as store:
        store.capture(tmp_path / "content")
        before = descriptors(), threading.active_count()
        store.capture(tmp_path / "content")
        assert (descriptors(), threading.active_count()) == before


@pytest.mark.parametrize("size", [LONG, IN_MEMORY + 1])
def test_a_file_that_changes_is_an_error_that_leaves_nothing_open(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = tmp_path / "content"
    fill(content, 200)
    (content / "changing").write_bytes(bytes(size))

    def check(self: LongFile, read: int) -> None:
        if self._name == b"changing":
            with (content / "changing").open("ab") as file:
                file.write(b"more")
        original(self, read)

    original = LongFile.check
    monkeypatch.setattr(LongFile, "check", check)
    with LocalStore.open(tmp_path / "store", create=True) as store:
        before = descriptors()
        with pytest.raises(ReprobuildError) as caught:
            store.capture(content)
        assert caught.value.code == "E-OUTPUT-CHANGED"
        assert caught.value.facts["path"] == str(content / "changing")
        del caught
        assert len(descriptors()) <= len(before) + 2  # the store's own directory and session
        store.barrier()
        assert store.verify().problems == []


def test_a_directory_of_many_long_files_needs_few_descriptors(tmp_path: Path) -> None:
    import resource

    content = tmp_path / "content"
    content.mkdir()
    for number in range(300):
        (content / f"f{number}").write_bytes(number.to_bytes(4, "big") * (LONG // 4))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(descriptors()) + 100, hard))
    try:
        tree_digest(content)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
