"""The store against a dict, and directories of every shape through it and back."""

from __future__ import annotations

import io
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from reprobuild.adapters.store import durable
from reprobuild.adapters.store.names import file_name, root_name
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.derivation import Isolation
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import encode
from reprobuild.core.record import Record
from reprobuild.core.tree import Directory, Entry, File, Symlink, Tree
from reprobuild.errors import ReprobuildError

names = st.binary(min_size=1, max_size=12).filter(
    lambda n: n not in (b".", b"..") and b"/" not in n and b"\0" not in n
)
contents = st.one_of(st.binary(max_size=40), st.sampled_from([b"", b"twin", b"\0" * 5000]))
targets = st.binary(min_size=1, max_size=20).filter(lambda t: b"\0" not in t)
leaves = st.one_of(
    st.tuples(st.just("file"), contents, st.booleans()),
    st.tuples(st.just("link"), targets),
)
directories = st.recursive(
    st.dictionaries(names, leaves, max_size=4),
    lambda inner: st.dictionaries(names, st.one_of(leaves, inner), max_size=4),
    max_leaves=12,
)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing here is about power failures (tests/crash is)."""
    for name in ("fsync", "syncfs"):
        monkeypatch.setattr(durable, name, lambda _: None)
    yield


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def write(path: bytes, directory: dict[bytes, object], order: list[bytes] | None = None) -> None:
    os.mkdir(path)
    for name in order or list(directory):
        value = directory[name]
        place = path + b"/" + name
        if isinstance(value, dict):
            write(place, value)
            continue
        assert isinstance(value, tuple)
        if value[0] == "link":
            os.symlink(value[1], place)
            continue
        with open(place, "wb") as file:
            file.write(value[1])
        os.chmod(place, 0o744 if value[2] else 0o640)


def read(path: bytes) -> dict[bytes, object]:
    found: dict[bytes, object] = {}
    for name in os.listdir(path):
        place = path + b"/" + name
        info = os.lstat(place)
        if stat.S_ISDIR(info.st_mode):
            found[name] = read(place)
        elif stat.S_ISLNK(info.st_mode):
            found[name] = ("link", os.readlink(place))
        else:
            with open(place, "rb") as file:
                found[name] = ("file", file.read(), bool(info.st_mode & 0o100))
    return found


def inodes(path: bytes) -> list[int]:
    return [
        os.lstat(os.path.join(top, name)).st_ino
        for top, _, files in os.walk(path)
        for name in files
    ]


fixtures = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@fixtures
@given(directory=directories)
def test_capture_then_materialise_is_identity(home: Path, directory: dict[bytes, object]) -> None:
    top = Path(tempfile.mkdtemp(dir=home))
    source = os.fsencode(top / "source")
    write(source, directory)
    with LocalStore.open(home / "shared", create=True) as store:  # one for all: twins everywhere
        digest = store.capture(top / "source")
        made = store.materialise(digest)
        assert read(os.fsencode(made)) == directory
        assert store.capture(made) == digest
        together = [
            i for m in (home / "shared" / "materialised").iterdir() for i in inodes(os.fsencode(m))
        ]
        assert len(together) == len(set(together))
    shutil.rmtree(top)


@fixtures
@given(directory=directories, data=st.data())
def test_the_order_of_creation_is_not_seen(
    home: Path, directory: dict[bytes, object], data: st.DataObject
) -> None:
    top = Path(tempfile.mkdtemp(dir=home))
    order = data.draw(st.permutations(list(directory)))
    write(os.fsencode(top / "a"), directory)
    write(os.fsencode(top / "b"), directory, order)
    with LocalStore.open(home / "shared", create=True) as store:
        assert store.capture(top / "a") == store.capture(top / "b")
    shutil.rmtree(top)


@fixtures
@given(name=st.text(min_size=1, max_size=40))
def test_root_names_are_kept_apart(name: str) -> None:
    try:
        text = file_name(name)
    except ReprobuildError:
        assume(False)
    assert root_name(text) == name
    assert "/" not in text and not text.startswith(".")


class Model(RuleBasedStateMachine):
    """Any sequence of calls; the dicts say what has to be there."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for name in ("fsync", "syncfs"):
            self.patch.setattr(durable, name, lambda _: None)
        self.home = Path(tempfile.mkdtemp())
        self.store = LocalStore.open(self.home / "store", create=True)
        self.blobs: dict[Digest, bytes] = {}
        self.trees: dict[Digest, Tree] = {}
        self.named: tuple[set[Digest], set[Digest]] = (set(), set())
        self.records: dict[Digest, dict[Digest, Record]] = {}
        self.roots: dict[str, Digest] = {}

    def teardown(self) -> None:
        self.store.close()
        self.patch.undo()
        shutil.rmtree(self.home)

    @rule(data=contents, executable=st.booleans())
    def add_blob(self, data: bytes, executable: bool) -> None:
        file = self.store.add_blob(io.BytesIO(data), executable=executable, size=len(data))
        assert file == File(Digest.of(data), len(data), executable)
        self.blobs[file.digest] = data

    @rule(data=st.data())
    def add_tree(self, data: st.DataObject) -> None:
        kinds: list[st.SearchStrategy[Entry]] = [targets.map(Symlink)]
        if self.blobs:
            chosen = st.sampled_from(sorted(self.blobs))
            kinds.append(
                st.builds(lambda d, x: File(d, len(self.blobs[d]), x), chosen, st.booleans())
            )
        if self.trees:
            kinds.append(st.sampled_from(sorted(self.trees)).map(Directory))
        entries = data.draw(st.dictionaries(names, st.one_of(kinds), max_size=3))
        tree = Tree.of(entries)
        self.store.add_trees({tree.digest: tree})
        self.trees[tree.digest] = tree

    @rule()
    def barrier(self) -> None:
        self.store.barrier()
        self.named = (set(self.blobs), set(self.trees))

    @rule()
    def reopen(self) -> None:
        """What has not passed a barrier is gone, everything else is there."""
        self.store.close()
        self.store = LocalStore.open(self.home / "store")
        blobs, trees = self.named
        self.blobs = {d: b for d, b in self.blobs.items() if d in blobs}
        self.trees = {d: t for d, t in self.trees.items() if d in trees}

    @rule(data=st.data())
    def materialise(self, data: st.DataObject) -> None:
        if self.trees:
            digest = data.draw(st.sampled_from(sorted(self.trees)))
            self.store.materialise(digest)
            self.barrier()  # it names what is pending

    @rule(data=st.data(), duration=st.integers(0, 3))
    def add_record(self, data: st.DataObject, duration: int) -> None:
        if not self.trees:
            return
        tree = data.draw(st.sampled_from(sorted(self.trees)))
        action = Digest.of(data.draw(st.sampled_from([b"a", b"b"])))
        record = Record(action, action, {"out": tree}, Isolation.FULL, duration)
        self.store.add_record(record)
        self.named = (set(self.blobs), set(self.trees))
        self.records.setdefault(action, {})[record.digest] = record

    @rule(data=st.data(), name=st.sampled_from(["r1", "r2"]))
    def set_root(self, data: st.DataObject, name: str) -> None:
        if self.trees:
            tree = data.draw(st.sampled_from(sorted(self.trees)))
            self.store.set_root(name, encode({"keep": {"trees": [tree.hex]}}))
            self.named = (set(self.blobs), set(self.trees))
            self.roots[name] = tree

    @rule()
    def collect(self) -> None:
        self.barrier()
        self.store.gc()
        live: set[Digest] = set()
        stack = list(self.roots.values())
        while stack:
            digest = stack.pop()
            live.add(digest)
            stack += [e.digest for _, e in self.trees[digest] if isinstance(e, Directory)]
        self.trees = {d: t for d, t in self.trees.items() if d in live}
        files = {e.digest for t in self.trees.values() for _, e in t if isinstance(e, File)}
        for digest in set(self.blobs) - files:
            with pytest.raises(ReprobuildError):
                self.store.open_blob(digest)
        self.blobs = {d: b for d, b in self.blobs.items() if d in files}
        self.records = {}
        self.named = (set(self.blobs), set(self.trees))

    @invariant()
    def holds_what_it_should(self) -> None:
        for digest, data in self.blobs.items():
            with self.store.open_blob(digest) as source:
                assert source.read() == data
        for digest, tree in self.trees.items():
            assert self.store.contains(digest)
            assert self.store.tree(digest) == tree
        for action in (Digest.of(b"a"), Digest.of(b"b")):
            wanted = [r for _, r in sorted(self.records.get(action, {}).items())]
            assert list(self.store.records(action)) == wanted
        assert self.store.roots() == sorted(self.roots)

    @invariant()
    def is_sound(self) -> None:
        assert self.store.verify(jobs=1).problems == []


TestModel = Model.TestCase
TestModel.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
