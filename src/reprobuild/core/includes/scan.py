"""What one source file may ask the preprocessor to open.

The scan is a superset by construction. It looks at every preprocessor directive, wherever a `#`
can begin one, without understanding conditions, comments or strings around it: what is skipped by
an `#if` or written in a comment only makes the set larger. A quoted or bracketed text counts in any
directive, since `__has_include`, or a macro for it, may stand in `#if`, `#elif` and `#define`.

Sources: C++17 [cpp.include], [cpp.cond] and [lex.phases] (line splicing comes first, a comment is
a space); GCC's `#include_next`, `#import`, `#embed`, `#pragma GCC dependency` and digraphs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

Definition = tuple[tuple[bytes, ...] | None, bytes]
"""Parameters of a macro (None for an object-like one) and its body, without comments."""

WORD = re.compile(rb"[A-Za-z_$\x80-\xff][\w$\x80-\xff]*")
PROBE = re.compile(rb"__has_(?:include(?:_next)?|embed)\b\s*\(?")

_SPLICE = re.compile(rb"\\[ \t\v\f]*\r?\n")
_GAP = rb"(?:[ \t\v\f\r]|/\*.*?\*/)*"
# In a lookahead, so that a `#` which only seems to begin a directive swallows none that does.
_HEAD = re.compile(
    rb"(?:#|%:|\?\?=)(?=("
    + _GAP
    + rb"(include_next|include|import|embed|define|if|elif|pragma)(?![\w$])))",
    re.DOTALL,
)
_REST = re.compile(rb'(?:"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/|[^\n/"]|/(?!\*)|["/])*', re.DOTALL)
_COMMENT = re.compile(
    rb'"(?:[^"\\\n]|\\.)*"|' + rb"'(?:[^'\\\n]|\\.)*'" + rb"|//[^\n]*|/\*.*?\*/", re.DOTALL
)
_DIRECT = re.compile(_GAP + rb'(?:<([^>\n]+)>|"([^"\n]+)")', re.DOTALL)
_OPERAND = re.compile(rb'<([^<>"\n]+)>|"([^"\n]+)"')
_DEFINE = re.compile(rb"\s*(" + WORD.pattern + rb")(?:\(([^)]*)\))?(.*)", re.DOTALL)
_CALL = re.compile(rb"(" + WORD.pattern + rb")\s*\(")
_ASSEMBLED = re.compile(rb'\bincbin\b|\.include\b(?=\s*(?:\\?["\']|\\))')
LONGEST = 4096
TOO_LONG = b"\0"
"""Stands for the body of a macro that is longer than any that makes an operand."""
_INCLUDES = frozenset((b"include_next", b"include", b"import", b"embed"))
_BINARIES = (b"\x7fELF", b"!<arch>\n")
_NO_CALLS = frozenset((b"defined", b"__is_identifier"))


@dataclass(frozen=True, slots=True)
class Scan:
    """What one file may open, and what it defines.

    `operands` are paths as written. `uses` are texts that become an operand once macros are
    expanded; `calls` are calls in conditions, which may lead to a `__has_include`. `defines` are
    all macros, as (name, parameters or None, body). `loose` are bracketed texts in macro bodies:
    unlike a direct operand, macros are expanded in them. `whole` says why the file's own text does
    not tell all it opens, where that is so.
    """

    operands: tuple[bytes, ...] = ()
    uses: tuple[bytes, ...] = ()
    calls: tuple[bytes, ...] = ()
    defines: tuple[tuple[bytes, tuple[bytes, ...] | None, bytes], ...] = ()
    loose: tuple[bytes, ...] = ()
    whole: bytes = b""


class _Found:
    """What turned up so far, in order, each once."""

    def __init__(self) -> None:
        self.operands: dict[bytes, None] = {}
        self.uses: dict[bytes, None] = {}
        self.calls: dict[bytes, None] = {}
        self.defines: dict[tuple[bytes, tuple[bytes, ...] | None, bytes], None] = {}
        self.loose: dict[bytes, None] = {}


def scan(text: bytes) -> Scan:
    """Everything that `text` may ask for.

    Programs and archives have nothing to say: whoever included one could not be compiled.
    """
    if text.startswith(_BINARIES):
        return Scan()
    found = _Found()
    for word, line in _directives(text):
        if word == b"define":
            _take_define(line, found)
        elif word in _INCLUDES:
            direct = _DIRECT.match(line)
            if direct is not None:
                found.operands[(direct[1] or direct[2]).strip()] = None
            else:
                plain = _plain(line).strip()
                if plain:
                    found.uses[plain] = None
        else:
            _take_quoted(line, found)
            if word != b"pragma":
                _take_condition(_plain(line), found)
    whole = b""
    if b"incbin" in text or b".include" in text:
        assembled = _ASSEMBLED.search(text)
        whole = b"the assembler's " + assembled[0] if assembled is not None else b""
    return Scan(
        tuple(found.operands),
        tuple(found.uses),
        tuple(found.calls),
        tuple(found.defines),
        tuple(found.loose),
        whole,
    )


def _directives(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Each directive that matters: its word, and the rest of its line, comments and all."""
    if b"\\" in text:
        text = _SPLICE.sub(b"", text)
    for head in _HEAD.finditer(text):
        rest = _REST.match(text, head.end(1))
        assert rest is not None  # it matches nothing, too
        yield head[2], rest[0]


