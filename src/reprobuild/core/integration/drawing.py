"""The stack's map as SVG: heads from base to tip, arcs for what ties them to each other."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from reprobuild.core.integration.algebra import COLLIDE, COMMUTE, Algebra

_ROW, _LEFT, _TOP = 28, 220, 60
_COLOURS = {"collide": "#c0392b", "order": "#d68910", "needs": "#2471a3"}


def algebra_svg(found: Algebra, title: str = "") -> str:
    """A self-contained SVG 1.1 document; the same map always gives the same text."""
    rows = {h.number: _TOP + index * _ROW for index, h in enumerate(found.heads)}
    height = _TOP + _ROW * (len(found.heads) + 2)
    body = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<svg xmlns="http://www.w3.org/2000/svg" width="900" height="{height}" '
        f'viewBox="0 0 900 {height}" font-family="sans-serif" font-size="13">',
        f"<title>{_text(title or 'stack of heads')}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        *_legend(),
        *_arcs(found, rows),
        *_heads(found, rows),
        "</svg>",
    ]
    return "\n".join(body) + "\n"


def _text(text: str) -> str:
    return escape("".join(c if c.isprintable() else " " for c in text))


def _legend() -> Iterator[str]:
    for index, (name, colour) in enumerate(_COLOURS.items()):
        x = _LEFT + index * 150
        words = {"collide": "collide", "order": "order matters", "needs": "needs"}[name]
        yield f'<line x1="{x}" y1="24" x2="{x + 24}" y2="24" stroke="{colour}" stroke-width="2"/>'
        yield f'<text x="{x + 30}" y="28">{words}</text>'


def _arcs(found: Algebra, rows: dict[int, int]) -> Iterator[str]:
    ties = [(p.first, p.second, p.relation) for p in found.pairs if p.relation != COMMUTE]
    ties += [(on, n, "needs") for n, needed in found.needs.items() for on in needed]
    for first, second, kind in ties:
        one, other = rows[first], rows[second]
        bend = 20 + (other - one) // 3
        x = _LEFT - 14
        dash = "" if kind == COLLIDE else ' stroke-dasharray="5 3"' if kind == "order" else ""
        yield (
            f'<path d="M{x} {one} C{x - bend} {one} {x - bend} {other} {x} {other}" fill="none" '
            f'stroke="{_COLOURS[kind]}" stroke-width="1.5"{dash}>'
            f"<title>{_text(f'#{first} – #{second}: {kind}')}</title></path>"
        )


def _heads(found: Algebra, rows: dict[int, int]) -> Iterator[str]:
    core = set(found.core)
    for head in found.heads:
        y = rows[head.number]
        fill = "#229954" if head.number in core else "#5d6d7e"
        if head.number == found.failed:
            fill = "#c0392b"
        label = _text(f"#{head.number} {head.title}"[:90])
        yield f"<g id={quoteattr(f'pr-{head.number}')}>"
        yield f'<circle cx="{_LEFT}" cy="{y}" r="7" fill="{fill}"/>'
        yield f'<text x="{_LEFT + 16}" y="{y + 4}">{label}</text></g>'
    y = _TOP + len(found.heads) * _ROW
    tree = f"tree {found.tree}" if found.tree else f"stops at #{found.failed}"
    yield f'<text x="{_LEFT + 16}" y="{y + 4}" fill="#5d6d7e">{_text(tree)}</text>'
