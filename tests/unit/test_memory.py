"""Memory: the next build is expected to take what the last one took; the killed go alone."""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

import pytest

from fakes.world import FakeExecutor, World, compile_, glue, graph_of, step, wish
from reprobuild.adapters.store.history import SqliteHistory
from reprobuild.core.derivation import Derivation, Hints, Input, InputContent
from reprobuild.core.digest import Digest
from reprobuild.core.past import Past
from reprobuild.core.record import Record
from reprobuild.engine.history import (
    NoHistory,
    expected_cost,
    expected_duration,
    remember,
    surplus,
)
from reprobuild.engine.realize import Realized
from reprobuild.engine.scheduler import Cost, Limits, Scheduler
from reprobuild.errors import ReprobuildError
from reprobuild.ports import BuildOutcome, BuildRequest, Wish
from support.trees import make

GIB = 2**30


@dataclass
class Remembering:
    """A history in memory."""

    past: dict[str, Past] = field(default_factory=dict)

    def get(self, name: str) -> Past | None:
        return self.past.get(name)

    def put(self, name: str, past: Past) -> None:
        self.past[name] = past


@dataclass
class Hungry(FakeExecutor):
    """Builds that are killed unless they may have `needs` bytes; notes what ran beside what."""

    needs: dict[str, int] = field(default_factory=dict)
    killed_as: str = "memory"
    beside: dict[str, int] = field(default_factory=dict)
    allowed: list[tuple[str, int]] = field(default_factory=list)

    def run(self, request: BuildRequest, log: BinaryIO, cancel: Wish) -> BuildOutcome:
        outcome = super().run(request, log, cancel)
        self.allowed.append((request.label, request.hints.memory))
        need = self.needs.get(request.label, 0)
        if request.hints.memory < need:
            status = 9 if self.killed_as == "signal" else 137
            return replace(outcome, reason=self.killed_as, status=status, outputs={})
        return replace(outcome, peak_memory=need)


def realize(world: World, history: Remembering, executor: FakeExecutor, *steps: Derivation,
            limits: Limits) -> Realized:  # fmt: skip
    realizer = replace(world.realizer(executor), history=history)
    target = glue("all", *steps)
    graph = graph_of([*steps, target])
    return realizer.realize(graph, [target.digest], wish(limits=limits))


def wanting(name: str, memory: int) -> Derivation:
    return replace(step(name), hints=Hints(memory=memory))


@pytest.mark.parametrize("killed_as", ["memory", "signal"])
def test_a_killed_build_is_tried_alone_with_all_the_memory(tmp_path: Path, killed_as: str) -> None:
    world, history = World(tmp_path), Remembering()
    executor = Hungry(needs={"big": 7 * GIB}, killed_as=killed_as)
    steps = [wanting("big", GIB), wanting("b", GIB), wanting("c", GIB)]
    done = realize(world, history, executor, *steps, limits=Limits(4, 4, 8 * GIB))
    assert done.built == 4
    assert executor.ran.count("big") == 2
    assert [memory for label, memory in executor.allowed if label == "big"] == [GIB, 8 * GIB]
    assert [e for e in world.events.events if e[0] == "retried"]


def test_one_that_is_killed_again_has_failed(tmp_path: Path) -> None:
    world, executor = World(tmp_path), Hungry(needs={"big": 70 * GIB})
    with pytest.raises(ReprobuildError) as caught:
        realize(world, Remembering(), executor, wanting("big", GIB), limits=Limits(2, 2, 8 * GIB))
    assert caught.value.code == "E-BUILD-MEMORY"
    assert executor.ran == ["big", "big"]


def test_other_failures_are_not_tried_again(tmp_path: Path) -> None:
    world, executor = World(tmp_path), Hungry(behaviour={"bad": lambda *_: "exit"})
    with pytest.raises(ReprobuildError) as caught:
        realize(world, Remembering(), executor, wanting("bad", GIB), limits=Limits(2, 2, 8 * GIB))
    assert caught.value.code == "E-BUILD-FAILED"
    assert executor.ran == ["bad"]


def test_the_next_build_is_expected_to_take_what_the_last_one_took(tmp_path: Path) -> None:
    world, history = World(tmp_path), Remembering()
    executor = Hungry(needs={"unit": 5 * GIB})
    unit = wanting("unit", 5 * GIB)
    realize(world, history, executor, unit, limits=Limits(2, 2, 8 * GIB))
    past = history.past["unit"]
    assert past.peak_memory == 5 * GIB
    guessed = expected_cost(wanting("unit", GIB), None).memory
    known = expected_cost(wanting("unit", GIB), past).memory
    assert guessed == GIB
    assert 5 * GIB < known < 6 * GIB
    assert expected_duration(unit, replace(past, duration_ms=70)) == 70
    assert expected_duration(unit, None) > expected_duration(glue("g"), None)


