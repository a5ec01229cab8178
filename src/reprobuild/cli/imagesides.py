"""What a side of an image command means: an installable, a file, a daemon's or registry's image."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reprobuild.cli.options import in_flake
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App

FILE, DOCKER, REGISTRY = "file:", "docker:", "registry:"


@dataclass(frozen=True, slots=True)
class Side:
    """An image as a layout or archive on this machine.

    `reference` is set for what a daemon gave; `remote` for a registry's. For an installable,
    `output` is the flake's output and `isolation` the grade that its record states.
    """

    path: Path
    reference: str = ""
    remote: str = ""
    output: str = ""
    isolation: str = ""


@contextmanager
def opened(app: App, text: str) -> Iterator[Side]:
    """The side, for the `with` block; what had to be brought here is removed at its end.

    Raises E-USAGE, E-NOT-REALIZED, and what reaching a daemon or registry raises.
    """
    if text.startswith(FILE):
        yield Side(Path(text.removeprefix(FILE)))
    elif text.startswith(("/", "./", "../")) and "#" not in text:
        yield Side(Path(text))
    elif text.startswith(DOCKER):
        reference = text.removeprefix(DOCKER)
        with app.images.from_daemon(reference) as path:
            yield Side(path, reference=reference)
    elif text.startswith(REGISTRY):
        reference = text.removeprefix(REGISTRY)
        with app.images.from_registry(reference) as path:
            yield Side(path, remote=reference)
    else:
        yield _realized(app, text)


def _realized(app: App, text: str) -> Side:
    from reprobuild.cli.evaluation import evaluate

    app, names = in_flake(app, (text,))
    _, (target,) = evaluate(app, names)
    plan = target.evaluation.image
    if plan is None or target.installable.component is not None:
        raise ReprobuildError(
            "E-USAGE",
            f"{target.installable} is no image",
            hint="name an output that has [outputs.NAME.image], or file:PATH",
        )
    record = app.store.realized(plan.located.drv)
    tree = record.outputs.get(plan.located.output) if record is not None else None
    if record is None or tree is None or not app.store.contains(tree):
        raise ReprobuildError(
            "E-NOT-REALIZED",
            f"the image of {target.installable} is not in the store",
            hint=f"run `reprobuild realize {target.installable}` first",
            drv=str(plan.located.drv),
        )
    path, output = app.store.materialise(tree), target.installable.output
    return Side(path, output=output, isolation=record.isolation.value)
