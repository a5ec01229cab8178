"""What a kind may ask for while it turns a step into derivations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from reprobuild.core.derivation import Derivation, Hints, Input
from reprobuild.core.digest import Digest
from reprobuild.core.reference import Ref


@dataclass(frozen=True, slots=True)
class Located:
    """A place in what some derivation makes; `filename` where it is known to hold one file."""

    drv: Digest
    output: str = "out"
    path: str = ""
    filename: str = ""

    def __truediv__(self, path: str) -> Located:
        return Located(self.drv, self.output, f"{self.path}/{path}".strip("/"))

    def input(self, name: str, at: str | None = None) -> Input:
        """As an input of a recipe, the path included."""
        return Input(name, self.drv, self.output, self.path, at)


class StepContext(Protocol):
    """One step's view of the project."""

    @property
    def name(self) -> str:
        """`COMPONENT.STEP`, the stem of derivation names."""
        ...

    @property
    def version(self) -> str:
        """The component's version, or empty."""
        ...

    def resolve(self, ref: Ref) -> Located:
        """The single thing a reference names."""
        ...

    def resolve_all(self, ref: Ref) -> tuple[Located, ...]:
        """Everything a reference names: the files of an input in order, else the one thing."""
        ...

    def toolchain_root(self, toolchain: str | None, root: Ref | None) -> Located:
        """The root file system to build in."""
        ...

    def toolchain_cuda(self, toolchain: str | None) -> Located:
        """The CUDA toolkit to build with."""
        ...

    def matching(self, tree: Ref, pattern: str, exclude: Sequence[str]) -> tuple[str, ...]:
        """The files of a tree that a pattern takes, sorted; raises where they are not known."""
        ...

    def add(self, derivation: Derivation) -> Located:
        """Adds a derivation to the graph; its first output."""
        ...


def hints(
    memory_mib: int | None,
    timeout: int | None,
    default: Hints | None = None,
    platform: Mapping[str, str] | None = None,
) -> Hints:
    """Scheduler hints from what a step states, over a default."""
    base = default or Hints()
    return Hints(
        memory=memory_mib * 2**20 if memory_mib else base.memory,
        cores=base.cores,
        timeout=timeout or base.timeout,
        silence=base.silence,
        output_limit=base.output_limit,
        platform=tuple(sorted((platform or {}).items())),
    )
