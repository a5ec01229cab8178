"""Runs a graph of jobs with limits on jobs, cores and memory.

Each node is waiting, ready, running, eased, done, failed or skipped, and moves only in `startable`,
`ease` and `finish`. A job that alone is larger than a limit runs, but alone.

A thread that has ended a job looks itself for what may begin now: threads hand one another as
little as they can, for each time another one is woken both contend for the interpreter.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from reprobuild.core.digest import Digest


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be used at once: jobs, cores, and memory in bytes."""

    jobs: int
    cores: int
    memory: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What one job takes; `exclusive` asks for the machine alone (a retry after a kill)."""

    cores: int = 1
    memory: int = 0
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Lane:
    """Somewhere else where jobs run: their cost is not this machine's.

    `slots` says how many at once, asked anew each time (0 while nobody is there); `takes` which
    ones; `wants` which of these do not run here as long as somebody is there; `work` does one, as
    `Scheduler.run`'s does here.
    """

    slots: Callable[[], int]
    takes: Callable[[Digest], bool]
    work: Callable[[Digest], None]
    most: int = 64
    """What `slots` never exceeds."""
    wants: Callable[[Digest], bool] = lambda _: False


@dataclass(slots=True)
class Outcome:
    """How a run ended: failures by node in order of occurrence, and nodes never tried."""

    failed: dict[Digest, BaseException] = field(default_factory=dict)
    skipped: list[Digest] = field(default_factory=list)


@dataclass(slots=True)
class Scheduler:
    """`needs` maps each node to the nodes that must be done first (all of them in `order`)."""

    order: Sequence[Digest]
    needs: Mapping[Digest, set[Digest]]
    cost: Callable[[Digest], Cost]
    limits: Limits
    cancel: threading.Event
    keep_going: bool = False
    weight: Callable[[Digest], int] = lambda _: 1
    """Expected duration, any unit: the longest chain of weights starts first."""
    again: Callable[[Digest, BaseException], bool] = lambda _, __: False
    """Whether a job that failed is tried once more; its `cost` is asked for anew."""
    available: Callable[[], int] = lambda: 2**63
    """Bytes of memory that the machine has free now: beside another, no job begins that is
    expected to need more."""
    lane: Lane | None = None
    """Asked first: what it takes, and has a slot for, does not run here."""
    here: Callable[[Digest], bool] = lambda _: True
    """Whether a job may run on this machine; else it waits for the lane."""

    _crew: _Crew | None = field(default=None, init=False, repr=False)

    def run(self, work: Callable[[Digest], None]) -> Outcome:
        """Runs `work` once for each node, in some allowed order.

        `work` runs in a thread; what it raises is the node's failure. KeyboardInterrupt in the
        caller's thread sets `cancel`, waits for running jobs, and is raised again.
        """
        away = self.lane.most if self.lane is not None else 0
        threads = 2 * max(1, self.limits.jobs) + away
        with ThreadPoolExecutor(threads, "build") as pool:
            self._crew = crew = _Crew(self, work, pool)
            try:
                crew.follow()
            except BaseException:
                self.cancel.set()
                crew.jobs.wait()
                raise
        return crew.state.result()

    def ease(self, node: Digest) -> None:
        """Said by a job's thread, once: what is left to do is little, and another job may begin in
        its place. As many jobs as there are places may be so at a time; for one more this does
        nothing."""
        if self._crew is not None:
            self._crew.ease(node)


_EVERY_SECONDS = 0.5
"""How often it is asked again what may begin: free memory and a lane's slots move by themselves."""


class _Kept:
    """Keeps what its body raises, for another thread: what a Future does, without its lock."""

    error: BaseException | None = None

    def __enter__(self) -> _Kept:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.error = error
        return True


class _Crew:
    """The threads of one run, and what they share."""

    def __init__(
        self, scheduler: Scheduler, work: Callable[[Digest], None], pool: ThreadPoolExecutor
    ) -> None:
        self.state = _State(scheduler)
        self.jobs = _Jobs(scheduler.cancel)
        self._scheduler = scheduler
        self._work = work
        self._pool = pool
        self._lock = threading.Lock()
        self._over = threading.Condition(self._lock)
        self._problem: BaseException | None = None

    def follow(self) -> None:
        """Begins, and returns when nothing runs and nothing can begin any more."""
        with self._lock:
            self._begin()
            while self.state.running and self._problem is None:
                if not self._over.wait(_EVERY_SECONDS):
                    self._begin()
        if self._problem is not None:
            raise self._problem

    def _begin(self) -> None:
        for node in self.state.startable():
            lane = self._scheduler.lane
            does = lane.work if lane is not None and node in self.state.away else self._work
            self.state.running.add(node)
            self._pool.submit(self._do, does, node)

    def _do(self, does: Callable[[Digest], None], node: Digest) -> None:
        with _Kept() as kept:
            self.jobs.run(does, node)
        self._move(lambda: self.state.finish(node, kept.error))

    def ease(self, node: Digest) -> None:
        """`Scheduler.ease`."""
        self._move(lambda: self.state.ease(node))

    def _move(self, change: Callable[[], None]) -> None:
        with self._lock:
            with _Kept() as kept:
                change()
                if self._problem is None:
                    self._begin()
            self._problem = self._problem or kept.error
            if self._problem is not None or not self.state.running:
                self._over.notify_all()


