"""Two host objects or libraries, compared section by section."""

from __future__ import annotations

from reprobuild.core.cubin import elf as elves
from reprobuild.core.cubin.describe import Sort, describe
from reprobuild.core.cubin.elf import Elf
from reprobuild.core.cubin.findings import Cause, Finding, differing, explain, part_names
from reprobuild.core.cubin.names import Level, normal

_FOLLOWS = (".comment", ".note.gnu.build-id")
"""Said elsewhere, or a digest of all the rest."""


def compare_host(one: Elf, two: Elf) -> list[Finding]:
    """All findings but those in fat binaries, whose members are compared elsewhere."""
    if one.kind == elves.ET_DYN and _reordered(one, two):
        return [Finding(Cause.LINK_ORDER, (), "the same functions in another order")]
    exact = differing(describe(one, Level.EXACT), describe(two, Level.EXACT))
    findings, rest = explain(one, two, exact)
    debug = [part for part in rest if part.sort == Sort.DEBUG]
    if debug:
        findings.append(Finding(Cause.DEBUG, part_names(debug)))
    if any(part.name == ".comment" for part in rest):
        findings.append(Finding(Cause.COMPILER, (".comment",)))
    code = [part for part in rest if part.sort == Sort.CODE]
    data = [part for part in rest if part.sort == Sort.DATA]
    if one.kind == elves.ET_DYN and (code or data) and _moved(one, two):
        detail = "the same functions, of the same sizes, lie elsewhere"
        return [*findings, Finding(Cause.LAYOUT, part_names([*code, *data]), detail)]
    if code:
        findings.append(Finding(Cause.HOST_CODE, part_names(code), _functions(one, two)))
    if data:
        findings.append(Finding(Cause.HOST_DATA, part_names(data)))
    leftover = [p for p in rest if p.sort in (Sort.NAMES, Sort.NOTE) and p.name not in _FOLLOWS]
    if leftover and not (code or data):
        # Where code or data differ, the tables of symbols say so once more.
        findings.append(Finding(Cause.HOST_DATA, part_names(leftover), "names"))
    return findings


Outline = list[tuple[bytes, int, int]]


def _outline(elf: Elf) -> Outline:
    """(name in one form, size, address) of all defined functions and objects, by address."""
    table = next((s for s in elf.sections if s.kind == elves.SHT_SYMTAB), None)
    if table is None:
        table = next((s for s in elf.sections if s.kind == elves.SHT_DYNSYM), None)
    if table is None:
        return []
    rows = [
        (normal(symbol.name, Level.PATH), symbol.size, symbol.value)
        for symbol in elf.symbols(table)
        if symbol.kind in (elves.STT_FUNC, elves.STT_OBJECT)
        and 0 < symbol.section < elves.SHN_RESERVED
        and symbol.size
    ]
    return sorted(rows, key=lambda row: (row[2], row[0], row[1]))


def _reordered(one: Elf, two: Elf) -> bool:
    """Whether both define the same things of the same sizes, in another order."""
    first = [row[:2] for row in _outline(one)]
    second = [row[:2] for row in _outline(two)]
    return first != second and sorted(first) == sorted(second)


def _moved(one: Elf, two: Elf) -> bool:
    """Whether both define the same things of the same sizes in the same order, but elsewhere:
    then every instruction that names an address differs, and says nothing."""
    first, second = _outline(one), _outline(two)
    return first != second and [r[:2] for r in first] == [r[:2] for r in second]


def _functions(one: Elf, two: Elf) -> str:
    """The functions whose bytes differ, by comparing what both define."""
    first, second = _bodies(one), _bodies(two)
    found = [name for name, body in first.items() if second.get(name, body) != body]
    alone = sorted({*first} ^ {*second})
    texts = [f"in {elves.shown(name)}" for name in found[:3]]
    texts += [f"{elves.shown(name)} in one of them only" for name in alone[:3]]
    more = len(found) + len(alone) - len(texts)
    return ", ".join(texts) + (f" and {more} more" if more > 0 else "")


def _bodies(elf: Elf) -> dict[bytes, bytes]:
    table = next((s for s in elf.sections if s.kind == elves.SHT_SYMTAB), None)
    bodies: dict[bytes, bytes] = {}
    if table is None:
        return bodies
    relative = elf.kind == elves.ET_REL
    for symbol in elf.symbols(table):
        if symbol.kind != elves.STT_FUNC or not 0 < symbol.section < len(elf.sections):
            continue
        section = elf.sections[symbol.section]
        start = symbol.value - (0 if relative else section.address)
        body = elf.content(section)[start : start + symbol.size] if start >= 0 else b""
        bodies[normal(symbol.name, Level.PATH)] = bytes(body)
    return bodies
