"""One suite for ports.ContentStore and ports.Catalog, over every store that there is."""

from __future__ import annotations

import io
import os
import socket
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.derivation import Derivation, Isolation
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import encode
from reprobuild.core.record import Record
from reprobuild.core.tree import EMPTY, Directory, File, Symlink, Tree
from reprobuild.errors import ReprobuildError
from reprobuild.ports import Catalog, ContentStore


class Store(ContentStore, Catalog, Protocol):
    """Both ports in one object."""


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore(tmp_path / "materialised")
        return
    with LocalStore.open(tmp_path / "store", create=True) as local:
        yield local
        assert local.verify().problems == []


def blob(store: Store, data: bytes, executable: bool = False) -> File:
    return store.add_blob(io.BytesIO(data), executable=executable)


def code(error: pytest.ExceptionInfo[ReprobuildError]) -> str:
    return error.value.code


def a_record(tree: Digest, **fields: object) -> Record:
    values: dict[str, object] = {
        "action": Digest.of(b"action"),
        "drv": Digest.of(b"drv"),
        "outputs": {"out": tree},
        "name": "thing",
    }
    return Record(**{**values, **fields})  # type: ignore[arg-type]


# -- blobs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"x", b"\0" * 4096, os.urandom(3 * 2**20)])
def test_a_blob_comes_back(store: Store, data: bytes) -> None:
    file = blob(store, data)
    assert file == File(Digest.of(data), len(data), False)
    with store.open_blob(file.digest) as source:
        assert source.read() == data
    store.barrier()
    with store.open_blob(file.digest) as source:
        assert source.read() == data


def test_large_content_is_spooled(store: Store) -> None:
    data = os.urandom(9 * 2**20)
    file = store.add_blob(io.BytesIO(data), size=len(data))
    assert file.digest == Digest.of(data)
    with store.open_blob(file.digest) as source:
        assert source.read(10) == data[:10]
        assert b"".join(iter(lambda: source.read(2**16), b"")) == data[10:]


@pytest.mark.parametrize("promised", [0, 4, 6, 9 * 2**20])
def test_a_promised_size_is_held(store: Store, promised: int) -> None:
    with pytest.raises(ReprobuildError) as error:
        store.add_blob(io.BytesIO(b"12345"), size=promised)
    assert code(error) == "E-CONTENT-SIZE"


def test_a_promised_size_is_held_for_large_content(store: Store) -> None:
    for wrong in (-1, 1):
        data = bytes(9 * 2**20)
        with pytest.raises(ReprobuildError) as error:
            store.add_blob(io.BytesIO(data), size=len(data) + wrong)
        assert code(error) == "E-CONTENT-SIZE"


def test_an_absent_blob_is_missing(store: Store) -> None:
    with pytest.raises(ReprobuildError) as error:
        store.open_blob(Digest.of(b"never added"))
    assert code(error) == "E-STORE-MISSING"
    assert error.value.exit_status == 7


@pytest.mark.parametrize("data", [b"", b"x", os.urandom(3 * 2**20)])
def test_a_blob_is_read_at_once(store: Store, data: bytes) -> None:
    file = blob(store, data)
    for _ in range(2):
        assert store.read_blob(file) == data
        assert store.read_blob(replace(file, executable=True)) == data
        store.barrier()
    for wrong in (-1, 1):
        if file.size + wrong >= 0:
            with pytest.raises(ReprobuildError) as error:
                store.read_blob(replace(file, size=file.size + wrong))
            assert code(error) == "E-STORE-DAMAGED"
    with pytest.raises(ReprobuildError) as error:
        store.read_blob(File(Digest.of(b"never added"), 11))
    assert code(error) == "E-STORE-MISSING"


# -- trees ---------------------------------------------------------------------------------------


def test_trees_come_back_whatever_order_they_are_given_in(store: Store) -> None:
    file = blob(store, b"text")
    inner = Tree.of({b"f": file, b"l": Symlink(b"../away")})
    outer = Tree.of({b"d": Directory(inner.digest), b"\xff\xfe": file})
    assert not store.contains(outer.digest)
    store.add_trees({outer.digest: outer, inner.digest: inner})
    for _ in range(2):
        assert store.contains(outer.digest) and store.contains(inner.digest)
        assert store.tree(outer.digest) == outer
        assert store.tree(inner.digest) == inner
        store.barrier()


