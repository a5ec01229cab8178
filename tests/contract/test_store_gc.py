"""Collection by age and size, its reserve, and what disagreements keep alive."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reprobuild.adapters.sandbox import etc
from reprobuild.adapters.store.names import file_name
from reprobuild.adapters.store.roots import Roots
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.derivation import Derivation
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import encode
from reprobuild.core.record import Record
from reprobuild.core.sandboxenv import ETC, ETC_NAME
from support.localworld import realize, small_graph
from support.stores import flip, keep, put, recorded, refused, tree_of

DAY = 86400.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LocalStore]:
    with LocalStore.open(tmp_path / "store", create=True) as opened:
        yield opened


def big_tree(store: LocalStore, name: str, size: int) -> Digest:
    """A tree with a file of `size` bytes of its own."""
    from reprobuild.core.tree import Tree

    file = put(store, name.encode() * (size // len(name)))
    tree = Tree.of({b"file": file})
    store.add_trees({tree.digest: tree})
    return tree.digest


def aged(store: LocalStore, record: Record, days: float) -> None:
    """The record, and the memo that chose it, as if made some days ago."""
    then = time.time() - days * DAY
    hex_drv = record.drv.hex
    for path in (
        store.path / "records" / record.action.hex / record.digest.hex,
        store.path / "chosen" / hex_drv[:2] / hex_drv,
    ):
        os.utime(path, (then, then))


def results(store: LocalStore, sizes: dict[str, int], days: dict[str, float]) -> dict[str, Record]:
    """One result for each name, each with content of its own, and an age."""
    made = {}
    for name, size in sizes.items():
        tree = big_tree(store, name, size)
        store.barrier()
        made[name] = recorded(store, name, tree, duration_ms=size // 1000)
        aged(store, made[name], days[name])
    return made


def here(store: LocalStore, records: dict[str, Record]) -> set[str]:
    found = set()
    for name, record in records.items():
        whole = store.contains(record.outputs["out"])
        assert whole == bool(store.records(record.action)), name
        if whole:
            found.add(name)
    return found


SIZES = {"new": 400_000, "old": 400_000, "older": 400_000, "kept": 400_000}
DAYS = {"new": 1.0, "old": 10.0, "older": 20.0, "kept": 90.0}


@pytest.mark.parametrize(
    ("days", "stay"),
    [(0.5, {"kept"}), (5, {"new", "kept"}), (15, {"new", "old", "kept"}), (30, set(SIZES))],
)
def test_what_is_younger_stays(store: LocalStore, days: float, stay: set[str]) -> None:
    made = results(store, SIZES, DAYS)
    keep(store, "root", made["kept"])
    plan = store.gc(older_than=days * DAY, dry_run=True)
    assert here(store, made) == set(SIZES)
    # content that no record names is as young as it is here: it was stored just now
    done = store.gc(older_than=days * DAY)
    assert {r.name for r in done.records} == {r.name for r in plan.records} == set(SIZES) - stay
    assert {n for n, r in made.items() if store.records(r.action)} == stay
    assert store.verify().problems == []
    assert not done.short and done.asked is None


def test_a_record_that_was_chosen_lately_is_young(store: LocalStore) -> None:
    made = results(store, {"old": 4000}, {"old": 30})
    hex_drv = made["old"].drv.hex
    os.utime(store.path / "chosen" / hex_drv[:2] / hex_drv)
    assert not store.gc(older_than=10 * DAY).records
    assert here(store, made) == {"old"}


def test_a_clock_that_jumped_makes_nothing_older(store: LocalStore) -> None:
    """Times in the future are young, whatever they say."""
    made = results(store, SIZES, dict.fromkeys(SIZES, -400.0))
    assert not store.gc(older_than=1.0).records
    assert here(store, made) == set(SIZES)


@pytest.mark.parametrize(
    ("wanted", "stay"),
    [
        (300_000, {"new", "old", "kept"}),
        (500_000, {"new", "kept"}),
        (1_000_000, {"kept"}),
        (10**9, {"kept"}),
    ],
)
def test_as_much_goes_as_was_asked_for_and_the_oldest_first(
    store: LocalStore, wanted: int, stay: set[str]
) -> None:
    made = results(store, SIZES, DAYS)
    keep(store, "root", made["kept"])
    plan = store.gc(free=wanted, dry_run=True)
    done = store.gc(free=wanted)
    assert here(store, made) == stay
    assert done.bytes == plan.bytes and done.asked == wanted
    if wanted == 10**9:
        assert done.bytes < wanted and plan.short == done.short
        assert any("the root root keeps" in line for line in done.short)
    else:
        assert done.bytes >= wanted and not done.short
    assert store.verify().problems == []


def on_disk(store: LocalStore) -> int:
    """Independent of the code under test: as `du` counts."""
    import subprocess

    done = subprocess.run(["du", "-s", "-B1", store.path], capture_output=True, check=True)
    return int(done.stdout.split()[0])


def test_the_store_is_no_larger_than_was_asked_for(store: LocalStore) -> None:
    made = results(store, SIZES, DAYS)
    keep(store, "root", made["kept"])
    for record in made.values():
        store.materialise(record.outputs["out"])
    before = on_disk(store)
    done = store.gc(max_size=before - 500_000)
    assert here(store, made) == {"new", "kept"}
    assert on_disk(store) <= before - 500_000
    assert not done.short
    assert store.gc(max_size=10**9).bytes == 0
    assert here(store, made) == {"new", "kept"}
    short = store.gc(max_size=1)
    assert short.short and short.asked is not None and short.asked > short.bytes
    assert here(store, made) == {"kept"}


def test_what_younger_results_share_with_older_stays(store: LocalStore) -> None:
    shared = tree_of(store, "shared")
    trees = {name: tree_of(store, name, below=shared) for name in ("new", "old")}
    store.barrier()
    made = {name: recorded(store, name, tree) for name, tree in trees.items()}
    aged(store, made["old"], 30)
    aged(store, made["new"], 1)
    done = store.gc(free=1)
    assert [r.name for r in done.records] == ["old"]
    assert here(store, made) == {"new"} and store.contains(shared)
    assert store.verify().problems == []


def test_age_and_size_together_and_why_not_more(store: LocalStore) -> None:
    made = results(store, SIZES, DAYS)
    done = store.gc(older_than=15 * DAY, free=10**7)
    assert here(store, made) == {"new", "old"}
    assert any("younger" in line for line in done.short)


def test_a_damaged_result_goes_whatever_its_age(store: LocalStore) -> None:
    made = results(store, {"new": 4000}, {"new": 0.0})
    record = made["new"]
    flip(store.path / "records" / record.action.hex / record.digest.hex)
    done = store.gc(free=1, older_than=DAY)
    assert [r.record for r in done.records] == [record.digest.hex]


# -- disagreements -------------------------------------------------------------------------------


def two_results(store: LocalStore, root: str = "root") -> tuple[Record, Record]:
    """One action, two trees; a root keeps the first."""
    drv = Derivation(name="thing", builder="builtin:join")
    action = Digest.of(b"thing")
    trees = [tree_of(store, "first"), tree_of(store, "second")]
    store.barrier()
    store.add_derivations({drv.digest: encode(drv.document())})
    one, two = (Record(action, drv.digest, {"out": tree}, name="thing") for tree in trees)
    store.add_record(one)
    store.choose(drv.digest, one)
    keep(store, root, one)
    store.set_root(f"{root}=result", encode({"keep": {"trees": [trees[0].hex]}}))
    store.add_record(two)
    return one, two


def test_a_result_that_disagrees_is_kept_with_what_it_disagrees_with(store: LocalStore) -> None:
    one, two = two_results(store)
    assert store.root("root=result") is None  # no remembered answer hides it
    assert not store.gc().records
    assert len(store.records(one.action)) == 2 and store.contains(two.outputs["out"])
    store.remove_root("root")
    assert len(store.gc().records) == 2
    assert store.records(one.action) == ()


def test_a_result_is_set_aside_restored_and_forgotten(store: LocalStore) -> None:
    one, two = two_results(store)
    quarantine = store.quarantine
    (found,) = quarantine.disagreements()
    assert not found.settled and {r.name for r in found.results} == {one.digest.hex, two.digest.hex}
    quarantine.set_aside(two.digest.hex[:12])
    assert store.records(one.action) == (one,)
    (found,) = quarantine.disagreements()
    assert found.settled and [r.set_aside for r in found.results] == [False, True]
    assert store.verify().problems == []
    store.gc()
    assert store.contains(two.outputs["out"])
    assert store.repair() == type(store.repair())()
    quarantine.restore(str(two.digest))
    assert len(store.records(one.action)) == 2
    quarantine.set_aside(two.digest.hex)
    quarantine.forget(two.digest.hex)
    assert quarantine.disagreements() == []
    store.gc()
    assert not store.contains(two.outputs["out"]) and store.contains(one.outputs["out"])
    assert store.verify().problems == []


def test_the_chosen_result_can_be_set_aside(store: LocalStore) -> None:
    """No root and no memo names what is not in use; the root keeps its trees."""
    one, two = two_results(store)
    store.choose(one.drv, one)
    store.quarantine.set_aside(one.digest.hex)
    assert store.records(one.action) == (two,)
    assert store.realized(one.drv) is None
    assert store.verify().problems == []
    store.gc()
    assert store.contains(one.outputs["out"])


def test_what_was_made_of_a_disputed_result_is_looked_up_again(
    store: LocalStore, tmp_path: Path
) -> None:
    """Neither is silently used, not even by what is reused above it."""
    notes = tmp_path / "notes"
    graph = small_graph()
    realize(store, graph, notes)
    assert realize(store, graph, notes).built == 0
    first = next(d for d in graph if d.name == "first")
    record = store.realized(first.digest)
    assert record is not None
    other = tree_of(store, "something else")
    store.barrier()
    disputed = replace(record, outputs={"out": other})
    store.add_record(disputed)
    for derivation in graph:
        above = derivation.name in ("first", "third", "whole")
        assert (store.realized(derivation.digest) is None) == above, derivation.name
    for _ in range(2):
        refused("E-NOT-REPRODUCIBLE", lambda: realize(store, graph, notes))
    store.quarantine.set_aside(disputed.digest.hex)
    assert realize(store, graph, notes).built == 0
    store.quarantine.restore(disputed.digest.hex)
    refused("E-NOT-REPRODUCIBLE", lambda: realize(store, graph, notes))
    store.quarantine.set_aside(record.digest.hex)
    assert realize(store, graph, notes).built == 2  # what is above "first", of the other result
    assert store.verify().problems == []


def test_a_record_is_named_by_enough_and_only_where_there_is_a_choice(store: LocalStore) -> None:
    one, _ = two_results(store)
    refused("E-USAGE", lambda: store.quarantine.set_aside(one.digest.hex[:3]))
    refused("E-USAGE", lambda: store.quarantine.set_aside("0" * 64))
    refused("E-USAGE", lambda: store.quarantine.restore(one.digest.hex))
    with store.lease():
        refused("E-STORE-BUSY", lambda: store.quarantine.set_aside(one.digest.hex))
    assert len(store.records(one.action)) == 2


def test_damage_in_quarantine_is_found_and_repaired(store: LocalStore) -> None:
    one, two = two_results(store)
    store.quarantine.set_aside(two.digest.hex)
    flip(store.path / "quarantine" / one.action.hex / two.digest.hex)
    assert [p.kind for p in store.verify().problems] == ["damaged"]
    assert store.repair().records == [two.digest.hex]
    assert store.verify().problems == []
    assert store.quarantine.disagreements() == []


def test_a_root_that_goes_while_it_is_collected_keeps_nothing(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = recorded(store, "a", big_tree(store, "gone", 1000))
    keep(store, "a", record)
    listed = Roots.names

    def then_removed(roots: Roots) -> list[str]:
        names = listed(roots)
        for name in names:
            (store.path / "roots" / file_name(name)).unlink()
        return names

    monkeypatch.setattr(Roots, "names", then_removed)
    store.gc()
    assert not store.records(record.action)


def test_nothing_is_collected_while_all_is_verified(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def meanwhile(layout: object, jobs: int) -> None:
        asked.append(refused("E-STORE-BUSY", lambda: store.gc(wait=False)).code)

    monkeypatch.setattr("reprobuild.adapters.store.verify.verify", meanwhile)
    store.verify()
    assert asked == ["E-STORE-BUSY"]
    store.gc(wait=False)


def test_what_sandboxes_share_is_the_stores_own(store: LocalStore) -> None:
    """Where the system has no runtime directory it lies here; other versions' goes in time."""
    home = store.path / "runtime"
    constants = etc.place(home / ETC_NAME)
    other = etc.place(home / "etc-0")
    assert store.verify(jobs=1).problems == []
    assert store.gc(dry_run=True).kinds["runtime"].count == 1
    assert other.exists()
    store.gc()
    assert not other.exists()
    assert sorted(path.name for path in constants.iterdir()) == sorted(ETC)


def test_a_store_of_an_earlier_version_gets_the_directory(store: LocalStore) -> None:
    (store.path / "runtime").rmdir()
    with LocalStore.open(store.path) as again:
        assert (again.path / "runtime").is_dir()
