"""What the models allow at a key path: the valid keys, and what to call the thing."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

_NOUNS = {
    "Flake": "a flake",
    "Toolchain": "a toolchain",
    "Output": "an output",
    "Release": "a release",
    "ImageConfig": "an image",
    "Source": "a source",
    "Head": "a head",
    "SourcePatch": "a patch",
    "Exclusion": "an exclusion",
    "Part": "an included file",
    "Published": "a published image",
    "Documents": "documents",
    "ComponentNote": "a component's note",
    "Statement": "a statement",
    "ContractText": "a contract",
    "RunbookText": "a runbook",
    "Profile": "a profile",
    "Setting": "a setting",
    "Rule": "a rule",
    "LogChecks": "a log's checks",
    "OfflineSwitch": "an offline switch",
    "Gate": "a gate",
    "Component": "a component file",
    "Place": "a place",
    "Layer": "an image table",
    "Lock": "a lock",
    "PinnedFile": "a pinned file",
    "PinnedHead": "a pinned head",
    "PinnedSource": "a pinned source",
    "PinnedOutput": "a pinned output",
}


def keys(model: type[BaseModel]) -> list[str]:
    """The keys of a table, as they are written."""
    return sorted(str(field.alias or name) for name, field in model.model_fields.items())


def noun(model: type[BaseModel], table: object) -> str:
    """What to call a table of this model: `a git input`, `a script step`, `a head`."""
    if model.__name__ in _NOUNS:
        return _NOUNS[model.__name__]
    what = next((w for w in ("Input", "Step", "Pin") if model.__name__.endswith(w)), "table")
    kind = table.get("kind", "") if isinstance(table, Mapping) else ""
    article = "an" if kind in ("oci", "sdist") else "a"
    return f"{article} {kind} {what.lower()}"


def model_at(
    root: type[BaseModel], path: tuple[str | int, ...], data: object
) -> type[BaseModel] | None:
    """The model of the table at `path` of `data`; None where the models foresee no table."""
    annotation: Any = root
    here: Any = data
    for part in path:
        annotation = _child(annotation, part, here)
        if annotation is None:
            return None
        try:
            here = here[part]
        except (LookupError, TypeError):
            here = None
    return _model(annotation, here)


def kinds_at(root: type[BaseModel], path: tuple[str | int, ...], data: object) -> tuple[str, ...]:
    """The values that `kind` may have in the table at `path`."""
    annotation: Any = root
    here: Any = data
    for part in path:
        annotation = _child(annotation, part, here)
        here = here[part]
    return tuple(kind for model in _models(annotation) for kind in _tags(model))


def _child(annotation: Any, part: str | int, table: Any) -> Any:
    annotation = _plain(annotation)
    origin = get_origin(annotation)
    if origin is dict:
        return get_args(annotation)[1]
    if origin is tuple:
        return get_args(annotation)[0]
    model = _model(annotation, table)
    if model is None:
        return None
    for name, field in model.model_fields.items():
        if (field.alias or name) == part:
            return field.annotation
    return None


def _plain(annotation: Any) -> Any:
    """Without `Annotated`, and without `| None`."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in (Union, types.UnionType):
            rest = [a for a in get_args(annotation) if a is not type(None)]
            if len(rest) != 1:
                return annotation
            annotation = rest[0]
        else:
            return annotation


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    annotation = _plain(annotation)
    if get_origin(annotation) in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _models(member)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation


def _tags(model: type[BaseModel]) -> tuple[str, ...]:
    kind = model.model_fields.get("kind")
    if kind is None or get_origin(kind.annotation) is not Literal:
        return ()
    return get_args(kind.annotation)


def _model(annotation: Any, table: Any) -> type[BaseModel] | None:
    """The one model, or the member of a union whose kind is the table's."""
    models = list(_models(annotation))
    if len(models) == 1:
        return models[0]
    kind = table.get("kind") if isinstance(table, Mapping) else None
    return next((model for model in models if kind in _tags(model)), None)
