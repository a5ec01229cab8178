"""Stores that several accounts share, and file systems whose locks do not hold."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from reprobuild.adapters.fetch.download import Downloader
from reprobuild.adapters.fetch.http import Http
from reprobuild.adapters.fetch.partial import ensure, exclusive, open_partial
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.adapters.fetch.wanted import Place, Wanted
from reprobuild.adapters.git.transport import fetch, init_bare
from reprobuild.adapters.git.transport import keep as keep_commits
from reprobuild.adapters.store.lockcheck import file_system, require_locks
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.digest import Digest, GitOid, Sha256
from reprobuild.core.tree import File
from reprobuild.ports import NullReporter
from support.gitkit import Origin, git_daemon
from support.localworld import realize, small_graph
from support.stores import flip, keep, put, recorded, refused, tree_of
from support.webserver import web_server

# -- locks ---------------------------------------------------------------------------------------

TABLE = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 0:40 / /mnt rw - {kind} server:/export rw,vers=4.2
41 40 0:41 / /mnt/with\\040blank rw - tmpfs tmpfs rw
42 27 0:42 / /mnt rw - {kind} server:/other rw
"""


def table(tmp_path: Path, kind: str) -> Path:
    path = tmp_path / "mountinfo"
    path.write_text(TABLE.format(kind=kind))
    return path


def test_the_file_system_of_a_path(tmp_path: Path) -> None:
    mounts = table(tmp_path, "nfs4")
    assert file_system(Path("/home/someone"), mounts) == "ext4"
    assert file_system(Path("/mnt/store"), mounts) == "nfs4"
    assert file_system(Path("/mnt"), mounts) == "nfs4"
    assert file_system(Path("/mntother"), mounts) == "ext4"
    assert file_system(Path("/mnt/with blank/store"), mounts) == "tmpfs"
    assert file_system(Path("/"), tmp_path / "absent") == ""
    assert file_system(tmp_path, Path("/proc/self/mountinfo")) != ""


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "fuse.sshfs"])
def test_weak_locks_are_refused_with_a_reason(tmp_path: Path, kind: str) -> None:
    with LocalStore.open(tmp_path / "store", create=True) as store:
        mounts = tmp_path / "mountinfo"
        mounts.write_text(f"40 27 0:40 / / rw - {kind} server:/export rw\n")
        error = refused("E-STORE-LOCKS", lambda: require_locks(store.path, mounts=mounts))
        assert error.exit_status == 10 and kind in error.message and error.hint
        require_locks(store.path, local=True, mounts=mounts)  # the user's word
    for good in ("ext4", "xfs", "btrfs", "tmpfs", "overlay", "ceph"):
        mounts.write_text(f"40 27 0:40 / / rw - {good} x rw\n")
        require_locks(store.path, mounts=mounts)


def test_locks_that_exclude_nobody_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalStore.open(tmp_path / "store", create=True) as store:
        monkeypatch.setattr(fcntl, "flock", lambda fd, operation: None)
        for work in (lambda: store.lease().__enter__(), store.gc, store.repair):
            error = refused("E-STORE-LOCKS", work)
            assert "at once" in error.message

        def absent(fd: int, operation: int) -> None:
            raise OSError(95, os.strerror(95))

        monkeypatch.setattr(fcntl, "flock", absent)
        error = refused("E-STORE-LOCKS", lambda: require_locks(store.path, local=True))
        assert "flock fails" in error.message


# -- two accounts --------------------------------------------------------------------------------

TEAM, FIRST, SECOND = 54321, 54322, 54323


def as_user(uid: int, work: Callable[[], object], groups: Sequence[int] = (TEAM,)) -> str:
    """What `work`, done by another account of the team, ended with; empty when well."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            os.umask(0o022)
            os.setgroups(groups)
            os.setgid(uid)
            os.setuid(uid)
            work()
        except BaseException:  # noqa: BLE001 - the child ends here
            said = traceback.format_exc()
        os.write(writing, said.encode()[-60000:])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


@pytest.fixture
def shared() -> Iterator[Path]:
    """A place for a store that the team may write to."""
    if os.geteuid() != 0:
        pytest.skip("becoming other users needs root")
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        top.chmod(0o755)
        store = top / "store"
        store.mkdir()
        os.chown(store, 0, TEAM)
        store.chmod(0o2775)
        notes = top / "notes"
        notes.touch()
        notes.chmod(0o666)
        # What is imported lazily, is now: the children may not be able to read the checkout.
        with LocalStore.open(top / "warm", create=True) as warm:
            _use(warm, notes)
            warm.verify(jobs=1)
            warm.repair(jobs=1)
            assert warm.quarantine.disagreements() == []
            warm.gc(older_than=1.0, free=1)
        notes.write_text("")
        yield top


def _use(store: LocalStore, notes: Path, word: str = "") -> None:
    """Adds, records, keeps, lays out and realizes."""
    with store.lease():
        tree = tree_of(store, "common", f"only {word}")
        store.barrier()
        keep(store, f"root {word}", recorded(store, f"r-{word or 'x'}", tree))
        assert (store.materialise(tree) / "common").read_bytes() == b"common"
        with store.lock_action(Digest.of(b"a")):
            pass
        put(store, f"rubbish of {word}".encode())
        store.materialise(tree_of(store, f"rubbish {word}"))
        store.barrier()
    realize(store, small_graph(), notes, jobs=1)


def test_what_another_account_stored_is_read(shared: Path) -> None:
    """Only an owner may read without moving a file's access time."""
    place = shared / "store"

    def add() -> None:
        with LocalStore.open(place, create=True) as store:
            keep(store, "root", recorded(store, "r", tree_of(store, "one", "two")))

    def read() -> None:
        with LocalStore.open(place) as store:
            files = [File(Digest.of(word), len(word)) for word in (b"one", b"two")]
            assert [store.read_blob(file) for file in files] == [b"one", b"two"]

    found = [as_user(FIRST, add), as_user(SECOND, read), as_user(FIRST, read)]
    assert found == ["", "", ""]


