"""Two files that should have been the same: what differs, and why.

The answer is a list of findings, gravest first. Host sections, and the sections of the cubins
inside, are compared with made-up names in one form (`names.Level`): what is equal then differed in
such a name alone. Members of fat binaries are compared decompressed, in their order, and then by
their kernels' machine code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reprobuild.core.cubin import elf as elves
from reprobuild.core.cubin.compare_device import compare_cubins, compare_fatbins
from reprobuild.core.cubin.compare_host import compare_host
from reprobuild.core.cubin.fatbin import Inflate
from reprobuild.core.cubin.findings import Cause, Finding
from reprobuild.core.cubin.module import members

MAX_NAMED = 20
"""Sections, functions or kernels that one finding names."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """`device`: `identical`, `different`, or empty where neither file has device code.

    Identical means that every kernel has the same instructions, relocations and constants.
    """

    findings: tuple[Finding, ...]
    device: str = ""


def compare_objects(first: bytes, second: bytes, inflate: Inflate) -> Comparison:
    """Two ELF files or fat binaries; raises E-CUBIN when one of them cannot be read."""
    one, ones, _ = members(first)
    two, twos, _ = members(second)
    device: list[Finding] = []
    if ones or twos:
        device = compare_fatbins(ones, twos, inflate)
    elif one is not None and two is not None and elves.EM_CUDA in (one.machine, two.machine):
        if one.machine != two.machine:
            return Comparison((Finding(Cause.CONTENT, (), "a cubin, and a host object"),))
        findings = compare_cubins(one, two)
        return _comparison(findings, bare=True)
    host = compare_host(one, two) if one is not None and two is not None else []
    if any(f.cause == Cause.LINK_ORDER for f in (*device, *host)):
        # Everything lies elsewhere then; what the linker wrote differs for that reason.
        host = [f for f in host if f.cause == Cause.LINK_ORDER]
        device = [f for f in device if f.cause != Cause.LINK_ORDER] or device
        if host and device and device[0].cause == Cause.LINK_ORDER:
            host = []
    return _comparison([*device, *host], bare=False, any_device=bool(ones or twos))


def _comparison(findings: Sequence[Finding], *, bare: bool, any_device: bool = True) -> Comparison:
    order = list(Cause)
    merged: dict[tuple[Cause, str], list[str]] = {}
    for finding in findings:
        merged.setdefault((finding.cause, finding.detail), []).extend(finding.where)
    rows = sorted(
        (
            Finding(cause, tuple(dict.fromkeys(where))[:MAX_NAMED], detail)
            for (cause, detail), where in merged.items()
        ),
        key=lambda finding: order.index(finding.cause),
    )
    if not rows:
        rows = [Finding(Cause.LAYOUT, (), "the same parts lie elsewhere in the file")]
    touched = any(f.cause in (Cause.DEVICE_CODE, Cause.DEVICE_DATA) for f in rows)
    device = ("different" if touched else "identical") if bare or any_device else ""
    return Comparison(tuple(rows), device)
