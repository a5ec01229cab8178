"""What one source file may ask the preprocessor to open.

The scan is a superset by construction. It looks at every preprocessor directive, wherever a `#`
can begin one, without understanding conditions, comments or strings: what is skipped by an `#if`
or written in a comment only makes the set larger. A quoted or bracketed operand counts in any
directive, since `__has_include`, or a macro for it, may stand in `#if`, `#elif` and `#define`.

Sources: C++17 [cpp.include], [cpp.cond] and [lex.phases] (line splicing comes first, a comment is
a space); GCC's `#include_next`, `#import`, `#embed` and digraphs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SPLICE = re.compile(rb"\\[ \t]*\r?\n")
_GAP = rb"(?:[ \t\v\f\r]|/\*.*?\*/)*"
_HEAD = re.compile(
    rb"(?:#|%:|\?\?=)" + _GAP + rb"(include_next|include|import|embed|define|if|elif)\b", re.DOTALL
)
_REST = re.compile(rb"(?:[^\n/]|/(?!\*)|/\*.*?\*/)*", re.DOTALL)
_COMMENT = re.compile(rb"/\*.*?\*/", re.DOTALL)
_OPERAND = re.compile(rb'<([^<>"\n]+)>|"([^"\n]+)"')
_MACRO_USE = re.compile(rb"\s*([A-Za-z_]\w*)\s*(?:\((.*)\))?")
_DEFINE = re.compile(rb"\s*([A-Za-z_]\w*)(?:\(([^)]*)\))?\s*(.*)", re.DOTALL)
_FILE_LIKE = re.compile(rb"[\w./+@~%,=-]+\Z")
_INCLUDES = frozenset((b"include_next", b"include", b"import", b"embed"))


@dataclass(frozen=True, slots=True)
class Scan:
    """The operands of one file.

    `operands` are paths as written; `macros` are uses of a macro as an operand, as (name,
    argument text or None); `defines` are definitions whose body could become an operand, as
    (name, parameters or None, body).
    """

    operands: tuple[bytes, ...]
    macros: tuple[tuple[bytes, bytes | None], ...] = ()
    defines: tuple[tuple[bytes, tuple[bytes, ...] | None, bytes], ...] = ()


def scan(text: bytes) -> Scan:
    """Everything that `text` may ask for."""
    if b"\\" in text:
        text = _SPLICE.sub(b"", text)
    operands: dict[bytes, None] = {}
    macros: dict[tuple[bytes, bytes | None], None] = {}
    defines: dict[tuple[bytes, tuple[bytes, ...] | None, bytes], None] = {}
    for head in _HEAD.finditer(text):
        rest = _REST.match(text, head.end())
        line = rest[0] if rest is not None else b""
        if b"/*" in line:
            line = _COMMENT.sub(b" ", line)
        word = head[1]
        if word == b"define":
            _take_define(line, defines, operands)
            continue
        found = False
        for bracketed, quoted in _OPERAND.findall(line):
            operand = (bracketed or quoted).strip()
            if _FILE_LIKE.match(operand):
                operands[operand] = None
                found = True
        if word in _INCLUDES and not found:
            use = _MACRO_USE.match(line)
            if use is not None:
                macros[use[1], use[2]] = None
    return Scan(tuple(operands), tuple(macros), tuple(defines))


def _take_define(
    line: bytes,
    defines: dict[tuple[bytes, tuple[bytes, ...] | None, bytes], None],
    operands: dict[bytes, None],
) -> None:
    if not any(mark in line for mark in (b"<", b">", b'"', b"#")):
        # A body that is only another macro's name could still lead to an operand.
        plain = _DEFINE.match(line)
        if plain is None or not re.fullmatch(rb"[A-Za-z_]\w*(?:\([^()]*\))?\s*", plain[3]):
            return
    match = _DEFINE.match(line)
    if match is None:
        return
    parameters = (
        tuple(p.strip() for p in match[2].split(b",") if p.strip())
        if match[2] is not None
        else None
    )
    body = match[3].strip()
    defines[match[1], parameters, body] = None
    for bracketed, quoted in _OPERAND.findall(body):
        operand = (bracketed or quoted).strip()
        if _FILE_LIKE.match(operand):
            operands[operand] = None


def encode(result: Scan) -> bytes:
    """A compact text of a scan, for a memo."""
    rows = [b"o\t" + o for o in result.operands]
    rows += [b"m\t" + n + (b"\t" + a if a is not None else b"") for n, a in result.macros]
    rows += [
        b"d\t" + n + b"\t" + (b",".join(p) if p is not None else b"-") + b"\t" + b
        for n, p, b in result.defines
    ]
    return b"\n".join(rows)


def decode(data: bytes) -> Scan:
    """The scan whose `encode` is `data`."""
    operands: list[bytes] = []
    macros: list[tuple[bytes, bytes | None]] = []
    defines: list[tuple[bytes, tuple[bytes, ...] | None, bytes]] = []
    for row in data.split(b"\n") if data else ():
        kind, _, rest = row.partition(b"\t")
        if kind == b"o":
            operands.append(rest)
        elif kind == b"m":
            name, tab, argument = rest.partition(b"\t")
            macros.append((name, argument if tab else None))
        else:
            name, parameters, body = rest.split(b"\t", 2)
            names = None if parameters == b"-" else tuple(filter(None, parameters.split(b",")))
            defines.append((name, names, body))
    return Scan(tuple(operands), tuple(macros), tuple(defines))
