"""Verdicts on files that should have been the same: what differs, why, and what would cure it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from reprobuild.core.cubin import ar, fatbin
from reprobuild.core.cubin import elf as elves
from reprobuild.core.cubin.compare import Comparison, compare_objects
from reprobuild.core.cubin.fatbin import Inflate
from reprobuild.core.cubin.findings import LEVELS, Cause, Finding
from reprobuild.core.cubin.names import normal
from reprobuild.core.encoding import Value
from reprobuild.errors import ReprobuildError

CURES: Mapping[Cause, str] = {
    Cause.DEVICE_CODE: "the compiler saw other sources, flags or versions for these kernels: "
    "compare the recipes (`reprobuild store cat`), and use no --split-compile",
    Cause.DEVICE_DATA: "constants or initialised variables differ: look for __DATE__, __TIME__, "
    "__COUNTER__ or generated headers in the sources",
    Cause.HOST_CODE: "fix the host compiler's version and flags; no -march=native, no profile data",
    Cause.HOST_DATA: "look for __DATE__, __TIME__, generated headers or paths in the sources",
    Cause.COMPILER: "compile with one version of the toolkit and the same options; "
    "never --split-compile",
    Cause.DEBUG: "leave out -lineinfo, -G and -g, or map their paths (-ffile-prefix-map)",
    Cause.PATH_NAME: "compile at one absolute path (the sandbox's), and give each unit a "
    "--frandom-seed of its own",
    Cause.TEMPORARY_NAME: "keep nvcc's intermediates in a private directory "
    "(--keep --keep-dir) and give each unit a --frandom-seed of its own, as cuda-module does; "
    "never -objtemp",
    Cause.LINK_ORDER: "name the objects in one fixed order when they are linked",
    Cause.COMPRESSION: "set --compress-mode, and use one version of the toolkit for it",
    Cause.TIMESTAMP: "write no time: no __DATE__ and __TIME__, ar with D, gzip -n, .pyc files "
    "by --invalidation-mode unchecked-hash",
    Cause.CONTENT: "compare the two logs; sort what is read from directories and sets, and use no "
    "clock, host name or random number",
    Cause.LAYOUT: "compare the objects that went into it: what they differ in moved the rest",
}

MAX_SHOWN = 160
"""Letters of a section's or kernel's name that a line shows; the JSON form has all."""
_TEXT_LIMIT = 4 * 2**20


@dataclass(frozen=True, slots=True)
class FileVerdict:
    """The verdict on one path of two trees. `device` as in Comparison."""

    path: str
    findings: tuple[Finding, ...]
    device: str = ""

    @property
    def cause(self) -> Cause:
        """The gravest."""
        return self.findings[0].cause

    def line(self) -> str:
        """For people, in one line."""
        said = []
        for finding in self.findings:
            text = str(finding.cause)
            places = ", ".join(_short(place) for place in finding.where[:3])
            if len(finding.where) > 3:
                places += f" and {len(finding.where) - 3} more"
            inside = ": ".join(filter(None, (finding.detail, places)))
            said.append(f"{text} ({inside})" if inside else text)
        text = f"{self.path}: " + "; ".join(said)
        if self.device == "identical":
            host = {Cause.HOST_CODE, Cause.HOST_DATA}
            only = "host only; " if {f.cause for f in self.findings} <= host else ""
            text += f"; {only}device code identical"
        elif self.device:
            text += "; device code differs"
        return text

    def document(self) -> dict[str, Value]:
        """For `--json`."""
        return {
            "cause": str(self.cause),
            "device": self.device or None,
            "findings": [
                {
                    "cause": str(f.cause),
                    "cure": CURES[f.cause],
                    "detail": f.detail,
                    "where": list(f.where),
                }
                for f in self.findings
            ],
            "path": self.path,
        }


def _short(place: str) -> str:
    return place if len(place) <= MAX_SHOWN else place[: MAX_SHOWN - 1] + "…"


def judge_files(path: str, first: bytes, second: bytes, inflate: Inflate) -> FileVerdict:
    """The verdict on two different contents of one path. Never raises for what they hold."""
    try:
        found = _judge(first, second, inflate)
    except ReprobuildError as error:
        if error.code != "E-CUBIN":
            raise
        detail = f"cannot be looked into: {error.message}"
        found = Comparison((Finding(Cause.CONTENT, (), detail),))
    return FileVerdict(path, found.findings, found.device)


def _judge(first: bytes, second: bytes, inflate: Inflate) -> Comparison:
    if all(_is_object(data) for data in (first, second)):
        return compare_objects(first, second, inflate)
    if first.startswith(ar.MAGIC) and second.startswith(ar.MAGIC):
        return _archives(first, second, inflate)
    return Comparison((_plain(first, second),))


def _is_object(data: bytes) -> bool:
    return elves.is_elf(data[:6]) or data[:4] == fatbin.MAGIC_BYTES


def _archives(first: bytes, second: bytes, inflate: Inflate) -> Comparison:
    ones, twos = list(ar.members(first)), list(ar.members(second))
    one, two = [(m.name, m.data) for m in ones], [(m.name, m.data) for m in twos]
    if one == two:
        detail = "times, owners or modes in its headers"
        return Comparison((Finding(Cause.TIMESTAMP, (), detail),))
    if sorted(one) == sorted(two):
        detail = "the same members in another order"
        return Comparison((Finding(Cause.LINK_ORDER, (), detail),), "identical")
    findings: list[Finding] = []
    devices = set()
    others = dict(two)
    for name, data in one:
        place = elves.shown(name)
        other = others.pop(name, None)
        if other is None:
            findings.append(Finding(Cause.CONTENT, (place,), "is in the first only"))
        elif other != data:
            judged = judge_files(place, data, other, inflate)
            devices.add(judged.device)
            findings += [
                Finding(f.cause, (place,), ": ".join(filter(None, (f.detail, ", ".join(f.where)))))
                for f in judged.findings
            ]
    findings += [
        Finding(Cause.CONTENT, (elves.shown(name),), "is in the second only") for name in others
    ]
    order = list(Cause)
    findings.sort(key=lambda finding: order.index(finding.cause))
    device = "different" if "different" in devices else max(devices, default="")
    return Comparison(tuple(findings), device)


def _plain(first: bytes, second: bytes) -> Finding:
    """Files that are no objects."""
    if first[:4] == second[:4] and first[2:4] == b"\r\n" and first[16:] == second[16:]:
        return Finding(Cause.TIMESTAMP, (), "the source's time or hash in a .pyc header")
    if first[:2] == b"\x1f\x8b" and first[:4] + first[8:] == second[:4] + second[8:]:
        return Finding(Cause.TIMESTAMP, (), "the time in a gzip header")
    if len(first) > _TEXT_LIMIT or len(second) > _TEXT_LIMIT:
        return Finding(Cause.CONTENT, (), f"{len(first)} and {len(second)} bytes")
    for level, cause in LEVELS:
        if normal(first, level) == normal(second, level):
            return Finding(cause, (), _where(first, second))
    one, two = first.splitlines(), second.splitlines()
    if sorted(one) == sorted(two) and one != two:
        return Finding(Cause.CONTENT, (), "the same lines in another order")
    return Finding(Cause.CONTENT, (), _where(first, second))


def _where(first: bytes, second: bytes) -> str:
    """The first place that differs: a line of text, else a byte."""
    if not re.search(rb"[\0-\x08]", first[:4096] + second[:4096]):
        one, two = first.split(b"\n"), second.split(b"\n")
        for number, (a, b) in enumerate(zip(one, two, strict=False), 1):
            if a != b:
                return f"line {number}: {elves.shown(a[:60])!r} and {elves.shown(b[:60])!r}"
        return f"{len(one)} and {len(two)} lines"
    length = min(len(first), len(second))
    low, high = 0, length
    while low < high:  # the longest common beginning, by halves
        middle = (low + high + 1) // 2
        if first[:middle] == second[:middle]:
            low = middle
        else:
            high = middle - 1
    return f"from byte {low} on ({len(first)} and {len(second)} bytes)"
