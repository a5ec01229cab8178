"""lock: pin every input to content and every source to its integration tree.

Only what is asked for moves: a pin stays while its declaration stays (and, for fixtures and
directories of the project, what lies there), and a source that is
pinned anew because a head was added keeps the base and the heads it had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reprobuild.core.agreement import input_disagrees, source_disagrees
from reprobuild.core.flake import FixtureInput, Flake, GitInput, Output, Source
from reprobuild.core.lock import GitPin, Lock, PathPin, Pin, PinnedHead, PinnedOutput, PinnedSource
from reprobuild.core.origins import spec_digest
from reprobuild.engine.pinning import Pinner
from reprobuild.engine.updates import Update
from reprobuild.errors import ReprobuildError
from reprobuild.errors.codes import CODES
from reprobuild.ports import Reporter

_OPEN = frozenset(
    {
        "E-FETCH",
        "E-OFFLINE",
        "E-GIT-FETCH",
        "E-PACKAGE-MISSING",
        "E-DEB-GONE",
        "E-GIT-MISSING-OBJECT",
        "E-REF-MISSING",
    }
)
"""Failures that leave an input open: it cannot be reached now, and may be later."""


_UNREACHED = frozenset({"E-FETCH", "E-OFFLINE", "E-GIT-FETCH"})
"""Those whose message speaks of this machine and its network."""

_NOT_THERE = frozenset({"E-REF-MISSING", "E-GIT-MISSING-OBJECT"})
"""Those said by a repository that was reached: more likely a slip in the flake than a matter of
time. Of packages that is said only where a pin would be lost, as a release may wait for one."""


@dataclass(frozen=True, slots=True)
class Open:
    """Why one thing stays open."""

    error: ReprobuildError
    wrong: bool
    """Whether what was reached does not have it; otherwise it could not be reached."""

    @property
    def place(self) -> str:
        """What was not reached, where that is why; else nothing."""
        url = self.error.facts.get("url")
        return str(url) if url and self.error.code in _UNREACHED else ""


@dataclass(slots=True)
class Locked:
    """The new lock, and what moved."""

    lock: Lock
    changed: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Locker:
    """The use case for one flake and its present lock."""

    flake: Flake
    old: Lock | None
    pinner: Pinner
    reporter: Reporter
    update: Update = field(default_factory=Update)
    why: dict[str, Open] = field(default_factory=dict)
    """What was said of everything that stays open, by its name in `Locked.changed`."""

    def run(self) -> Locked:
        """Pins what is missing, changed or to be updated; the rest stays to the letter.

        Raises an error for what `--update` names and cannot be had, and for wrong content; what
        cannot be had now is left open in the lock, where the pin that there was stays beside it.
        """
        open_inputs: dict[str, str] = {}
        inputs: dict[str, Pin] = {}
        for name, declared in sorted(self.flake.inputs.items()):
            before = self.old.inputs.get(name) if self.old else None
            if before is not None and self._current(name, before):
                inputs[name] = before
                continue
            self.reporter.emit("started", name=f"inputs.{name}", kind="lock")
            try:
                inputs[name] = self.pinner.input(name, declared)
            except ReprobuildError as error:
                error.facts.setdefault("key", f"inputs.{name}")
                error.hint = error.hint.replace("--update INPUT", f"--update {name}")
                open_inputs[name] = self._left_open(error, name in self.update.inputs)
                self._note(f"open.{name}", error, before is not None)
                if before is not None and before.kind == declared.kind:
                    inputs[name] = before  # counts again once its declaration is back
            self.reporter.emit(
                "finished", name=f"inputs.{name}", how="open" if name in open_inputs else "pinned"
            )
        outputs = {
            name: self._output(name, output) for name, output in sorted(self.flake.outputs.items())
        }
        lock = Lock(format=0, inputs=inputs, open=open_inputs, outputs=outputs)
        return Locked(lock, changes(self.old, lock))

    def _current(self, name: str, pin: Pin) -> bool:
        declared = self.flake.inputs[name]
        if name in self.update.inputs or pin.kind != declared.kind:
            return False
        if pin.spec != spec_digest(declared).hex:
            return False
        if isinstance(pin, PathPin):
            now = self.pinner.directory(declared)
            return now is None or pin.tree == now
        if not isinstance(pin, GitPin):
            return True
        assert isinstance(declared, (GitInput, FixtureInput))
        return not input_disagrees(declared, pin) and pin.text == self.pinner.text(declared)

    def _note(self, name: str, error: ReprobuildError, had: bool) -> None:
        wrong = error.code in _NOT_THERE or (had and error.code in _OPEN - _UNREACHED)
        self.why[name] = Open(error, wrong)

    def _left_open(self, error: ReprobuildError, asked_for: bool, moved_on: bool = False) -> str:
        if asked_for or (error.code not in _OPEN and not moved_on):
            raise error
        if error.code not in _UNREACHED:
            return f"{error.code}: {error.message}"
        # What a resolver or proxy of this machine says is no matter of a file that is shared.
        where = error.facts.get("url")
        return f"{error.code}: {CODES[error.code].meaning}" + (f" ({where})" if where else "")

    def _output(self, name: str, output: Output) -> PinnedOutput:
        before = self.old.outputs.get(name) if self.old else None
        sources: dict[str, PinnedSource] = {}
        open_: dict[str, str] = {}
        for component, wanted in sorted(output.sources.items()):
            known = before.sources.get(component) if before else None
            try:
                sources[component] = self._source(name, component, wanted, known)
            except ReprobuildError as error:
                error.facts.setdefault("key", f"outputs.{name}.sources.{component}")
                error.hint = error.hint.replace("OUTPUT.COMPONENT", f"{name}.{component}")
                asked = self._asked_for(name, component, wanted)
                # Where the base is left to the branch, another tree only means that the branch
                # has moved on since the release: the output waits, the others need not.
                moved_on = error.code == "E-TREE-MISMATCH" and wanted.base_commit is None
                open_[component] = self._left_open(error, asked, moved_on)
                self._note(f"outputs.{name}.open.{component}", error, known is not None)
                if known is not None and not self._text_moved(wanted.input):
                    sources[component] = known  # counts again once its declaration is back
        return PinnedOutput(open=open_, sources=sources)

    def _asked_for(self, output: str, component: str, wanted: Source) -> bool:
        numbers = self.update.numbers(output, component)
        return wanted.input in self.update.inputs or bool(numbers)

    def _source(
        self, output: str, component: str, wanted: Source, known: PinnedSource | None
    ) -> PinnedSource:
        declared = self.flake.inputs[wanted.input]
        assert isinstance(declared, (GitInput, FixtureInput))
        moved = self.update.numbers(output, component)
        if known is not None and not self._still(declared, wanted, known, moved):
            # A fixture's commits follow its text: nothing pinned from the old text is there.
            stale = wanted.input in self.update.inputs or self._text_moved(wanted.input)
            known = None if stale else _without(known, moved)
        elif known is not None:
            return known
        label = f"outputs.{output}.sources.{component}"
        self.reporter.emit("started", name=label, kind="lock")
        pin = self.pinner.source(declared, wanted, known)
        self.reporter.emit("finished", name=label, how="pinned")
        return pin

    def _still(
        self,
        declared: GitInput | FixtureInput,
        wanted: Source,
        known: PinnedSource,
        moved: set[int],
    ) -> bool:
        return (
            not moved
            and wanted.input not in self.update.inputs
            and known.spec == spec_digest(wanted).hex
            and not source_disagrees(declared, wanted, known)
            and (wanted.tree is None or wanted.tree == known.tree)
            and not self._text_moved(wanted.input)
        )

    def _text_moved(self, name: str) -> bool:
        declared = self.flake.inputs[name]
        before = self.old.inputs.get(name) if self.old else None
        return isinstance(declared, FixtureInput) and (
            not isinstance(before, GitPin) or before.text != self.pinner.text(declared)
        )


def _without(known: PinnedSource, moved: set[int]) -> PinnedSource:
    kept: tuple[PinnedHead, ...] = tuple(h for h in known.heads if h.number not in moved)
    return known.model_copy(update={"heads": kept})


def changes(old: Lock | None, new: Lock) -> list[str]:
    """The names of all pins that differ between two locks."""
    before = pins(old) if old else {}
    after = pins(new)
    return sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))


def pins(lock: Lock) -> Mapping[str, object]:
    """Everything that a lock says, by the names of `Locked.changed`."""
    flat: dict[str, object] = {f"inputs.{name}": pin for name, pin in lock.inputs.items()}
    flat |= {f"open.{name}": why for name, why in lock.open.items()}
    for name, output in lock.outputs.items():
        for component, source in output.sources.items():
            flat[f"outputs.{name}.sources.{component}"] = source
        for component, why in output.open.items():
            flat[f"outputs.{name}.open.{component}"] = why
        for row in output.units:
            flat[f"outputs.{name}.units.{row.component}.{row.step} {row.pattern}"] = row
    return flat
