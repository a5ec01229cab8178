"""What `LocalStore` promises beyond the ports: damage, collection, locks, hostile directories."""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reprobuild.adapters.store import durable, taking
from reprobuild.adapters.store.glance import Glance
from reprobuild.adapters.store.store import LocalStore
from reprobuild.adapters.store.verify_report import Problem
from reprobuild.core.derivation import Derivation, Input
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import encode
from reprobuild.core.record import Record
from reprobuild.core.tree import Directory, Symlink, Tree
from reprobuild.errors import ReprobuildError
from support.stores import (
    blob_path,
    flip,
    keep,
    overwrite,
    put,
    recorded,
    refused,
    tree_of,
    tree_path,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    with LocalStore.open(tmp_path / "store", create=True) as opened:
        yield opened


# -- opening -------------------------------------------------------------------------------------


def test_only_a_store_is_opened(tmp_path: Path) -> None:
    refused("E-NO-STORE", lambda: LocalStore.open(tmp_path / "absent"))
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").touch()
    error = refused("E-STORE-FORMAT", lambda: LocalStore.open(foreign, create=True))
    assert "thesis.tex" in error.message
    assert sorted(foreign.iterdir()) == [foreign / "thesis.tex"]


def test_a_store_that_another_makes_between_two_looks_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "s"
    place.mkdir()
    look = os.listdir

    def late(path: str | Path) -> list[str]:
        monkeypatch.setattr(os, "listdir", look)
        with LocalStore.open(place, create=True) as other:
            put(other, b"theirs")
            other.barrier()
        return look(path)

    monkeypatch.setattr(os, "listdir", late)
    with LocalStore.open(place, create=True) as store:
        assert store.verify(jobs=1).blobs == 1


@pytest.mark.parametrize(
    "text", ["reprobuild store 1\n", "", "something else\n", "reprobuild store x"]
)
def test_another_format_is_refused(tmp_path: Path, text: str) -> None:
    with LocalStore.open(tmp_path / "s", create=True) as store:
        assert (store.path / "format").read_text() == "reprobuild store 0\n"
    (tmp_path / "s" / "format").unlink()
    (tmp_path / "s" / "format").write_text(text)
    for create in (False, True):
        error = refused("E-STORE-FORMAT", lambda: LocalStore.open(tmp_path / "s", create=create))  # noqa: B023
        assert error.exit_status == 7
    assert (tmp_path / "s" / "format").read_text() == text


def test_opening_imports_little() -> None:
    code = (
        "import sys; from pathlib import Path;"
        "from reprobuild.adapters.store.store import LocalStore; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"ctypes", "concurrent.futures", "subprocess", "socket", "pydantic", "tempfile"}
    assert heavy & set(done.stdout.split()) == set()


def test_who_only_adds_waits_for_no_imports(tmp_path: Path) -> None:
    """They took longer than reading and hashing a small tree does (docs/performance.md)."""
    (tmp_path / "content").mkdir()
    (tmp_path / "content" / "file").write_bytes(b"content")
    code = (
        "import sys; before = set(sys.modules)\n"
        "from reprobuild.adapters.store.store import LocalStore\n"
        "with LocalStore.open(sys.argv[1], create=True) as store:\n"
        "    store.capture(sys.argv[2])\n"
        "    store.barrier()\n"
        "    print(*set(sys.modules) - before)\n"
        "    assert store.verify().blobs == 1\n"
        "print(*set(sys.modules) - before)\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "store"), str(tmp_path / "content")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    added, verified = (set(line.split()) for line in done.stdout.splitlines())
    heavy = {"dataclasses", "enum", "inspect", "json", "pathlib", "re", "threading", "typing"}
    assert added & (heavy | {"collections", "contextlib", "functools"}) == set()
    assert verified & heavy == set()


def git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.org")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=directory, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_git_clean_leaves_it_alone(tmp_path: Path) -> None:
    """As in our own checkout: store/ with a committed README.md and rules; and a plain place."""
    git(tmp_path, "init", "-q")
    home = Path(__file__).parents[2] / "store"
    (tmp_path / "store").mkdir()
    for name in ("README.md", ".gitignore"):
        shutil.copy(home / name, tmp_path / "store" / name)
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "x")
    opened = [LocalStore.open(tmp_path / n, create=True) for n in ("store", "elsewhere")]
    digests = [put(store, b"kept").digest for store in opened]
    for store in opened:
        store.barrier()
    assert opened[0].path == tmp_path / "store" / "data"
    assert git(tmp_path, "status", "--porcelain", "store") == ""
    (tmp_path / "store" / "rubbish").touch()
    git(tmp_path, "clean", "-xdfq")
    assert not (tmp_path / "store" / "rubbish").exists()
    for store, digest in zip(opened, digests, strict=True):
        store.close()
        with LocalStore.open(store.path) as again:
            assert again.open_blob(digest).read() == b"kept"
            assert again.verify().problems == []


# -- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["flip", "truncate", "grow", "empty"])
@pytest.mark.parametrize("size", [10, 3 * 2**20])
def test_a_damaged_blob_is_never_read_as_good(store: LocalStore, damage: str, size: int) -> None:
    data = bytes(range(256)) * (size // 256) + b"0123456789"
    file = put(store, data)
    tree = Tree.of({b"f": file})
    store.add_trees({tree.digest: tree})
    store.barrier()
    changed = {
        "flip": data[:5] + b"!" + data[6:],
        "truncate": data[:-1],
        "grow": data + b"!",
        "empty": b"",
    }[damage]
    path = blob_path(store, file.digest)
    overwrite(path, changed)

    def read_exactly() -> bytes:
        with store.open_blob(file.digest) as source:
            got = b""
            while len(got) < len(data) and (part := source.read(4096)):
                got += part
            return got

    for ask in (
        lambda: store.open_blob(file.digest).read(),
        read_exactly,
        lambda: store.materialise(tree.digest),
        lambda: store.materialise_blob(file.digest, executable=False),
    ):
        error = refused("E-STORE-DAMAGED", ask)
        assert file.digest.hex in error.message and str(path) in error.message
        assert error.exit_status == 7
    assert list((store.path / "materialised").iterdir()) == []
    assert [p.kind for p in store.verify().problems] == ["damaged"]
    if damage != "flip":  # a size that is off is noticed when the same content comes again
        refused("E-STORE-DAMAGED", lambda: put(store, data))


def test_a_damaged_tree_is_never_read_as_good(store: LocalStore) -> None:
    digest = tree_of(store, "one", "two")
    store.barrier()
    path = tree_path(store, digest)
    overwrite(path, path.read_bytes()[:-1] + b"!")
    for ask in (store.tree, store.materialise):
        error = refused("E-STORE-DAMAGED", lambda: ask(digest))  # noqa: B023
        assert str(path) in error.message


def filled(store: LocalStore) -> dict[str, Path]:
    """A store with one of everything; the objects' paths by name."""
    inner = tree_of(store, "one", "two")
    outer = tree_of(store, "three", below=inner)
    run = put(store, b"#!", executable=True)
    top = Tree.of({b"run": run, b"d": Directory(outer)})
    store.add_trees({top.digest: top})
    store.barrier()
    drv = Derivation(name="n", builder="builtin:join")
    store.add_derivations({drv.digest: encode(drv.document())})
    action = Digest.of(b"action")
    record = Record(action, drv.digest, {"out": top.digest})
    store.add_record(record)
    store.choose(drv.digest, record)
    keep = {
        "trees": [top.digest.hex],
        "drvs": [drv.digest.hex],
        "records": [f"{action.hex}/{record.digest.hex}"],
    }
    store.set_root("root", encode({"keep": keep}))
    made = store.materialise(top.digest)
    return {
        "blob": blob_path(store, Digest.of(b"one")),
        "executable": blob_path(store, run.digest, ".x"),
        "tree": tree_path(store, inner),
        "drv": store.path / "drvs" / drv.digest.hex[:2] / drv.digest.hex,
        "record": store.path / "records" / action.hex / record.digest.hex,
        "root": store.path / "roots" / "root",
        "made": made / "d" / "below" / "two",
    }


ANYTHING = ("blob", "executable", "tree", "drv", "record", "root", "made")


@pytest.mark.parametrize("what", ANYTHING)
def test_verify_names_a_flipped_byte(store: LocalStore, what: str) -> None:
    path = filled(store)[what]
    assert store.verify().problems == []
    flip(path)
    assert named(store.verify().problems, path)


@pytest.mark.parametrize("what", ANYTHING)
def test_verify_names_a_truncated_file(store: LocalStore, what: str) -> None:
    path = filled(store)[what]
    overwrite(path, path.read_bytes()[:-1])
    assert named(store.verify().problems, path)


@pytest.mark.parametrize("what", [w for w in ANYTHING if w != "root"])
def test_verify_names_a_missing_file(store: LocalStore, what: str) -> None:
    path = filled(store)[what]
    path.parent.chmod(0o755)
    path.unlink()
    problems = [p for p in store.verify().problems if p.kind == "missing"]
    assert any(path.name[:64] in p.object for p in problems), problems


@pytest.mark.parametrize("what", ["blob", "executable", "tree", "drv", "made"])
def test_verify_names_changed_permissions(store: LocalStore, what: str) -> None:
    path = filled(store)[what]
    path.chmod(0o640)
    problems = store.verify().problems
    assert named(problems, path) and {p.kind for p in problems} == {"mode"}


def test_verify_names_what_does_not_belong(store: LocalStore) -> None:
    paths = filled(store)
    strangers = [
        store.path / "stranger",
        store.path / "blobs" / "stranger",
        paths["blob"].with_name("0" * 64),
        paths["tree"].with_name(paths["tree"].name + ".x"),
        store.path / "records" / "stranger",
        store.path / "materialised" / "stranger",
        paths["made"].with_name("stranger"),
    ]
    for path in strangers:
        path.parent.chmod(0o755)
        path.write_bytes(b"")
    paths["made"].parent.chmod(0o555)
    problems = store.verify().problems
    assert all(named(problems, path) for path in strangers), problems


def test_verify_names_swapped_objects_and_all_of_them(store: LocalStore) -> None:
    filled(store)
    one, two = (blob_path(store, Digest.of(n)) for n in (b"one", b"two"))
    first, second = one.read_bytes(), two.read_bytes()
    overwrite(one, second)
    overwrite(two, first)
    problems = store.verify().problems
    assert named(problems, one) and named(problems, two)
    assert all(p.reason and p.object in str(p) and p.path in str(p) for p in problems)


def test_verify_notices_an_inode_that_serves_two_places(store: LocalStore) -> None:
    paths = filled(store)
    paths["made"].parent.chmod(0o755)
    paths["made"].unlink()
    os.link(paths["blob"], paths["made"])
    problems = store.verify().problems
    assert any(p.kind == "mode" for p in problems) and named(problems, paths["made"])


def named(problems: list[Problem], path: Path) -> bool:
    return str(path) in {p.path for p in problems}


# -- inodes and links ----------------------------------------------------------------------------


def test_a_blob_is_linked_once_at_most(store: LocalStore) -> None:
    file = put(store, b"popular")
    trees = []
    for number in range(4):
        tree = Tree.of({b"f": file, b"twin": file, b"n": put(store, b"%d" % number)})
        store.add_trees({tree.digest: tree})
        trees.append(tree.digest)
    paths = [store.materialise(tree) for tree in trees]
    own = blob_path(store, file.digest).stat()
    inodes = [(path / name).stat().st_ino for path in paths for name in ("f", "twin")]
    assert own.st_nlink == 2
    assert inodes.count(own.st_ino) == 1  # linked where it cannot be seen…
    assert len(set(inodes)) == len(inodes)  # …and copied everywhere else
    assert store.verify().problems == []


def test_makers_that_link_at_once_step_back(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(store, b"popular")
    tree = Tree.of({b"f": file})
    store.add_trees({tree.digest: tree})
    store.barrier()
    rival = store.path / "tmp" / "rival"
    real = durable.link

    def link(source: str, path: bytes, *, dir_fd: int | None = None) -> None:
        os.link(source, rival)  # another process links between our look and our link
        real(source, path, dir_fd=dir_fd)

    monkeypatch.setattr(durable, "link", link)
    path = store.materialise(tree.digest)
    own = blob_path(store, file.digest).stat()
    assert own.st_nlink == 2
    assert (path / "f").stat().st_ino != own.st_ino
    assert (path / "f").read_bytes() == b"popular"


def test_concurrent_makers_share_one_result(tmp_path: Path, store: LocalStore) -> None:
    digest = tree_of(store, *(f"file{n}" for n in range(40)), below=tree_of(store, "x", "y"))
    store.barrier()
    others = [LocalStore.open(store.path) for _ in range(4)]
    results: list[Path] = []
    threads = [
        threading.Thread(target=lambda s=s: results.append(s.materialise(digest))) for s in others
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for other in others:
        other.close()
    assert len(results) == 4 and len(set(results)) == 1
    assert len(list((store.path / "materialised").iterdir())) == 1
    assert store.verify().problems == []


def test_others_may_read_but_not_write(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with LocalStore.open(tmp_path / "s", create=True) as store:
            paths = [store.materialise(tree_of(store, "one", below=tree_of(store, "two")))]
            store.add_blob(io.BytesIO(b"x"), executable=True)
            store.barrier()
    finally:
        os.umask(before)
    paths += [p for p in store.path.rglob("*") if "locks" not in p.parts and ".git" not in p.parts]
    for path in paths:
        mode = stat.S_IMODE(path.lstat().st_mode)
        wanted = 0o555 if path.is_dir() or path.suffix == ".x" else 0o444
        assert mode & wanted == wanted and not mode & 0o022, (path, oct(mode))


# -- capture -------------------------------------------------------------------------------------


def test_a_file_that_changes_is_noticed(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "source" / "file"
    victim.parent.mkdir()
    real, real_v = os.read, os.readv
    for size in (100, 2**20, 9 * 2**20):
        for change in (b"longer" * size, b"s", bytes(size)):
            victim.write_bytes(b"x" * size)
            os.utime(victim, (5, 5))

            def touch(fd: int, change: bytes = change) -> None:
                if os.fstat(fd).st_ino == victim.stat().st_ino:
                    victim.write_bytes(change)

            def read(fd: int, count: int, touch: Callable[[int], None] = touch) -> bytes:
                data = real(fd, count)
                touch(fd)
                return data

            def readv(
                fd: int, buffers: list[memoryview], touch: Callable[[int], None] = touch
            ) -> int:
                count = real_v(fd, buffers)
                touch(fd)
                return count

            with monkeypatch.context() as patch:
                patch.setattr(os, "read", read)
                patch.setattr(os, "readv", readv)
                error = refused("E-OUTPUT-CHANGED", lambda: store.capture(victim.parent))
            assert str(victim) in error.message


def test_a_directory_that_changes_is_noticed(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "source"
    (top / "sub").mkdir(parents=True)
    (top / "sub" / "file").write_bytes(b"x")
    real = taking.Taking.files

    def add(self: taking.Taking, *arguments: Any) -> object:
        (top / "sub" / "late").touch()
        return real(self, *arguments)

    monkeypatch.setattr(taking.Taking, "files", add)
    refused("E-OUTPUT-CHANGED", lambda: store.capture(top))


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_link_put_in_place_is_not_followed(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_bytes(b"secret content")
    top = tmp_path / "source"
    top.mkdir()
    target = secret / "key" if what == "file" else secret
    (top / "bait").mkdir() if what == "directory" else (top / "bait").write_bytes(b"x")
    method = "files" if what == "file" else "_descend"
    real = getattr(taking.Taking, method)

    def swap(self: taking.Taking, *arguments: object) -> object:
        if (top / "bait").is_dir():
            (top / "bait").rmdir()
        else:
            (top / "bait").unlink()
        (top / "bait").symlink_to(target)
        return real(self, *arguments)

    monkeypatch.setattr(taking.Taking, method, swap)
    with pytest.raises(ReprobuildError) as error:
        store.capture(top)
    assert error.value.code in ("E-OUTPUT-CHANGED", "E-OUTPUT-READ")
    store.barrier()
    refused("E-STORE-MISSING", lambda: store.open_blob(Digest.of(b"secret content")))


def test_a_device_is_refused(store: LocalStore, tmp_path: Path) -> None:
    top = tmp_path / "source"
    top.mkdir()
    try:
        os.mknod(top / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("making a device node needs root")
    error = refused("E-OUTPUT-SPECIAL", lambda: store.capture(top))
    assert "character device" in error.message and error.exit_status == 5


def test_a_capture_starts_at_a_directory(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("absent", "file", "link"):
        refused("E-OUTPUT-READ", lambda: store.capture(tmp_path / name))  # noqa: B023


def test_deep_and_long_names(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("fsync", "syncfs"):  # once for each level
        monkeypatch.setattr(durable, name, lambda _: None)
    top = tmp_path / "source"
    top.mkdir()
    fd = os.open(top, os.O_RDONLY)
    for _ in range(400):  # a path of more than 4,096 bytes
        os.mkdir("directories", dir_fd=fd)
        below = os.open("directories", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("n" * 255, os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    digest = store.capture(top)
    path = store.materialise(digest)
    assert store.capture(path) == digest
    from reprobuild.adapters.store.dirstack import remove_tree

    remove_tree(str(path))
    remove_tree(str(top))
    assert not path.exists() and not top.exists()


def test_what_its_owner_made_unreadable_is_taken() -> None:
    """As an ordinary user: mode 0000 is no wall to the owner."""
    if os.geteuid() != 0:
        pytest.skip("becoming another user needs root")
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        top.chmod(0o755)
        (top / "source" / "closed").mkdir(parents=True)
        (top / "source" / "closed" / "file").write_bytes(b"hidden")
        (top / "source" / "closed" / "file").chmod(0o100)
        (top / "source" / "closed").chmod(0)
        for path in (top / "source" / "closed" / "file", top / "source" / "closed", top / "source"):
            os.chown(path, 65534, 65534)
        (top / "store").mkdir()
        os.chown(top / "store", 65534, 65534)
        with LocalStore.open(top / "warm", create=True) as warm:
            # What is imported lazily, is now: the child may not be able to read the checkout.
            warm.materialise(warm.capture(top / "warm" / "roots"))
            warm.gc()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.setgid(65534)
                os.setuid(65534)
                with LocalStore.open(top / "store", create=True) as store:
                    made = store.materialise(store.capture(top / "source"))
                    file = made / "closed" / "file"
                    good = file.read_bytes() == b"hidden" and file.stat().st_mode & 0o777 == 0o555
                    store.gc()
                    status = 0 if good and not made.exists() else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# -- collection ----------------------------------------------------------------------------------


def test_collection_keeps_what_roots_keep(store: LocalStore) -> None:
    paths = filled(store)
    doomed = tree_of(store, "one", "doomed", below=tree_of(store, "doomed, too"))
    store.barrier()
    store.materialise(doomed)
    gone = Record(
        Digest.of(b"gone"), Digest.of(b"drv"), {"out": doomed}, duration_ms=1234, log="a.log"
    )
    store.add_record(gone)
    store.choose(gone.drv, gone)
    (store.logs / "a.log").write_text("log")
    plan = store.gc(dry_run=True)
    assert plan.dry_run and plan.remake_ms == 1234 and plan.bytes > 0
    assert store.contains(doomed) and (store.logs / "a.log").exists()
    done = store.gc()
    assert done.kinds == plan.kinds and done.records == plan.records
    assert done.kinds["trees"].count == 2 and done.kinds["blobs"].count == 2
    assert not store.contains(doomed)
    assert store.records(gone.action) == () and store.realized(gone.drv) is None
    assert not (store.logs / "a.log").exists()
    refused("E-STORE-MISSING", lambda: store.open_blob(Digest.of(b"doomed")))
    assert all(path.exists() for path in paths.values())
    assert store.verify().problems == []
    assert store.remove_root("root") and not store.remove_root("root")
    store.gc()
    info = store.info()
    assert {k: v.count for k, v in info.kinds.items()} == dict.fromkeys(info.kinds, 0)


def test_collection_keeps_the_derivations_that_others_need(store: LocalStore) -> None:
    below = Derivation(name="below", builder="builtin:join")
    above = Derivation(name="above", builder="builtin:join", inputs=(Input("below", below.digest),))
    other = Derivation(name="other", builder="builtin:join")
    store.add_derivations({d.digest: encode(d.document()) for d in (below, above, other)})
    store.set_root("r", encode({"keep": {"drvs": [above.digest.hex]}}))
    store.gc()
    assert store.derivation(below.digest) and store.derivation(above.digest)
    assert store.derivation(other.digest) is None


@pytest.mark.parametrize(
    "document", [b"", b"{}", b'{"keep": {}}', b'{"keep":{"tree":[]}}', b'{"keep":{"trees":["x"]}}']
)
def test_a_root_that_is_not_understood_stops_collection(store: LocalStore, document: bytes) -> None:
    digest = tree_of(store, "one")
    store.barrier()
    store.set_root("odd", document)
    error = refused("E-STORE-ROOT", store.gc)
    assert "odd" in error.message
    assert store.contains(digest)


def test_collection_stops_where_a_kept_tree_cannot_be_followed(store: LocalStore) -> None:
    paths = filled(store)
    loose = tree_of(store, "loose")
    store.barrier()
    overwrite(paths["tree"], b"x")
    refused("E-STORE-DAMAGED", store.gc)
    paths["tree"].unlink()
    refused("E-STORE-MISSING", store.gc)
    assert store.contains(loose)


def test_collection_waits_for_leases(store: LocalStore) -> None:
    digest = tree_of(store, "one")
    store.barrier()
    with LocalStore.open(store.path) as other:
        with other.lease():
            assert refused("E-STORE-BUSY", store.gc).exit_status == 10
            assert store.contains(digest)
        store.gc()
    assert not store.contains(digest)


def test_collection_spares_what_an_open_store_has_not_named_yet(store: LocalStore) -> None:
    digest = tree_of(store, "pending")
    with LocalStore.open(store.path) as other:
        other.gc()
    store.barrier()
    assert store.contains(digest)
    assert store.verify().problems == []


def test_collection_clears_up_after_the_dead(store: LocalStore) -> None:
    session = store.path / "tmp" / "12345-0123456789ab"
    session.mkdir()
    (session / "1").write_bytes(b"half")
    making = store.path / "materialised" / f".{session.name}-2"
    (making / "sub").mkdir(parents=True)
    (making / "sub" / "f").write_bytes(b"half")
    making.chmod(0o555)
    (store.path / "locks" / f"action-{'0' * 64}").touch()
    assert store.verify().problems == []
    store.gc()
    assert list((store.path / "tmp").iterdir()) == []
    assert list((store.path / "materialised").iterdir()) == []
    assert [p.name for p in (store.path / "locks").iterdir()] == ["store"]


# -- locks and processes ---------------------------------------------------------------------------

HOLD = """
import sys, time
from pathlib import Path
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.digest import Digest
store = LocalStore.open(Path(sys.argv[1]))
with store.lease(), store.lock_action(Digest.of(b"action")):
    print("held", flush=True)
    time.sleep(600)
"""


def test_locks_exclude_processes_and_die_with_their_owner(store: LocalStore) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store.path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    got = threading.Event()

    def wait() -> None:
        with store.lock_action(Digest.of(b"action")):
            got.set()

    waiter = threading.Thread(target=wait)
    waiter.start()
    assert not got.wait(0.2)
    refused("E-STORE-BUSY", store.gc)
    holder.kill()
    holder.wait()
    holder.stdout.close()
    waiter.join(60)
    assert got.is_set()
    assert [p.name for p in (store.path / "locks").iterdir()] == ["store"]
    store.gc()


def test_a_lock_whose_file_moved_on_is_not_held(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between our wait and its end the holder removed the file, and another made a new one."""
    path = store.path / "locks" / f"action-{Digest.of(b'a').hex}"
    real = fcntl.flock
    rivals: list[int] = []
    released = threading.Event()

    def release() -> None:
        released.set()
        path.unlink()
        os.close(rivals[0])

    def flock(fd: int, operation: int) -> None:
        real(fd, operation)
        if not rivals:
            path.unlink()
            rivals.append(os.open(path, os.O_RDWR | os.O_CREAT))
            real(rivals[0], fcntl.LOCK_EX)
            threading.Timer(0.1, release).start()

    monkeypatch.setattr(fcntl, "flock", flock)
    with store.lock_action(Digest.of(b"a")):
        assert released.is_set()


def test_locks_are_not_inherited(store: LocalStore) -> None:
    with store.lease(), store.lock_action(Digest.of(b"a")):
        child = subprocess.run(
            ["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, check=True
        )
    assert str(store.path) not in child.stdout


ADD = """
import io, os, sys
from pathlib import Path
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.tree import Tree
with LocalStore.open(Path(sys.argv[1]), create=True) as store, store.lease():
    for n in range(30):
        entries = {b"%d" % m: store.add_blob(io.BytesIO(b"%d" % (n * m))) for m in range(20)}
        tree = Tree.of(entries)
        store.add_trees({tree.digest: tree})
        store.materialise(tree.digest)
    store.barrier()
"""


def test_processes_that_add_the_same_at_once(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    adders = [subprocess.Popen([sys.executable, "-c", ADD, str(path)]) for _ in range(4)]
    assert [adder.wait() for adder in adders] == [0] * 4
    with LocalStore.open(path) as store:
        report = store.verify()
    assert report.problems == []
    assert report.trees == 30 and report.materialised == 30


def test_killed_at_random_and_run_again(tmp_path: Path) -> None:
    path = tmp_path / "store"
    for attempt in range(8):
        adder = subprocess.Popen([sys.executable, "-c", ADD, str(path)])
        time.sleep(0.06 + attempt * 0.03)
        adder.kill()
        adder.wait()
        if (path / "format").exists():
            with LocalStore.open(path) as store:
                assert store.verify().problems == []
    assert subprocess.run([sys.executable, "-c", ADD, str(path)], check=False).returncode == 0
    with LocalStore.open(path) as store:
        assert store.verify().problems == []
        store.gc()
        assert list((store.path / "tmp").iterdir()) == []


# -- the rest ------------------------------------------------------------------------------------


def test_what_is_pending_is_gone_after_close(tmp_path: Path) -> None:
    with LocalStore.open(tmp_path / "s", create=True) as store:
        digest = tree_of(store, "pending")
        assert store.contains(digest)
    assert list((tmp_path / "s" / "tmp").iterdir()) == []
    with LocalStore.open(tmp_path / "s") as store:
        assert not store.contains(digest)


def test_a_wrong_derivation_document_is_refused(store: LocalStore) -> None:
    drv = Derivation(name="n", builder="builtin:join")
    good = encode(drv.document())
    refused("E-DERIVATION", lambda: store.add_derivations({Digest.of(b"other"): good}))
    refused(
        "E-DERIVATION",
        lambda: store.add_derivations({drv.digest: good.replace(b'"n"', b'"m"')}),
    )
    assert store.verify().drvs == 0


def test_a_memo_may_be_lost(store: LocalStore) -> None:
    filled(store)
    drv = next(p for p in (store.path / "chosen").rglob("*") if p.is_file())
    overwrite(drv, b"")
    assert store.realized(Digest(drv.name)) is None
    assert store.verify().problems == []


def test_a_memo_speaks_of_its_derivation_alone(store: LocalStore) -> None:
    """One that lies under another name is damage; one of an older release says nothing."""
    one, other = (recorded(store, name, tree_of(store, name)) for name in ("one", "other"))
    keep(store, "root", one, other)
    memos = [store.path / "chosen" / r.drv.hex[:2] / r.drv.hex for r in (one, other)]
    texts = [memo.read_bytes() for memo in memos]
    for memo, text in zip(memos, reversed(texts), strict=True):
        overwrite(memo, text)
    glance = Glance.into(str(store.path))
    assert glance is not None
    for record, text in ((one, texts[0]), (other, texts[1])):
        assert store.realized(record.drv) is None
        assert not glance.has_realized(record.drv.hex)
        assert record.drv.hex.encode() in text
    assert sorted(p.kind for p in store.verify().problems) == ["damaged", "damaged"]
    assert len(store.repair().memos) == 2
    assert store.verify().problems == []
    store.choose(one.drv, one)
    assert store.realized(one.drv) == one and glance.has_realized(one.drv.hex)
    overwrite(memos[0], b"/".join(texts[0].split(b"/")[:2]) + b"\n")
    assert store.realized(one.drv) is None
    assert store.verify().problems == []
    store.gc()
    assert not memos[0].exists()


def test_space_is_asked_for(store: LocalStore) -> None:
    store.require_space(1)
    error = refused("E-DISK-SPACE", lambda: store.require_space(2**60))
    assert error.exit_status == 10 and error.facts["needed_bytes"] == 2**60
    assert isinstance(error.facts["free_bytes"], int)


def test_info_counts(store: LocalStore) -> None:
    filled(store)
    info = store.info()
    assert info.roots == 1 and info.format == 0
    assert info.kinds["records"].count == 1 and info.kinds["trees"].count == 3
    assert info.kinds["blobs"].bytes > 0


def test_a_link_target_may_be_anything_that_linux_takes(store: LocalStore) -> None:
    tree = Tree.of({b"l": Symlink(b"\xff" * 4095)})
    store.add_trees({tree.digest: tree})
    path = store.materialise(tree.digest)
    assert os.readlink(os.fsencode(path) + b"/l") == b"\xff" * 4095


@pytest.mark.parametrize("name", ["n" * 256, "/".join(["n" * 200] * 30)])
@pytest.mark.parametrize("create", [False, True])
def test_a_path_that_is_too_long_is_no_damaged_store(
    tmp_path: Path, name: str, create: bool
) -> None:
    error = refused("E-USAGE", lambda: LocalStore.open(tmp_path / name, create=create))
    assert "too long" in error.message
    assert "--store" in str(error.hint)
