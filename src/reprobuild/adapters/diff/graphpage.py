"""The graph behind an installable as a picture and as a page: no comparison, the same drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from reprobuild.adapters.diff.drawing import drawing
from reprobuild.adapters.diff.frame import frame
from reprobuild.adapters.diff.parts import facts
from reprobuild.core.wording import plural

Doc = Mapping[str, Any]


def graph_svg(title: str, groups: Sequence[Doc]) -> str:
    """A self-contained SVG document of the groups of core/diff/graphview.py."""
    style = (files("reprobuild.adapters.diff") / "page.css").read_text("utf-8")
    element = drawing(groups, compared=False)
    head, _, rest = element.partition(">")
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n{head} xmlns="http://www.w3.org/2000/svg">'
        f"<title>{escape(title)}</title><style>{escape(style, quote=False)}</style>"
        f'<rect class="ground" width="100%" height="100%"/>{rest}'
    )


def graph_page(title: str, groups: Sequence[Doc], rows: Sequence[Doc]) -> str:
    """One page that needs nothing else: the drawing, and every derivation with its inputs.

    A row has `name`, `drv`, `builder`, `inputs` ((name, drv) pairs) and `fixed` (facts or none).
    """
    head = (
        f"<header>\n<h1>{escape(title)}</h1>\n"
        f'<p class="sides">{plural(len(rows), "derivation")} in {plural(len(groups), "group")}; '
        "inputs on the left, what is wanted on the right. Choosing a box filters the page.</p>\n"
        "</header>\n"
    )
    items = "".join(_row(row) for row in rows)
    body = (
        '<section id="graph">\n<h2>Graph</h2>\n'
        '<div class="scroll" tabindex="0" role="region" aria-label="Graph of derivations">\n'
        f"{drawing(groups, compared=False)}</div>\n</section>\n"
        '<section id="derivations">\n<h2>Derivations</h2>\n'
        f'<ul class="rows">\n{items}</ul>\n</section>\n'
    )
    return frame(title, head, body, skip="Skip to the graph")


def _row(row: Doc) -> str:
    told = [("drv", row["drv"]), *((name, drv) for name, drv in row["inputs"])]
    told += [(key, str(value)) for key, value in (row["fixed"] or {}).items()]
    return (
        f"<li data-row><details><summary><code>{escape(row['name'])}</code> "
        f'<span class="dim">{escape(row["builder"])}</span></summary>{facts(told)}'
        "</details></li>\n"
    )
