"""A bundle as a release side: what it holds is read where it lies, and nothing is imported."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.cli.sides import Read
    from reprobuild.core.bundle.manifest import Wanted
    from reprobuild.core.diff.side import Side
    from reprobuild.engine.diff_stores import Carried


def read_bundle(app: App, text: str, store: Carried, name: str) -> Read:
    """The side of the installable `name` in a bundle; empty: the only one in it.

    Its project is evaluated, over the recipes, records and content that the bundle carries.
    Raises E-RELEASE-SIDE, E-BUNDLE, E-BUNDLE-INCOMPLETE.
    """
    name, wanted = _chosen(store, text, name)
    found = _evaluated(app, text, store, name, wanted)
    if isinstance(found, str):
        found = _recorded(app, text, store, name, wanted, found)
    note = _unvouched(app, store)
    if note:
        side = found.loaded.side
        found.loaded.side = replace(side, notes=(*side.notes, note))
    found.loaded.expected = store.expected()
    return found


def _chosen(store: Carried, text: str, name: str) -> tuple[str, Wanted]:
    outputs = store.manifest.outputs
    if not name and len(outputs) == 1:
        return next(iter(outputs.items()))
    if name in outputs:
        return name, outputs[name]
    held = ", ".join(sorted(outputs)[:20])
    why = f"the bundle holds no {name!r}" if name else f"the bundle holds {len(outputs)} things"
    raise ReprobuildError(
        "E-RELEASE-SIDE", f"{text}: {why}", side=text, hint=f"say file:PATH#NAME; it holds {held}"
    )


def _evaluated(app: App, text: str, store: Carried, name: str, wanted: Wanted) -> Read | str:
    """The bundle's own project, evaluated; or why that does not give the bundle's recipe."""
    from reprobuild.cli.sides import at_directory, evaluated, store_path

    project = store.manifest.project
    if project is None:
        return "it carries no project"
    directory = app.world.project(store, project)
    there = at_directory(app, directory, store=store_path(app))
    try:
        found = evaluated(there, text, name, "bundle", store)
    except ReprobuildError as error:
        if error.code.startswith("E-BUNDLE"):
            raise
        return f"its project cannot be evaluated here: {error.message}"
    graph = found.loaded.graph
    if graph is None or wanted.drv not in graph.nodes:
        return "another version of reprobuild made it, whose recipes differ"
    return replace(found, sources=there.world.carried(store, store.manifest.git))


def _recorded(app: App, text: str, store: Carried, name: str, wanted: Wanted, why: str) -> Read:
    """What the bundle says without its project being evaluated."""
    from reprobuild.cli.sides import Read
    from reprobuild.engine.diff import no_patches
    from reprobuild.engine.diff_loaded import Loaded

    side = _image(app, text, store, name, wanted) or _component(text, name, wanted)
    side = replace(side, notes=(*side.notes, f"what the bundle recorded is compared, since {why}"))
    sources = app.world.carried(store, store.manifest.git)
    return Read(Loaded(side, store=store), sources, no_patches, store)


def _image(app: App, text: str, store: Carried, name: str, wanted: Wanted) -> Side | None:
    from reprobuild.core.diff.read import image_of, labels_side

    try:
        facts, run = app.world.stored_image(store, wanted.tree)
    except ReprobuildError as error:
        if error.code != "E-IMAGE":
            raise
        return None
    side = labels_side(text, "bundle", image_of(facts, run))
    roots = {**side.roots, "image": wanted.drv.hex}
    return replace(side, roots=roots, output_name=name.partition(".")[0])


def _component(text: str, name: str, wanted: Wanted) -> Side:
    from reprobuild.core.diff.side import ComponentSide, Side

    own = name.rpartition(".")[2]
    component = ComponentSide(own, drv=wanted.drv.hex, output=wanted.tree.hex)
    return Side(text, "bundle", components={own: component}, roots={own: wanted.drv.hex})


def _unvouched(app: App, store: Carried) -> str:
    """A note where no trusted key vouches for what the bundle says that builds came out as."""
    from reprobuild.core.bundle.signing import BUNDLE, parse_signatures, trusted_by

    signatures = parse_signatures(store.signatures())
    if trusted_by(app.keyring, signatures, BUNDLE, store.digest) is not None:
        return ""
    return "no trusted key signed the bundle: what its builds came out as is its own word"
