"""release abi: what compiled components agree in, as stated and as their files say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from reprobuild.cli.options import in_flake, installable_argument
from reprobuild.core.wording import plural
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App


@click.command()
@installable_argument
@click.pass_obj
def abi(app: App, /, installable: str) -> None:
    """Show the runtime ABI of an output, and check that what was built is of it."""
    from reprobuild.cli.evaluation import evaluate
    from reprobuild.core.abi import Abi, contradictions, join, output_parts
    from reprobuild.engine.abi import read_abi

    app, (name,) = in_flake(app, (installable,))
    with app.store.lease():
        _, (target,) = evaluate(app, (name,))
        project = app.project
        output = project.flake.outputs[target.installable.output]
        declared = join(output_parts(output, project.components))
        components: dict[str, Any] = {}
        wrong: list[str] = []
        for component, located in target.evaluation.components.items():
            record = app.store.realized(located.drv)
            tree = record.outputs.get(located.output) if record else None
            if tree is None or not app.store.contains(tree):
                components[component] = {"made": False, "facts": {}, "needs": {}}
                continue
            built = read_abi(app.store, tree, app.qualification.read_elf, app.kernels.table(tree))
            wrong += [f"{component}: {line}" for line in contradictions(declared, built)]
            components[component] = {
                "made": True,
                "files": built.files,
                "facts": {key: value for key, (value, _) in built.facts.items()},
                "needs": {key: value for key, (value, _) in built.minimum.items()},
            }
    stated = Abi(declared.facts)
    if app.json and not wrong:
        document = {"abi": str(stated.digest), "stated": dict(stated.facts)}
        click.echo(json.dumps({**document, "components": components}, indent=2, sort_keys=True))
    elif not app.json:
        click.echo(f"{target.installable.output}  {stated.digest}")
        for key, value in sorted(stated.facts.items()):
            click.echo(f"  {key:<16} {value}")
        for component, row in components.items():
            click.echo(f"{component}: {_line(row)}")
    if wrong:
        raise ReprobuildError("E-ABI", wrong[0], problems=wrong)


def _line(row: dict[str, Any]) -> str:
    if not row["made"]:
        return "not made here"
    facts = [f"{key} {value}" for key, value in row["facts"].items()]
    facts += [f"needs {key} {value}" for key, value in row["needs"].items()]
    return f"{plural(row['files'], 'ELF file')}; " + (
        ", ".join(facts) or "nothing that is bound to an ABI"
    )
