"""The model of a qualification gate: what must be shown before a release counts as qualified."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from reprobuild.core.schema import Argument, Model, problem

KINDS = ("runtime-contract", "release-composition", "kernel-coverage", "reproducibility")


class Gate(Model):
    """One gate.

    `kind` is something this tool can run; a gate without one is run by `command` or by hand, on
    the hardware that `needs` describes, and its evidence is imported. `shows` says what it must
    show; `published` is a result that the publishers state for this composition.
    """

    title: str = ""
    kind: (
        Literal["runtime-contract", "release-composition", "kernel-coverage", "reproducibility"]
        | None
    ) = None
    command: tuple[Argument, ...] = ()
    needs: str = ""
    gpus: int = Field(default=0, ge=0)
    shows: str = ""
    published: str = ""

    @model_validator(mode="after")
    def _one_way(self) -> Gate:
        if self.kind is not None and self.command:
            raise problem("kind", "a gate has either a `kind` or a `command`")
        return self