def test_a_tree_is_not_taken_without_its_parts(store: Store) -> None:
    absent = Tree.of({b"f": File(Digest.of(b"gone"), 4)})
    parent = Tree.of({b"d": Directory(Digest.of(b"gone, too"))})
    for tree in (absent, parent):
        with pytest.raises(ReprobuildError) as error:
            store.add_trees({tree.digest: tree})
        assert code(error) == "E-STORE-MISSING"
        assert not store.contains(tree.digest)


def test_a_tree_under_a_wrong_digest_is_not_taken(store: Store) -> None:
    with pytest.raises(ReprobuildError) as error:
        store.add_trees({Digest.of(b"other"): EMPTY})
    assert code(error) == "E-TREE"
    assert not store.contains(Digest.of(b"other"))


def test_nodes_that_claim_to_hold_each_other_end(store: Store) -> None:
    a, b = Digest.of(b"a"), Digest.of(b"b")
    with pytest.raises(ReprobuildError):
        store.add_trees({a: Tree.of({b"x": Directory(b)}), b: Tree.of({b"x": Directory(a)})})
    assert not store.contains(a) and not store.contains(b)


def test_one_content_serves_both_modes(store: Store) -> None:
    plain = blob(store, b"#!/bin/sh\n")
    tree = Tree.of({b"run": File(plain.digest, plain.size, True), b"read": plain})
    store.add_trees({tree.digest: tree})
    path = store.materialise(tree.digest)
    assert stat.S_IMODE((path / "run").stat().st_mode) == 0o555
    assert stat.S_IMODE((path / "read").stat().st_mode) == 0o444


def test_an_absent_tree_is_missing(store: Store) -> None:
    for ask in (store.tree, store.materialise):
        with pytest.raises(ReprobuildError) as error:
            ask(Digest.of(b"never added"))
        assert code(error) == "E-STORE-MISSING"


