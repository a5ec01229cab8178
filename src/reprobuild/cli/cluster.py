"""cluster: a remote-execution cluster on this machine, for trial."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from reprobuild.app import App


@click.group()
def cluster() -> None:
    """A remote-execution cluster on this machine, for trial."""


@cluster.command()
@click.option("--nodes", type=click.IntRange(1, 64), default=2, help="Nodes (default: 2).")
@click.option("--jobs", type=click.IntRange(1), default=1, help="Builds at once on each (1).")
@click.pass_obj
def up(app: App, /, nodes: int, jobs: int) -> None:
    """Start a hub and nodes on loopback; what runs already stays, nodes above --nodes end."""
    app.remoting.cluster.up(nodes, jobs)
    _say(app)


@cluster.command()
@click.option("--purge", is_flag=True, help="Remove their content, too.")
@click.pass_obj
def down(app: App, /, purge: bool) -> None:
    """End the cluster."""
    ended = app.remoting.cluster.down(purge=purge)
    if app.json:
        click.echo(json.dumps({"ended": ended}))
    else:
        click.echo(f"ended {ended} servers" if ended else "no cluster is up")


@cluster.command()
@click.pass_obj
def status(app: App, /) -> None:
    """Say what runs, and at which address."""
    _say(app)


def _say(app: App) -> None:
    document: dict[str, Any] = app.remoting.cluster_document()
    if app.json:
        click.echo(json.dumps(document, indent=2, sort_keys=True))
        return
    if not document["members"]:
        click.echo("no cluster is up")
        return
    for member in document["members"]:
        state = f"process {member['pid']}" if member["alive"] else "has ended"
        click.echo(f"{member['name']:<8} {member['host']}  {state}")
    if not all(member["alive"] for member in document["members"]):
        click.echo("`reprobuild cluster up` starts what has ended again")
    words = [f"--remote {document['url']}"] if document["url"] else []
    words += [f"--remote-cache {document['cache']}"] if document["cache"] else []
    if words:
        click.echo(" ".join(["realize", *words]))
