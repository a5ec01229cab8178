"""Runs a graph of jobs with limits on jobs, cores and memory.

Each node is waiting, ready, running, done, failed or skipped, and moves only in `_finish` and
`_start`. A job that alone is larger than a limit runs, but alone.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

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

    def run(self, work: Callable[[Digest], None]) -> Outcome:
        """Runs `work` once for each node, in some allowed order.

        `work` runs in a thread; what it raises is the node's failure. KeyboardInterrupt in the
        caller's thread sets `cancel`, waits for running jobs, and is raised again.
        """
        state = _State(self)
        jobs = _Jobs(self.cancel)
        done: SimpleQueue[Future[None]] = SimpleQueue()
        threads = max(1, self.limits.jobs) + (self.lane.most if self.lane is not None else 0)
        with ThreadPoolExecutor(threads, "build") as pool:
            try:
                while True:
                    for node in state.startable():
                        away = self.lane is not None and node in state.away
                        does = self.lane.work if self.lane is not None and away else work
                        future = pool.submit(jobs.run, does, node)
                        state.running[future] = node
                        future.add_done_callback(done.put)
                    if not state.running:
                        break
                    for future in _some(done, 0.5):
                        state.finish(future)
            except BaseException:
                self.cancel.set()
                jobs.wait()
                raise
        return state.result()


def _some(queue: SimpleQueue[Future[None]], seconds: float) -> Iterator[Future[None]]:
    """What is in a queue; waits for the first, but no longer than `seconds`."""
    try:
        yield queue.get(timeout=seconds)
        while True:
            yield queue.get_nowait()
    except Empty:
        return


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
        self.running: dict[Future[None], Digest] = {}
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
        lane = scheduler.lane
        slots = lane.slots() if lane is not None else 0
        free = slots - len(self.away)
        started: list[Digest] = []
        kept: list[tuple[list[_Item], _Item]] = []
        while True:
            here = len(costs) < limits.jobs
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

    def finish(self, future: Future[None]) -> None:
        """Settles a job and frees what waited for it."""
        node = self.running.pop(future)
        self.away.discard(node)
        self._here.discard(node)
        error = future.exception()
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
