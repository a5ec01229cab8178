"""The device code of two files: fat binaries member by member, cubins kernel by kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from reprobuild.core.cubin import elf as elves
from reprobuild.core.cubin.describe import Sort, describe
from reprobuild.core.cubin.elf import Elf
from reprobuild.core.cubin.fatbin import Entry, Inflate
from reprobuild.core.cubin.findings import (
    LEVELS,
    Cause,
    Finding,
    differing,
    explain,
    part_names,
)
from reprobuild.core.cubin.kernel import Kernel, kernels
from reprobuild.core.cubin.names import Level, normal


def compare_fatbins(
    ones: Sequence[Entry], twos: Sequence[Entry], inflate: Inflate
) -> list[Finding]:
    """The members of two files, in order. Raises E-CUBIN for what cannot be decompressed."""
    if [_stored(e) for e in ones] == [_stored(e) for e in twos]:
        return []
    first = [(e.kind, e.arch, e.payload(inflate)) for e in ones]
    second = [(e.kind, e.arch, e.payload(inflate)) for e in twos]
    if first == second:
        modes = (_mode(ones), _mode(twos))
        words = " and ".join(modes) if modes[0] != modes[1] else "another compressor, or level"
        return [Finding(Cause.COMPRESSION, (".nv_fatbin",), f"equal when decompressed ({words})")]
    if Counter(first) == Counter(second):
        return [Finding(Cause.LINK_ORDER, (".nv_fatbin",), "the same members in another order")]
    left = list((Counter(first) - Counter(second)).elements())
    right = list((Counter(second) - Counter(first)).elements())
    return _members(left, right)


def _stored(entry: Entry) -> tuple[bytes, bytes]:
    return entry.header, bytes(entry.stored)


def _mode(entries: Iterable[Entry]) -> str:
    return "/".join(sorted({e.compression or "uncompressed" for e in entries}))


Member = tuple[str, str, bytes]


def _members(left: Sequence[Member], right: Sequence[Member]) -> list[Finding]:
    """Members that have no equal on the other side, put in pairs by the kernels they hold."""
    findings: list[Finding] = []
    unpaired = list(right)
    for member in left:
        other = _counterpart(member, unpaired)
        if other is None:
            findings.append(_alone(member, "first"))
            continue
        unpaired.remove(other)
        if member[0] == "cubin":
            findings += compare_cubins(elves.parse(member[2]), elves.parse(other[2]))
        else:
            findings += _texts(member, other)
    return findings + [_alone(member, "second") for member in unpaired]


def _counterpart(member: Member, others: Sequence[Member]) -> Member | None:
    same = [o for o in others if o[:2] == member[:2]]
    if len(same) < 2:
        return same[0] if same else None
    own = _kernel_names(member)
    return max(same, key=lambda other: len(own & _kernel_names(other)))


def _kernel_names(member: Member) -> set[bytes]:
    if member[0] != "cubin":
        return set()
    return {normal(k.name.encode(), Level.PATH) for k in kernels(member[2], member[1])}


def _alone(member: Member, side: str) -> Finding:
    kind = "machine code" if member[0] == "cubin" else member[0].upper()
    return Finding(Cause.DEVICE_CODE, (), f"{kind} for {member[1]} is in the {side} only")


def _texts(one: Member, two: Member) -> list[Finding]:
    for level, cause in LEVELS:
        if normal(one[2], level) == normal(two[2], level):
            return [Finding(cause, (f"{one[0].upper()} for {one[1]}",))]
    return [Finding(Cause.DEVICE_CODE, (f"{one[0].upper()} for {one[1]}",))]


def compare_cubins(one: Elf, two: Elf) -> list[Finding]:
    """Two cubins, made-up names aside."""
    exact = differing(describe(one, Level.EXACT), describe(two, Level.EXACT))
    findings, rest = explain(one, two, exact)
    tools = [part for part in rest if part.sort == Sort.TOOL]
    if tools:
        findings.append(Finding(Cause.COMPILER, part_names(tools), _tool_change(one, two)))
    debug = [part for part in rest if part.sort == Sort.DEBUG]
    if debug:
        findings.append(Finding(Cause.DEBUG, part_names(debug)))
    code = {normal(part.name.encode(), Level.DATE) for part in rest if part.sort == Sort.CODE}
    changed = _kernels(one, two, code)
    if changed:
        findings.append(Finding(Cause.DEVICE_CODE, changed, "kernels"))
    if code:
        findings.append(
            Finding(Cause.DEVICE_CODE, tuple(sorted(map(elves.shown, code))), "device functions")
        )
    data = [part for part in rest if part.sort == Sort.DATA]
    if data:
        findings.append(Finding(Cause.DEVICE_DATA, part_names(data)))
    others = [p for p in rest if p.sort in (Sort.ATTRIBUTES, Sort.NAMES, Sort.NOTE)]
    if others and not (changed or code or data):
        # Another compiler states other attributes of the same code.
        cause = Cause.COMPILER if tools else Cause.DEVICE_DATA
        findings.append(Finding(cause, part_names(others), "attributes of the kernels"))
    return findings


_CODE_SECTIONS = (
    *(b".text.", b".rela.text.", b".rel.text."),
    *(b".nv.capmerc.text.", b".nv.merc.rela.text."),
)


def _kernels(one: Elf, two: Elf, code: set[bytes]) -> tuple[str, ...]:
    """The kernels whose machine code or use of the machine differs, or that are in one only.

    `code` are the sections of code that differ; those of a kernel are taken out of it.
    """
    first, second = _by_name(one), _by_name(two)
    changed = []
    for name in sorted({*first, *second}):
        own = {prefix + name for prefix in _CODE_SECTIONS} & code
        code -= own
        ours, theirs = first.get(name), second.get(name)
        if own or ours is None or theirs is None or not _same_use(ours, theirs):
            kernel = ours or theirs
            assert kernel is not None
            changed.append(kernel.name)
    return tuple(changed)


def _same_use(ours: Kernel, theirs: Kernel) -> bool:
    """Whether registers, stack, shared memory, barriers and launch bounds are the same."""
    return ours == replace(theirs, name=ours.name, code=ours.code)


def _by_name(elf: Elf) -> dict[bytes, Kernel]:
    return {normal(k.name.encode(), Level.DATE): k for k in kernels(elf)}


def _tool_change(one: Elf, two: Elf) -> str:
    first, second = _tool(one), _tool(two)
    pairs = [(a, b) for a, b in zip(first, second, strict=False) if a != b]
    return "; ".join(f"{a!r} and {b!r}" for a, b in pairs)


def _tool(elf: Elf) -> list[str]:
    """The readable strings of ptxas's note: its version, its options."""
    section = elf.named(b".note.nv.tkinfo")
    content = bytes(elf.content(section)) if section is not None else b""
    return [elves.shown(t).strip() for t in content[44:].split(b"\0") if len(t) > 3]
