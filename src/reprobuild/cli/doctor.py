"""doctor: whether this machine has what is needed, how to get what is missing, and what things are
built with."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
from typing import TYPE_CHECKING

import click

from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from pathlib import Path

    from reprobuild.app import App
    from reprobuild.engine.toolchains import Part, Rebuild, Toolchains

_TOOLS = {
    "git": ("needed for git and fixture inputs", "apt-get install git"),
    "bwrap": ("the sandbox", "apt-get install bubblewrap"),
    "gpgv": ("needed to verify Debian's indices (lock)", "apt-get install gpgv"),
    "docker": ("optional: a client to run images with", "apt-get install docker.io"),
}
_COMPILER = re.compile(r"(g\+\+|gcc|clang)-\d+=|.*nvcc=")
"""Packages of a toolchain that are named to people; --json has them all."""


@click.command()
@click.pass_obj
def doctor(app: App, /) -> None:
    """Check this machine: tools, sandbox, store, disk. Show what the project's toolchains are made
    of, and what would be built again with another."""
    rows: list[dict[str, str]] = [
        {"what": "python", "state": "ok", "detail": sys.version.split()[0]},
        {"what": "kernel", "state": "ok", "detail": platform.release()},
    ]
    for tool, (use, remedy) in _TOOLS.items():
        path = shutil.which(tool)
        optional = use.startswith("optional")
        state = "ok" if path else ("absent" if optional else "missing")
        rows.append({"what": tool, "state": state, "detail": path or f"{use}: {remedy}"})
    rows += [_daemon(app), _sandbox(app), _store(app)]
    toolchains = _toolchains(app, rows)
    missing = [row["what"] for row in rows if row["state"] == "missing"]
    if app.json:
        parts = {
            name: {kind: part.document() for kind, part in found.items()}
            for name, found in toolchains.items()
        }
        document = {"checks": rows, "missing": missing, "toolchains": parts}
        click.echo(json.dumps(document, indent=2))
    else:
        for row in rows:
            click.echo(f"{row['state']:<8} {row['what']:<10} {row['detail']}")
    if missing:
        if missing == ["store"]:  # nothing is to be installed
            row = next(row for row in rows if row["what"] == "store")
            raise ReprobuildError("E-ENVIRONMENT", row["detail"], hint=row["hint"], missing=missing)
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
    try:
        grade = app.building.probe()
    except ReprobuildError as error:
        return {"what": "sandbox", "state": "missing", "detail": f"{error.message} – {error.hint}"}
    return {"what": "sandbox", "state": "ok", "detail": f"isolation {grade.value}"}


def _store(app: App) -> dict[str, str]:
    """Whether there is a store, and whether this user may write all of it. None is made."""
    try:
        store = app.store
        closed = _closed(store.path)
        free = store.free_bytes() / 2**30
    except ReprobuildError as error:
        if error.code != "E-NO-STORE":
            return _no_good(error.message, error.hint)
        place = app.store_path
        above = next(path for path in (place, *place.parents) if os.path.lexists(path))
        if not os.access(above, os.W_OK | os.X_OK):
            return _unwritable(above)
        detail = f"there is none at {place} yet; `reprobuild realize` makes it"
        return {"what": "store", "state": "absent", "detail": detail}
    if closed is not None:
        return _unwritable(closed)
    return {"what": "store", "state": "ok", "detail": f"{store.path}, {free:.0f} GiB free"}


def _closed(store: Path) -> Path | None:
    """The first directory that this user may not write to."""
    below = sorted(path for path in store.iterdir() if not path.name.startswith("."))
    for path in (store, *below):
        if path.name == "runtime":  # each account that shares a store may have its own elsewhere
            continue
        if path.is_dir() and not os.access(path, os.W_OK | os.X_OK):
            return path
    return None


def _unwritable(path: Path) -> dict[str, str]:
    return _no_good(
        f"{path} may not be written by this user",
        "mend the permissions, or name a store of your own with --store DIR",
    )


def _no_good(detail: str, hint: str) -> dict[str, str]:
    return {"what": "store", "state": "missing", "detail": detail, "hint": hint}


def _toolchains(app: App, rows: list[dict[str, str]]) -> Toolchains:
    """What the outputs of the project here are built with; adds a row for each toolchain, and one
    for each part of it that something stands on."""
    from reprobuild.cli.evaluation import evaluator_of
    from reprobuild.core.graph import Graph
    from reprobuild.engine.toolchains import look

    found: Toolchains = {}
    try:
        project = app.project
    except ReprobuildError as error:
        rows.append({"what": "toolchain", "state": "absent", "detail": error.message})
        return found
    for output in project.flake.outputs:
        evaluator = evaluator_of(app, output, Graph())
        try:
            evaluation = evaluator.evaluate()
            roots = [place.drv for place in evaluation.components.values()]
            if evaluation.image is not None:
                roots.append(evaluation.image.located.drv)
            look(found, evaluator, roots)
        except ReprobuildError as error:
            detail = f"{output} is not looked at: {error.message}"
            rows.append({"what": "toolchain", "state": "absent", "detail": detail})
    for name, parts in found.items():
        for detail in _described(parts):
            rows.append({"what": "toolchain", "state": "ok", "detail": f"{name}: {detail}"})
    return found


def _described(parts: dict[str, Part]) -> list[str]:
    own = parts.get("cuda", parts["root"])
    if not own.outputs:
        return ["nothing is built with it"]
    lines = []
    for kind, part in parts.items():
        named = [part.version, *(name for name in part.packages if _COMPILER.match(name))]
        made = ", ".join(word for word in named if word) or f"{len(part.packages)} packages"
        again = "; ".join(f"{name} {_counted(row)}" for name, row in sorted(part.outputs.items()))
        lines.append(f"{kind} is {part.ref} ({made}); another builds again: {again}")
    return lines


def _counted(row: Rebuild) -> str:
    words = [f"{row.units} units"] if row.units else []
    return " and ".join([*words, f"{row.others} other builds"] if row.others else words)
