"""Outputs whose images have one reference: whichever is pushed last stands for both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reprobuild.engine.imageplan import ImagePlan
from reprobuild.errors import ReprobuildError


@dataclass(frozen=True, slots=True)
class Clash:
    """One reference, and the outputs of that reference whose images are not the same."""

    reference: str
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        """In words."""
        names = " and ".join(self.outputs)
        return f"the outputs {names} make different images of one name, {self.reference}"

    def error(self) -> ReprobuildError:
        """E-FLAKE, for where more than one of them is wanted at once."""
        return ReprobuildError(
            "E-FLAKE",
            str(self),
            hint="give them tags that differ, by codename, revision or pattern "
            f"([outputs.{self.outputs[-1]}.release] `tag`), or ask for one of them",
            outputs=list(self.outputs),
            reference=self.reference,
        )


def clashes(images: Mapping[str, ImagePlan]) -> list[Clash]:
    """The clashes among images, which are given by output; in order of their references."""
    found: dict[str, dict[str, str]] = {}
    for output, image in sorted(images.items()):
        found.setdefault(image.reference, {})[output] = image.located.drv.hex
    return [
        Clash(reference, tuple(drvs))
        for reference, drvs in sorted(found.items())
        if len(set(drvs.values())) > 1
    ]
