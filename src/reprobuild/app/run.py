"""One run of the tool: its settings, its store, its project, and whom it tells of progress.

The parts of the composition root stand on this; it knows none of them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from reprobuild.errors import ReprobuildError
from reprobuild.settings import Settings

if TYPE_CHECKING:
    from reprobuild.adapters.store.glance import Glance
    from reprobuild.adapters.store.store import LocalStore
    from reprobuild.core.project import Project
    from reprobuild.ports import Reporter


class StoreUse(Enum):
    """What a command does where there is no store at the place that is named for it."""

    MAKE = "make"
    LOOK = "look"
    """Nothing is made there: it sees a store with nothing in it."""
    NEED = "need"
    """It speaks of the store itself, so it raises E-NO-STORE."""


@dataclass
class Run:
    """What every part asks for. `closers` are called at the end, the last one first."""

    settings: Settings
    cancel: threading.Event = field(default_factory=threading.Event)
    closers: list[Callable[[], None]] = field(default_factory=list)
    quieters: list[Callable[[], None]] = field(default_factory=list)
    watchers: list[Reporter] = field(default_factory=list)
    store_use: StoreUse = StoreUse.MAKE
    lost_events: Callable[[], str] = str
    """Why events did not reach the file of `--events`, at the end; empty when all did."""

    @property
    def json(self) -> bool:
        """Whether standard output is one JSON document."""
        return self.settings.json

    @property
    def offline(self) -> bool:
        """Whether the network is off."""
        return self.settings.offline

    def seal(self) -> None:
        """Closes the network for this process and its children (E-OFFLINE, E-OFFLINE-SEAL)."""
        from reprobuild.adapters.offline.seal import seal

        seal()

    @property
    def flake_dir(self) -> Path:
        """The flake's directory."""
        return self.settings.flake_dir

    @property
    def store_path(self) -> Path:
        """The store's place, whether it is there or not."""
        return self.settings.store_path

    @cached_property
    def store(self) -> LocalStore:
        """The store; where it is not there, `store_use` says what happens.

        Raises E-NO-STORE, E-STORE-FORMAT, E-STORE-WRITE.
        """
        from reprobuild.adapters.store.store import LocalStore

        local = self.settings.environment.get("REPROBUILD_STORE_LOCKS") == "local"
        make = self.store_use is StoreUse.MAKE
        try:
            store = LocalStore.open(self.settings.store_path, create=make, local_locks=local)
        except ReprobuildError as error:
            if error.code != "E-NO-STORE" or self.store_use is not StoreUse.LOOK:
                raise
            store = self._empty_store()
        self.closers.append(store.close)
        return store

    def _empty_store(self) -> LocalStore:
        from tempfile import TemporaryDirectory

        from reprobuild.adapters.store.store import LocalStore

        place = TemporaryDirectory(prefix="reprobuild-nothing-")
        self.closers.append(place.cleanup)
        return LocalStore.open(Path(place.name), create=True)

    def look(self) -> None:
        """From here on no store is made (`StoreUse.LOOK`)."""
        self.store_use = StoreUse.LOOK

    def glance(self) -> Glance | None:
        """A cheap look into the store; None when there is none that can be read."""
        from reprobuild.adapters.store.glance import Glance

        return Glance.into(str(self.settings.store_path))

    @cached_property
    def project(self) -> Project:
        """Flake, components and lock, read and checked."""
        from reprobuild.adapters.toml.load import load_project

        return load_project(self.flake_dir)

    @cached_property
    def reporter(self) -> Reporter:
        """Live view, plain lines or nothing, and the watchers: event file, trace, metrics."""
        reporters = list(self.watchers)
        if not self.settings.quiet:
            reporters.append(self._terminal_reporter())
        if not reporters:
            from reprobuild.ports import NullReporter

            return NullReporter()
        from reprobuild.adapters.report.fanout import Fanout

        return Fanout(reporters)

    def open_events(self) -> None:
        """The file of `--events`, before anything is done. Raises E-USAGE."""
        if self.settings.events is not None:
            from reprobuild.adapters.report.jsonlines import JsonLines

            events = JsonLines(self.settings.events)
            self.watchers.append(events)
            self.lost_events = lambda: events.lost

    def watch(self, trace: Path | None, metrics: Path | None) -> None:
        """Files about this run, written at its end; before the first event. Raises E-USAGE."""
        if trace is not None:
            from reprobuild.adapters.report.trace import ChromeTrace

            timeline = ChromeTrace(trace)
            self.watchers.append(timeline)
            self.closers.append(timeline.close)
        if metrics is not None:
            from reprobuild.adapters.report.metrics import OpenMetrics

            figures = OpenMetrics(metrics)
            self.watchers.append(figures)
            self.closers.append(figures.close)

    def _terminal_reporter(self) -> Reporter:
        if self.settings.colour and sys.stderr.isatty():
            from reprobuild.adapters.report.live import LiveReporter

            live = LiveReporter()
            self.quieters.append(live.close)
            return live
        from reprobuild.adapters.report.plain import PlainReporter

        return PlainReporter(verbose=self.settings.verbose)

    def quiet(self) -> None:
        """Ends the live view, before results are printed."""
        while self.quieters:
            self.quieters.pop()()

    def close(self) -> None:
        """Puts the terminal and the store back in order."""
        self.quiet()
        while self.closers:
            self.closers.pop()()
