"""store gc: removing what nothing needs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from reprobuild.cli.options import parse_size
from reprobuild.cli.store_words import duration, parse_age

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.app.upkeep import Collection

_SHOWN = 40


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say what would go, and what it cost to make.")
@click.option("--older-than", metavar="AGE", help="Leave what was used since: 30d, 12h, 2w.")
@click.option("--free", metavar="SIZE", help="Free so much, what was used longest ago first.")
@click.option("--max-size", metavar="SIZE", help="Leave the store no larger than this.")
@click.option("--wait", is_flag=True, help="Wait for those who use the store, instead of failing.")
@click.pass_obj
def gc(
    app: App,
    /,
    dry_run: bool,
    older_than: str | None,
    free: str | None,
    max_size: str | None,
    wait: bool,
) -> None:
    """Remove what no root needs.

    Without --free or --max-size, all of it goes. What roots keep never goes: `store roots` names
    them, `store roots --remove` ends one.
    """
    collection = app.store.gc(
        dry_run=dry_run,
        wait=wait,
        older_than=parse_age(older_than) if older_than else None,
        free=parse_size(free) if free else None,
        max_size=parse_size(max_size) if max_size else None,
    )
    if app.json:
        click.echo(json.dumps(_document(collection), indent=2, sort_keys=True))
        return
    _say(collection)


def _document(collection: Collection) -> dict[str, Any]:
    return {
        "asked_bytes": collection.asked,
        "bytes": collection.bytes,
        "dry_run": collection.dry_run,
        "kinds": {
            name: {"bytes": kind.bytes, "count": kind.count}
            for name, kind in collection.kinds.items()
        },
        "left": collection.left,
        "records": [
            {
                "action": record.action,
                "duration_ms": record.duration_ms,
                "name": record.name,
                "record": record.record,
            }
            for record in collection.records
        ],
        "remake_ms": collection.remake_ms,
        "short": collection.short,
        "strange": collection.strange,
    }


def _say(collection: Collection) -> None:
    would = "would go" if collection.dry_run else "went"
    records = sorted(collection.records, key=lambda r: (-r.duration_ms, r.name))
    for record in records[:_SHOWN]:
        took = duration(record.duration_ms)
        click.echo(f"{would}: {record.name or record.record[:12]}  (took {took} to make)")
    if len(records) > _SHOWN:
        click.echo(f"{would}: {len(records) - _SHOWN} more results")
    for kind, held in collection.kinds.items():
        click.echo(f"{kind:<14} {held.count:>8} {held.bytes / 2**20:12.1f} MiB")
    free = "would become free" if collection.dry_run else "are free"
    cost = f"; making it again takes {duration(collection.remake_ms)}" if records else ""
    click.echo(f"{collection.bytes / 2**20:.1f} MiB {free}{cost}")
    for path in collection.left:
        click.echo(f"left to the account that made it: {path}")
    for path in collection.strange:
        click.echo(f"not the store's, left alone: {path}")
    if collection.short:
        asked = (collection.asked or 0) / 2**20
        click.echo(f"{asked:.1f} MiB were asked for; no more, because")
        for reason in collection.short:
            click.echo(f"  {reason}")
