"""What device code lies in a tree, and what two builds of it differ in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reprobuild.app.run import Run
    from reprobuild.core.cubin.module import Module
    from reprobuild.core.cubin.table import ModuleMemo
    from reprobuild.core.digest import Digest
    from reprobuild.engine.verdict import Verdict


class Kernels:
    """What device code lies in a tree, and what two builds of it differ in."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @cached_property
    def memo(self) -> ModuleMemo:
        """Descriptions of modules, by blob."""
        from reprobuild.adapters.store.scanmemo import SqliteScanMemo
        from reprobuild.core.cubin.table import VERSION

        memo = SqliteScanMemo(self._run.store.path / "cache" / f"kernels-v{VERSION}.sqlite")
        self._run.closers.append(memo.close)
        return memo

    def table(self, tree: Digest) -> dict[str, Module]:
        """What device code lies in a tree, by path."""
        from reprobuild.adapters.cubin.inflate import inflate
        from reprobuild.core.cubin.table import kernel_table

        return kernel_table(self._run.store, tree, inflate, self.memo)

    def verdict(self, first: Mapping[str, Digest], second: Mapping[str, Digest]) -> Verdict:
        """What the trees (by output) of two builds of one recipe differ in, and why."""
        from reprobuild.adapters.cubin.inflate import inflate
        from reprobuild.engine.verdict import judge_outputs

        found = judge_outputs(self._run.store, first, second, inflate)
        return found.renamed(self.demangle(found.names()))

    def demangle(self, names: Iterable[str]) -> Mapping[str, str]:
        """C++ names for people."""
        from reprobuild.adapters.cubin.demangle import demangle

        return demangle(names)
