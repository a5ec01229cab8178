"""Findings: what two files differ in, by cause; and what made-up names alone explain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from reprobuild.core.cubin.describe import Part, Parts, Sort, describe
from reprobuild.core.cubin.elf import Elf
from reprobuild.core.cubin.names import Level, normal


class Cause(StrEnum):
    """Why two files differ, gravest first."""

    DEVICE_CODE = "device code"
    DEVICE_DATA = "device data"
    CONTENT = "content"
    HOST_CODE = "host code"
    HOST_DATA = "host data"
    COMPILER = "compiler or its options"
    DEBUG = "debug information"
    PATH_NAME = "name derived from a path"
    TEMPORARY_NAME = "temporary name"
    LINK_ORDER = "link order"
    COMPRESSION = "compression"
    TIMESTAMP = "timestamp"
    LAYOUT = "layout"


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause, where it shows (sections, kernels, functions), and in words."""

    cause: Cause
    where: tuple[str, ...] = ()
    detail: str = ""


LEVELS = (
    (Level.TEMPORARY, Cause.TEMPORARY_NAME),
    (Level.PATH, Cause.PATH_NAME),
    (Level.DATE, Cause.TIMESTAMP),
)
"""What is put in one form, one after another, and the cause that it stands for."""


def explain(one: Elf, two: Elf, exact: Sequence[Part]) -> tuple[list[Finding], list[Part]]:
    """What made-up names explain, and the parts that they do not."""
    findings: list[Finding] = []
    rest = [part for part in exact if part.sort != Sort.DEVICE]
    for level, cause in LEVELS:
        if not rest:
            break
        still = [
            part
            for part in differing(describe(one, level), describe(two, level))
            if part.sort != Sort.DEVICE
        ]
        left = {normal(part.name.encode(), Level.PATH) for part in still}
        explained = [p for p in rest if normal(p.name.encode(), Level.PATH) not in left]
        if explained:
            findings.append(Finding(cause, part_names(explained)))
        rest = still
    return findings, rest


def differing(one: Parts, two: Parts) -> list[Part]:
    """The parts that are not equal, or in one file only."""
    parts = []
    for key in (*one, *(key for key in two if key not in one)):
        first, second = one.get(key), two.get(key)
        if first is None or second is None or first.value != second.value:
            part = first or second
            assert part is not None
            parts.append(part)
    return parts


def part_names(parts: Iterable[Part]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.name for part in parts))
