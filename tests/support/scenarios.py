"""What is done to a store under fire: what is there before, the work itself, and what must hold.

Each scenario works below one directory: `store/` and what it reads. `prepare` fills a template,
of which every trial takes a copy.
"""

from __future__ import annotations

import io
import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.derivation import Derivation
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import encode
from reprobuild.core.record import Record
from reprobuild.core.tree import Directory, Symlink, Tree
from support.bundles import bring, make_release, write
from support.localworld import realize, small_graph
from support.stores import blob_path, flip, keep, put, recorded, tree_of, tree_path

DRV = Derivation(name="thing", builder="builtin:join", params={})
ACTION = Digest.of(b"action")


def copy(template: Path, target: Path) -> None:
    """With links and times as they are."""
    subprocess.run(["cp", "-a", str(template), str(target)], check=True)


def recorded_actions(store: Path) -> set[str]:
    """The actions that have a record."""
    try:
        return {p.parent.name for p in (store / "records").glob("*/*")}
    except OSError:
        return set()


class Scenario:
    """The base: an empty template, and a store that must be sound whatever happened."""

    name = ""

    def prepare(self, home: Path) -> None:
        """Fills the template."""

    def act(self, home: Path) -> None:
        """The work under fire."""
        raise NotImplementedError

    def cut_short(self, home: Path) -> None:
        """What must hold right after the process died or was refused."""
        if (home / "store" / "format").exists():
            with LocalStore.open(home / "store") as store:
                assert store.verify(jobs=1).problems == []

    def rerun(self, home: Path) -> None:
        """The same work again: it completes, and leaves what a clean run leaves."""
        self.act(home)
        with LocalStore.open(home / "store") as store:
            assert store.verify(jobs=1).problems == []
            self.complete(store)
            store.gc()
            assert store.verify(jobs=1).problems == []
            self.complete(store)
            clean(store)

    def complete(self, store: LocalStore) -> None:
        """All that was wanted is there."""


def clean(store: LocalStore) -> None:
    """After a collection nothing of the dead is left."""
    assert [e for e in os.listdir(store.path / "materialised") if e.startswith(".")] == []
    for pending in (store.path / "tmp").iterdir():
        assert pending.is_dir() and list(pending.iterdir()) == []
    assert list((store.path / "build").iterdir()) == []
    assert [e for e in os.listdir(store.path / "locks") if e.startswith("action-")] == []


class Add(Scenario):
    """A directory is captured, put on record, kept and laid out."""

    name = "add"

    def prepare(self, home: Path) -> None:
        top = home / "source"
        (top / "a" / "b").mkdir(parents=True)
        (top / "a" / "one").write_bytes(b"one")
        (top / "a" / "b" / "twin").write_bytes(b"one")
        (top / "a" / "b" / "large").write_bytes(bytes(range(200)))
        (top / "run").write_bytes(b"#!/bin/sh\n")
        (top / "run").chmod(0o755)
        (top / "link").symlink_to("a/one")

    def act(self, home: Path) -> None:
        with LocalStore.open(home / "store", create=True) as store, store.lease():
            self._add(store, home / "source")

    def _add(self, store: LocalStore, source: Path) -> None:
        with store.lock_action(ACTION):
            file = put(store, b"some content")
            store.add_blob(io.BytesIO(bytes(100)), executable=True)
            inner = Tree.of({b"f": file, b"l": Symlink(b"f")})
            outer = Tree.of({b"d": Directory(inner.digest)})
            store.add_trees({outer.digest: outer, inner.digest: inner})
            tree = store.capture(source)
            store.barrier()
            store.add_derivations({DRV.digest: encode(DRV.document())})
            record = Record(ACTION, DRV.digest, {"out": tree}, name="thing")
            store.add_record(record)
            store.choose(DRV.digest, record)
            keep(store, "output", record)
            store.materialise(tree)
            store.materialise(inner.digest)
            store.materialise_blob(file.digest, executable=False)

    def complete(self, store: LocalStore) -> None:
        found = store.realized(DRV.digest)
        assert found is not None and store.contains(found.outputs["out"])


class Realize(Scenario):
    """Two sources, three builds and a built-in, by two jobs at once."""

    name = "realize"

    def act(self, home: Path) -> None:
        with LocalStore.open(home / "store", create=True) as store:
            realize(store, small_graph(), home.with_name(f"{home.name}.built"))

    def rerun(self, home: Path) -> None:
        notes = home.with_name(f"{home.name}.built")
        before = recorded_actions(home / "store")
        with LocalStore.open(home / "store", create=True) as store:
            names = {r.name for a in before for r in store.records(Digest(a))}
        built = notes.read_text().split() if notes.exists() else []
        notes.unlink(missing_ok=True)
        super().rerun(home)
        again = notes.read_text().split() if notes.exists() else []
        assert not names & set(again), (names, again)  # nothing that is on record is built again
        assert {"first", "second", "third"} <= {*built, *again}
        assert len(again) == len(set(again))

    def complete(self, store: LocalStore) -> None:
        whole = small_graph()[-1].digest
        found = store.realized(whole)
        assert found is not None and store.contains(found.outputs["out"])
        assert store.root("output") is not None


