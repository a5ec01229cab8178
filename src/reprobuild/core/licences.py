"""Licences: which forbid passing files on, and which a policy allows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

NVIDIA = "LicenseRef-NVIDIA-Proprietary"

_RESTRICTED = re.compile(
    r"nvidia|proprietary|eula|non-?commercial|\bnc\b|-nc-|research[ -]only|no[ -]redistribution"
    r"|all rights reserved",
    re.IGNORECASE,
)
_NVIDIA_NAME = re.compile(
    r"(?:nvidia-|cuda-|libcu(?:dart|blas|fft|solver|sparse|rand|file|dnn|pti)|libnccl|libnpp|libnv(?:"
    r"rtc|jitlink|jpeg|vm|infer))[a-z0-9._+-]*\Z"
)
_OPEN_NVIDIA = frozenset({"nvidia-cutlass", "nvidia-ml-py", "cuda-python", "cuda-bindings"})


def licence_of(name: str, stated: str) -> str:
    """The licence of a package: as stated, else known from whose it is; empty when unknown."""
    if stated and stated.upper() not in ("UNKNOWN", "OTHER", "NOASSERTION"):
        return stated
    low = name.lower().replace("_", "-")
    return NVIDIA if _NVIDIA_NAME.match(low) and low not in _OPEN_NVIDIA else ""


def is_restricted(licence: str) -> bool:
    """Whether the words of a licence say that its files may not be passed on to anybody."""
    return _RESTRICTED.search(licence) is not None


@dataclass(frozen=True, slots=True)
class Licensed:
    """A licence, and whose files of an image are under it."""

    licence: str
    names: tuple[str, ...]


def _licences(statement: Mapping[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in statement.get("components", ()):
        entries = [(row.get("licence", ""), row["name"])]
        entries += [
            (package.get("licence", ""), f"{package.get('name')} {package.get('version', '')}")
            for package in row.get("packages", ())
        ]
        for licence, name in entries:
            if name not in found.setdefault(licence, []):
                found[licence].append(name.strip())
    return found


def restricted(statement: Mapping[str, Any]) -> list[Licensed]:
    """The licences in an image that forbid redistribution, by name."""
    return [
        Licensed(licence, tuple(names))
        for licence, names in sorted(_licences(statement).items())
        if is_restricted(licence)
    ]


def not_allowed(statement: Mapping[str, Any], allowed: Sequence[str]) -> list[Licensed]:
    """What is under a licence that no pattern of a policy allows; what states none is left out
    unless it is a package."""
    if not allowed:
        return []
    out: list[Licensed] = []
    components = {row["name"] for row in statement.get("components", ())}
    for licence, names in sorted(_licences(statement).items()):
        if any(_allows(licence, allowed)):
            continue
        named = [n for n in names if licence or n not in components]
        if named:
            out.append(Licensed(licence or "no licence stated", tuple(named)))
    return out


def _allows(licence: str, allowed: Sequence[str]) -> Iterable[bool]:
    return (fnmatchcase(licence.lower(), pattern.lower()) for pattern in allowed)
