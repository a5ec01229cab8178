"""Making derivations: the executor, the engine over it, what it remembers."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reprobuild.adapters.sandbox.executor import BubblewrapExecutor
    from reprobuild.adapters.store.history import SqliteHistory
    from reprobuild.app.kernels import Kernels
    from reprobuild.app.run import Run
    from reprobuild.app.sources import Sources
    from reprobuild.core.derivation import Isolation
    from reprobuild.core.graph import Graph
    from reprobuild.engine.build import Builder
    from reprobuild.engine.narrow import Narrower
    from reprobuild.engine.plan import Plan
    from reprobuild.engine.realize import Realizer
    from reprobuild.engine.remote import Elsewhere
    from reprobuild.engine.remote_cache import SharedCache


MINIMUM_SPACE = 512 * 2**20
"""Bytes that must be free before anything is built."""

EARLY = 8
"""Places for builds that are made while the last things before the first build are done."""


class Building:
    """Making derivations: the executor, the engine over it, what it remembers."""

    def __init__(self, run: Run, sources: Sources, kernels: Kernels) -> None:
        self._run, self._sources, self._kernels = run, sources, kernels
        self._executors: dict[Isolation, BubblewrapExecutor] = {}
        self._lock = threading.Lock()

    def probe(self) -> Isolation:
        """The best grade, tried once; whether there is a store, and whose, has no part in it.

        Raises E-SANDBOX-UNAVAILABLE, E-SANDBOX-SETUP.
        """
        from pathlib import Path
        from tempfile import TemporaryDirectory

        from reprobuild.adapters.sandbox.executor import BubblewrapExecutor
        from reprobuild.core.derivation import Isolation

        runtime = self._run.settings.system_runtime_dir
        if runtime is not None:
            return BubblewrapExecutor(Isolation.FULL, runtime).probe()
        with TemporaryDirectory(prefix="reprobuild-probe-") as place:
            return BubblewrapExecutor(Isolation.FULL, Path(place)).probe()

    def executor(self, isolation: Isolation) -> BubblewrapExecutor:
        """What runs single builds; one for each grade, so that the sandbox is tried once."""
        from reprobuild.adapters.sandbox.executor import BubblewrapExecutor
        from reprobuild.core.derivation import Isolation

        # `remote` is what others may do; what is built here has no reason to be less than full.
        grade = Isolation.FULL if isolation is Isolation.REMOTE else isolation
        if grade not in self._executors:
            self._executors[grade] = BubblewrapExecutor(grade, self._run.settings.runtime_dir)
        return self._executors[grade]

    def builder(self, isolation: Isolation, *, keep_failed: bool = False) -> Builder:
        """What makes single derivations, over the real world."""
        from reprobuild.adapters.builders import builtins
        from reprobuild.engine.build import Builder

        return Builder(
            content=self._run.store,
            executor=self.executor(isolation),
            fetcher=self._sources.fetchers,
            builtins=builtins(),
            reporter=self._run.reporter,
            logs=self._run.store.logs,
            work=self._run.store.path / "build",
            cancel=self._run.cancel,
            keep_failed=keep_failed,
        )

    def realizer(
        self,
        isolation: Isolation,
        *,
        keep_failed: bool = False,
        elsewhere: Elsewhere | None = None,
        shared: SharedCache | None = None,
    ) -> Realizer:
        """The realize use case, over the real world; `elsewhere` and `shared` from app.remote."""
        from reprobuild.adapters.sandbox.memory import available_memory
        from reprobuild.engine.realize import Realizer

        return Realizer(
            content=self._run.store,
            catalog=self._run.store,
            builder=self.builder(isolation, keep_failed=keep_failed),
            narrower=self._one_narrower,
            reporter=self._run.reporter,
            cancel=self._run.cancel,
            history=self.history,
            available=available_memory,
            judge=lambda first, second: self._kernels.verdict(
                first.outputs, second.outputs
            ).lines(),
            elsewhere=elsewhere,
            shared=shared,
        )

    def _one_narrower(self) -> Narrower:
        with self._lock:  # several builds may be the first to ask
            return self.narrower

    @cached_property
    def narrower(self) -> Narrower:
        """What cuts inputs down to what could be read."""
        from reprobuild.adapters.store.scanmemo import SqliteScanMemo
        from reprobuild.engine.narrow import Narrower

        memo = SqliteScanMemo(self._run.store.path / "cache" / "includes.sqlite")
        self._run.closers.append(memo.close)
        return Narrower(self._run.store, memo)

    @cached_property
    def history(self) -> SqliteHistory:
        """What earlier builds took and read."""
        from reprobuild.adapters.store.history import SqliteHistory

        history = SqliteHistory(self._run.store.path / "cache" / "history.sqlite")
        self._run.closers.append(history.close)
        return history

    def check_before(
        self, plan: Plan, graph: Graph, isolation: Isolation, *, here: bool = True, jobs: int = 0
    ) -> None:
        """Before anything is begun: this user may add to the store, the sandbox can be had, if
        builds are made `here`, and the disk has room. Places for up to `jobs` builds are begun
        meanwhile.

        Raises E-STORE-WRITE, E-SANDBOX…, E-DISK-SPACE.
        """
        from reprobuild.core.derivation import SANDBOX
        from reprobuild.engine.plan import Deed

        fetches, builds = plan.of(Deed.FETCH), plan.of(Deed.BUILD)
        if not fetches and not builds:
            return
        self._run.store.require_writable()
        nodes = [graph.nodes[step.drv] for step in builds]
        sandboxed = [node for node in nodes if node.builder == SANDBOX]
        if here and sandboxed:
            self.executor(isolation).probe([node.hints for node in sandboxed[: min(jobs, EARLY)]])
        sizes = [graph.nodes[step.drv].origin.get("size") for step in fetches]
        download = sum(size for size in sizes if isinstance(size, int))
        # A download is stored, and unpacked to about three times its size.
        self._run.store.require_space(MINIMUM_SPACE + 4 * download)
