"""What was read once is not read again, and what was written to since is."""

from __future__ import annotations

import errno
import io
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reprobuild.adapters.store import crew, durable, hashing, seen, shelf, taking
from reprobuild.adapters.store.process import Process
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.digest import Digest
from reprobuild.errors import ReprobuildError
from support.stores import blob_path, flip, keep, recorded, refused

LONG = bytes(range(256)) * 400


@pytest.fixture(autouse=True)
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a file of 100 KB is long."""
    monkeypatch.setattr("reprobuild.adapters.store.capture.IN_MEMORY", 2**16)


@pytest.fixture
def content(tmp_path: Path) -> Path:
    """Some twenty files, an executable and a long one among them."""
    top = tmp_path / "content"
    (top / "below").mkdir(parents=True)
    for number in range(20):
        (top / f"f{number}").write_bytes(b"%d\n" % number * number)
    (top / "below" / "run").write_bytes(b"#!/bin/sh\n")
    (top / "below" / "run").chmod(0o755)
    (top / "below" / "long").write_bytes(LONG)
    return top


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The blobs that were read again in this process."""
    paths: list[str] = []
    compare, hashed = shelf._is_content, hashing.content_problem

    def _is_content(path: str, data: Any) -> bool:
        paths.append(path)
        return compare(path, data)

    def content_problem(path: str, hex_digest: str, size: int = -1) -> str:
        paths.append(path)
        return hashed(path, hex_digest, size)

    monkeypatch.setattr(shelf, "_is_content", _is_content)
    monkeypatch.setattr(shelf, "content_problem", content_problem)
    yield paths


def added(home: Path, content: Path) -> Digest:
    """The directory in a store, opened for that alone; the kernel's clock has moved since."""
    with LocalStore.open(home, create=True) as store:
        tree = store.capture(content)
        store.barrier()
        time.sleep(2 * seen._TICK_NS / 1e9)
    return tree


def blobs(home: Path) -> list[Path]:
    return sorted(path for path in (home / "blobs").rglob("*") if path.is_file())


def records(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (home / "cache" / "seen").iterdir()}


def test_what_we_wrote_is_not_read_again(content: Path, tmp_path: Path, read: list[str]) -> None:
    home = tmp_path / "store"
    tree = added(home, content)
    before = records(home)
    assert sum(map(len, before.values())) == 64 * len(blobs(home))
    (content / "new").write_bytes(b"new")
    (content / "below" / "new").write_bytes(LONG[::-1])
    (content / "below" / "other").write_bytes(LONG[1:])
    added(home, content)
    assert read == []
    after = records(home)
    assert sum(map(len, after.values())) == 64 * len(blobs(home))
    for name in ("new", "below/new", "below/other"):
        (content / name).unlink()
    assert added(home, content) == tree
    assert records(home) == after


@pytest.mark.parametrize("name", ["f7", "below/run", "below/long"])
def test_what_was_written_to_is_noticed(content: Path, tmp_path: Path, name: str) -> None:
    """Size, mode and mtime are as before: ctime alone tells."""
    home = tmp_path / "store"
    added(home, content)
    hit = (content / name).read_bytes()
    path = next(path for path in blobs(home) if path.read_bytes() == hit)
    flip(path)
    with LocalStore.open(home) as store:
        for _ in range(2):
            error = refused("E-STORE-DAMAGED", lambda: store.capture(content))
            assert path.name.removesuffix(".x") in error.message


def test_another_file_in_its_place_is_noticed(content: Path, tmp_path: Path) -> None:
    home = tmp_path / "store"
    added(home, content)
    path = next(path for path in blobs(home) if path.stat().st_size > 3)
    info = path.stat()
    other = tmp_path / "other"
    other.write_bytes(bytes(info.st_size))
    other.chmod(0o444)
    os.utime(other, ns=(info.st_mtime_ns, info.st_mtime_ns))
    other.rename(path)
    with LocalStore.open(home) as store:
        refused("E-STORE-DAMAGED", lambda: store.capture(content))


def test_other_ways_of_bringing_content(content: Path, tmp_path: Path, read: list[str]) -> None:
    home = tmp_path / "store"
    added(home, content)
    with LocalStore.open(home) as store:
        store.add_blob(io.BytesIO(LONG))
        store.add_blob(io.BytesIO(LONG), size=len(LONG))
        assert read == []
        flip(blob_path(store, Digest.of(LONG)))
        refused("E-STORE-DAMAGED", lambda: store.add_blob(io.BytesIO(LONG)))


def test_a_copy_is_read_once(content: Path, tmp_path: Path, read: list[str]) -> None:
    added(tmp_path / "store", content)
    home = tmp_path / "copy"
    subprocess.run(["cp", "-a", tmp_path / "store", home], check=True)
    time.sleep(2 * seen._TICK_NS / 1e9)
    added(home, content)
    assert sorted(read) == [str(path) for path in blobs(home)]
    read.clear()
    added(home, content)
    assert read == []


