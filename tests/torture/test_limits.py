"""File systems that are full or read-only, wrong clocks; names, paths and files at their limits."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.digest import Digest
from reprobuild.core.tree import File
from reprobuild.errors import ReprobuildError
from support.demo import Demo, needs_sandbox
from support.localworld import realize, small_graph
from support.scenarios import Filled, clean
from support.stores import keep, put, recorded, refused, tree_of
from torture.conftest import Tally

needs_mounts = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


class Disk:
    """A file system of its own in memory."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def mount(self, options: str) -> None:
        words = ["mount", "-t", "tmpfs", "-o", options, "none", str(self.place)]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")

    def again(self, options: str) -> None:
        words = ["mount", "-o", f"remount,{options}", str(self.place)]
        subprocess.run(words, check=True)

    def free(self) -> tuple[int, int]:
        """(bytes, inodes)"""
        info = os.statvfs(self.place)
        return info.f_bavail * info.f_frsize, info.f_favail

    def fill(self, *, inodes: bool) -> None:
        """Takes what is left."""
        litter = self.place / "litter"
        litter.mkdir(exist_ok=True)
        try:
            for number in range(10**6):
                with (litter / f"{number}").open("wb") as file:
                    while not inodes:
                        file.write(bytes(1 << 16))
        except OSError as error:
            assert error.errno == errno.ENOSPC

    def clear(self) -> None:
        shutil.rmtree(self.place / "litter")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    place = tmp_path / "disk"
    place.mkdir()
    made = Disk(place)
    yield made
    subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)


# -- full ----------------------------------------------------------------------------------------


@needs_mounts
@pytest.mark.parametrize("inodes", [False, True], ids=["bytes", "inodes"])
def test_a_disk_of_any_size_that_is_too_small(
    disk: Disk, full: bool, inodes: bool, tally: Tally
) -> None:
    """From nothing upwards until it is enough: always refused in words, never damaged."""
    disk.mount("size=64m,nr_inodes=20k")
    notes = disk.place.with_name("notes")
    clean_run = disk.place / "clean"
    with LocalStore.open(clean_run, create=True) as store:
        before = disk.free()
        realize(store, small_graph(), notes)
        used = [a - b for a, b in zip(before, disk.free(), strict=True)]
    shutil.rmtree(clean_run)
    refusals = 0
    unit = 1 if inodes else 4096
    total = used[1] if inodes else used[0] // 4096
    step = max(1, total // (total if full else 6))
    for room in range(0, total + 3 * step, step):
        with LocalStore.open(disk.place / "store", create=True) as store:
            (store.path / "reserve").unlink(missing_ok=True)
            free = disk.free()
            leave = room * unit
            takes = disk.place / "takes"
            takes.mkdir()
            if inodes:
                for number in range(max(0, free[1] - leave - 1)):
                    os.mknod(takes / str(number))
            else:
                with (takes / "bytes").open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, max(1, free[0] - leave))
            try:
                realize(store, small_graph(), notes)
            except ReprobuildError as error:
                refusals += 1
                assert error.code in ("E-STORE-WRITE", "E-DEPENDENCY", "E-BUILD-FAILED"), error
            except OSError as error:  # the root's own materialising is not what is tried
                raise AssertionError(f"with room for {room}: {error!r}") from error
        shutil.rmtree(takes)
        with LocalStore.open(disk.place / "store") as store:
            assert store.verify(jobs=1).problems == [], room
            realize(store, small_graph(), notes)
            store.gc()
            assert store.verify(jobs=1).problems == []
            clean(store)
        shutil.rmtree(disk.place / "store")
    assert refusals > 2
    kind = "inodes" if inodes else "blocks"
    tally("a full disk, really", f"runs refused for want of {kind}", refusals)


