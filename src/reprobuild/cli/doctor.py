"""doctor: whether this machine has what is needed, and how to get what is missing."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from typing import TYPE_CHECKING

import click

from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App

_TOOLS = {
    "git": ("needed for git and fixture inputs", "apt-get install git"),
    "bwrap": ("the sandbox", "apt-get install bubblewrap"),
    "gpgv": ("needed to verify Debian's indices (lock)", "apt-get install gpgv"),
    "docker": ("optional: a client to run images with", "apt-get install docker.io"),
}


@click.command()
@click.pass_obj
def doctor(app: App, /) -> None:
    """Check this machine: tools, sandbox, store, disk."""
    rows: list[dict[str, str]] = [
        {"what": "python", "state": "ok", "detail": sys.version.split()[0]},
        {"what": "kernel", "state": "ok", "detail": platform.release()},
    ]
    for tool, (use, remedy) in _TOOLS.items():
        path = shutil.which(tool)
        optional = use.startswith("optional")
        state = "ok" if path else ("absent" if optional else "missing")
        rows.append({"what": tool, "state": state, "detail": path or f"{use}: {remedy}"})
    rows += [_daemon(app), _sandbox(app)]
    try:
        store = app.store
        if not os.access(store.path, os.W_OK):
            raise ReprobuildError("E-STORE-WRITE", f"{store.path} may not be written by this user")
        free = store.free_bytes() / 2**30
        rows.append(
            {"what": "store", "state": "ok", "detail": f"{store.path}, {free:.0f} GiB free"}
        )
    except ReprobuildError as error:
        rows.append({"what": "store", "state": "missing", "detail": error.message})
    missing = [row["what"] for row in rows if row["state"] == "missing"]
    if app.json:
        click.echo(json.dumps({"checks": rows, "missing": missing}, indent=2))
    else:
        for row in rows:
            click.echo(f"{row['state']:<8} {row['what']:<10} {row['detail']}")
    if missing:
        raise ReprobuildError(
            "E-ENVIRONMENT", "this machine lacks " + ", ".join(missing), missing=missing
        )


def _daemon(app: App) -> dict[str, str]:
    """Whether a Docker daemon answers; nothing but `image load` and one gate needs one."""
    try:
        version = app.images.daemon()
    except ReprobuildError as error:
        return {"what": "dockerd", "state": "absent", "detail": f"optional: {error.message}"}
    return {"what": "dockerd", "state": "ok", "detail": f"the daemon answers: {version}"}


def _sandbox(app: App) -> dict[str, str]:
    from reprobuild.core.derivation import Isolation

    try:
        grade = app.building.builder(Isolation.FULL).executor.probe()
    except ReprobuildError as error:
        return {"what": "sandbox", "state": "missing", "detail": f"{error.message} – {error.hint}"}
    return {"what": "sandbox", "state": "ok", "detail": f"isolation {grade.value}"}
