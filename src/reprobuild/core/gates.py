"""The model of a qualification gate: what must be shown before a release counts as qualified."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field, model_validator

from reprobuild.core.schema import Argument, Model, Name, problem

Kind = Literal[
    "runtime-contract", "release-composition", "kernel-coverage", "reproducibility", "kernel-check"
]
KINDS: tuple[str, ...] = get_args(Kind)


class Gate(Model):
    """One gate.

    `kind` is something this tool can run; a gate without one is run by `command` or by hand, on
    the hardware that `needs` describes, and its evidence is imported. `shows` says what it must
    show; `published` is a result that the publishers state for this composition. `of` names the
    output whose kernel checks a kernel-check runs, where it is another than the gate's own.
    """

    title: str = ""
    kind: Kind | None = None
    of: Name | None = None
    command: tuple[Argument, ...] = ()
    needs: str = ""
    gpus: int = Field(default=0, ge=0)
    shows: str = ""
    published: str = ""

    @property
    def gpus_wanted(self) -> int:
        """How many GPUs it takes: a kernel check at least one."""
        return max(self.gpus, 1) if self.kind == "kernel-check" else self.gpus

    @model_validator(mode="after")
    def _one_way(self) -> Gate:
        if self.kind is not None and self.command:
            raise problem("kind", "a gate has either a `kind` or a `command`")
        if self.of is not None and self.kind != "kernel-check":
            raise problem("of", "`of` belongs to gates of the kind `kernel-check`")
        return self
