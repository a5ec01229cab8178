"""`[defaults.KIND]` of a component file: what each step of that kind says, where it says nothing.

A step's own key wins whole; what a step's `also` lists is appended to the default's array. The
merge is done on the TOML data, before it is validated, so every rule and message about steps holds
for the result; places of what was taken from elsewhere lead to where it was written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reprobuild.adapters.toml.positions import KeyPath
from reprobuild.adapters.toml.read import Parsed
from reprobuild.core.problem import Problem, nearest_of

ALSO = "also"


def merge_defaults(parsed: Parsed) -> tuple[Parsed, list[Problem]]:
    """The file with its defaults merged into the steps, and what is wrong with the defaults.

    What is no table where one should stand is left for the models to refuse.
    """
    defaults, steps = parsed.data.get("defaults", {}), parsed.data.get("steps", {})
    if not isinstance(defaults, dict) or not isinstance(steps, dict):
        return parsed, []
    problems: list[Problem] = []
    moved: dict[KeyPath, KeyPath] = {}
    merged = {
        name: _merged(name, step, defaults, moved) if isinstance(step, dict) else step
        for name, step in steps.items()
    }
    kinds = {step["kind"] for step in merged.values() if isinstance(step, dict) and "kind" in step}
    for kind, table in defaults.items():
        if isinstance(table, dict) and kind not in kinds:
            near, there, message = nearest_of("there is no step of kind", kind, _texts(kinds))
            problems.append(
                Problem(parsed.name, ("defaults", kind), message, near, "key", there, kind)
            )
        if isinstance(table, dict) and "kind" in table:
            problems.append(
                Problem(
                    parsed.name,
                    ("defaults", kind, "kind"),
                    "the kind is the table's name already",
                    at="key",
                )
            )
    data = {**parsed.data, "steps": merged} if steps else parsed.data
    return replace(parsed, data=data, moved=moved), problems


def _texts(values: set[Any]) -> list[str]:
    return [value for value in values if isinstance(value, str)]


def _merged(
    name: str, step: dict[str, Any], defaults: dict[str, Any], moved: dict[KeyPath, KeyPath]
) -> dict[str, Any]:
    kind = step.get("kind")
    table = defaults.get(kind) if isinstance(kind, str) else None
    also = step.get(ALSO)
    if not isinstance(table, dict):
        table = {}
    out = {key: value for key, value in step.items() if key != ALSO or not isinstance(also, dict)}
    for key, value in table.items():
        if key not in step and key != "kind":
            out[key] = value
            moved["steps", name, key] = ("defaults", str(kind), key)
    if isinstance(also, dict):
        for key, more in also.items():
            before = out.get(key, ())
            if not isinstance(more, tuple) or not isinstance(before, tuple):
                out[key] = more  # whatever it is, the model says what it should be
                moved["steps", name, key] = ("steps", name, ALSO, key)
                continue
            out[key] = (*before, *more)
            for index in range(len(more)):
                at = len(before) + index
                moved["steps", name, key, at] = ("steps", name, ALSO, key, index)
    return out
