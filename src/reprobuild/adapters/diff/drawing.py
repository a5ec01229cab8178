"""The graph of derivations as SVG: columns by depth, inputs on the left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

ROW, BOX, GAP, MARGIN = 34, 24, 44, 12
LETTER = 7.3
FITS = 1500
"""Wide drawings are scrolled; others shrink to the page where it is not a phone's."""
_MARKS = {"root": "● ", "inherits": "○ ", "added": "+ ", "removed": "− ", "same": ""}
_WORDS = {
    "root": "root cause",
    "inherits": "inherits a change",
    "added": "added",
    "removed": "removed",
    "same": "unchanged",
}


def drawing(groups: Sequence[Mapping[str, Any]], *, compared: bool = True) -> str:
    """An SVG element; each box is a link that filters the page by its name.

    `compared` says whether the groups are of two sides, so that "unchanged" means something.
    """
    columns: dict[int, list[Mapping[str, Any]]] = {}
    for group in groups:
        columns.setdefault(_depth(group), []).append(group)
    place = _places(columns)
    width = int(max(x + w for x, _, w in place.values()) + MARGIN)
    height = int(max(y for _, y, _ in place.values()) + BOX + MARGIN)
    states = {g["name"]: g["state"] for g in groups}
    edges = "".join(
        _edge(place[need], place[group["name"]], states[need] != "same" != group["state"])
        for group in groups
        for need in group["needs"]
        if need in place
    )
    boxes = "".join(_box(group, place[group["name"]], compared) for group in groups)
    fit = ' class="fit"' if width <= FITS else ""
    return (
        f'<svg{fit} width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="group" '
        f'aria-label="Graph of derivations">{edges}{boxes}</svg>\n'
    )


def _depth(group: Mapping[str, Any]) -> int:
    return int(group["depth"])


def _label(group: Mapping[str, Any]) -> str:
    count = f" ×{group['count']}" if group["count"] > 1 else ""
    return _MARKS[group["state"]] + str(group["name"])[:48] + count


def _places(
    columns: Mapping[int, Sequence[Mapping[str, Any]]],
) -> dict[str, tuple[float, float, float]]:
    """Left, top and width of each box. What changed stands in a band of its own above the rest;
    within a column a box stands near those it needs."""
    place: dict[str, tuple[float, float, float]] = {}
    band = max(sum(g["state"] != "same" for g in column) for column in columns.values())
    x = float(MARGIN)
    for depth in sorted(columns):
        column = columns[depth]

        def weight(group: Mapping[str, Any]) -> tuple[bool, float, str]:
            tops = [place[n][1] for n in group["needs"] if n in place]
            middle = sum(tops) / len(tops) if tops else 0.0
            return group["state"] == "same", middle, str(group["name"])

        width = max(len(_label(g)) for g in column) * LETTER + 16
        changed = sum(g["state"] != "same" for g in column)
        for row, group in enumerate(sorted(column, key=weight)):
            at = row if group["state"] != "same" else row - changed + band
            place[group["name"]] = (x, MARGIN + at * ROW, width)
        x += width + GAP
    return place


def _edge(source: tuple[float, float, float], target: tuple[float, float, float], hot: bool) -> str:
    x1, y1 = source[0] + source[2], source[1] + BOX / 2
    x2, y2 = target[0], target[1] + BOX / 2
    bend = (x1 + x2) / 2
    mark = ' class="hot"' if hot else ""
    curve = f"C{bend:.0f} {y1:.0f} {bend:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"
    return f'<path{mark} d="M{x1:.0f} {y1:.0f}{curve}"/>'


def _box(group: Mapping[str, Any], place: tuple[float, float, float], compared: bool) -> str:
    x, y, width = place
    state = str(group["state"])
    name = str(group["name"])
    many = ""
    if group["count"] > 1:
        many = f"{group['count']} derivations"
        if compared:
            many = f"{group['changed']} of {group['count']} differ"
    words = (name, _WORDS[state] if compared else "", many)
    said = escape(", ".join(filter(None, words)), quote=True)
    return (
        f'<a href="#derivations" class="{state}" data-name="{escape(name)}" '
        f'data-filter="{escape(name)}" aria-label="{said}"><title>{said}</title>'
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{BOX}" rx="5"/>'
        f'<text x="{x + 8:.0f}" y="{y + 16:.0f}">{escape(_label(group))}</text></a>'
    )
