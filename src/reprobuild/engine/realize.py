"""realize: make the trees of targets exist – reuse, fetch, build – each action once.

One look-up rule: a derivation's inputs are resolved to the trees that were chosen in this run,
which gives its action; a usable record of that action is reused (*cut off*), else it is built
under a lock that all processes share.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from reprobuild.core.derivation import SANDBOX, Derivation, InputContent, Isolation
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.graph import Graph, documents
from reprobuild.core.past import Past
from reprobuild.core.record import Record
from reprobuild.engine.build import Builder
from reprobuild.engine.commit import Committer, Made, require_unchanged
from reprobuild.engine.contradiction import contradicting, disagreeing
from reprobuild.engine.failures import failure_of, was_killed
from reprobuild.engine.history import (
    History,
    NoHistory,
    Surplus,
    expected_cost,
    expected_duration,
    remember,
    surplus,
)
from reprobuild.engine.loans import SpoiltError
from reprobuild.engine.plan import Deed, Plan, is_made, make_plan, usable
from reprobuild.engine.resolve import input_content
from reprobuild.engine.scheduler import Cost, Lane, Limits, Scheduler
from reprobuild.errors import ReprobuildError
from reprobuild.ports import Catalog, ContentStore, Reporter

if TYPE_CHECKING:  # what few runs need is imported by them alone
    from reprobuild.engine.narrow import Narrower
    from reprobuild.engine.remote import Elsewhere
    from reprobuild.engine.remote_cache import SharedCache


@dataclass(frozen=True, slots=True)
class Wishes:
    """How a realize is to go about it."""

    isolation: Isolation
    limits: Limits
    keep_going: bool = False
    check: frozenset[Digest] = frozenset()
    """Derivations to build again although they are on record, and compare."""
    from_source: bool = False


@dataclass(slots=True)
class Realized:
    """What a realize did: the chosen record of every derivation it looked at, and counts."""

    chosen: dict[Digest, Record] = field(default_factory=dict)
    built: int = 0
    reused: int = 0
    fetched: int = 0
    cut_off: int = 0
    checked: int = 0
    shared: int = 0
    """Taken from a shared cache: neither built nor on record before."""
    reread: dict[str, Surplus] = field(default_factory=dict)
    """Units that were compiled again because of what they could read, by name."""

    def counts(self) -> dict[str, int]:
        """For `--json`."""
        return {
            "built": self.built,
            "checked": self.checked,
            "cut_off": self.cut_off,
            "fetched": self.fetched,
            "reused": self.reused,
        }


@dataclass(slots=True)
class Realizer:
    """The use case, over one store."""

    content: ContentStore
    catalog: Catalog
    builder: Builder
    narrower: Callable[[], Narrower]
    """What cuts inputs down; asked for by the first recipe that is to be cut."""
    reporter: Reporter
    cancel: threading.Event
    history: History = field(default_factory=NoHistory)
    available: Callable[[], int] = lambda: 2**63
    """Bytes of memory that the machine has free now."""
    judge: Callable[[Record, Record], list[str]] = lambda first, second: []
    """In words, what two records of one action differ in, and what would cure it."""
    elsewhere: Elsewhere | None = None
    """Other machines to build on."""
    shared: SharedCache | None = None
    """Results of others, by action."""

    def plan(self, graph: Graph, targets: Sequence[Digest], wishes: Wishes) -> Plan:
        """What `realize` would do."""
        return make_plan(
            graph,
            targets,
            self.content,
            self.catalog,
            wishes.isolation,
            rebuild=wishes.check,
            from_source=wishes.from_source,
        )

    def realize(
        self,
        graph: Graph,
        targets: Sequence[Digest],
        wishes: Wishes,
        plan: Plan | None = None,
        meanwhile: Callable[[Realized], None] = lambda _: None,
    ) -> Realized:
        """Makes them exist; `plan` is what `plan` says of them, where it has been asked already.

        `meanwhile` is called when all is made, and done while the last records are written; there
        is no time for it where all is on record already.

        Raises the first failure's error (E-BUILD…, E-FETCH…), or E-DEPENDENCY when several
        failed; what succeeded before is on record all the same.
        """
        plan = plan or self.plan(graph, targets, wishes)
        todo = [step.drv for step in plan.steps if step.deed != Deed.REUSE]
        commits = Committer(
            self.content,
            self.catalog,
            lambda: self.catalog.add_derivations(documents(graph, todo)),
        )
        run = _Run(self, graph, wishes, commits)
        for step in plan.of(Deed.REUSE):
            assert step.record is not None
            run.result.chosen[step.drv] = step.record
            run.result.reused += 1
        if not todo:
            return run.result
        self.reporter.emit(
            "plan",
            build=len(plan.of(Deed.BUILD)),
            fetch=len(plan.of(Deed.FETCH)),
            reuse=len(plan.of(Deed.REUSE)),
        )
        pending = set(todo)
        past = {drv: self.history.get(graph.nodes[drv].name) for drv in todo}
        scheduler = Scheduler(
            order=todo,
            needs={d: {e.drv for e in graph.nodes[d].inputs} & pending for d in todo},
            cost=lambda drv: run.cost(drv, past[drv]),
            limits=wishes.limits,
            cancel=self.cancel,
            keep_going=wishes.keep_going,
            weight=lambda drv: expected_duration(graph.nodes[drv], past[drv]),
            again=run.again,
            available=self.available,
            lane=run.lane(past, wishes.limits),
            here=run.here,
        )
        run.ease = scheduler.ease
        executor = self.builder.executor
        # The inner batch's end begins to remove what builds left, while the last are recorded.
        with executor.batch(), run.commits:
            with executor.batch():
                outcome = scheduler.run(run.step)
                run.commits.hurry()
            if not outcome.failed and not self.cancel.is_set():
                meanwhile(run.result)
        if outcome.failed:
            raise failure_of(graph, outcome.failed, outcome.skipped)
        if self.cancel.is_set():
            raise ReprobuildError("E-INTERRUPTED", "stopped before everything was made")
        return run.result


def _took(past: Past | None) -> int:
    """Milliseconds of the last time; 0 where there was none."""
    return past.duration_ms if past is not None else 0


@dataclass(slots=True)
class _Run:
    realizer: Realizer
    graph: Graph
    wishes: Wishes
    commits: Committer
    result: Realized = field(default_factory=Realized)
    ease: Callable[[Digest], None] = lambda _: None
    """Told of a build that is over but for its outputs."""
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _alone: set[Digest] = field(default_factory=set)
    _home: set[Digest] = field(default_factory=set)
    """Derivations that other machines could not make."""

    def lane(self, past: Mapping[Digest, Past | None], limits: Limits) -> Lane | None:
        """The other machines, as the scheduler sees them."""
        away, nodes = self.realizer.elsewhere, self.graph.nodes
        if away is None:
            return None
        return Lane(
            slots=away.slots,
            takes=lambda drv: drv not in self._home and away.takes(nodes[drv]),
            work=lambda drv: self.step(drv, away, _took(past[drv])),
            most=away.executor.most,
            wants=lambda drv: (
                bool(nodes[drv].hints.platform) or self.cost(drv, past[drv]).memory > limits.memory
            ),
        )

    def here(self, drv: Digest) -> bool:
        """Whether it may be made on this machine."""
        away = self.realizer.elsewhere
        return away is None or away.fallback or not away.takes(self.graph.nodes[drv])

    def cost(self, drv: Digest, past: Past | None) -> Cost:
        """What a derivation takes now; one that was killed gets all there is, and is alone."""
        cost = expected_cost(self.graph.nodes[drv], past)
        if drv in self._alone:
            return replace(cost, memory=self.wishes.limits.memory, exclusive=True)
        return cost

    def again(self, drv: Digest, error: BaseException) -> bool:
        """A build that was killed for memory is tried once more, alone; one that other machines
        could not make, here; one whose input was spoilt, with that made again."""
        away = self.realizer.elsewhere
        if away is not None and drv not in self._home and away.stays(error):
            self._home.add(drv)
            self._emit("retried", self.graph.nodes[drv], error=str(error)[:500])
            return not self.realizer.cancel.is_set()
        spoilt = isinstance(error, SpoiltError)
        if self.realizer.cancel.is_set() or not (
            spoilt or (was_killed(error) and drv not in self._alone)
        ):
            return False
        if not spoilt:
            self._alone.add(drv)
        self._emit("retried", self.graph.nodes[drv], error=str(error)[:500])
        return True

    def step(self, drv: Digest, away: Elsewhere | None = None, expected_ms: int = 0) -> None:
        """Chooses the record of one derivation, all of whose inputs are chosen already. With
        `away` it is made there where it has to be made; `expected_ms` is how long it may take."""
        derivation = self.graph.nodes[drv]
        whole = self._inputs(derivation)
        self._emit("started", derivation, kind="fetch" if derivation.fixed is not None else "build")
        try:
            inputs, note = whole, ""
            if derivation.narrow is not None:
                narrowed = self.realizer.narrower().narrow(derivation, whole)
                inputs, note = dict(narrowed.inputs), narrowed.note
            try:
                self._act(derivation, inputs, note, away, expected_ms)
            except ReprobuildError as error:
                cut = inputs != whole
                if error.code != "E-BUILD-FAILED" or was_killed(error) or not cut:
                    raise
                # The rule may have missed a file; with the whole trees a real failure fails again.
                note = "whole trees: the build in the cut root failed"
                self._act(derivation, whole, note, away, expected_ms)
        except BaseException as error:
            code = error.code if isinstance(error, ReprobuildError) else "E-BUG"
            self._emit("failed", derivation, error=str(error)[:500], code=code)
            raise

    def _emit(self, event: str, derivation: Derivation, **fields: Value) -> None:
        self.realizer.reporter.emit(
            event, name=derivation.name, drv=str(derivation.digest), **fields
        )

    def _act(
        self,
        derivation: Derivation,
        inputs: Mapping[str, InputContent],
        note: str,
        away: Elsewhere | None,
        expected_ms: int,
    ) -> None:
        """Looks an action up, or makes it under its lock."""
        realizer, drv = self.realizer, derivation.digest
        action = derivation.action(inputs, realizer.builder.interpreter(derivation))
        checked = drv in self.wishes.check
        with ExitStack() as held:
            held.enter_context(realizer.catalog.lock_action(action))
            record = None if self._forget(derivation, checked) else self._recorded(action)
            if record is not None:
                self.commits.ready()
                realizer.catalog.choose(drv, record)
                self._choose(drv, record, "cut_off" if derivation.fixed is None else "reused")
                self._emit("finished", derivation, how="cut-off")
                return
            record = None if self._forget(derivation, checked) else self._shared(derivation, action)
            if record is not None:
                realizer.catalog.choose(drv, record)
                self._choose(drv, record, "shared")
                self._emit("finished", derivation, how="shared")
                return
            self._explain(derivation, inputs)
            alone = derivation
            if drv in self._alone:
                most = max(derivation.hints.memory, self.wishes.limits.memory)
                alone = replace(derivation, hints=replace(derivation.hints, memory=most))
            cached = False
            if away is not None:
                fresh = self._forget(derivation, checked)
                record, cached = away.build(derivation, action, inputs, expected_ms, fresh=fresh)
            else:
                record = realizer.builder.build(alone, action, inputs, partial(self.ease, drv))
            if not cached:
                remember(realizer.history, record, derivation, inputs)
            if note:
                record = replace(record, notes=(note, *record.notes))
            record = replace(record, isolation=self._grade(derivation, record.isolation))
            local = away is None and derivation.builder == SANDBOX
            shown = frozenset(inputs.values()) if local else frozenset[InputContent]()
            record = self._keep(derivation, record, checked, held, shown)
        how = "fetched" if derivation.fixed is not None else "shared" if cached else "built"
        self._choose(drv, record, how)
        self._emit("finished", derivation, how=how, duration_ms=record.duration_ms)

    def _explain(self, derivation: Derivation, inputs: Mapping[str, InputContent]) -> None:
        """Notes what changed in what a unit could read, before it is compiled again."""
        past = self.realizer.history.get(derivation.name) if derivation.narrow else None
        found = surplus(self.realizer.content, past, derivation, inputs) if past else None
        if found is not None:
            with self._mutex:
                self.result.reread[derivation.name] = found

    def _grade(self, derivation: Derivation, own: Isolation) -> Isolation:
        """The weakest grade of a build and of what it was made of: a record hides what is below
        it from the next plan, so it must not look better than that."""
        order = list(Isolation)
        below = [self.result.chosen[entry.drv].isolation for entry in derivation.inputs]
        return max([own, *below], key=order.index)

    def _shared(self, derivation: Derivation, action: Digest) -> Record | None:
        """What a shared cache has for an action: here, durable and on record when it returns."""
        realizer = self.realizer
        if realizer.shared is None or not is_made(derivation):
            return None
        record = realizer.shared.find(derivation, action, self.wishes.isolation)
        if record is not None:
            self.commits.ready()
            realizer.content.barrier()
            realizer.catalog.add_record(record)
        return record

    def _inputs(self, derivation: Derivation) -> dict[str, InputContent]:
        content = self.realizer.content
        return {
            entry.name: input_content(
                content,
                entry,
                self.result.chosen[entry.drv].outputs[entry.output],
                derivation.name,
            )
            for entry in derivation.inputs
        }

    def _forget(self, derivation: Derivation, checked: bool) -> bool:
        return checked or (self.wishes.from_source and is_made(derivation))

    def _recorded(self, action: Digest) -> Record | None:
        """The record to reuse; E-NOT-REPRODUCIBLE where two usable ones disagree."""
        records = [
            record
            for record in self.realizer.catalog.records(action)
            if usable(self.realizer.content, record, self.wishes.isolation)
        ]
        different = {tuple(sorted((n, t.hex) for n, t in r.outputs.items())) for r in records}
        if len(different) > 1:
            raise disagreeing(action, records, self.realizer.judge)
        return records[0] if records else None

    def _keep(
        self,
        derivation: Derivation,
        record: Record,
        checked: bool,
        held: ExitStack,
        shown: frozenset[InputContent],
    ) -> Record:
        """Hands a build over to be recorded, with what is `held` until then; returns the record
        that stands for it.

        A second, different tree is kept beside the first and reported; a check that came out
        equal leaves the record it confirmed.
        """
        catalog, content = self.realizer.catalog, self.realizer.content
        # a record of weaker isolation serves no stricter build, not even as a contradiction
        before = [r for r in catalog.records(record.action) if usable(content, r, record.isolation)]
        other = next((r for r in before if dict(r.outputs) != dict(record.outputs)), None)
        if other is not None:
            require_unchanged(content, shown)
            self.commits.ready()
            content.barrier()
            catalog.add_record(record)
            raise contradicting(derivation.name, other, record, self.realizer.judge)
        if checked:
            with self._mutex:
                self.result.checked += 1
        confirmed = next((r for r in before if r.isolation.satisfies(record.isolation)), None)
        standing = confirmed or record

        def offer() -> None:
            if self.realizer.shared is not None and is_made(derivation):
                self.realizer.shared.offer(standing)

        self.commits.put(
            Made(derivation.digest, standing, confirmed is None, held.pop_all(), offer, shown)
        )
        return standing

    def _choose(self, drv: Digest, record: Record, count: str) -> None:
        with self._mutex:
            self.result.chosen[drv] = record
            setattr(self.result, count, getattr(self.result, count) + 1)
