"""Installables: `[FLAKEDIR#]OUTPUT[.COMPONENT[.STEP]]`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches

from reprobuild.core.files import FLAKE_FILE
from reprobuild.core.flake import Flake
from reprobuild.errors import ReprobuildError

NO_OUTPUTS = f"declare one as [outputs.NAME] in {FLAKE_FILE}, with the components that it has"


@dataclass(frozen=True, slots=True)
class Installable:
    """What a user names; `component` is None for a whole output, `step` for a whole component."""

    output: str
    component: str | None = None
    step: str | None = None

    def __str__(self) -> str:
        return ".".join(part for part in (self.output, self.component, self.step) if part)


def parse_installable(text: str, flake: Flake) -> Installable:
    """From `OUTPUT[.COMPONENT[.STEP]]`, empty for the default; raises E-UNKNOWN-INSTALLABLE."""
    name, dot, component = text.partition(".")
    if not flake.outputs:
        raise ReprobuildError(
            "E-UNKNOWN-INSTALLABLE",
            "the flake declares no outputs",
            got=name or None,
            hint=NO_OUTPUTS,
        )
    if not name:
        if flake.default is None:
            raise ReprobuildError(
                "E-UNKNOWN-INSTALLABLE",
                "the flake has no default output",
                hint="name one of " + ", ".join(sorted(flake.outputs)),
            )
        return Installable(flake.default)
    if name not in flake.outputs:
        raise _unknown(f"there is no output {name!r}", name, sorted(flake.outputs))
    if not dot:
        return Installable(name)
    component, dot, step = component.partition(".")
    components = flake.outputs[name].components
    if component not in components:
        raise _unknown(f"output {name} has no component {component!r}", component, components)
    return Installable(name, component, step if dot else None)


def check_step(installable: Installable, steps: Collection[str]) -> None:
    """Raises E-UNKNOWN-INSTALLABLE unless the component has the step."""
    if installable.step not in steps:
        what = f"component {installable.component} has no step {installable.step!r}"
        raise _unknown(what, str(installable.step), sorted(steps))


def _unknown(message: str, name: str, valid: tuple[str, ...] | list[str]) -> ReprobuildError:
    near = get_close_matches(name, valid, 1)
    return ReprobuildError(
        "E-UNKNOWN-INSTALLABLE",
        message + (f"; did you mean {near[0]!r}?" if near else ""),
        got=name,
        hint=("there is only " if len(valid) == 1 else "there are ") + ", ".join(valid),
    )
