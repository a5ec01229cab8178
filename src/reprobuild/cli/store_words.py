"""How the store's commands say what they found."""

from __future__ import annotations

import re
from typing import Any

import click

from reprobuild.errors import ReprobuildError

FEW = 3
"""Up to so many files are named where their modes or times alone are off."""
_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def parse_age(text: str) -> float:
    """Seconds from `30d`, `12h`, `2w`, `90m`, `45s`; raises E-USAGE."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip().lower())
    if match is None:
        raise ReprobuildError("E-USAGE", f"{text!r} is no age; say 30d, 12h or 2w", got=text)
    return float(match[1]) * _AGES[match[2]]


def rows(facts: dict[str, Any]) -> None:
    """One line for each fact; kinds of objects by number and size, lists by their length."""
    for name, value in facts.items():
        if name == "kinds":
            for kind, held in value.items():
                size = held["bytes"] / 2**20
                click.echo(f"{kind:<14} {held['count']:>8} {size:12.1f} MiB")
        elif name.endswith("bytes"):
            click.echo(f"{name.removesuffix('_bytes'):<14} {value / 2**20:.0f} MiB")
        else:
            shown = len(value) if isinstance(value, list) else value
            click.echo(f"{name:<14} {shown}")


def duration(milliseconds: int) -> str:
    """`12.3 s`, `4 min 05 s`, `3 h 20 min`: what people compare with a cup of tea."""
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = round(seconds) // 60
    if minutes < 60:
        return f"{minutes} min {round(seconds) % 60:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"
