#!/usr/bin/python3
"""Prints what this image is, and checks that what is inside is what it says.

Reads the statement beside this file (or the file named by --statement). For every component: the
paths it promises exist; each CUDA library is the one that was built (by SHA-256) and holds code
for exactly the architectures that are stated, read from the headers of its fat binaries (which
stay readable when the code is compressed); Python packages are installed in the stated version.

Exit status: 0 when all holds, 1 when something does not (named on standard error, and in the
`problems` of --json), 2 when there is no statement that can be read. Needs Python 3.9, no package.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import struct
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

FATBIN_MAGIC = 0xBA55ED50
KIND_PTX, KIND_ELF = 1, 2
FLAG_A, FLAG_F = 1 << 20, 1 << 21
"""Bits of an entry's flags that stand for the `a` and `f` of sm_120a and sm_120f."""

EM_CUDA = 190


class Unreadable(Exception):
    """A file that is not what it should be."""


def elf_section(data: bytes, wanted: bytes) -> bytes:
    """A section of a 64-bit little-endian ELF file, empty when there is none of that name."""
    if len(data) < 64 or data[:6] != b"\x7fELF\x02\x01":
        raise Unreadable("no 64-bit little-endian ELF file")
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    if size < 64 or table + size * count > len(data) or (count and names >= count):
        raise Unreadable("the ELF section table is off")
    headers = [struct.unpack_from("<IIQQQQ", data, table + size * n) for n in range(count)]
    if not headers:
        return b""
    strings = data[headers[names][4] : headers[names][4] + headers[names][5]]
    for name, kind, _, _, offset, length in headers:
        if strings[name : strings.find(b"\0", name)] == wanted and kind != 8:
            return data[offset : offset + length]
    return b""


def fatbin_entries(section: bytes) -> list[tuple[str, str]]:
    """(kind, architecture) of every entry of a `.nv_fatbin` section, such as ("elf", "sm_120a").

    The layout is not published; these fields were read off binaries of CUDA 12 and 13: containers
    of (magic u32, version u16, header size u16, payload size u64), and in them entries of (kind
    u16, version u16, header size u32, payload size u64, …, architecture u32 at 28, flags u64 at
    40).
    """
    found = []
    at = 0
    while at + 16 <= len(section):
        magic, _, header, payload = struct.unpack_from("<IHHQ", section, at)
        if magic != FATBIN_MAGIC:
            if any(section[at : at + 8]):
                raise Unreadable(f"the fat binary's header is off at byte {at}")
            at += 8
            continue
        end = at + header + payload
        at += header
        if header < 16 or end > len(section):
            raise Unreadable("the fat binary is cut short")
        while at + 48 <= end:
            kind, _, entry_header, size = struct.unpack_from("<HHIQ", section, at)
            (arch,) = struct.unpack_from("<I", section, at + 28)
            (flags,) = struct.unpack_from("<Q", section, at + 40)
            if entry_header < 48 or at + entry_header + size > end:
                raise Unreadable("a fat binary entry is cut short")
            suffix = "a" if flags & FLAG_A else "f" if flags & FLAG_F else ""
            if kind == KIND_ELF:
                found.append(("elf", f"sm_{arch}{suffix}"))
                _check_plain(section[at + entry_header : at + entry_header + size], arch)
            elif kind == KIND_PTX:
                found.append(("ptx", f"sm_{arch}{suffix}"))
            at += entry_header + size
        at = end
    return found


def _check_plain(cubin: bytes, arch: int) -> None:
    """An uncompressed cubin says its architecture itself: bits 8 to 15 of its ELF flags."""
    if cubin[:4] == b"\x7fELF" and len(cubin) >= 64:
        (machine,) = struct.unpack_from("<H", cubin, 18)
        (flags,) = struct.unpack_from("<I", cubin, 48)
        if machine != EM_CUDA or (flags >> 8) & 0xFF != arch & 0xFF:
            raise Unreadable("a cubin is not for the architecture that its header says")


def cuda_architectures(data: bytes) -> tuple[list[str], list[str]]:
    """The architectures of machine code and of PTX inside an ELF file."""
    entries = fatbin_entries(elf_section(data, b".nv_fatbin"))
    code = sorted({arch for kind, arch in entries if kind == "elf"})
    return code, sorted({arch for kind, arch in entries if kind == "ptx"})


