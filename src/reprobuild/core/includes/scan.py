"""What one source file may ask the preprocessor to open.

The scan is a superset by construction: it looks at every directive and does not evaluate
conditions, so what an `#if` skips only makes the set larger. Comments are left out, since a `#` in
one begins nothing; that takes knowing strings, raw strings and numbers as the compiler does.

Sources: C++17 [cpp.include], [cpp.cond] and [lex.phases] (line splicing comes first, a comment is
a space); GCC's `#include_next`, `#import`, `#embed`, `#pragma GCC dependency` and digraphs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Definition = tuple[tuple[bytes, ...] | None, bytes]
"""Parameters of a macro (None for an object-like one) and its body, without comments."""

WORD = re.compile(rb"[A-Za-z_$\x80-\xff][\w$\x80-\xff]*")
PROBE = re.compile(rb"__has_(?:include(?:_next)?|embed)\b\s*\(?")

SEARCHED, QUOTED, ANYWHERE = b"<", b'"', b"*"
"""The first letter of an operand says where the compiler looks: in its list of directories, beside
the file that asks and then in that list, or where it cannot be told."""

_SPLICE = re.compile(rb"\\[ \t\v\f]*\r?\n")
_RAW = rb'(?<![\w$])(?:u8|[uUL])?R"([^()\\\s"]{0,16})\(.*?\)\1"'
# Tokens in which what looks like a comment, or like the beginning of a string, is none; and
# comments. A string that is not closed takes the rest of its line, as GCC reads it.
_TOKENS = re.compile(
    rb"(?P<block>/\*.*?\*/)|(?P<line>//[^\n]*)|"
    + _RAW
    + rb'|"(?:[^"\\\n]|\\[^\n])*"?'
    + rb"|(?<![\w$.])\.?\d(?:[eEpP][+-]|'?[\w.])*"
    + rb"|'(?:[^'\\\n]|\\[^\n])*'?"
    + rb"|(?:#|%:)[ \t]*(?:include(?:_next)?|import|embed)[ \t]*<[^>\n]*>"
    + rb"|__has_(?:include(?:_next)?|embed)[ \t]*\([ \t]*<[^>\n]*>",
    re.DOTALL,
)
_DIRECTIVE = re.compile(
    rb"^(?:\xef\xbb\xbf)?[ \t\v\f\r]*(?:#|%:|\?\?=)[ \t\v\f]*"
    rb"(include_next|include|import|embed|define|if|elif|pragma)(?![\w$])([^\n]*)",
    re.MULTILINE,
)
_DIRECT = re.compile(rb'\s*(?:<([^>\n]+)>|"([^"\n]+)")')
_OPERAND = re.compile(rb'<([^<>"\n]+)>|"([^"\n]+)"')
_DEFINE = re.compile(rb"\s*(" + WORD.pattern + rb")(?:\(([^)]*)\))?(.*)", re.DOTALL)
_CALL = re.compile(rb"(" + WORD.pattern + rb")\s*\(")
_ASSEMBLED = re.compile(rb'\bincbin\b|\.include\b(?=\s*(?:\\?["\']|\\))')
LONGEST = 4096
TOO_LONG = b"\0"
"""Stands for the body of a macro that is longer than any that makes an operand."""
_INCLUDES = frozenset((b"include_next", b"include", b"import", b"embed"))
_BLOCK = re.compile(rb"/\*.*?\*/", re.DOTALL)
_BINARIES = (b"\x7fELF", b"!<arch>\n")
_NO_CALLS = frozenset((b"defined", b"__is_identifier"))


@dataclass(frozen=True, slots=True)
class Scan:
    """What one file may open, and what it defines.

    `operands` are paths as written, behind `SEARCHED` or `QUOTED`. `uses` are texts that become an
    operand once macros are expanded; `calls` are calls in conditions, which may lead to a
    `__has_include`. `defines` are all macros, as (name, parameters or None, body). `whole` says why
    the file's own text does not tell all it opens, where that is so.
    """

    operands: tuple[bytes, ...] = ()
    uses: tuple[bytes, ...] = ()
    calls: tuple[bytes, ...] = ()
    defines: tuple[tuple[bytes, tuple[bytes, ...] | None, bytes], ...] = ()
    whole: bytes = b""


class _Found:
    """What turned up so far, in order, each once."""

    def __init__(self) -> None:
        self.operands: dict[bytes, None] = {}
        self.uses: dict[bytes, None] = {}
        self.calls: dict[bytes, None] = {}
        self.defines: dict[tuple[bytes, tuple[bytes, ...] | None, bytes], None] = {}


def scan(text: bytes) -> Scan:
    """Everything that `text` may ask for.

    Programs and archives have nothing to say: whoever included one could not be compiled.
    """
    if text.startswith(_BINARIES):
        return Scan()
    found = _Found()
    for directive in _DIRECTIVE.finditer(without_comments(text)):
        word, line = directive[1], directive[2]
        if word == b"define":
            _take_define(line, found)
        elif word in _INCLUDES:
            direct = _DIRECT.match(line)
            if direct is not None:
                found.operands[_marked(direct)] = None
            elif line.strip():
                found.uses[line.strip()] = None
        elif word == b"pragma":
            for operand in _OPERAND.finditer(line):
                found.operands[_marked(operand)] = None
        elif b"(" in line:
            _take_condition(line, found)
    whole = b""
    if b"incbin" in text or b".include" in text:
        assembled = _ASSEMBLED.search(text)
        whole = b"the assembler's " + assembled[0] if assembled is not None else b""
    return Scan(
        tuple(found.operands), tuple(found.uses), tuple(found.calls), tuple(found.defines), whole
    )


def _marked(match: re.Match[bytes]) -> bytes:
    return SEARCHED + match[1] if match[1] is not None else QUOTED + match[2]


def without_comments(text: bytes) -> bytes:
    """Spliced lines joined, then comments replaced by a space: what directives are read from.

    Nothing that is no comment goes. Splices in a raw string stay there for a compiler; a file
    that has both keeps all its comments, which makes the set larger at worst.
    """
    spliced = _SPLICE.sub(b"", text) if b"\\" in text else text
    if len(spliced) != len(text) and b'R"' in text:
        # Twice: as the compiler may see it, with comments, too, so that no directive is lost.
        return spliced + b"\n" + _SPLICE.sub(b"", _BLOCK.sub(b" ", text))
    return _TOKENS.sub(_comment, spliced)


def _comment(match: re.Match[bytes]) -> bytes:
    if match["block"] is not None:
        return b" "
    return b"" if match["line"] is not None else match[0]


def _take_condition(line: bytes, found: _Found) -> None:
    _take_probes(line, found, None)
    for call in _CALL.finditer(line):
        name = call[1]
        if name in _NO_CALLS or name.startswith(b"__has_"):
            continue
        found.calls[line[call.start() : closing(line, call.end())]] = None


def _take_probes(line: bytes, found: _Found, parameters: tuple[bytes, ...] | None) -> None:
    """Operands of `__has_include`: literal ones of a condition stand as they are; those of a
    macro's body (`parameters` given) are expanded where they are used, and those that a parameter
    makes come by way of `calls`."""
    for probe in PROBE.finditer(line):
        if not probe[0].endswith(b"("):
            continue
        operand = line[probe.end() : closing(line, probe.end()) - 1].strip()
        direct = _DIRECT.match(operand)
        if direct is not None:
            found.operands[_marked(direct)] = None
        names = {p.removesuffix(b"...") or b"__VA_ARGS__" for p in parameters or ()}
        if not operand or names & set(WORD.findall(operand)):
            continue
        if direct is None or parameters is not None:
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
    match = _DEFINE.match(line)
    if match is None:
        return
    name, parameters, body = match[1], _parameters(match[2]), match[3].strip()
    if len(body) > LONGEST:
        body = TOO_LONG
    found.defines[name, parameters, body] = None
    if b"__has_" in body:
        _take_probes(body, found, parameters or ())


_NONE = b"-"


def encode(result: Scan) -> bytes:
    """A compact text of a scan, for a memo. No field holds a line break."""
    rows = [b"o\t" + o for o in result.operands]
    rows += [b"u\t" + u for u in result.uses]
    rows += [b"c\t" + c for c in result.calls]
    rows += [
        b"d\t" + n + b"\t" + (b",".join(p) if p is not None else _NONE) + b"\t" + b
        for n, p, b in result.defines
    ]
    if result.whole:
        rows.append(b"w\t" + result.whole)
    return b"\n".join(rows)


def decode(data: bytes) -> Scan:
    """The scan whose `encode` is `data`."""
    lists: dict[bytes, list[bytes]] = {b"o": [], b"u": [], b"c": []}
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
        whole,
    )