def test_known_memory_keeps_two_apart(tmp_path: Path) -> None:
    """Guesses would let both run; what is known of them does not."""
    names = ("one", "two")
    world = World(tmp_path)
    history = Remembering({name: Past(5 * GIB, 10) for name in names})
    executor = FakeExecutor(seconds=0.05)
    steps = [wanting(name, GIB) for name in names]
    realize(world, history, executor, *steps, limits=Limits(2, 2, 8 * GIB))
    assert executor.most == 1
    again = World(tmp_path / "again")
    executor = FakeExecutor(seconds=0.2)
    realize(again, Remembering(), executor, *steps, limits=Limits(2, 2, 8 * GIB))
    assert executor.most == 2


def test_nothing_begins_beside_another_without_memory_that_is_free() -> None:
    free = [3 * GIB]
    running, most = [0], [0]
    lock = threading.Lock()
    nodes = [Digest.of(bytes([n])) for n in range(4)]

    def work(_: Digest) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        threading.Event().wait(0.02)
        with lock:
            running[0] -= 1

    for expected, available in ((1, free[0]), (2, 64 * GIB)):
        most[0] = 0
        outcome = Scheduler(
            order=nodes,
            needs={n: set() for n in nodes},
            cost=lambda _: Cost(1, 4 * GIB),
            limits=Limits(2, 2, 64 * GIB),
            cancel=threading.Event(),
            available=lambda value=available: value,  # type: ignore[misc]
        ).run(work)
        assert not outcome.failed
        assert most[0] == expected


def test_history_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cache/history.sqlite"
    tree = Digest.of(b"x")
    past = Past(1, 2, {"source": tree}, tree)
    history = SqliteHistory(path)
    assert history.get("unit") is None
    history.put("unit", past)
    history.put("unit", replace(past, peak_memory=9))
    history.close()
    assert SqliteHistory(path).get("unit") == replace(past, peak_memory=9)
    path.write_bytes(b"no database")
    damaged = SqliteHistory(path)
    damaged.put("unit", past)
    assert damaged.get("unit") is None
    beyond = SqliteHistory(Path("/proc/self/status/history"))
    beyond.put("unit", past)
    assert beyond.get("unit") is None


def unit(narrow: bool = True) -> Derivation:
    return Derivation(
        "m:a.cu", "sandbox", (Input("source", Digest.of(b"s"), at="/inputs/source"),),
        argv=("cc",), outputs=("out", "includes"),
        narrow={"starts": [], "inputs": ["source"], "defines": []} if narrow else None,
    )  # fmt: skip


def test_a_recompile_says_whether_a_changed_header_was_included(tmp_path: Path) -> None:
    store = World(tmp_path).store
    told = b"unit.o: /inputs/source/a.cu \\\n  /inputs/source/x/../in\\ cluded.h \\\n /usr/n.h\n"
    includes = make(store, {"unit.d": told})
    before = make(store, {"a.cu": b"1", "in cluded.h": b"1", "d/could.h": b"1"})
    past = Past(1, 1, {"source": before}, includes)
    cases = {
        "included": ({"a.cu": b"1", "in cluded.h": b"2", "d/could.h": b"1"}, "in cluded.h", True),
        "could": ({"a.cu": b"1", "in cluded.h": b"1", "d/could.h": b"2"}, "d/could.h", False),
        "gone": ({"a.cu": b"1", "in cluded.h": b"1"}, "d/could.h", False),
    }
    for files, changed, included in cases.values():
        now = {"source": InputContent(make(store, files))}
        found = surplus(store, past, unit(), now)
        assert found is not None
        assert found.changed == (f"/inputs/source/{changed}",)
        assert found.included is included
    assert surplus(store, past, unit(), {"source": InputContent(before)}) is None
    assert surplus(store, replace(past, includes=None), unit(), {}) is None


def test_what_is_remembered(tmp_path: Path) -> None:
    history = Remembering()
    tree = Digest.of(b"t")
    record = Record(tree, tree, {"out": tree, "includes": tree}, peak_memory=3, duration_ms=4,
                    name="m:a.cu")  # fmt: skip
    remember(history, record, unit(), {"source": InputContent(tree), "f": InputContent(tree, True)})
    assert history.past == {"m:a.cu": Past(3, 4, {"source": tree}, tree)}
    remember(history, record, glue("g"), {})
    assert list(history.past) == ["m:a.cu"]
    assert NoHistory().get("m:a.cu") is None


def test_compile_is_what_the_fake_does(tmp_path: Path) -> None:
    """The fake's default still compiles: the tests above rest on it."""
    request = BuildRequest("l", ("cc", "word"), {}, "/", (), ("out",), tmp_path)
    log = io.BytesIO()
    assert compile_(request, tmp_path, log) is None
    assert (tmp_path / "file").read_bytes() == b"word\n"
