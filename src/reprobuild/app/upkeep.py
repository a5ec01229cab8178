"""Upkeep of the store, beyond what it does alone: other stores, caches and rebuilds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reprobuild.adapters.store.gc import Collection
    from reprobuild.adapters.store.quarantine import Disagreement, Result
    from reprobuild.adapters.store.repaired import Repaired
    from reprobuild.app.run import Run

__all__ = ["Collection", "Disagreement", "Repaired", "Result", "Upkeep"]


class Upkeep:
    """Upkeep of a run's store."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def repair(self, others: Sequence[Path]) -> Repaired:
        """Repairs the store, also with the content of other stores; raises E-NO-STORE."""
        from reprobuild.adapters.store.store import LocalStore

        with ExitStack() as stack:
            opened = [stack.enter_context(LocalStore.open(other)) for other in others]
            return self._run.store.repair(others=opened)
