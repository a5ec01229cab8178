"""`reprobuild integrate`: heads in order on their base, replayed, explained and mapped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprobuild.cli.options import complete_outputs
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.core.encoding import Value


@click.command()
@click.argument("installable", default="", shell_complete=complete_outputs)
@click.option(
    "--lock",
    "lock_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Replay a published lock instead of an installable.",
)
@click.option(
    "--repository",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The local repository that --lock is replayed against.",
)
@click.option("--analyze", is_flag=True, help="Map which heads commute, collide, need each other.")
@click.option(
    "--svg",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --analyze: draw the map there.",
)
@click.option(
    "--bisect",
    metavar="CMD",
    help="Find the first head with which CMD fails, run in the sandbox on the tree.",
)
@click.option(
    "--isolation",
    type=click.Choice(["full", "host-toolchain", "none"]),
    default="full",
    help="The grade of the sandbox that --bisect runs in.",
)
@click.option("--moved", is_flag=True, help="Look where the heads are now, with range-diffs.")
@click.option(
    "--resolve",
    multiple=True,
    metavar="PATH=FILE",
    help="Record FILE as the reviewed answer to the conflict in PATH (or PATH= to drop it).",
)
@click.option("--author", default="", help="Who reviewed the resolution.")
@click.option("--reason", default="", help="Why it is right.")
@click.pass_obj
def integrate(
    app: App,
    /,
    installable: str,
    lock_file: Path | None,
    repository: Path | None,
    analyze: bool,
    svg: Path | None,
    bisect: str | None,
    isolation: str,
    moved: bool,
    resolve: tuple[str, ...],
    author: str,
    reason: str,
) -> int:
    """Apply the heads of INSTALLABLE (OUTPUT.COMPONENT) in order, and say what came of them.

    With --lock, a published lock is replayed against a local repository and compared.
    """
    if (lock_file is None) != (repository is None):
        raise ReprobuildError("E-USAGE", "--lock and --repository go together")
    if svg is not None and not analyze:
        raise ReprobuildError("E-USAGE", "--svg draws the map that --analyze makes")
    if lock_file is not None and repository is not None:
        if installable or bisect or moved or resolve:
            raise ReprobuildError(
                "E-USAGE", "--lock stands alone, or with --analyze; it names its own heads"
            )
        return _replay(app, lock_file, repository, analyze, svg)
    from reprobuild.cli.integrating import Question

    question = Question.ask(app, installable)
    if resolve:
        return question.record(resolve, author, reason)
    if moved:
        return question.moved()
    if analyze:
        return question.analyze(svg)
    if bisect is not None:
        return question.bisect(bisect, isolation)
    return question.answer()


def _replay(app: App, lock_file: Path, repository: Path, analyze: bool, svg: Path | None) -> int:
    from reprobuild.cli.files import read_document
    from reprobuild.cli.integrating import print_map
    from reprobuild.core.integration.upstream import parse_lock
    from reprobuild.engine.compose import replay_lock
    from reprobuild.engine.integrate import map_stack

    lock = parse_lock(read_document(lock_file, "E-UPSTREAM-LOCK"), str(lock_file))
    directory = repository.absolute()
    sources = app.resolver.sources(Path.cwd(), lock_file.absolute().parent)
    read = sources.read
    if analyze:
        origin: dict[str, Value] = {"kind": "git", "url": str(directory)}
        spec = lock.replay_spec() if lock.stack else lock.spec()
        assert spec is not None
        return print_map(app, map_stack(origin, spec, sources, read), lock.name, svg)
    replay = replay_lock(lock, directory, sources, read)
    document: dict[str, Any] = {
        **replay.integration.document(),
        "matches": replay.matches,
        "differences": list(replay.differences),
        "replayed": replay.replayed,
    }
    if not replay.matches:
        error = ReprobuildError(
            "E-TREE-MISMATCH",
            f"{lock_file}: integrating gives something else than the lock states",
            differences=list(replay.differences),
        )
        if not app.json:
            raise error
        click.echo(json.dumps({**error.as_document(), **document}, indent=2))
        return error.exit_status
    if app.json:
        click.echo(json.dumps(document, indent=2))
        return 0
    from reprobuild.core.integration.render import integration_text

    spec = lock.spec()
    for line in integration_text(spec, replay.integration):
        click.echo(line)
    if replay.replayed:
        click.echo("the composed branch is not here: its heads were merged anew")
    click.echo("the lock is right")
    return 0