def test_a_tree_that_was_made_moves_no_more_than_it_must(
    content: Path, tmp_path: Path, read: list[str]
) -> None:
    """Blobs become files of the tree by links, which move their ctimes."""
    home = tmp_path / "store"
    tree = added(home, content)
    before = {path: path.stat().st_ctime_ns for path in blobs(home)}
    with LocalStore.open(home) as store:
        store.materialise(tree)
        time.sleep(2 * seen._TICK_NS / 1e9)
    assert all(path.stat().st_ctime_ns > then for path, then in before.items())
    added(home, content)
    assert read == []


def test_what_is_linked_and_damaged_is_not_noted(content: Path, tmp_path: Path) -> None:
    home = tmp_path / "store"
    tree = added(home, content)
    path = next(path for path in blobs(home) if path.stat().st_size > 3)
    flip(path)
    with LocalStore.open(home) as store:
        refused("E-STORE-DAMAGED", lambda: store.materialise(tree))
        time.sleep(2 * seen._TICK_NS / 1e9)
    with LocalStore.open(home) as store:
        refused("E-STORE-DAMAGED", lambda: store.capture(content))


def test_what_is_written_to_after_it_was_read_is_not_noted(
    content: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the link, with the reading that follows, and the note."""
    home = tmp_path / "store"
    tree = added(home, content)
    monkeypatch.setattr(seen, "_TICK_NS", 2**62)
    with LocalStore.open(home) as store:
        store.materialise(tree)
        monkeypatch.undo()
        flip(next(path for path in blobs(home) if path.stat().st_size > 3))
        time.sleep(2 * seen._TICK_NS / 1e9)
    with LocalStore.open(home) as store:
        refused("E-STORE-DAMAGED", lambda: store.capture(content))


def test_what_is_younger_than_the_clock_s_tick_waits(
    content: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later write would leave the time as it is: no record may speak of that moment yet."""
    monkeypatch.setattr(seen, "_TICK_NS", 2**62)
    home = tmp_path / "store"
    with LocalStore.open(home, create=True) as store:
        store.capture(content)
        store.barrier()
        assert not (home / "cache" / "seen").exists()
        monkeypatch.setattr(seen, "_TICK_NS", -(2**62))
        store.add_blob(io.BytesIO(b"one more"))
        store.barrier()
        assert sum(map(len, records(home).values())) == 64 * len(blobs(home))


def test_seconds_are_settled_later(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_700_000_001 * 10**9
    assert not seen.settled(now - 10**9, now)
    assert not seen.settled(now - 10**7 - 1, now)
    assert seen.settled(now - 10**9 + 1, now)
    assert seen.settled(now - 3 * 10**9, now)
    assert not seen.settled(now + 10**12 + 1, now)


# -- the files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["torn", "garbage", "pipe", "link", "directory", "long"])
def test_a_damaged_memo_costs_a_reading(
    content: Path, tmp_path: Path, read: list[str], damage: str
) -> None:
    home = tmp_path / "store"
    added(home, content)
    outside = tmp_path / "outside"
    outside.write_bytes(b"not ours")
    files = list((home / "cache" / "seen").iterdir())
    for path in files:
        if damage == "torn":
            os.truncate(path, path.stat().st_size - 1)
        elif damage == "garbage":
            path.write_bytes(os.urandom(640))
        elif damage == "long":
            os.truncate(path, 2**40)
        else:
            path.unlink()
            if damage == "pipe":
                os.mkfifo(path)
            elif damage == "link":
                path.symlink_to(outside)
            else:
                path.mkdir()
    added(home, content)
    assert sorted(read) == [str(path) for path in blobs(home)]
    read.clear()
    added(home, content)
    if damage in ("torn", "long"):  # removed by who would have written, and made by the next
        assert sorted(read) == [str(path) for path in blobs(home)]
        read.clear()
        added(home, content)
    if damage in ("torn", "long", "garbage"):
        assert read == []
    assert outside.read_bytes() == b"not ours"
    with LocalStore.open(home) as store:
        assert store.verify(jobs=1).problems == []


def test_a_short_write_leaves_nothing(
    content: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "store"
    monkeypatch.setattr(seen, "_TICK_NS", 2**62)
    with LocalStore.open(home, create=True) as store:
        store.capture(content)
        store.barrier()
        real = durable.write_some
        monkeypatch.setattr(durable, "write_some", lambda fd, data: real(fd, bytes(data)[:30]))
        monkeypatch.setattr(seen, "_TICK_NS", -(2**62))
    assert list((home / "cache" / "seen").iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_refuses_is_no_matter(
    content: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    home = tmp_path / "store"

    def open_to_append(path: str, mode: int) -> int:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr(durable, "open_to_append", open_to_append)
    tree = added(home, content)
    assert added(home, content) == tree
    assert records(home) == {}


WRITE = """\
import sys, time
from pathlib import Path
from reprobuild.adapters.store.store import LocalStore
with LocalStore.open(Path(sys.argv[1])) as store:
    for number in range(40):
        store.add_blob(__import__("io").BytesIO(b"%d of %s" % (number, sys.argv[2].encode())))
        store.barrier()
    time.sleep(0.1)
"""


def test_two_processes_write_whole_records(tmp_path: Path) -> None:
    home = tmp_path / "store"
    LocalStore.open(home, create=True).close()
    words = [sys.executable, "-c", WRITE, str(home)]
    running = [subprocess.Popen([*words, name]) for name in ("one", "other")]
    assert [process.wait() for process in running] == [0, 0]
    found = records(home)
    assert len(blobs(home)) == 80
    assert sum(map(len, found.values())) == 64 * 80
    for name, data in found.items():
        assert all(data[at] == int(name, 16) for at in range(0, len(data), 64))


def test_others_of_the_group_may_note(content: Path, tmp_path: Path) -> None:
    home = tmp_path / "store"
    home.mkdir()
    home.chmod(0o2775)
    before = os.umask(0o077)
    try:
        added(home, content)
    finally:
        os.umask(before)
    files = list((home / "cache" / "seen").iterdir())
    assert files and {path.stat().st_mode & 0o7777 for path in files} == {0o664}
    assert (home / "cache" / "seen").stat().st_mode & 0o7777 == 0o2775


# -- collection and verification -----------------------------------------------------------------


def test_collection_drops_what_speaks_of_nothing(
    content: Path, tmp_path: Path, read: list[str]
) -> None:
    home = tmp_path / "store"
    tree = added(home, content)
    with LocalStore.open(home) as store:
        keep(store, "root", recorded(store, "kept", tree))
    shutil.copytree(content, tmp_path / "other")
    for number in range(50):
        (tmp_path / "other" / f"more{number}").write_bytes(b"%d" % number)
    added(home, tmp_path / "other")
    for _ in range(3):  # each time that a tree is made of them, blobs get another ctime
        with LocalStore.open(home) as store:
            shutil.rmtree(home / "materialised" / store.materialise(tree).name)
            time.sleep(2 * seen._TICK_NS / 1e9)
        added(home, content)
        read.clear()
    many = sum(map(len, records(home).values()))
    with LocalStore.open(home) as store:
        store.gc(dry_run=True)
        assert sum(map(len, records(home).values())) == many
        store.gc()
    kept = len(blobs(home))
    assert many > 64 * (kept + 50)
    assert sum(map(len, records(home).values())) <= 64 * kept * 4 // 3
    assert list((home / "tmp").iterdir()) == []
    added(home, content)
    assert read == []
    with LocalStore.open(home) as store:
        store.remove_root("root")
        store.gc()
    assert records(home) == {}


def test_what_rots_without_a_trace_is_found_by_verify_and_forgotten(
    content: Path, tmp_path: Path
) -> None:
    home = tmp_path / "store"
    added(home, content)
    path = next(path for path in blobs(home) if path.stat().st_size > 3)
    flip(path)
    time.sleep(2 * seen._TICK_NS / 1e9)
    memo = seen.Seen(str(home / "cache" / "seen"))
    executable = path.suffix == ".x"
    memo.note(path.name[:64], executable, path.stat())  # as if no time had moved
    memo.keep()
    with LocalStore.open(home) as store:
        store.capture(content)  # docs/reliability.md, "Edges"
        refused("E-STORE-DAMAGED", lambda: store.open_blob(Digest(path.name[:64])).read())
        assert [p.object for p in store.verify(jobs=1).problems] == [f"blob {path.name}"]
    with LocalStore.open(home) as store:
        refused("E-STORE-DAMAGED", lambda: store.capture(content))


# -- other processes -----------------------------------------------------------------------------


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Another process takes its share; what it answered."""
    monkeypatch.setattr(taking, "WORTH", 4 * taking.OVERHEAD)
    monkeypatch.setattr(taking, "_FIRST_STEP", 2)
    monkeypatch.setattr(taking, "_STEP", 2)
    monkeypatch.setattr(crew, "spare_cores", lambda: 1)
    answers: list[Any] = []
    real = Process.answers

    def answered(self: Process, *, wait: bool) -> list[Any]:
        found = real(self, wait=wait)
        answers.extend(found)
        return found

    monkeypatch.setattr(Process, "answers", answered)
    yield answers


def test_helpers_hand_over_what_they_read(
    content: Path, tmp_path: Path, apart: list[Any], read: list[str]
) -> None:
    home = tmp_path / "store"
    added(home, content)
    shutil.rmtree(home / "cache" / "seen")
    time.sleep(2 * seen._TICK_NS / 1e9)
    apart.clear()
    added(home, content)
    told = b"".join(bytes(rows) for _, _, handed in apart for rows in handed[2].values())
    assert told and len(told) + 64 * len(read) >= 64 * len(blobs(home))
    assert sum(map(len, records(home).values())) == 64 * len(blobs(home))
    apart.clear()
    read.clear()
    added(home, content)
    assert apart and read == []
    assert not any(handed[2] for _, _, handed in apart)  # they read the memo, too


def test_helpers_notice_what_was_written_to(
    content: Path, tmp_path: Path, apart: list[Any]
) -> None:
    home = tmp_path / "store"
    added(home, content)
    for path in blobs(home):
        if path.stat().st_size:
            flip(path)
    apart.clear()
    with LocalStore.open(home) as store, pytest.raises(ReprobuildError) as error:
        store.capture(content)
    assert error.value.code == "E-STORE-DAMAGED"