class Import(Scenario):
    """A bundle of a small release comes in."""

    name = "import"

    def prepare(self, home: Path) -> None:
        release = make_release(home / "origin")
        write(home / "bundle", release.plan())
        release.store.close()

    def act(self, home: Path) -> None:
        with LocalStore.open(home / "store", create=True) as store:
            bring(home / "bundle", store)

    def complete(self, store: LocalStore) -> None:
        names = [name for name in store.roots() if name.startswith("import")]
        assert len(names) == 1
        brought = {r.name for a in recorded_actions(store.path) for r in store.records(Digest(a))}
        assert brought == {"a.result", "inputs.source", "inputs.thing:0"}


@dataclass
class Filled:
    """Two recorded trees that share a file; a third that nothing keeps."""

    store: LocalStore

    def __post_init__(self) -> None:
        store = self.store
        self.inner = tree_of(store, "one")
        self.kept = tree_of(store, "two", below=self.inner)
        self.other = tree_of(store, "two", "three")
        self.doomed = tree_of(store, "one", "doomed", below=tree_of(store, "deep"))
        store.barrier()
        self.records = [
            recorded(store, "kept", self.kept),
            recorded(store, "other", self.other),
            recorded(store, "doomed", self.doomed, duration_ms=1234),
        ]
        keep(store, "kept", *self.records[:2])
        keep(store, "other", self.records[1])
        for tree in (self.kept, self.other, self.doomed):
            store.materialise(tree)
        (store.logs / "doomed.log").write_text("log")


class Collect(Scenario):
    """A collection, with leftovers of the dead about."""

    name = "gc"

    def prepare(self, home: Path) -> None:
        with LocalStore.open(home / "store", create=True) as store:
            Filled(store)
            for name in ("build/build-dead", "tmp/1-dead"):
                (store.path / name / "deep").mkdir(parents=True)
                (store.path / name / "deep" / "file").write_text("left")

    def act(self, home: Path) -> None:
        with LocalStore.open(home / "store") as store:
            store.gc()

    def complete(self, store: LocalStore) -> None:
        for name in ("kept", "other"):
            record = store.realized(Derivation(name=name, builder="builtin:join").digest)
            assert record is not None and store.contains(record.outputs["out"])
        assert store.realized(Derivation(name="doomed", builder="builtin:join").digest) is None
        assert not (store.logs / "doomed.log").exists()


class Repair(Scenario):
    """Damage of every kind is repaired. What was whole before must be whole after any cut."""

    name = "repair"

    def prepare(self, home: Path) -> None:
        with LocalStore.open(home / "store", create=True) as store:
            world = Filled(store)
            flip(blob_path(store, Digest.of(b"one")))
            flip(tree_path(store, world.doomed))
            record = world.records[2]
            flip(store.path / "records" / record.action.hex / record.digest.hex)
            blob_path(store, Digest.of(b"three")).chmod(0o644)

    def act(self, home: Path) -> None:
        with LocalStore.open(home / "store") as store:
            store.repair(jobs=1)

    def cut_short(self, home: Path) -> None:
        """Damage may be left, but nothing dangles that did not before; what is good is good."""
        with LocalStore.open(home / "store") as store:
            problems = store.verify(jobs=1).problems
            assert [p for p in problems if p.kind in ("misplaced",)] == []
            dangling = {p.object for p in problems if p.kind == "missing"}
            one = f"blob {Digest.of(b'one').hex}"
            assert all(one in name or "materialised" in name for name in dangling) or not dangling
            other = store.realized(Derivation(name="other", builder="builtin:join").digest)
            assert other is not None and store.contains(other.outputs["out"])

    def complete(self, store: LocalStore) -> None:
        other = store.realized(Derivation(name="other", builder="builtin:join").digest)
        assert other is not None and store.contains(other.outputs["out"])


class SetAside(Scenario):
    """One of two results of an action is taken out of use, and later into it again."""

    name = "quarantine"

    def prepare(self, home: Path) -> None:
        with LocalStore.open(home / "store", create=True) as store:
            Filled(store)
            first = recorded(store, "twice", tree_of(store, "one"))
            keep(store, "twice", first)
            store.add_record(replace(first, outputs={"out": tree_of(store, "two")}))

    def act(self, home: Path) -> None:
        with LocalStore.open(home / "store") as store:
            quarantine = store.quarantine
            (found,) = quarantine.disagreements()
            aside = [r.name for r in found.results if r.set_aside]
            for name in aside:
                quarantine.restore(name)
            for result in found.results:  # the one that a root keeps
                if b"one" in dict(store.tree(result.record.outputs["out"]).entries):
                    quarantine.set_aside(result.name)

    def complete(self, store: LocalStore) -> None:
        (found,) = store.quarantine.disagreements()
        assert found.settled and len(found.results) == 2
        for result in found.results:
            assert store.contains(result.record.outputs["out"])


SCENARIOS: tuple[type[Scenario], ...] = (Add, Realize, Import, Collect, Repair, SetAside)
