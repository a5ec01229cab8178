"""Release sides: `[FLAKEDIR#]INSTALLABLE`, `git:REV:INSTALLABLE`, `file:PATH`, `docker:REF`,
`registry:REF`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.core.diff.side import Side
    from reprobuild.core.digest import Digest
    from reprobuild.core.image import ImageFacts
    from reprobuild.core.integration.backend import PatchReader
    from reprobuild.engine.diff_loaded import Loaded
    from reprobuild.engine.diff_side import ReadImage


@dataclass(frozen=True, slots=True)
class Read:
    """A side that was read: what it says, its repositories (offline) and its patch files."""

    loaded: Loaded
    sources: Callable[[], Any]
    patches: PatchReader
    store: Any


def read_side(app: App, text: str) -> Read:
    """The side that `text` names.

    Raises E-RELEASE-SIDE for one that cannot be read, and what evaluating or reading it raises.
    """
    kind, _, rest = text.partition(":")
    if not rest or kind not in ("file", "docker", "registry", "git"):
        return _installable(app, text, text, "installable")
    if kind == "git":
        return _revision(app, text, rest)
    if kind == "file":
        bundle = _bundle(app, text, rest)
        return bundle if bundle is not None else _elsewhere(app, _file(app, text, Path(rest)))
    return _elsewhere(app, _image(app, text, kind, rest))


def _bundle(app: App, text: str, rest: str) -> Read | None:
    """A bundle, `PATH` or `PATH#INSTALLABLE`; None for any other file."""
    path, hash_, name = rest.rpartition("#")
    if not hash_ or Path(rest).is_file():
        path, name = rest, ""
    store = app.world.bundle(Path(path))
    if store is None:
        return None
    from reprobuild.cli.bundleside import read_bundle

    return read_bundle(app, text, store, name)


def _image(app: App, text: str, kind: str, reference: str) -> Side:
    from reprobuild.core.diff.read import labels_side

    return labels_side(text, kind, app.world.image(kind, reference))


def _elsewhere(app: App, side: Side) -> Read:
    """A side without a project; the store and the repositories here may know of its parts."""
    from reprobuild.engine.diff import no_patches
    from reprobuild.engine.diff_loaded import Loaded

    store = app.world.store
    return Read(Loaded(side, store=store), app.world.sources(), no_patches, store)


def _installable(app: App, text: str, words: str, kind: str, flake: Path | None = None) -> Read:
    from reprobuild.cli.options import split_directory

    directory, name = split_directory(words)
    if flake is not None:
        app = at_directory(app, flake, store=store_path(app))
    elif directory is not None:
        place = Path(directory or ".")
        base = app.settings.directory
        app = at_directory(app, base / place if base is not None else place)
    return evaluated(app, text, name, kind)


def at_directory(app: App, directory: Path, *, store: Path | None = None) -> App:
    """The same run in another project; `store` overrides where its store is."""
    from reprobuild.app import App

    place = store if store is not None else app.settings.store
    other = App(replace(app.settings, directory=directory, store=place), app.cancel)
    click.get_current_context().call_on_close(other.close)
    return other


def store_path(app: App) -> Path | None:
    try:
        return app.store_path
    except ReprobuildError as error:
        if error.code != "E-NO-FLAKE":
            raise
        return None


def evaluated(app: App, text: str, name: str, kind: str, store: Any = None) -> Read:
    """An installable of the app's project as a side; `store` stands for the app's own."""
    from reprobuild.cli.evaluation import evaluator_of
    from reprobuild.core.graph import Graph
    from reprobuild.core.installable import parse_installable
    from reprobuild.engine.diff_side import SideReader

    project = app.project
    installable = parse_installable(name, project.flake)
    evaluator = evaluator_of(app, installable.output, Graph())
    store = app.world.store if store is None else store
    reader = SideReader(project.flake, evaluator, project.lock, store, _image_reader(app, store))
    try:
        loaded = reader.load(text or str(installable), kind, installable.component)
    except ReprobuildError as error:
        if error.code not in ("E-OUTPUT-OPEN", "E-LOCK-MISSING", "E-LOCK-STALE"):
            raise
        if installable.component is not None or evaluator.output.release is None:
            raise
        from reprobuild.core.diff.stated import stated_side
        from reprobuild.core.documents.facts import release_facts
        from reprobuild.engine.diff_loaded import Loaded

        facts = release_facts(project.flake, project.components, project.lock, installable.output)
        side = stated_side(text or installable.output, facts, error.message)
        loaded = Loaded(side, store=store)
    else:
        if kind == "installable":  # what was committed or carried is compared as it was
            app.check_inputs(evaluator.used, installable.output)
    return Read(loaded, app.world.sources(), app.world.patches(), store)


def _revision(app: App, text: str, rest: str) -> Read:
    revision, colon, words = rest.partition(":")
    if not colon or not revision:
        raise ReprobuildError("E-USAGE", f"{text!r}: say git:REVISION:INSTALLABLE", got=text)
    from reprobuild.cli.options import split_directory

    directory, name = split_directory(words)
    if directory is not None:
        app = at_directory(app, Path(directory or "."))
    exported = app.world.export(revision)
    return _installable(app, text, name, "git", exported)


def _file(app: App, text: str, path: Path) -> Side:
    if path.is_dir() and not (path / "oci-layout").exists():
        return _locks(text, sorted(path.glob("*.lock.json")))
    if not path.exists():
        raise ReprobuildError("E-RELEASE-SIDE", f"{text}: there is no such file", side=text)
    if path.is_dir() or not _is_json(path):
        return _layout(app, text, path)
    document = app.world.document(path, text)
    if isinstance(document, dict):
        if document.get("schema_version") == 1:
            return _locks(text, [path])
        if "components" in document and "release" in document:
            from reprobuild.core.diff.read import statement_side

            return statement_side(text, document)
        answer = document.get("answer", document)
        if isinstance(answer, dict) and isinstance(answer.get("outputs"), dict):
            return _answer(text, answer)
    raise ReprobuildError(
        "E-RELEASE-SIDE", f"{text}: a document that is neither a release nor a lock", side=text
    )


def _is_json(path: Path) -> bool:
    if not path.is_file():
        raise ReprobuildError(
            "E-RELEASE-SIDE", f"cannot read {path}: it is no plain file", file=str(path)
        )
    with path.open("rb") as file:
        return file.read(64).lstrip().startswith(b"{")


def _locks(text: str, paths: list[Path]) -> Side:
    from reprobuild.cli.files import read_document
    from reprobuild.core.diff.read import upstream_side
    from reprobuild.core.integration.upstream import parse_lock

    if not paths:
        raise ReprobuildError(
            "E-RELEASE-SIDE", f"{text}: a directory without a layout or locks", side=text
        )
    return upstream_side(
        text, [parse_lock(read_document(p, "E-RELEASE-SIDE"), p.name) for p in paths]
    )


def _layout(app: App, text: str, path: Path) -> Side:
    from reprobuild.core.diff.read import labels_side, statement_side

    image, statement = app.world.layout(path)
    by_labels = labels_side(text, "image-labels", image)
    if statement is None:
        return by_labels
    side = statement_side(text, statement, image)
    # what a component came out as is the statement's word; what is sent is the image's
    return replace(side, kind="image", release={**by_labels.release, **side.release})


def _answer(text: str, answer: Mapping[str, Any]) -> Side:
    """From `realize --json`, or the root that realize leaves in the store."""
    from reprobuild.core.diff.read import answer_side

    return answer_side(text, answer)


def _image_reader(app: App, store: Any) -> ReadImage:
    def read(tree: Digest) -> tuple[ImageFacts, Mapping[str, Any]]:
        return app.world.stored_image(store, tree)

    return read