@needs_mounts
@pytest.mark.parametrize("inodes", [False, True], ids=["bytes", "inodes"])
def test_collection_works_on_a_full_disk(disk: Disk, inodes: bool, tally: Tally) -> None:
    disk.mount("size=32m,nr_inodes=5k")
    with LocalStore.open(disk.place / "store", create=True) as store:
        Filled(store)
    (disk.place / "store" / "locks" / "store").unlink(
        missing_ok=True
    )  # its file, too, must find room
    disk.fill(inodes=inodes)
    assert disk.free()[1 if inodes else 0] == 0
    with LocalStore.open(disk.place / "store") as store:
        refused("E-STORE-WRITE", lambda: put(store, b"something that is new"))
        done = store.gc()
        assert done.kinds["blobs"].count == 2
        assert store.verify().problems == []
        put(store, b"something that is new")
    disk.clear()
    with LocalStore.open(disk.place / "store") as store:
        store.gc()
        assert (store.path / "reserve").stat().st_size == 2**20  # for the next time
    tally("a full disk, really", "collections", 1)


@needs_mounts
def test_without_a_reserve_a_disk_without_inodes_takes_no_lock(disk: Disk) -> None:
    """What the reserve is for: this is what would happen."""
    disk.mount("size=32m,nr_inodes=5k")
    with LocalStore.open(disk.place / "store", create=True) as store:
        Filled(store)
        (store.path / "reserve").unlink()
    (disk.place / "store" / "locks" / "store").unlink(missing_ok=True)
    disk.fill(inodes=True)
    with LocalStore.open(disk.place / "store") as store:
        refused("E-STORE-WRITE", store.gc)


@needs_sandbox
@needs_mounts
def test_the_command_on_a_full_disk(disk: Disk, demo_template: Demo, tmp_path: Path) -> None:
    disk.mount("size=24m,nr_inodes=4k")
    demo = demo_template.clone(tmp_path / "project", disk.place / "store")
    error = demo.run("--json", "realize", status=10).error
    assert error["code"] in ("E-DISK-SPACE", "E-STORE-WRITE")
    disk.again("size=2g")
    demo.run("realize")
    disk.fill(inodes=True)
    demo.component("notes", "echo other > $out/other")
    error = demo.run("--json", "realize", status=10).error
    assert error["code"] == "E-STORE-WRITE"
    demo.run("store", "gc")
    disk.clear()
    demo.run("realize")
    demo.verify()


# -- read-only -----------------------------------------------------------------------------------


@needs_mounts
def test_a_read_only_disk_is_read(disk: Disk, tmp_path: Path, tally: Tally) -> None:
    disk.mount("size=32m")
    with LocalStore.open(disk.place / "store", create=True) as store:
        realize(store, small_graph(), tmp_path / "notes")
        world = Filled(store)
    disk.again("ro")
    with LocalStore.open(disk.place / "store") as store:
        assert store.verify().problems == []
        assert store.open_blob(Digest.of(b"one")).read() == b"one"
        assert store.contains(world.kept)
        for work in (store.gc, store.repair, lambda: put(store, b"new"), store.lease().__enter__):
            error = refused("E-STORE-WRITE", work)
            assert error.facts["errno"] == "EROFS" and error.hint
    tally("a read-only file system", "uses refused in words", 4)


# -- the clock -----------------------------------------------------------------------------------


