"""All texts that a use of macros can become, when it is not known which definitions hold.

`#include CUDA_STD_HEADER(cassert)`, `__has_include(VERSIONED(x))`: every definition of a macro
anywhere in the set counts, and so does none. What comes out is a superset of what any run of the
preprocessor makes of it; where that cannot be told, `None` says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from reprobuild.core.includes.scan import (
    ANYWHERE,
    LONGEST,
    PROBE,
    SEARCHED,
    TOO_LONG,
    WORD,
    Definition,
    closing,
)

Lookup = Callable[[bytes], Sequence[Definition]]
"""All definitions of a name; empty where there is none."""

_MOST = 64
_DEPTH = 12
_TOKEN = re.compile(rb'"(?:[^"\\\n]|\\.)*"|' + WORD.pattern + rb"|\s+|.", re.DOTALL)
_OPEN = re.compile(rb"\s*\(")
_LAST_WORD = re.compile(rb"(" + WORD.pattern + rb")\s*\Z")
BUILT_IN = re.compile(
    rb"__(?!VA_)\w*__\Z|__(?:CUDA|NVCC|STDC|cplusplus\Z)|_(?:LP64|GNU_SOURCE|REENTRANT|OPENMP)\Z"
    rb"|(?:__)?(?:linux|unix|i386|x86_64|amd64|k8)\Z"
)
"""Names that a compiler defines without any `#define` in a file."""


class _Untold(Exception):
    """More possibilities than are worth following, or a name that only the compiler knows."""


def expand(text: bytes, lookup: Lookup) -> set[bytes] | None:
    """Every text that `text` can become; None where that cannot be told."""
    try:
        return _expand(text, lookup, frozenset(), _DEPTH)
    except _Untold:
        return None


def operands(text: bytes, lookup: Lookup, *, spaces: bool = True) -> set[bytes] | None:
    """The operands (`Scan.operands`) that macros can make; None where they cannot be told.

    A text that is no operand, once it is expanded, gives none: the preprocessor would refuse it
    (mostly it is a word of a comment), and a compile that is refused is tried again with whole
    trees. `spaces` says whether any path at hand has a space in it.
    """
    first = WORD.match(text.strip())
    if first is not None and not lookup(first[0]) and not BUILT_IN.match(first[0]):
        return set()
    expanded = expand(text, lookup)
    if expanded is None:
        return None
    found: set[bytes] = set()
    for result in expanded:
        paths = _paths(result, lookup, spaces)
        if paths is None:
            return None
        found |= paths
    return found


def probed(text: bytes, lookup: Lookup, *, spaces: bool = True) -> set[bytes] | None:
    """The operands of every `__has_include` that a call in a condition can lead to."""
    expanded = expand(text, lookup)
    if expanded is None:
        return None
    found: set[bytes] = set()
    for result in expanded:
        for probe in PROBE.finditer(result):
            if probe[0].endswith(b"("):
                operand = result[probe.end() : closing(result, probe.end()) - 1]
                paths = _paths(operand, lookup, spaces)
                if paths is None:
                    return None
                found |= paths
    return found


def _paths(text: bytes, lookup: Lookup, spaces: bool) -> set[bytes] | None:
    text = text.strip()
    if text[:1] == b'"':
        end = text.find(b'"', 1)
        # Beside which file it is looked for is not known of a macro.
        return {ANYWHERE + text[1:end]} if end > 1 else set()
    if text[:1] != b"<":
        return set()
    path, closed, _ = text[1:].partition(b">")
    if not closed:
        return set()
    for word in WORD.findall(path):
        if BUILT_IN.match(word) and not lookup(word):
            return None
    # Which gaps the compiler keeps depends on where the tokens came from.
    bare = re.sub(rb"\s+", b"", path)
    gaps = len(re.findall(rb"\s+", path))
    if not gaps or not spaces:
        return {SEARCHED + bare}
    if gaps > 1:
        return None
    return {SEARCHED + p for p in (bare, re.sub(rb"\s+", b" ", path), path.strip())}


def _expand(text: bytes, lookup: Lookup, hidden: frozenset[bytes], depth: int) -> set[bytes]:
    if depth == 0 or len(text) > LONGEST or TOO_LONG in text:
        raise _Untold
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in hidden or not WORD.match(token):
            continue
        definitions = lookup(token)
        if definitions:
            break
    else:
        return {text}
    head, at = text[: match.start()], match.end()
    rest = text[at:]
    inner = hidden | {token}
    results = _times({head + token}, _expand(rest, lookup, hidden, depth - 1))
    open_ = _OPEN.match(rest)
    end = closing(rest, open_.end()) if open_ is not None else 0
    for parameters, body in definitions:
        if parameters is None:
            made = _expand(_pasted(body), lookup, inner, depth - 1)
            results |= _continued(head, made, rest, lookup, hidden, depth)
        elif open_ is not None:
            arguments = _split(rest[open_.end() : end - 1])
            for written in _substituted(parameters, arguments, body, lookup, hidden, depth):
                made = _expand(written, lookup, inner, depth - 1)
                results |= _continued(head, made, rest[end:], lookup, hidden, depth)
        if len(results) > _MOST:
            raise _Untold
    return results


def _continued(
    head: bytes,
    made: set[bytes],
    rest: bytes,
    lookup: Lookup,
    hidden: frozenset[bytes],
    depth: int,
) -> set[bytes]:
    """What a replacement and the text behind it become: the name of a macro at its end takes its
    arguments from there."""
    results: set[bytes] = set()
    tails = _expand(rest, lookup, hidden, depth - 1)
    for text in made:
        results |= _times({head + text}, tails)
        name = _LAST_WORD.search(text)
        if name is not None and _OPEN.match(rest) and lookup(name[1]):
            before = head + text[: name.start()]
            results |= _times({before}, _expand(name[1] + rest, lookup, hidden, depth - 1))
    return results


def _times(heads: set[bytes], tails: set[bytes]) -> set[bytes]:
    if len(heads) * len(tails) > _MOST:
        raise _Untold
    return {head + tail for head in heads for tail in tails}


def _pasted(body: bytes) -> bytes:
    return re.sub(rb"\s*##\s*", b"", body)


def _substituted(
    parameters: Sequence[bytes],
    arguments: Sequence[bytes],
    body: bytes,
    lookup: Lookup,
    hidden: frozenset[bytes],
    depth: int,
) -> Iterable[bytes]:
    """The body with arguments in place: `#` and `##` take them as written, all else expanded."""
    names = list(parameters)
    values = list(arguments)
    if names and names[-1].endswith(b"..."):
        names[-1] = names[-1][:-3].strip() or b"__VA_ARGS__"
        rest = b", ".join(values[len(names) - 1 :])
        values = [*values[: len(names) - 1], rest]
    if len(values) != len(names):
        if names or values not in ([], [b""]):
            return ()
        values = []
    written = dict(zip(names, values, strict=True))
    expanded = {
        name: {value, *_expand(value, lookup, hidden, depth - 1)} for name, value in written.items()
    }
    text = re.sub(
        rb"(?<!#)#(?!#)\s*(" + WORD.pattern + rb")",
        lambda m: b'"' + _spelled(written[m[1]]) + b'"' if m[1] in written else m[0],
        body,
    )
    results = {b""}
    for token in _TOKEN.findall(text):
        choices = expanded.get(token, {token})
        results = {head + choice for head in results for choice in choices}
        if len(results) > _MOST:
            raise _Untold
    return {_pasted(result) for result in results}


def _spelled(argument: bytes) -> bytes:
    """As `#` spells an argument: gaps between tokens become one space."""
    return re.sub(rb"\s+", b" ", argument.strip())


def _split(text: bytes) -> list[bytes]:
    """Arguments at the commas of the outermost level."""
    parts: list[bytes] = []
    depth, start, quoted = 0, 0, False
    for at, byte in enumerate(text):
        if byte == 34 and text[at - 1 : at] != b"\\":
            quoted = not quoted
        elif quoted:
            continue
        elif byte == 44 and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
        else:
            depth += (byte == 40) - (byte == 41)
    parts.append(text[start:].strip())
    return parts
