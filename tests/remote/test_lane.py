"""Scheduling over two places: this machine, and other ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from reprobuild.core.digest import Digest
from reprobuild.engine.scheduler import Cost, Lane, Limits, Outcome, Scheduler


def node(name: str) -> Digest:
    return Digest.of(name.encode())


@dataclass
class Places:
    """Runs named jobs without needs in two places, and counts."""

    names: list[str]
    slots: int = 2
    here: list[str] = field(default_factory=list)
    away: list[str] = field(default_factory=list)
    most_away: int = 0
    weights: dict[str, int] = field(default_factory=dict)
    fails_away: set[str] = field(default_factory=set)
    home: set[Digest] = field(default_factory=set)
    wants: Callable[[str], bool] = lambda _: False
    only_away: bool = False
    takes: Callable[[str], bool] = lambda name: not name.startswith("l")
    seconds: float = 0.05
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, jobs: int = 2) -> Outcome:
        names = {node(n): n for n in self.names}

        def away(digest: Digest) -> None:
            name = names[digest]
            with self._lock:
                self._now += 1
                self.most_away = max(self.most_away, self._now)
                self.away.append(name)
            time.sleep(self.seconds)
            with self._lock:
                self._now -= 1
            if name in self.fails_away:
                raise RuntimeError(name)

        def here(digest: Digest) -> None:
            with self._lock:
                self.here.append(names[digest])
            time.sleep(self.seconds)

        def again(digest: Digest, error: BaseException) -> bool:
            self.home.add(digest)
            return isinstance(error, RuntimeError)

        scheduler = Scheduler(
            order=list(names),
            needs={},
            cost=lambda d: Cost(),
            limits=Limits(jobs, jobs, 2**30),
            cancel=threading.Event(),
            weight=lambda d: self.weights.get(names[d], 1),
            again=again,
            lane=Lane(
                slots=lambda: self.slots,
                takes=lambda d: d not in self.home and self.takes(names[d]),
                work=away,
                wants=lambda d: self.wants(names[d]),
            ),
            here=lambda d: not self.only_away or names[d].startswith("l"),
        )
        return scheduler.run(here)


def test_both_places_are_used_and_neither_takes_too_much() -> None:
    places = Places([f"r{i}" for i in range(12)] + [f"l{i}" for i in range(4)])
    outcome = places.run()
    assert not outcome.failed and not outcome.skipped
    assert sorted(places.here + places.away) == sorted(places.names)
    assert {f"l{i}" for i in range(4)} <= set(places.here)
    assert any(name.startswith("r") for name in places.here), "an idle machine helps"
    assert places.most_away == 2


def test_the_most_urgent_goes_first() -> None:
    places = Places(["r0", "r1", "r2"], slots=1, weights={"r2": 9, "r1": 5}, only_away=True)
    places.run(jobs=1)
    assert places.away == ["r2", "r1", "r0"]


def test_what_fails_there_is_done_here() -> None:
    places = Places(["r0", "r1"], fails_away={"r0", "r1"})
    outcome = places.run()
    assert not outcome.failed
    assert sorted(places.here) == ["r0", "r1"]


def test_what_may_not_run_here_waits_for_a_slot() -> None:
    places = Places([f"r{i}" for i in range(6)], slots=1, only_away=True)
    outcome = places.run(jobs=4)
    assert not outcome.failed and not outcome.skipped
    assert places.here == []
    assert places.most_away == 1


def test_a_lane_without_slots_leaves_it_to_this_machine() -> None:
    places = Places(["r0", "r1", "r2"], slots=0)
    places.run()
    assert sorted(places.here) == ["r0", "r1", "r2"]


def test_slots_that_come_back_are_used() -> None:
    places = Places([f"r{i}" for i in range(30)], slots=0, seconds=0.1)
    threading.Timer(0.3, lambda: setattr(places, "slots", 4)).start()
    places.run(jobs=1)
    assert places.here and places.away


def test_what_wants_another_machine_waits_for_it_while_one_is_there() -> None:
    places = Places(
        [f"w{i}" for i in range(6)] + [f"r{i}" for i in range(6)],
        slots=1,
        wants=lambda name: name.startswith("w"),
    )
    outcome = places.run(jobs=2)
    assert not outcome.failed and not outcome.skipped
    assert {f"w{i}" for i in range(6)} <= set(places.away)
    assert places.here, "this machine takes the others meanwhile"


def test_what_wants_another_machine_is_made_here_when_none_is_there() -> None:
    places = Places(["w0", "w1", "w2"], slots=0, wants=lambda _: True)
    outcome = places.run(jobs=1)
    assert not outcome.failed and not outcome.skipped
    assert sorted(places.here) == ["w0", "w1", "w2"]


def test_what_wants_another_machine_and_fails_there_is_done_here() -> None:
    places = Places(["w0", "w1"], wants=lambda _: True, fails_away={"w0"})
    outcome = places.run(jobs=1)
    assert not outcome.failed and not outcome.skipped
    assert places.here == ["w0"]
