"""lock: pin all inputs, integrate heads and record every tree."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.core.flake import Flake
    from reprobuild.core.lock import Lock
    from reprobuild.engine.imageplan import ImagePlan
    from reprobuild.engine.lock import Open


@click.command()
@click.option(
    "--update",
    multiple=True,
    metavar="INPUT",
    help="Pin this input anew; [OUTPUT.]COMPONENT.pulls.N takes a pull request's new head.",
)
@click.option("--check", is_flag=True, help="Only say whether the lock is complete and current.")
@click.pass_obj
def lock(app: App, update: tuple[str, ...], check: bool) -> int:
    """Pin every input to content, and every source to its integration tree.

    What cannot be reached now is left open, and an output that needs it waits. What was reached
    and does not have what the flake names ends with exit status 4; its former pin stays.
    """
    from reprobuild.cli.unitlists import with_lists
    from reprobuild.core.files import LOCK_FILE
    from reprobuild.engine.lock import Locker
    from reprobuild.engine.updates import Update, accepted_heads, with_heads

    if check and update:
        raise ReprobuildError("E-USAGE", "--check changes nothing, so --update does not go with it")
    project = app.project
    if check:
        _check(app)
        return 0
    wanted = Update.parse(update, project.flake)
    pinner = app.sources.pinner()
    with app.store.lease():
        heads = accepted_heads(project.flake, wanted, pinner.git)
        flake = with_heads(project.flake, heads)
        locker = Locker(
            flake=flake,
            old=project.lock,
            pinner=pinner,
            reporter=app.reporter,
            update=wanted,
        )
        done = locker.run()
        done = with_lists(app, flake, project.lock, done)
    if heads:
        app.edit_heads(heads)
    changed = project.texts.get(LOCK_FILE) != app.lock_text(done.lock)
    if changed:
        app.write_lock(done.lock)
    _print(app, done.lock, done.changed, _open(app, flake, done.lock), changed, locker.why)
    wrong = [_shown(name) for name, said in sorted(locker.why.items()) if said.wrong]
    if not wrong:
        return 0
    error = ReprobuildError(
        "E-OUTPUT-OPEN",
        "what the flake names is not there: " + ", ".join(wrong),
        hint="check name, number and commit in the flake; where a mirror stands for the place, it "
        "may be out of date. A pin that there was stays in the lock until then",
    )
    if app.json:
        return error.exit_status  # the document says what is open
    raise error


def _check(app: App) -> None:
    """Complete and current, judged from what is here: no network, no build."""
    from reprobuild.core.files import LOCK_FILE

    project = app.project
    if project.lock is None:
        raise ReprobuildError("E-LOCK-MISSING", f"there is no {LOCK_FILE}", file=LOCK_FILE)
    if project.texts[LOCK_FILE] != app.lock_text(project.lock):
        raise ReprobuildError(
            "E-LOCK-STALE", f"{LOCK_FILE} is not in canonical form", file=LOCK_FILE
        )
    app.check_inputs(project.flake.inputs)
    open_ = _open(app, project.flake, project.lock)
    app.sources.check_pins()
    default = project.flake.default
    if default in open_:
        raise ReprobuildError("E-OUTPUT-OPEN", open_[default], output=default)
    _print(app, project.lock, [], open_, False, {})


def _open(app: App, flake: Flake, lock_: Lock) -> dict[str, str]:
    """Why each output is open that needs what could not be pinned."""
    from reprobuild.core.graph import Graph
    from reprobuild.engine.clash import clashes
    from reprobuild.engine.evaluate import Evaluator

    open_: dict[str, str] = {}
    images: dict[str, ImagePlan] = {}
    for output in sorted(flake.outputs):
        try:
            found = Evaluator(flake, app.project.components, lock_, output, graph=Graph())
            image = found.evaluate().image
            if image is not None:
                images[output] = image
        except ReprobuildError as error:
            if error.code != "E-OUTPUT-OPEN":
                raise
            open_[output] = error.message
    for clash in clashes(images):
        click.echo(f"warning: {clash}; give them tags that differ", err=True)
    return open_


def _shown(name: str) -> str:
    """`inputs.NAME` or `outputs.OUTPUT.COMPONENT` of a name of `Locked.changed`."""
    return f"inputs.{name[5:]}" if name.startswith("open.") else name.replace(".open.", ".", 1)


def _print(
    app: App,
    lock_: Lock,
    changed: list[str],
    open_: dict[str, str],
    written: bool,
    said: dict[str, Open],
) -> None:
    if app.json:
        click.echo(json.dumps(_document(lock_, changed, open_), indent=2, sort_keys=True))
        return
    from reprobuild.engine.lock import pins

    there = pins(lock_)
    for name in changed:
        if name.startswith("open.") or ".open." in name:
            continue  # what was open is said to be pinned; what is open follows
        click.echo(f"{'pinned ' if name in there else 'dropped'} {name}")
    for line in _reasons(said):
        click.echo(line, err=True)
    if said and open_:
        click.echo(f"open    outputs that wait for that: {', '.join(sorted(open_))}", err=True)
    for name, why in sorted(open_.items()) if not said else ():
        click.echo(f"open    {name}: {why}", err=True)
    if not changed:
        click.echo("the lock is rewritten" if written else "the lock is complete and current")


def _reasons(said: dict[str, Open]) -> list[str]:
    """One line for each place that was not reached, and for each other reason; then whose it is."""
    groups: dict[str, list[str]] = {}
    for name, why in sorted(said.items()):
        groups.setdefault(why.place or why.error.message, []).append(name)
    lines = []
    for names in groups.values():
        first = said[names[0]]
        message = first.error.message
        if first.place and first.error.code == "E-OFFLINE":  # else one of many commits and refs
            message = f"what is wanted of {first.place} is not here, and the network is off"
        lines.append(f"open    {message}")
        lines.append("        wanted for " + ", ".join(_shown(name) for name in names))
    return lines


def _document(lock_: Lock, changed: list[str], open_: dict[str, str]) -> dict[str, Any]:
    return {
        "changed": changed,
        "inputs": {
            name: {k: v for k, v in pin.model_dump(mode="json").items() if v is not None}
            for name, pin in lock_.inputs.items()
        },
        "open": open_,
        "outputs": {name: out.model_dump(mode="json") for name, out in lock_.outputs.items()},
    }
