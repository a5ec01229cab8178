"""The scheduler: order, limits, failures, cancelling – over work that only waits."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprobuild.core.digest import Digest
from reprobuild.engine.scheduler import Cost, Lane, Limits, Outcome, Scheduler

GIB = 2**30


def node(name: str) -> Digest:
    return Digest.of(name.encode())


@dataclass
class Bench:
    """Runs named jobs; remembers the order of starts and the most that ran at once."""

    needs: Mapping[str, Sequence[str]]
    costs: Mapping[str, Cost] = field(default_factory=dict)
    fail: frozenset[str] = frozenset()
    started: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    most: int = 0
    cores: int = 0
    memory: int = 0
    beside: dict[str, set[str]] = field(default_factory=dict)
    _running: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    cancel: threading.Event = field(default_factory=threading.Event)

    def cost(self, name: str) -> Cost:
        return self.costs.get(name, Cost())

    def run(self, limits: Limits, *, keep_going: bool = False) -> Outcome:
        names = {node(name): name for name in self.needs}
        scheduler = Scheduler(
            order=[node(name) for name in self.needs],
            needs={node(n): {node(m) for m in needs} for n, needs in self.needs.items()},
            cost=lambda d: self.cost(names[d]),
            limits=limits,
            cancel=self.cancel,
            keep_going=keep_going,
        )
        return scheduler.run(lambda d: self._work(names[d]))

    def _work(self, name: str) -> None:
        with self._lock:
            assert set(self.needs[name]) <= set(self.finished)
            self.started.append(name)
            self._running.add(name)
            self.most = max(self.most, len(self._running))
            self.cores = max(self.cores, sum(self.cost(n).cores for n in self._running))
            self.memory = max(self.memory, sum(self.cost(n).memory for n in self._running))
            for other in self._running:
                self.beside.setdefault(other, set()).update(self._running)
        threading.Event().wait(0.003)
        with self._lock:
            self._running.discard(name)
            self.finished.append(name)
        if name in self.fail:
            raise ValueError(name)


WIDE = dict.fromkeys("abcdefgh", ())
FREE = Limits(jobs=8, cores=8, memory=64 * GIB)


def test_needs_come_first() -> None:
    bench = Bench({"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")})
    outcome = bench.run(FREE)
    assert (outcome.failed, outcome.skipped) == ({}, [])
    assert bench.started[0] == "a"
    assert bench.started[-1] == "d"


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_at_most_so_many_jobs(jobs: int) -> None:
    bench = Bench(WIDE)
    bench.run(Limits(jobs=jobs, cores=8, memory=64 * GIB))
    assert bench.most <= jobs
    assert len(bench.finished) == len(WIDE)


def test_cores_and_memory_are_counted() -> None:
    costs = {name: Cost(cores=2, memory=3 * GIB) for name in WIDE}
    bench = Bench(WIDE, costs)
    bench.run(Limits(jobs=8, cores=5, memory=64 * GIB))
    assert bench.cores <= 4
    bench = Bench(WIDE, costs)
    bench.run(Limits(jobs=8, cores=64, memory=7 * GIB))
    assert bench.memory <= 6 * GIB


def test_what_is_larger_than_a_limit_runs_alone() -> None:
    bench = Bench(WIDE, {"c": Cost(memory=100 * GIB), "f": Cost(cores=100)})
    bench.run(FREE)
    assert bench.beside["c"] == {"c"}
    assert bench.beside["f"] == {"f"}
    assert len(bench.finished) == len(WIDE)


def test_exclusive_runs_alone() -> None:
    bench = Bench(WIDE, {"d": Cost(exclusive=True)})
    bench.run(FREE)
    assert bench.beside["d"] == {"d"}


def test_the_longest_chain_starts_first() -> None:
    bench = Bench({"x": (), "y": (), "z": (), "y2": ("y",), "y3": ("y2",), "z2": ("z",)})
    bench.run(Limits(jobs=1, cores=1, memory=GIB))
    assert bench.started[:2] == ["y", "y2"] or bench.started[0] == "y"
    assert bench.started.index("z") < bench.started.index("x")


def test_ties_are_broken_by_digest() -> None:
    bench = Bench(WIDE)
    bench.run(Limits(jobs=1, cores=1, memory=GIB))
    assert bench.started == sorted(WIDE, key=lambda name: node(name).hex)


def test_a_failure_stops_what_has_not_begun() -> None:
    needs = {"a": (), **{f"b{n}": ("a",) for n in range(5)}}
    bench = Bench(needs, fail=frozenset("a"))
    outcome = bench.run(FREE)
    assert list(outcome.failed) == [node("a")]
    assert isinstance(outcome.failed[node("a")], ValueError)
    assert set(outcome.skipped) == {node(f"b{n}") for n in range(5)}
    assert bench.started == ["a"]


def test_keep_going_skips_only_what_needs_the_failure() -> None:
    needs: dict[str, tuple[str, ...]] = {
        "bad": (), "good": (), "above": ("bad",), "fine": ("good",), "top": ("above", "good"),
    }  # fmt: skip
    bench = Bench(needs, fail=frozenset(["bad"]))
    outcome = bench.run(FREE, keep_going=True)
    assert list(outcome.failed) == [node("bad")]
    assert set(outcome.skipped) == {node("above"), node("top")}
    assert set(bench.finished) == {"bad", "good", "fine"}


def scheduler_of(names: str, jobs: int, costs: Mapping[str, Cost] | None = None) -> Scheduler:
    """Nodes that need nothing."""
    by_node = {node(name): (costs or {}).get(name, Cost()) for name in names}
    limits = Limits(jobs, 8, 64 * GIB)
    return Scheduler([*by_node], {}, lambda n: by_node[n], limits, threading.Event())


def test_another_job_begins_in_the_place_of_one_that_is_eased() -> None:
    scheduler = scheduler_of("ab", 1)
    both = threading.Barrier(2)

    def work(one: Digest) -> None:
        scheduler.ease(one)
        both.wait(20)

    outcome = scheduler.run(work)
    assert (outcome.failed, outcome.skipped) == ({}, [])


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_no_more_are_eased_than_there_are_places(jobs: int) -> None:
    scheduler = scheduler_of("abcdefghij", jobs)
    # there are threads for as many as another lane may take
    scheduler.lane = Lane(lambda: 0, lambda _: False, lambda _: None)
    lock, counts = threading.Lock(), {"now": 0, "most": 0}

    def work(one: Digest) -> None:
        with lock:
            counts["now"] += 1
            counts["most"] = max(counts["most"], counts["now"])
        scheduler.ease(one)
        scheduler.ease(one)  # once is all that counts
        threading.Event().wait(0.01)
        with lock:
            counts["now"] -= 1

    outcome = scheduler.run(work)
    assert (outcome.failed, outcome.skipped) == ({}, [])
    assert counts["most"] == 2 * jobs


def test_an_exclusive_job_waits_for_what_is_eased() -> None:
    # "a" has the larger weight, so it begins
    scheduler = scheduler_of("ab", 2, {"b": Cost(exclusive=True)})
    scheduler.weight = lambda one: 2 if one == node("a") else 1
    done: list[Digest] = []

    def work(one: Digest) -> None:
        assert one == node("a") or done == [node("a")]
        scheduler.ease(one)
        threading.Event().wait(0.05)
        done.append(one)

    outcome = scheduler.run(work)
    assert (outcome.failed, outcome.skipped) == ({}, [])


def test_an_eased_job_may_still_fail() -> None:
    scheduler = scheduler_of("abc", 1)

    def work(one: Digest) -> None:
        scheduler.ease(one)
        raise ValueError(one.hex)

    outcome = scheduler.run(work)
    assert outcome.failed
    assert len(outcome.failed) + len(outcome.skipped) == 3
    scheduler.ease(node("a"))  # nothing runs any more


def test_what_fails_between_two_jobs_is_raised() -> None:
    scheduler = scheduler_of("ab", 1)
    cost = scheduler.cost
    asked: list[Digest] = []

    def once(one: Digest) -> Cost:
        if one not in asked:
            asked.append(one)
        if len(asked) > 1:
            raise ZeroDivisionError
        return cost(one)

    scheduler.cost = once
    with pytest.raises(ZeroDivisionError):
        scheduler.run(lambda _: None)
    assert scheduler.cancel.is_set()


def test_cancelled_runs_nothing_more() -> None:
    bench = Bench({"a": (), "b": ("a",)})
    bench.cancel.set()
    outcome = bench.run(FREE)
    assert bench.started == []
    assert outcome.skipped == [node("a"), node("b")]


def test_interruption_cancels_and_waits_for_what_runs() -> None:
    cancel = threading.Event()
    ended = threading.Event()

    def work(_: Digest) -> None:
        assert cancel.wait(30)
        ended.set()

    nodes = [node("a"), node("b")]
    needs = {nodes[1]: {nodes[0]}}
    limits = Limits(jobs=2, cores=2, memory=GIB)
    scheduler = Scheduler(nodes, needs, lambda _: Cost(), limits, cancel)
    with pytest.raises(KeyboardInterrupt):
        _interrupted(scheduler, work)
    assert cancel.is_set()
    assert ended.is_set()


def _interrupted(scheduler: Scheduler, work: Callable[[Digest], None]) -> None:
    """Runs it, and sends this thread what Ctrl-C sends once a job is under way."""
    begun = threading.Event()

    def watched(digest: Digest) -> None:
        begun.set()
        work(digest)

    def interrupt() -> None:
        assert begun.wait(30)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    scheduler.run(watched)


@given(st.data())
def test_any_graph_is_run_once_each_in_order(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 9))
    names = [f"n{i}" for i in range(size)]
    needs = {
        name: tuple(data.draw(st.sets(st.sampled_from(names[:i])))) if i else ()
        for i, name in enumerate(names)
    }
    costs = {
        name: Cost(data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3)) * GIB,
                   data.draw(st.booleans()))
        for name in names
    }  # fmt: skip
    limits = Limits(data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4)), 4 * GIB)
    bench = Bench(needs, costs)
    outcome = bench.run(limits)
    assert (outcome.failed, outcome.skipped) == ({}, [])
    assert sorted(bench.finished) == sorted(names)
    assert bench.most <= limits.jobs
