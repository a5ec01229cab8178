"""The variables and flags that the documents of a release speak of, and where."""

from __future__ import annotations

import re
from collections.abc import Mapping

from reprobuild.core.documents.runbook import Served
from reprobuild.core.flake import Output

_BLOCK = re.compile(r"^```.*?$(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_VARIABLE = re.compile(
    r"\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)(?==)|\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b"
)
_SETTING = re.compile(r"\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)=")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_TOOLS = re.compile(r"^\s*(?:curl|docker|reprobuild|#|grep)\b.*$", re.MULTILINE)
PROSE = (".md", ".rst", ".txt", ".json", ".jsonl", ".csv", ".html", ".svg", ".log")
"""Endings of files that speak of variables and read none: notes, records of measurements."""
SYSTEM = frozenset({"HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ", "XDG_CACHE_HOME"})
"""Variables of every system (POSIX, XDG base directories): no component need declare them."""
TOKEN = re.compile(rb"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*|--[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
"""What of a source file may be a variable or a flag."""


def names_in_text(text: str) -> set[str]:
    """Variables and flags in a document's code (fences, and spans between backticks), and
    `NAME=VALUE` anywhere.

    Command lines of tools of the reader's own (curl, docker…) hold flags of theirs.
    """
    parts = [_TOOLS.sub("", block) for block in _BLOCK.findall(text)]
    parts += _SPAN.findall(_BLOCK.sub("", text))
    found: set[str] = set()
    for part in parts:
        found |= {one or other for one, other in _VARIABLE.findall(part)}
        found |= set(_FLAG.findall(part))
    return found | set(_SETTING.findall(_BLOCK.sub("", text)))


def names_in_profiles(served: Mapping[str, Served]) -> dict[str, str]:
    """Variables and flags that profiles hand to the launcher, with the profile that does."""
    found: dict[str, str] = {}
    for name, one in served.items():
        profile = one.profile
        names: list[str] = [*profile.settings]
        names += [key for rule in profile.rules for key in rule.clears]
        if profile.offline is not None:
            names += [*profile.offline.env, *profile.offline.paths]
        words = [*profile.entrypoint, *profile.command]
        names += [flag for word in words for flag in _FLAG.findall(word)]
        for key in names:
            found.setdefault(key, f"profile {name}")
    return found


def names_of_image(output: Output) -> dict[str, str]:
    """Variables that the image itself sets, with the place that says so."""
    image = output.image
    if image is None:
        return {}
    return {
        name: f"image.{table}"
        for table, names in (("env", image.env), ("caches", image.caches))
        for name in names
    }


def names_of_compose(served: Mapping[str, Served]) -> set[str]:
    """Variables that the Compose files themselves take, and their prelude."""
    found = {"IMAGE", "NAME", "SHM_SIZE"}
    for one in served.values():
        profile = one.profile
        found.add(profile.gpus)
        if profile.offline is not None:
            found.add(profile.offline.variable)
        for volume in profile.volumes:
            found |= set(re.findall(r"\$\{([A-Z][A-Z0-9_]*)", volume))
    return found


def declared_names(output: Output) -> dict[str, str]:
    """Names of the declared interface, with whose they are."""
    return {name: f"declared by {owner}" for owner, all_ in output.interface.items()
             for name in all_}  # fmt: skip