# -- capture and materialise ---------------------------------------------------------------------


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with one of everything that a tree can hold."""
    top = tmp_path / "source"
    (top / "sub" / "deeper").mkdir(parents=True)
    (top / "empty").mkdir()
    (top / "plain").write_bytes(b"plain")
    (top / "twin").write_bytes(b"plain")
    (top / "sub" / "nothing").write_bytes(b"")
    (top / "sub" / "script").write_bytes(b"#!/bin/sh\n")
    (top / "sub" / "script").chmod(0o750)
    os.link(top / "plain", top / "sub" / "hard")
    (top / "dangling").symlink_to("/nowhere/at all")
    (top / "sub" / "up").symlink_to("../plain")
    (top / os.fsdecode(b"not \xff utf-8\n")).write_bytes(b"name")
    return top


def test_capture_and_materialise_keep_everything(store: Store, directory: Path) -> None:
    digest = store.capture(directory)
    assert store.contains(digest)
    path = store.materialise(digest)
    assert store.capture(path) == digest
    assert (path / "plain").read_bytes() == (path / "sub" / "hard").read_bytes() == b"plain"
    assert os.readlink(path / "dangling") == "/nowhere/at all"
    assert (path / os.fsdecode(b"not \xff utf-8\n")).read_bytes() == b"name"
    assert list((path / "empty").iterdir()) == []


def test_a_materialised_tree_is_constant(store: Store, directory: Path) -> None:
    one = store.materialise(store.capture(directory))
    two = store.materialise(store.capture(directory / "sub"))
    assert store.materialise(store.capture(directory)) == one
    seen: dict[tuple[int, int], Path] = {}
    for top in (one, two):
        for path in (top, *top.rglob("*")):
            info = path.lstat()
            if path.is_symlink():
                continue
            if path.is_dir():
                assert stat.S_IMODE(info.st_mode) == 0o555, path
            else:
                executable = path.name == "script"
                assert stat.S_IMODE(info.st_mode) == (0o555 if executable else 0o444), path
                assert (info.st_dev, info.st_ino) not in seen, path
                seen[(info.st_dev, info.st_ino)] = path
            assert info.st_mtime_ns == 10**9, path


def test_materialised_blobs_are_constant_and_alone(store: Store) -> None:
    file = blob(store, b"content")
    tree = Tree.of({b"f": file})
    store.add_trees({tree.digest: tree})
    paths = [
        store.materialise(tree.digest) / "f",
        store.materialise_blob(file.digest, executable=False),
        store.materialise_blob(file.digest, executable=True),
    ]
    assert store.materialise_blob(file.digest, executable=True) == paths[2]
    assert [p.read_bytes() for p in paths] == [b"content"] * 3
    assert [stat.S_IMODE(p.stat().st_mode) for p in paths] == [0o444, 0o444, 0o555]
    assert {p.stat().st_mtime_ns for p in paths} == {10**9}
    assert len({p.stat().st_ino for p in paths}) == 3


@pytest.mark.parametrize("kind", ["fifo", "socket"])
def test_special_files_are_named(store: Store, directory: Path, kind: str) -> None:
    place = directory / "sub" / "special"
    if kind == "fifo":
        os.mkfifo(place)
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            here = Path.cwd()
            os.chdir(place.parent)  # the address of a socket is short
            try:
                listener.bind(place.name)
            finally:
                os.chdir(here)
    with pytest.raises(ReprobuildError) as error:
        store.capture(directory)
    assert code(error) == "E-OUTPUT-SPECIAL"
    assert "special" in error.value.message


def test_a_limit_holds(store: Store, directory: Path) -> None:
    total = sum(
        p.stat().st_size for p in directory.rglob("*") if not p.is_symlink() and p.is_file()
    )
    assert store.contains(store.capture(directory, limit=total))
    with pytest.raises(ReprobuildError) as error:
        store.capture(directory, limit=total - 1)
    assert code(error) == "E-OUTPUT-SIZE"


# -- the catalog ---------------------------------------------------------------------------------


def test_records_come_back_in_order(store: Store) -> None:
    store.add_trees({EMPTY.digest: EMPTY})
    store.barrier()
    records = [a_record(EMPTY.digest, duration_ms=n) for n in range(5)]
    for record in (*records, records[0]):
        store.add_record(record)
    assert list(store.records(Digest.of(b"action"))) == sorted(records, key=lambda r: r.digest)
    assert list(store.records(Digest.of(b"another"))) == []


def test_two_trees_for_one_action_are_both_kept(store: Store) -> None:
    other = Tree.of({b"l": Symlink(b"x")})
    store.add_trees({EMPTY.digest: EMPTY, other.digest: other})
    store.barrier()
    for tree in (EMPTY, other):
        store.add_record(a_record(tree.digest, isolation=Isolation.NONE))
    found = {r.outputs["out"] for r in store.records(Digest.of(b"action"))}
    assert found == {EMPTY.digest, other.digest}


def test_a_record_does_not_dangle(store: Store) -> None:
    with pytest.raises(ReprobuildError) as error:
        store.add_record(a_record(Digest.of(b"no such tree")))
    assert code(error) == "E-STORE-MISSING"
    assert list(store.records(Digest.of(b"action"))) == []


def test_the_last_choice_counts(store: Store) -> None:
    store.add_trees({EMPTY.digest: EMPTY})
    store.barrier()
    drv = Digest.of(b"drv")
    assert store.realized(drv) is None
    for number in (1, 2, 1):
        record = a_record(EMPTY.digest, duration_ms=number)
        store.add_record(record)
        store.choose(drv, record)
        assert store.realized(drv) == record


def test_derivations_come_back(store: Store) -> None:
    drv = Derivation(name="hello", builder="builtin:join", params={"a": 1})
    data = encode(drv.document())
    assert store.derivation(drv.digest) is None
    store.add_derivations({drv.digest: data})
    store.add_derivations({drv.digest: data})
    assert store.derivation(drv.digest) == data


@pytest.mark.parametrize("name", ["quickstart", "out/a b", "ü", ".hidden", "%41", "A"])
def test_roots_have_any_name(store: Store, name: str) -> None:
    assert store.root(name) is None
    for document in (b'{"keep":{}}', b'{"keep":{"trees":[]}}'):
        store.set_root(name, document)
        assert store.root(name) == document


def test_a_root_needs_a_name(store: Store) -> None:
    with pytest.raises(ReprobuildError) as error:
        store.set_root("", b'{"keep":{}}')
    assert code(error) == "E-NAME"


def test_one_holder_of_an_action_at_a_time(store: Store) -> None:
    action = Digest.of(b"action")
    inside = 0
    most = 0
    guard = threading.Lock()
    turns: list[int] = []

    def work(number: int) -> None:
        nonlocal inside, most
        for _ in range(20):
            with store.lock_action(action):
                with guard:
                    inside += 1
                    most = max(most, inside)
                turns.append(number)
                with guard:
                    inside -= 1

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert len(turns) == 80


def test_leases_are_shared(store: Store) -> None:
    with store.lease(), store.lease():
        pass