def test_a_read_leaves_the_access_time(shared: Path) -> None:
    with LocalStore.open(shared / "store", create=True) as store:
        keep(store, "root", recorded(store, "r", tree_of(store, "one")))
        (path,) = (shared / "store/blobs").glob(f"*/{Digest.of(b'one').hex}")
        assert store.read_blob(File(Digest.of(b"one"), 3)) == b"one"
        assert path.stat().st_atime_ns == path.stat().st_mtime_ns


def test_two_accounts_share_a_store(shared: Path) -> None:
    place, notes = shared / "store", shared / "notes"

    def use(word: str) -> None:
        with LocalStore.open(place, create=True) as store:
            _use(store, notes, word)
            assert store.verify(jobs=1).problems == []

    def collect() -> None:
        with LocalStore.open(place) as store:
            done = store.gc()
            assert store.verify(jobs=1).problems == []
            assert all(os.stat(path).st_uid != os.getuid() for path in done.left), done.left

    for uid, word in ((FIRST, "one"), (SECOND, "two"), (FIRST, "three")):
        assert as_user(uid, partial(use, word)) == ""
    built = notes.read_text().split()
    assert sorted(built) == ["first", "second", "third"]  # by the first of them, for all
    for uid in (SECOND, FIRST, SECOND):
        assert as_user(uid, lambda: use("four")) == ""
        assert as_user(uid, collect) == ""
    assert as_user(FIRST, collect) == ""
    assert not list((place / "materialised").glob(".dead-*"))
    rubbish = Digest.of(b"rubbish of four").hex
    assert not (place / "blobs" / rubbish[:2] / rubbish).exists()
    with LocalStore.open(place) as store:
        assert len(store.roots()) == 5


def test_what_a_killed_build_of_another_account_left_is_left_and_named(shared: Path) -> None:
    """Work directories are private: they can be neither looked into nor removed by others."""
    place = shared / "store"
    work = place / "build" / "build-first"

    def killed() -> None:
        with LocalStore.open(place, create=True):
            work.mkdir(mode=0o700)
            (work / "file").write_bytes(b"x" * 10000)

    def collect() -> None:
        with LocalStore.open(place) as store:
            put(store, b"rubbish")
            store.barrier()
            assert "blobs" in store.gc(dry_run=True).kinds
            done = store.gc(free=1)
            assert "blobs" in done.kinds and "build" not in done.kinds
            assert done.left == [str(work)] and not done.strange

    def collect_own() -> None:
        with LocalStore.open(place) as store:
            assert store.gc().kinds["build"].bytes > 10000

    assert as_user(FIRST, killed) == ""
    assert as_user(SECOND, collect) == ""
    assert work.exists()
    assert as_user(FIRST, collect_own) == ""
    assert not work.exists()


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_another_account_goes_on_with_a_download(shared: Path, mask: int) -> None:
    """Also where the first was killed: its lock is free, and still has a file."""
    place = shared / "store"
    cache = place / "cache" / "partial"
    wanted = Wanted("thing", Sha256(hashlib.sha256(b"body" * 1000).hexdigest()), 4000)

    def cut() -> None:
        os.umask(mask)
        with LocalStore.open(place, create=True):
            ensure(cache)
        with open_partial(cache / wanted.sha256.hex) as handle:
            handle.write(b"body" * 500)
        with exclusive(cache / f"{wanted.sha256.hex}.lock", FetchSettings(cache)):
            os.link(cache / f"{wanted.sha256.hex}.lock", cache / "kept")
        (cache / "kept").rename(cache / f"{wanted.sha256.hex}.lock")

    def obtain(url: str) -> None:
        os.umask(mask)
        downloads = Downloader(Http(FetchSettings(cache, attempts=1)))
        with downloads.obtain(wanted, [Place(url)], NullReporter()) as path:
            assert path.read_bytes() == b"body" * 1000
        digest, _ = downloads.obtain_unknown("thing", [Place(url)], NullReporter())
        assert digest == wanted.sha256

    def finish() -> None:
        os.umask(mask)
        downloads = Downloader(Http(FetchSettings(cache, offline=True)))
        with downloads.obtain(wanted, [], NullReporter()) as path:
            assert path.read_bytes() == b"body" * 1000

    with web_server() as web:
        web.put("/thing", b"body" * 1000)
        assert as_user(FIRST, cut) == ""
        assert as_user(SECOND, lambda: obtain(f"{web.url}/thing")) == ""
    assert as_user(FIRST, finish) == ""
    assert list(cache.iterdir()) == []


