"""The composition root: the only file that names adapters. Everything heavy is made on demand."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from reprobuild.core.derivation import Isolation
from reprobuild.ports import NullReporter, Reporter
from reprobuild.settings import Settings

if TYPE_CHECKING:
    from reprobuild.adapters.store.store import LocalStore
    from reprobuild.core.project import Project
    from reprobuild.engine.build import Builder
    from reprobuild.engine.realize import Realizer


@dataclass
class App:
    """One run of the tool: settings, and the parts that it asks for."""

    settings: Settings
    cancel: threading.Event = field(default_factory=threading.Event)
    _closers: list[Callable[[], None]] = field(default_factory=list)

    @property
    def json(self) -> bool:
        """Whether standard output is one JSON document."""
        return self.settings.json

    @property
    def offline(self) -> bool:
        """Whether the network is off."""
        return self.settings.offline

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
        """The store, made when it is not there."""
        from reprobuild.adapters.store.store import LocalStore

        store = LocalStore.open(self.settings.store_path, create=True)
        self._closers.append(store.close)
        return store

    @cached_property
    def project(self) -> Project:
        """Flake, components and lock, read and checked."""
        from reprobuild.adapters.toml.load import load_project

        return load_project(self.flake_dir)

    @cached_property
    def reporter(self) -> Reporter:
        """Live view, plain lines or nothing, and the event file where one is asked for."""
        reporters: list[Reporter] = []
        if self.settings.events is not None:
            from reprobuild.adapters.report.jsonlines import JsonLines

            reporters.append(JsonLines(self.settings.events))
        if not self.settings.quiet:
            reporters.append(self._terminal_reporter())
        if not reporters:
            return NullReporter()
        from reprobuild.adapters.report.fanout import Fanout

        return Fanout(reporters)

    def _terminal_reporter(self) -> Reporter:
        if self.settings.colour and sys.stderr.isatty():
            from reprobuild.adapters.report.live import LiveReporter

            live = LiveReporter()
            self._closers.append(live.close)
            return live
        from reprobuild.adapters.report.plain import PlainReporter

        return PlainReporter(verbose=self.settings.verbose)

    def builder(self, isolation: Isolation, *, keep_failed: bool = False) -> Builder:
        """What makes single derivations, over the real world."""
        from reprobuild.adapters.builders import builtins
        from reprobuild.adapters.sandbox.executor import BubblewrapExecutor
        from reprobuild.engine.build import Builder

        return Builder(
            content=self.store,
            executor=BubblewrapExecutor(isolation, self.settings.runtime_dir),
            fetcher=self.fetchers,
            builtins=builtins(),
            reporter=self.reporter,
            logs=self.store.logs,
            work=self.store.path / "build",
            cancel=self.cancel,
            keep_failed=keep_failed,
        )

    def realizer(self, isolation: Isolation, *, keep_failed: bool = False) -> Realizer:
        """The realize use case, over the real world."""
        from reprobuild.engine.realize import Realizer

        return Realizer(
            content=self.store,
            catalog=self.store,
            builder=self.builder(isolation, keep_failed=keep_failed),
            reporter=self.reporter,
            cancel=self.cancel,
        )

    def close(self) -> None:
        """Puts the terminal and the store back in order."""
        while self._closers:
            self._closers.pop()()