class _Jobs:
    """Counts what runs, so that an interrupted run can wait for it.

    The pool alone does not do: an interrupt that arrives while it starts a thread leaves it with
    a thread that it knows nothing of.
    """

    def __init__(self, cancel: threading.Event) -> None:
        self._cancel = cancel
        self._active = 0
        self._changed = threading.Condition()

    def run(self, work: Callable[[Digest], None], node: Digest) -> None:
        """Does the work, unless everything was cancelled before it began."""
        with self._changed:
            if self._cancel.is_set():
                return
            self._active += 1
        try:
            work(node)
        finally:
            with self._changed:
                self._active -= 1
                self._changed.notify_all()

    def wait(self) -> None:
        """Returns when nothing runs; nothing begins any more once `cancel` is set."""
        with self._changed:
            self._changed.wait_for(lambda: not self._active)


_Item = tuple[int, str, Digest]
"""Urgency (negative, for a heap), and a tie-breaker."""


class _State:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting = {node: set(scheduler.needs.get(node, ())) for node in scheduler.order}
        self._dependants: dict[Digest, list[Digest]] = {}
        for node, needs in self._waiting.items():
            for need in needs:
                self._dependants.setdefault(need, []).append(node)
        self._rank = self._ranks()
        self._only_here: list[_Item] = []
        self._either: list[_Item] = []
        self._rather_away: list[_Item] = []
        self._only_away: list[_Item] = []
        self._here: set[Digest] = set()
        self.away: set[Digest] = set()
        for node, needs in self._waiting.items():
            if not needs:
                self._push(node)
        self.running: set[Digest] = set()
        self._eased: set[Digest] = set()
        self._outcome = Outcome()
        self._settled: set[Digest] = set()

    def _ranks(self) -> dict[Digest, int]:
        """Length of the longest chain from a node to the end, its own weight included."""
        rank: dict[Digest, int] = {}
        for node in reversed(self._scheduler.order):
            above = max((rank[d] for d in self._dependants.get(node, ())), default=0)
            rank[node] = above + self._scheduler.weight(node)
        return rank

    def _push(self, node: Digest) -> None:
        """By where it may run: else a full place's jobs are gone through at every step."""
        lane = self._scheduler.lane
        if lane is None or not lane.takes(node):
            heap = self._only_here
        elif not self._scheduler.here(node):
            heap = self._only_away
        else:
            heap = self._rather_away if lane.wants(node) else self._either
        heapq.heappush(heap, (-self._rank[node], node.hex, node))

    def startable(self) -> list[Digest]:
        """The ready nodes that fit beside what runs, most urgent first; they count as started."""
        scheduler, limits = self._scheduler, self._scheduler.limits
        if scheduler.cancel.is_set() or (self._outcome.failed and not scheduler.keep_going):
            return []
        costs = [scheduler.cost(node) for node in self._here]
        busy = len(costs)
        costs += [Cost(cores=0) for _ in self._eased]
        lane = scheduler.lane
        slots = lane.slots() if lane is not None else 0
        free = slots - len(self.away)
        started: list[Digest] = []
        kept: list[tuple[list[_Item], _Item]] = []
        while True:
            here = busy < limits.jobs
            open_ = {id(h): h for h in self._heaps(free > 0, here, nobody=not slots) if h}
            if not open_:
                break
            heap = min(open_.values(), key=lambda h: h[0])
            item = heapq.heappop(heap)
            if free > 0 and heap is not self._only_here:
                free -= 1
                self.away.add(item[2])
                started.append(item[2])
                continue
            cost = scheduler.cost(item[2])
            cores = sum(c.cores for c in costs) + cost.cores
            memory = sum(c.memory for c in costs) + cost.memory
            blocked = cost.exclusive or any(c.exclusive for c in costs)
            full = cores > limits.cores or memory > limits.memory
            if costs and (blocked or full or cost.memory > scheduler.available()):
                kept.append((heap, item))
                continue
            costs.append(cost)
            busy += 1
            self._here.add(item[2])
            started.append(item[2])
        for heap, item in kept:
            heapq.heappush(heap, item)
        return started

    def _heaps(self, away: bool, here: bool, *, nobody: bool) -> list[list[_Item]]:
        """Whose jobs may be started, by which place has room, and whether `nobody` is away."""
        heaps = [self._only_away] if away else []
        if away or (here and nobody):
            heaps.append(self._rather_away)
        if away or here:
            heaps.append(self._either)
        if here:
            heaps.append(self._only_here)
        return heaps

    def ease(self, node: Digest) -> None:
        """Frees the place of a job that is nearly done."""
        if node in self._here and len(self._eased) < max(1, self._scheduler.limits.jobs):
            self._here.discard(node)
            self._eased.add(node)

    def finish(self, node: Digest, error: BaseException | None) -> None:
        """Settles a job and frees what waited for it."""
        self.running.discard(node)
        self.away.discard(node)
        self._here.discard(node)
        self._eased.discard(node)
        if error is not None and self._scheduler.again(node, error):
            self._push(node)
            return
        self._settled.add(node)
        if error is not None:
            self._outcome.failed[node] = error
            return
        for dependant in self._dependants.get(node, ()):
            needs = self._waiting[dependant]
            needs.discard(node)
            if not needs:
                self._push(dependant)

    def result(self) -> Outcome:
        """The outcome, once nothing runs any more."""
        self._outcome.skipped = [n for n in self._scheduler.order if n not in self._settled]
        return self._outcome
