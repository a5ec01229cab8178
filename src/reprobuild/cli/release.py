"""release: documents about releases. Each command is in a file of its own, imported when called."""

from __future__ import annotations

from importlib import import_module

import click

COMMANDS = {
    "abi": "release_abi:abi",
    "changelog": "changelog:changelog",
    "check": "release_check:check",
    "check-logs": "release_check_logs:check_logs",
    "contract": "release_contract:contract",
    "new": "release_new:new",
    "profiles": "release_profiles:profiles",
    "runbook": "release_runbook:runbook",
}
"""Command → module of this package and attribute."""


class _Lazy(click.Group):
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


@click.group(cls=_Lazy)
def release() -> None:
    """The documents of a release."""
