"""The command group: global options, commands found by name and imported when called."""

from __future__ import annotations

import json as jsonlib
import signal
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from reprobuild.cli import stdout
from reprobuild.errors import Exit, ReprobuildError

COMMANDS = {
    "audit": "audit:audit",
    "cluster": "cluster:cluster",
    "completion": "completion:completion",
    "compose": "compose:compose",
    "diff": "diff:diff",
    "doctor": "doctor:doctor",
    "export": "export:export",
    "graph": "graph:graph",
    "image": "image:image",
    "import": "import_:import_",
    "init": "init:init",
    "integrate": "integrate:integrate",
    "inventory": "inventory:inventory",
    "kernels": "kernels:kernels",
    "key": "key:key",
    "lock": "lock:lock",
    "log": "log:log",
    "qualify": "qualify:qualify",
    "pull": "pull:pull",
    "push": "push:push",
    "realize": "realize:realize",
    "release": "release:release",
    "shell": "shell:shell",
    "show": "show:show",
    "store": "store:store",
    "verdict": "verdict:verdict",
    "why": "why:why",
}


STORE_USE = {
    "need": ("doctor", "inventory", "store"),
    "look": (
        "diff",
        "export",
        "graph",
        "image",
        "kernels",
        "log",
        "push",
        "qualify",
        "release",
        "show",
        "verdict",
        "why",
    ),
}
"""Commands that never make a store: a wrong place given for it must not become one.

Those that look see an empty store where there is none; those that speak of it raise E-NO-STORE."""

_SEE_HELP = "see --help"
"""The remedy in the table of errors, which knows no call."""


class _Commands(click.Group):
    """Imports a command's file when it is called; help reads the one-line texts below."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:  # click would exit with 1 and say nothing
            raise stdout.ReaderGoneError from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        command = getattr(import_module(f"reprobuild.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            import difflib

            near = difflib.get_close_matches(name, COMMANDS, 1)
            raise ReprobuildError(
                "E-USAGE",
                f"there is no command {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
                got=name,
            )
        return super().resolve_command(ctx, args)


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-C", "directory", metavar="DIR", help="The flake's directory.")
@click.option("--store", metavar="DIR", help="The store (default: $REPROBUILD_STORE, ./store).")
@click.option("--offline", is_flag=True, help="No network at all.")
@click.option("--json", is_flag=True, help="One JSON document on standard output.")
@click.option("--events", metavar="FILE", help="Progress as JSON lines, to a file or descriptor.")
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@click.option("--verbose", "-v", is_flag=True, help="More progress.")
@click.version_option(package_name="reprobuild", message="reprobuild %(version)s")
@click.pass_context
def main(
    ctx: click.Context,
    directory: str | None,
    store: str | None,
    offline: bool,
    json: bool,
    events: str | None,
    quiet: bool,
    verbose: bool,
) -> None:
    """Declarative, reproducible builds of LLM-serving container images."""
    from reprobuild.app import App
    from reprobuild.app.run import StoreUse
    from reprobuild.settings import Settings

    if quiet and verbose:
        raise ReprobuildError("E-USAGE", "--quiet and --verbose exclude each other")
    settings = Settings(
        directory=Path(directory) if directory is not None else None,
        store=Path(store) if store is not None else None,
        offline=offline,
        json=json,
        events=events,
        quiet=quiet,
        verbose=verbose,
    )
    ctx.obj = App(settings)
    for use, commands in STORE_USE.items():
        if ctx.invoked_subcommand in commands:
            ctx.obj.store_use = StoreUse(use)
    ctx.obj.open_events()
    ctx.call_on_close(lambda: _tell(ctx.obj.lost_events()))
    if offline:
        ctx.obj.seal()
    ctx.call_on_close(ctx.obj.close)


def _tell(text: str) -> None:
    """A note at the end, also where progress is not shown."""
    if text:
        click.echo(f"note: {text}", err=True)


def entry() -> None:
    """The console script. SIGTERM, and SIGHUP unless under nohup, end it as Ctrl-C does."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    stdout.watch()
    sys.exit(run(sys.argv[1:]))


def _stop(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def run(argv: list[str]) -> int:
    """Runs the command line; the exit status. Errors are printed here and nowhere else."""
    wants_json = "--json" in argv[: _first_command(argv)]
    try:
        result = main.main(args=argv, prog_name="reprobuild", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except ReprobuildError as error:
        if error.hint == _SEE_HELP:
            error.hint = f"see `{_called(argv)} --help`"
        return _report(error, wants_json)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return int(Exit.USAGE)
    except click.ClickException as error:
        context: click.Context | None = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "reprobuild"
        hint = f"see `{path} --help`"
        if context is not None and context.parent is not None:
            group = context.command
            if isinstance(group, click.Group) and not isinstance(error, click.NoSuchOption):
                hint = f"there are {', '.join(group.list_commands(context))}; {hint}"
        return _report(ReprobuildError("E-USAGE", error.format_message(), hint=hint), wants_json)
    except (KeyboardInterrupt, click.Abort):
        return _report(ReprobuildError("E-INTERRUPTED", "interrupted"), wants_json)
    except stdout.ReaderGoneError:
        stdout.abandon()
        return 0
    except Exception as error:  # noqa: BLE001 - the one place: the unexpected is a bug of ours
        import traceback

        traceback.print_exc()
        return _report(ReprobuildError("E-BUG", f"{type(error).__name__}: {error}"), wants_json)
    return result if isinstance(result, int) else 0


def _called(argv: list[str]) -> str:
    """The command of a call, with that of its group: `reprobuild release new`."""
    words = argv[_first_command(argv) :]
    command = main.get_command(click.Context(main), words[0]) if words else None
    path = ["reprobuild", *words[:1]]
    if isinstance(command, click.Group):
        path += [word for word in words[1:] if word in command.commands][:1]
    return " ".join(path)


def _first_command(argv: list[str]) -> int:
    for index, word in enumerate(argv):
        if word in COMMANDS:
            return index
    return len(argv)


def _report(error: ReprobuildError, wants_json: bool) -> int:
    try:
        if wants_json and error.code != stdout.FAILED:
            document = _shown(error.as_document())
            click.echo(jsonlib.dumps(document, ensure_ascii=False, indent=2))
            return error.exit_status
    except (ReprobuildError, stdout.ReaderGoneError):
        stdout.abandon()
    if error.code == stdout.FAILED:
        stdout.abandon()
    with suppress(OSError):  # nobody is left to be told
        click.echo(_shown(error_text(error)), err=True)
    return error.exit_status


def _shown(value: Any) -> Any:
    """The same without credentials in addresses: the last net, under whoever names an address."""
    from reprobuild.core.redact import redact

    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: _shown(item) for key, item in value.items()}
    return [_shown(item) for item in value] if isinstance(value, list) else value


def error_text(error: ReprobuildError) -> str:
    """An error for people: what happened, the facts, the end of a log, what to do next."""
    lines = [f"error: {error.message}  [{error.code}]"]
    facts: dict[str, Any] = dict(error.facts)
    tail = facts.pop("tail", None)
    facts.pop("codes", None)  # they stand in the lines of `failed`
    for name, value in facts.items():
        if isinstance(value, list):
            if not value:
                continue
            lines.append(f"  {name}:")
            lines += [f"    {item}" for item in value]
        else:
            lines.append(f"  {name}: {value}")
    if tail:
        lines.append("  the log ends with:")
        lines += [f"    | {line}" for line in tail]
    if error.hint:
        lines.append(f"hint: {error.hint}")
    return "\n".join(lines)