def python_package(package: object) -> tuple[str, str, str]:
    """(name, version found, what is wrong) of a package, stated as `name` or `name==version`."""
    name, _, version = str(package).partition("==")
    try:
        have = metadata.version(name)
    except metadata.PackageNotFoundError:
        return name, "", f"the Python package {name} is not installed"
    if version and have != version:
        return name, have, f"the Python package {name} is {have}, not {version}"
    return name, have, ""


def check(component: dict[str, Any], root: str) -> dict[str, Any]:
    """What is found of one component: `cuda` architectures, `python` versions, `problems`."""
    problems, architectures = [], set()
    for path in component.get("paths", []):
        if not os.path.lexists(Path(root, path.strip("/"))):
            problems.append(f"{path} is not there")
    for module in component.get("cuda", []):
        path = Path(root, module["file"].strip("/"))
        try:
            data = path.read_bytes()
            code, ptx = cuda_architectures(data)
        except (OSError, Unreadable) as error:
            problems.append("{} cannot be read: {}".format(module["file"], error))
            continue
        architectures.update(code)
        if module.get("sha256") not in (None, hashlib.sha256(data).hexdigest()):
            problems.append("{} is not the library that was built".format(module["file"]))
        stated = sorted(module.get("archs", []))
        if stated and code != stated:
            problems.append(
                "{} holds code for {}, not {}".format(
                    module["file"], ", ".join(code) or "no GPU", ", ".join(stated)
                )
            )
        elif not stated and not code:
            problems.append("{} holds no GPU code".format(module["file"]))
        if ptx and not module.get("ptx", False):
            problems.append("{} holds PTX for {}".format(module["file"], ", ".join(ptx)))
    python = {}
    for package in component.get("python", []):
        name, version, problem = python_package(package)
        if version:
            python[name] = version
        if problem:
            problems.append(problem)
    return {"cuda": sorted(architectures), "python": python, "problems": problems}


def shorten(digest: str) -> str:
    """The first twelve digits of a digest."""
    return re.sub(r"^[a-z0-9]+:", "", digest)[:12]


def table(rows: list[dict[str, Any]]) -> str:
    """The contract for people."""
    columns = ("component", "version", "tree", "drv", "cuda", "holds")
    cells = [columns]
    for row in rows:
        cells.append(
            (
                row["name"],
                row["version"] or "-",
                shorten(row["tree"]) or "-",
                shorten(row["drv"]) or "-",
                ",".join(row["cuda"]) or "-",
                "no" if row["problems"] else "yes",
            )
        )
    widths = [max(len(line[n]) for line in cells) for n in range(len(columns))]
    lines = (
        "  ".join(text.ljust(w) for text, w in zip(line, widths)).rstrip()  # noqa: B905
        for line in cells
    )
    return "\n".join(lines)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Print and check this image's contract.")
    here = str(Path(__file__).resolve().with_name("statement.json"))
    parser.add_argument("--statement", default=here)
    parser.add_argument("--root", default="/", help="where the image's files lie")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args()
    try:
        statement = json.loads(Path(options.statement).read_text(encoding="utf-8"))
        release = statement["release"]
        components = statement["components"]
        if statement["format"] != 0:
            raise ValueError("format {!r} is newer than this program".format(statement["format"]))
        rows = []
        for component in components:
            found = check(component, options.root)
            rows.append(
                {
                    "name": component["name"],
                    "version": component.get("version", ""),
                    "tree": component.get("tree", ""),
                    "drv": component.get("drv", ""),
                    **found,
                }
            )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        sys.stderr.write(f"{options.statement} is no statement: {error}\n")
        return 2
    bad = sum(bool(row["problems"]) for row in rows)
    if options.json:
        document = {"holds": not bad, "release": release, "components": rows}
        sys.stdout.write(json.dumps(document, sort_keys=True) + "\n")
    else:
        title = release.get("reference") or release.get("title") or release.get("codename", "")
        sys.stdout.write(f"{title}\n{table(rows)}\n")
    for row in rows:
        for problem in row["problems"]:
            sys.stderr.write("{}: {}\n".format(row["name"], problem))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
