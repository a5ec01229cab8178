"""Operands that are made by a macro: `#include CUDA_STD_HEADER(cassert)`.

Every definition of the macro in the set counts, whichever the compiler would have used. What is
not resolved is reported, and the unit is then compiled with its whole trees.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

Definition = tuple[tuple[bytes, ...] | None, bytes]
"""Parameters (None for an object-like macro) and body."""

_DEPTH = 6
_OPERAND = re.compile(rb'\s*(?:<\s*([^<>"\n]+?)\s*>|"([^"\n]+)")\s*\Z')
_CALL = re.compile(rb"\s*([A-Za-z_]\w*)\s*(?:\((.*)\))?\s*\Z", re.DOTALL)
_WORD = re.compile(rb"[A-Za-z_]\w*")


def resolve(
    name: bytes, argument: bytes | None, known: Mapping[bytes, Sequence[Definition]]
) -> set[bytes] | None:
    """The operands that a macro use can become; None when some of them cannot be told.

    A name that nothing defines gives no operand: the preprocessor would refuse it (mostly it is a
    word of a comment), and a compile that is refused is tried again with the whole trees.
    """
    return _resolve(name, argument, known, _DEPTH)


def _resolve(
    name: bytes,
    argument: bytes | None,
    known: Mapping[bytes, Sequence[Definition]],
    depth: int,
) -> set[bytes] | None:
    found: set[bytes] = set()
    definitions = known.get(name, ())
    if not definitions:
        return found
    if depth == 0:
        return None
    for parameters, body in definitions:
        text = _substitute(parameters, argument, body)
        if text is None:
            continue  # a macro of another shape; the compiler would not expand it here
        operands = _operands(text, known, depth)
        if operands is None:
            return None
        found |= operands
    return found or None


def _operands(
    text: bytes, known: Mapping[bytes, Sequence[Definition]], depth: int
) -> set[bytes] | None:
    plain = _OPERAND.match(text)
    if plain is not None:
        return _spelled(plain[1] or plain[2], known, depth)
    call = _CALL.match(text)
    if call is not None:
        return _resolve(call[1], call[2], known, depth - 1)
    return None


def _spelled(
    path: bytes, known: Mapping[bytes, Sequence[Definition]], depth: int
) -> set[bytes] | None:
    """Words of a bracketed operand may be macros themselves (`<PREFIX/x.h>`)."""
    for word in set(_WORD.findall(path)):
        definitions = [d for d in known.get(word, ()) if d[0] is None]
        if definitions and depth > 0:
            out: set[bytes] = {path}
            for _, body in definitions:
                replaced = _replace_word(path, word, body)
                if replaced != path:
                    more = _spelled(replaced.strip(), known, depth - 1)
                    if more is None:
                        return None
                    out |= more
            return out
    return {re.sub(rb"\s+", b"", path)}


def _replace_word(text: bytes, word: bytes, by: bytes) -> bytes:
    return re.sub(rb"\b" + word + rb"\b", lambda _: by, text)


def _substitute(
    parameters: tuple[bytes, ...] | None, argument: bytes | None, body: bytes
) -> bytes | None:
    if parameters is None:
        return body if argument is None else None
    if argument is None:
        return None
    arguments = _split(argument)
    if len(arguments) != len(parameters) and not (parameters and parameters[-1] == b"..."):
        return None
    values = dict(zip(parameters, arguments, strict=False))
    text = re.sub(
        rb"#\s*([A-Za-z_]\w*)",
        lambda m: b'"' + values[m[1]] + b'"' if m[1] in values else m[0],
        re.sub(rb"\s*##\s*", b"\0", body),
    )
    text = _WORD.sub(lambda m: values.get(m[0], m[0]), text)
    return text.replace(b"\0", b"")


def _split(argument: bytes) -> list[bytes]:
    parts, depth, current = [], 0, bytearray()
    for byte in argument:
        if byte == 44 and depth == 0:
            parts.append(bytes(current).strip())
            current.clear()
            continue
        depth += (byte == 40) - (byte == 41)
        current.append(byte)
    parts.append(bytes(current).strip())
    return parts