def test_what_an_older_release_made_private_is_shared_by_its_maker(shared: Path) -> None:
    cache = shared / "store" / "cache" / "partial"

    def private() -> None:
        with LocalStore.open(shared / "store", create=True):
            cache.mkdir(mode=0o700)
        (cache / "lock").touch(mode=0o600)

    def lock() -> None:
        ensure(cache)
        with exclusive(cache / "lock", FetchSettings(cache)):
            pass

    assert as_user(FIRST, private) == ""
    assert "Permission denied" in as_user(SECOND, lock)
    assert as_user(FIRST, lambda: ensure(cache)) == ""
    assert as_user(SECOND, lock) == ""


def test_downloads_are_private_elsewhere(tmp_path: Path) -> None:
    ensure(tmp_path / "partial")
    with open_partial(tmp_path / "partial" / "file"):
        pass
    assert (tmp_path / "partial").stat().st_mode & 0o7777 == 0o700
    assert (tmp_path / "partial" / "file").stat().st_mode & 0o7777 == 0o600


def test_another_account_goes_on_with_a_cache_repository(shared: Path) -> None:
    place = shared / "store"
    origin = Origin.make(shared / "srv" / "origin.git")
    first = origin.commit({"a": "a\n"}, ref="refs/heads/main")
    second = origin.commit({"a": "b\n"}, ref="refs/heads/main")

    def use(url: str, oid: GitOid, name: str) -> None:
        with LocalStore.open(place, create=True):
            for repository in ("common.git", name):
                cached = place / "cache" / "git" / repository
                init_bare(cached)
                fetch(cached, url, [oid.hex])
                keep_commits(cached, [oid])

    with git_daemon(shared / "srv") as daemon:
        url = daemon.url("origin.git")
        assert as_user(FIRST, lambda: use(url, first, "one.git")) == ""
        assert as_user(SECOND, lambda: use(url, second, "two.git")) == ""
        assert as_user(FIRST, lambda: use(url, second, "one.git")) == ""


def test_one_account_repairs_what_another_wrote(shared: Path) -> None:
    place, notes = shared / "store", shared / "notes"

    def fill() -> None:
        with LocalStore.open(place, create=True) as store:
            _use(store, notes, "one")

    def mend() -> None:
        with LocalStore.open(place) as store:
            assert store.verify(jobs=1).problems
            done = store.repair(jobs=1)
            assert done.restored or done.blobs
            assert store.verify(jobs=1).problems == []

    assert as_user(FIRST, fill) == ""
    blob = Digest.of(b"common").hex
    flip(place / "blobs" / blob[:2] / blob)
    assert as_user(SECOND, mend) == ""


def test_an_account_outside_the_team_reads_and_is_told_why_it_cannot_write(shared: Path) -> None:
    place, notes = shared / "store", shared / "notes"

    def fill() -> None:
        with LocalStore.open(place, create=True) as store:
            _use(store, notes, "one")

    def stranger() -> None:
        with LocalStore.open(place) as store:
            assert store.open_blob(Digest.of(b"common")).read() == b"common"
            assert refused("E-STORE-WRITE", lambda: put(store, b"mine")).hint

    assert as_user(FIRST, fill) == ""
    assert as_user(SECOND, stranger, groups=[]) == ""


def test_whose_store_it_is_is_said_before_anything_is_begun(shared: Path) -> None:
    """Also of a lock, whose file cannot be made: that it is absent is not the matter."""
    place = shared / "store"

    def fill() -> None:
        with LocalStore.open(place, create=True) as store:
            store.require_writable()

    def stranger() -> None:
        with LocalStore.open(place) as store:
            for call in (store.require_writable, lambda: _lock(store)):
                error = refused("E-STORE-WRITE", call)
                assert "Permission denied" in error.message
                assert "; that is user " in error.message
                assert "root" in error.message or str(FIRST) in error.message
                assert "--store" in str(error.hint)

    assert as_user(FIRST, fill) == ""
    assert as_user(SECOND, fill) == ""
    assert as_user(SECOND, stranger, groups=[]) == ""


def _lock(store: LocalStore) -> None:
    with store.lock_action(Digest.of(b"a")):
        pass
