"""One derivation made real: fetched, computed by a built-in, or run in the sandbox."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reprobuild.core.derivation import SANDBOX, Derivation, InputContent, Isolation
from reprobuild.core.digest import Digest
from reprobuild.core.record import Record
from reprobuild.core.tree import Directory, File
from reprobuild.engine.cancellable import CancellableContent
from reprobuild.engine.loans import Loans
from reprobuild.engine.workplace import log_name, log_tail, new_log, set_aside, work_directory
from reprobuild.errors import Exit, ReprobuildError
from reprobuild.ports import (
    BuildOutcome,
    BuildRequest,
    Builtin,
    ContentStore,
    Executor,
    Fetcher,
    Mount,
    Reporter,
    Wish,
)

_PIECE = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Builder:
    """Makes single derivations; knows nothing of graphs, records or what was built before."""

    content: ContentStore
    executor: Executor
    fetcher: Fetcher
    builtins: Mapping[str, Builtin]
    reporter: Reporter
    logs: Path
    work: Path
    cancel: threading.Event
    keep_failed: bool = False

    def interpreter(self, derivation: Derivation) -> str:
        """What runs a recipe, with its version: part of the action digest."""
        if derivation.builder == SANDBOX:
            return self.executor.version
        if derivation.fixed is not None:
            return "fetch"
        builtin = self._builtin(derivation)
        return f"{builtin.name}/{builtin.version}"

    def _builtin(self, derivation: Derivation) -> Builtin:
        name = derivation.builder.removeprefix("builtin:")
        if name not in self.builtins:
            raise ReprobuildError(
                "E-DERIVATION", f"{derivation.name} asks for the built-in {name!r}, unknown here"
            )
        return self.builtins[name]

    def build(
        self,
        derivation: Derivation,
        action: Digest,
        inputs: Mapping[str, InputContent],
        over: Callable[[], None] = lambda: None,
    ) -> Record:
        """Makes it and describes how; content is stored but not yet on record.

        `over` is called when a build in the sandbox has ended well, and only its outputs are left
        to be taken.
        """
        started = time.monotonic()
        if derivation.fixed is not None:
            tree = derivation.fixed.tree
            if tree is None or not self.content.contains(tree):
                tree = self.fetcher.fetch(derivation.fixed, derivation.origin, self.reporter)
            outputs: Mapping[str, Digest] = {"out": tree}
            isolation, memory, log, unenforced = Isolation.FULL, 0, "", ()
        elif derivation.builder == SANDBOX:
            return self._run(derivation, action, inputs, over)
        else:
            trees = {name: entry.digest for name, entry in inputs.items()}
            builtin = self._builtin(derivation)
            content = CancellableContent(self.content, self.cancel)
            try:
                outputs = builtin.build(derivation.params, trees, content)
            except ReprobuildError as error:
                if error.exit_status in (Exit.INPUT, Exit.BUILD, Exit.CHECK):
                    read_through(content, trees.values())
                raise
            isolation, memory, log, unenforced = Isolation.FULL, 0, "", ()
        return Record(
            action=action,
            drv=derivation.digest,
            outputs=outputs,
            isolation=isolation,
            duration_ms=int((time.monotonic() - started) * 1000),
            peak_memory=memory,
            log=log,
            name=derivation.name,
            unenforced=unenforced,
        )

    # -- sandboxed builds --------------------------------------------------------------------

    def request(
        self,
        derivation: Derivation,
        inputs: Mapping[str, InputContent],
        workdir: Path,
        place: Callable[[InputContent], Path],
    ) -> BuildRequest:
        """The fully resolved form: every input as a host path, which `place` says."""
        mounts: list[Mount] = []
        for entry in derivation.inputs:
            found = inputs[entry.name]
            assert entry.at is not None
            mounts.append(Mount(entry.at, place(found)))
        return BuildRequest(
            label=derivation.name,
            argv=derivation.argv,
            env=dict(derivation.env),
            cwd=derivation.cwd,
            mounts=tuple(mounts),
            outputs=derivation.outputs,
            workdir=workdir,
            hints=derivation.hints,
            directories=derivation.outputs,
        )

    def _run(
        self,
        derivation: Derivation,
        action: Digest,
        inputs: Mapping[str, InputContent],
        over: Callable[[], None],
    ) -> Record:
        workdir = work_directory(self.work)
        keep = False
        loans = Loans(self.content, self.cancel)
        try:
            outputs: dict[str, Digest] = {}
            with loans.settled(derivation.name):
                request = self.request(derivation, inputs, workdir, loans.path)
                log, outcome = self._execute(request, derivation.digest, loans)
                lacking = () if outcome.reason else _lacking(derivation, outcome)
                if not outcome.reason and not lacking:
                    over()
                    outputs = self._capture(derivation, outcome, log)
            if not outputs and not self.cancel.is_set():
                loans.require_unchanged(derivation.name)
            keep = self.keep_failed and outcome.reason != "interrupted" and not outputs
            kept = set_aside(workdir) if keep else None
            if outcome.reason:
                raise failure(
                    derivation,
                    outcome.reason,
                    outcome.status,
                    log,
                    kept=kept,
                    unenforced=outcome.unenforced,
                )
            for name in lacking:
                raise ReprobuildError(
                    "E-BUILD-NO-OUTPUT",
                    f"{derivation.name} ended well, but left "
                    f"{_lack(outcome.outputs.get(name))} output {name!r}",
                    drv=str(derivation.digest),
                    log=log,
                    kept=str(kept) if kept else None,
                )
        finally:
            if not keep:
                self.executor.discard(workdir)
        return Record(
            action=action,
            drv=derivation.digest,
            outputs=outputs,
            isolation=outcome.isolation,
            duration_ms=outcome.duration_ms,
            peak_memory=outcome.peak_memory,
            log=log_name(log),
            name=derivation.name,
            unenforced=outcome.unenforced,
        )

    def _capture(
        self, derivation: Derivation, outcome: BuildOutcome, log: str
    ) -> dict[str, Digest]:
        try:
            limit = derivation.hints.output_limit
            return {
                name: self.content.capture(outcome.outputs[name], limit=limit)
                for name in derivation.outputs
            }
        except ReprobuildError as error:
            error.facts.setdefault("derivation", derivation.name)
            error.facts.setdefault("log", log)
            raise

    def _execute(self, request: BuildRequest, drv: Digest, stop: Wish) -> tuple[str, BuildOutcome]:
        with new_log(self.logs, drv) as (path, log):
            self.reporter.emit("build-started", name=request.label, log=path)
            return path, self.executor.run(request, log, stop)


def _lacking(derivation: Derivation, outcome: BuildOutcome) -> Sequence[str]:
    """The outputs that are no directories with something in them."""
    found = outcome.outputs
    return [n for n in derivation.outputs if n not in found or not _has_entries(found[n])]


def _lack(path: Path | None) -> str:
    """What is there where a directory with something in it should be."""
    if path is None:
        return "no directory as"
    return "nothing in" if path.is_dir() else "a file, and no directory, as"


def _has_entries(path: Path) -> bool:
    """Whether it is a directory with something in it."""
    try:
        with os.scandir(path) as listing:
            return next(listing, None) is not None
    except NotADirectoryError:
        return False


def failure(
    derivation: Derivation,
    reason: str,
    status: int,
    log: str,
    *,
    kept: Path | None = None,
    unenforced: Iterable[str] = (),
    node: str = "",
) -> ReprobuildError:
    """The error of a build that ended with `reason` (`BuildOutcome.reason`); `node` says where it
    ran, if not here."""
    hints = derivation.hints
    code, what = {
        "exit": ("E-BUILD-FAILED", f"ended with status {status}"),
        "signal": ("E-BUILD-FAILED", f"was killed by signal {status}"),
        "timeout": ("E-BUILD-TIMEOUT", f"took longer than {hints.timeout} s"),
        "silence": ("E-BUILD-TIMEOUT", f"said nothing for {hints.silence} s"),
        "output-size": ("E-BUILD-OUTPUT", f"wrote more than {hints.output_limit} bytes"),
        "memory": ("E-BUILD-MEMORY", "ran out of the memory it may use"),
        "interrupted": ("E-INTERRUPTED", "was stopped"),
    }[reason]
    return ReprobuildError(
        code,
        f"{derivation.name} {what}",
        drv=str(derivation.digest),
        log=log,
        tail=log_tail(log),
        signal=status if reason == "signal" else None,
        kept=str(kept) if kept else None,
        unenforced=list(unenforced) or None,
        node=node or None,
    )


def read_through(content: ContentStore, trees: Iterable[Digest]) -> None:
    """Reads every file of the trees to its end: E-STORE-DAMAGED when one is not what it should be.

    A built-in reads archives from any place in them and stops where they make no sense, which is
    often before the end, where damage would show. So after a failure the store is asked first.
    """
    seen: set[Digest] = set()
    pending = list(trees)
    while pending:
        digest = pending.pop()
        if digest in seen:
            continue
        seen.add(digest)
        for _, entry in content.tree(digest).entries:
            if isinstance(entry, Directory):
                pending.append(entry.digest)
            elif isinstance(entry, File) and entry.digest not in seen:
                seen.add(entry.digest)
                with content.open_blob(entry.digest) as source:
                    while source.read(_PIECE):
                        pass
