"""pydantic's findings as problems with key paths, in words for the person who wrote the file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from reprobuild.adapters.toml.positions import Positions
from reprobuild.adapters.toml.shape import keys, kinds_at, model_at, noun
from reprobuild.core.problem import Problem, did_you_mean, listed, nearest, shown
from reprobuild.core.redact import redact_address
from reprobuild.core.reference import FORMS, SCOPES

_TYPES = {
    "string_type": "a string",
    "int_type": "an integer",
    "bool_type": "true or false",
    "dict_type": "a table",
    "tuple_type": "an array",
    "date_type": "a date, such as 2026-07-29",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "dataclass_type": "a table",
}

_BOUNDS = {
    "greater_than": ("gt", "a number above {}"),
    "greater_than_equal": ("ge", "a number of at least {}"),
    "less_than": ("lt", "a number below {}"),
    "less_than_equal": ("le", "a number of at most {}"),
}

Path = tuple[str | int, ...]


def problems_of(
    error: ValidationError,
    model: type[BaseModel],
    data: Mapping[str, Any],
    file: str,
    *,
    positions: Positions,
    limit: int,
) -> list[Problem]:
    """The first `limit` findings of `error` in the order of their places, as problems.

    `data` is what was validated against `model`. Only those few are put into words: a hostile
    file can have a hundred thousand, and looking for near names takes time.
    """
    details = _once(error.errors(include_url=False), positions)
    # An array whose elements are all wrong is, to pydantic, an empty one, too.
    details = [d for d in details if d["type"] != "too_short" or not d["input"]]
    details.sort(key=lambda detail: positions.locate(path_of(detail)[0], "key"))
    return _without_echoes([_problem(detail, model, data, file) for detail in details[:limit]])


def count_of(error: ValidationError, positions: Positions) -> int:
    """How many findings there are; one that many steps inherit counts once."""
    if not positions.moved:
        return error.error_count()
    return len(_once(error.errors(include_url=False), positions))


def _once(details: list[ErrorDetails], positions: Positions) -> list[ErrorDetails]:
    if not positions.moved:
        return details
    return list({(positions.written(path_of(d)[0]), d["type"]): d for d in details}.values())


def _without_echoes(problems: list[Problem]) -> list[Problem]:
    """Without the missing keys that are there, spelt wrongly: one slip is one problem."""
    meant = {(p.path[:-1], p.nearest) for p in problems if p.nearest and p.at == "key"}
    return [p for p in problems if p.at != "key" or (p.path, p.expected) not in meant]


def path_of(detail: ErrorDetails) -> tuple[Path, bool]:
    """The key path of a finding, and whether the key itself is meant.

    pydantic puts the tag of a tagged union into the path, and marks a dictionary's key.
    """
    loc = list(detail["loc"])
    is_key = bool(loc) and loc[-1] == "[key]" and len(loc) > 1
    if is_key:
        loc.pop()
    if len(loc) > 2 and loc[0] in ("inputs", "steps"):
        del loc[2]
    return tuple(loc), is_key


def kind_of(value: object) -> str:
    """What TOML calls a value."""
    names: tuple[tuple[type, str], ...] = (
        (bool, "a boolean"),
        (str, "a string"),
        (int, "an integer"),
        (float, "a float"),
        (dict, "a table"),
        (tuple, "an array"),
        (list, "an array"),
    )
    for type_, name in names:
        if isinstance(value, type_):
            return name
    return f"a {type(value).__name__}"


def _came(value: object) -> str:
    if isinstance(value, (dict, list, tuple)):
        return kind_of(value)
    return f"{kind_of(value)}, {shown(value)}"


def _problem(
    detail: ErrorDetails, model: type[BaseModel], data: Mapping[str, Any], file: str
) -> Problem:
    path, is_key = path_of(detail)
    type_, value, ctx = detail["type"], detail["input"], detail.get("ctx", {})
    if type_ == "extra_forbidden":
        return _unknown_key(path, model, data, file)
    if type_ == "missing":
        key, around = str(path[-1]), path[:-1]
        table = _at(data, around)
        return Problem(
            file,
            around,
            f"the key `{key}` is missing{_has(model, around, table, data)}",
            at="key",
            expected=key,
        )
    if type_ in ("union_tag_invalid", "union_tag_not_found"):
        return _kind(path, model, data, file)
    if type_ in _TYPES:
        expected, got = _TYPES[type_], _came(value)
        return Problem(file, path, f"expected {expected}, got {got}", expected=expected, got=got)
    if type_ in _BOUNDS:
        bound, words = _BOUNDS[type_]
        expected = words.format(ctx[bound])
        return Problem(
            file,
            path,
            f"expected {expected}, got {shown(value)}",
            expected=expected,
            got=shown(value),
        )
    if type_ in ("literal_error", "enum"):
        return _choice(path, str(ctx["expected"]), value, file)
    if type_ == "too_short":
        return Problem(file, path, "expected at least one element, got none", expected="not empty")
    if type_ in ("string_too_long", "string_too_short"):
        limit = ctx.get("max_length", ctx.get("min_length"))
        than = "at most" if type_ == "string_too_long" else "at least"
        length = len(value) if isinstance(value, str) else 0
        return Problem(
            file,
            path,
            f"expected {than} {limit} characters, got {length}",
            expected=f"{than} {limit} characters",
        )
    if type_ == "finding_reference" and isinstance(value, str):
        return _reference(path, value, detail["msg"], file)
    if type_ == "finding_url" and isinstance(value, str):
        value = redact_address(value)
    # What is left are the models' own findings, whose texts are finished.
    return Problem(file, path, detail["msg"], at="key" if is_key else "value", got=shown(value))


def _reference(path: Path, value: str, message: str, file: str) -> Problem:
    scope, dot, rest = value.partition(".")
    near = nearest(scope, SCOPES)
    near = near + dot + rest if near and near != scope else ""
    message += did_you_mean(near)
    return Problem(file, path, message, nearest=near, expected=FORMS, got=shown(value))


def _at(data: object, path: Path) -> Any:
    here: Any = data
    for part in path:
        try:
            here = here[part]
        except (LookupError, TypeError):
            return None
    return here


def _has(model: type[BaseModel], path: Path, table: object, data: object) -> str:
    here = model_at(model, path, data)
    return f" ({noun(here, table)} has: {', '.join(keys(here))})" if here else ""


def _unknown_key(path: Path, model: type[BaseModel], data: Mapping[str, Any], file: str) -> Problem:
    key, around = str(path[-1]), path[:-1]
    table = _at(data, around)
    here = model_at(model, around, data)
    near = nearest(key.replace("_", "-"), keys(here)) if here else ""
    message = f"unknown key `{shown(key)[1:-1]}`{did_you_mean(near)}"
    return Problem(
        file,
        path,
        message + _has(model, around, table, data),
        nearest=near,
        at="key",
        expected=", ".join(keys(here)) if here else "",
        got=shown(key)[1:-1],
    )


def _kind(path: Path, model: type[BaseModel], data: Mapping[str, Any], file: str) -> Problem:
    kinds = kinds_at(model, path, data)
    expected = listed(kinds)
    table = _at(data, path)
    if not isinstance(table, Mapping) or "kind" not in table:
        return Problem(
            file,
            path,
            f"the key `kind` is missing; it is one of: {expected}",
            at="key",
            expected=expected,
        )
    kind = table["kind"]
    if not isinstance(kind, str):
        message = f"expected a kind, which is a string, got {_came(kind)}"
        return Problem(file, (*path, "kind"), message, expected=expected, got=_came(kind))
    near = nearest(kind, kinds)
    return Problem(
        file,
        (*path, "kind"),
        f"unknown kind {shown(kind)}{did_you_mean(near)} (the kinds are: {expected})",
        nearest=near,
        expected=expected,
        got=shown(kind),
    )


def _choice(path: Path, expected: str, value: object, file: str) -> Problem:
    valid = re.findall(r"'([^']*)'", expected)
    near = nearest(value, valid) if isinstance(value, str) and valid else ""
    wanted = f"one of: {', '.join(valid)}" if len(valid) > 1 else expected.replace("'", '"')
    return Problem(
        file,
        path,
        f"expected {wanted}, got {shown(value)}{did_you_mean(near)}",
        nearest=near,
        expected=wanted,
        got=shown(value),
    )