@pytest.mark.parametrize("year", [1970, 2005, 2200])
def test_a_clock_that_is_wrong(tmp_path: Path, year: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in the store goes by the clock but ages, and those never make young content old."""
    import time

    with LocalStore.open(tmp_path / "store", create=True) as store:
        realize(store, small_graph(), tmp_path / "notes")
    jump = (year - 2026) * 365 * 86400.0
    real, real_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(jump * 1e9))
    with LocalStore.open(tmp_path / "store") as store:
        done = realize(store, small_graph(), tmp_path / "notes")
        assert done.built == 0
        tree = tree_of(store, "after")
        store.barrier()
        recorded(store, "after", tree)
        assert store.verify().problems == []
        store.gc(older_than=60.0)
        if year < 2026:  # everything lies in the future
            assert store.contains(tree)
        assert realize(store, small_graph(), tmp_path / "notes").built == 0
        assert store.verify().problems == []


# -- names, paths, files -------------------------------------------------------------------------


def test_names_paths_and_loops_at_their_limits(tmp_path: Path, tally: Tally) -> None:
    source = tmp_path / "source"
    source.mkdir()
    long = "n" * 255
    wide = "ü" * 127  # 254 bytes
    (source / long).write_bytes(b"long")
    (source / wide).write_bytes(b"wide")
    os.symlink("loop-b", source / "loop-a")
    os.symlink("loop-a", source / "loop-b")
    os.symlink(".", source / "self")
    os.symlink("x" * 4095, source / "far")
    here = os.open(source, os.O_RDONLY)
    depth = 0
    for _ in range(20):  # 20 * 256 bytes: no path reaches down there
        os.mkdir(long[:250], dir_fd=here)
        below = os.open(long[:250], os.O_RDONLY, dir_fd=here)
        os.close(here)
        here, depth = below, depth + 1
    fd = os.open("end", os.O_WRONLY | os.O_CREAT, dir_fd=here)
    os.write(fd, b"the end")
    os.close(fd)
    os.close(here)
    with LocalStore.open(tmp_path / "store", create=True) as store:
        tree = store.capture(source)
        store.barrier()
        keep(store, "root", recorded(store, "deep", tree))
        assert store.contains(tree) and store.verify().trees == depth + 1
        entries = dict(store.tree(tree).entries)
        assert {long.encode(), wide.encode(), b"loop-a", b"self", b"far"} <= set(entries)
        assert store.open_blob(Digest.of(b"the end")).read() == b"the end"
        made = store.materialise(tree)
        assert (made / long).read_bytes() == b"long"
        assert os.readlink(made / "far") == "x" * 4095
    with LocalStore.open(tmp_path / "store") as store:
        assert store.materialise(tree) == made
        assert store.verify().problems == []
        store.gc()
        assert store.contains(tree)
        store.remove_root("root")
        store.gc()
        assert not made.exists() and not store.contains(tree)
        assert store.verify().problems == []
    subprocess.run(["rm", "-rf", str(source)], check=True)
    tally("names of 255 bytes, paths of 5,000, links in a loop", "captured, laid out, collected", 1)


def test_a_sparse_and_a_large_file(tmp_path: Path, full: bool, tally: Tally) -> None:
    """5 GB, with little in it (a sample: 256 MB): size and content hold, memory does not grow."""
    size = 5 * 10**9 if full else 2**28
    source = tmp_path / "source"
    source.mkdir()
    with (source / "sparse").open("wb") as file:
        file.seek(size - 5)
        file.write(b"tail!")
    code = (
        "import sys; from pathlib import Path;"
        "from reprobuild.adapters.store.store import LocalStore\n"
        "with LocalStore.open(Path(sys.argv[1]), create=True) as store:\n"
        "    tree = store.capture(Path(sys.argv[2])); store.barrier()\n"
        # ru_maxrss would be that of the process that started this one, where it was larger
        "    status = Path('/proc/self/status').read_text()\n"
        "    print(tree.hex, status.partition('VmHWM:')[2].split()[0])\n"
    )
    import sys

    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "store"), str(source)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    hex_tree, peak = done.stdout.split()
    assert int(peak) < 200 * 1024  # KiB
    (source / "sparse").unlink()
    with LocalStore.open(tmp_path / "store") as store:
        (entry,) = (e for _, e in store.tree(Digest(hex_tree)).entries)
        assert isinstance(entry, File) and entry.size == size
        with store.open_blob(entry.digest) as reader:
            read = 0
            last = b""
            while piece := reader.read(1 << 22):
                read += len(piece)
                last = piece
        assert read == size and last.endswith(b"\0tail!")
        if full:
            assert store.verify().problems == []
    tally("a sparse file", "bytes captured and read back", size)