def _plain(line: bytes) -> bytes:
    """Without comments (a quote hides what looks like one), on one line."""
    if b"/" in line:
        line = _COMMENT.sub(lambda m: b" " if m[0][:1] == b"/" else m[0], line)
    return line.replace(b"\n", b" ")


def _take_quoted(line: bytes, found: _Found) -> None:
    if b'"' in line or b"<" in line:
        for bracketed, quoted in _OPERAND.findall(line):
            found.operands[(bracketed or quoted).strip()] = None


def _take_condition(line: bytes, found: _Found) -> None:
    _take_probes(line, found, ())
    for call in _CALL.finditer(line):
        name = call[1]
        if name in _NO_CALLS or name.startswith(b"__has_"):
            continue
        end = closing(line, call.end())
        found.calls[line[call.start() : end]] = None


def _take_probes(line: bytes, found: _Found, parameters: tuple[bytes, ...]) -> None:
    """Operands of `__has_include` that a macro makes; those that a parameter makes come by way
    of `calls`."""
    for probe in PROBE.finditer(line):
        if not probe[0].endswith(b"("):
            continue
        operand = line[probe.end() : closing(line, probe.end()) - 1].strip()
        names = {p.removesuffix(b"...") or b"__VA_ARGS__" for p in parameters}
        if operand and _DIRECT.match(operand) is None and not set(WORD.findall(operand)) & names:
            found.uses[operand] = None


def asks_for_parameter(parameters: tuple[bytes, ...], body: bytes) -> bool:
    """Whether a body has a `__has_include` whose operand a parameter makes."""
    names = {p.removesuffix(b"...") or b"__VA_ARGS__" for p in parameters}
    for probe in PROBE.finditer(body):
        operand = body[probe.end() : closing(body, probe.end())]
        if not probe[0].endswith(b"(") or names & set(WORD.findall(operand)):
            return True
    return False


def closing(text: bytes, start: int) -> int:
    """The place behind the parenthesis that closes one opened before `start`; else the end."""
    depth = 1
    for at in range(start, len(text)):
        byte = text[at]
        if byte == 40:
            depth += 1
        elif byte == 41:
            depth -= 1
            if depth == 0:
                return at + 1
    return len(text)


def _parameters(text: bytes | None) -> tuple[bytes, ...] | None:
    if text is None:
        return None
    return tuple(p.strip() for p in text.split(b",") if p.strip())


def _take_define(line: bytes, found: _Found) -> None:
    match = _DEFINE.match(_plain(line))
    if match is None:
        _take_quoted(line, found)
        return
    name, parameters, body = match[1], _parameters(match[2]), match[3].strip()
    if len(body) > LONGEST:
        body = TOO_LONG
    found.defines[name, parameters, body] = None
    if b'"' in body or b"<" in body:
        _take_quoted(line, found)
        for bracketed, _ in _OPERAND.findall(body):
            if bracketed:
                found.loose[bracketed] = None
    if b"__has_" in body:
        _take_probes(body, found, parameters or ())


_NONE = b"-"


def encode(result: Scan) -> bytes:
    """A compact text of a scan, for a memo. No field holds a line break."""
    rows = [b"o\t" + o for o in result.operands]
    rows += [b"u\t" + u for u in result.uses]
    rows += [b"c\t" + c for c in result.calls]
    rows += [b"l\t" + text for text in result.loose]
    rows += [
        b"d\t" + n + b"\t" + (b",".join(p) if p is not None else _NONE) + b"\t" + b
        for n, p, b in result.defines
    ]
    if result.whole:
        rows.append(b"w\t" + result.whole)
    return b"\n".join(rows)


def decode(data: bytes) -> Scan:
    """The scan whose `encode` is `data`."""
    lists: dict[bytes, list[bytes]] = {b"o": [], b"u": [], b"c": [], b"l": []}
    defines: list[tuple[bytes, tuple[bytes, ...] | None, bytes]] = []
    whole = b""
    for row in data.split(b"\n") if data else ():
        kind, _, rest = row.partition(b"\t")
        if kind == b"d":
            name, parameters, body = rest.split(b"\t", 2)
            split = None if parameters == _NONE else _parameters(parameters)
            defines.append((name, split, body))
        elif kind == b"w":
            whole = rest
        else:
            lists[kind].append(rest)
    return Scan(
        tuple(lists[b"o"]),
        tuple(lists[b"u"]),
        tuple(lists[b"c"]),
        tuple(defines),
        tuple(lists[b"l"]),
        whole,
    )
