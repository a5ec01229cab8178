"""Random trees of headers: whatever a unit may ask for, the cut root and the whole one are one.

Compared with the preprocessor of this machine, over all the ways in which a path can be asked for:
quoted, bracketed, `#include_next`, `__has_include`, macro operands, links, `..`.
"""

from __future__ import annotations

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from reprobuild.core.includes.scan import decode, encode, scan
from support.preprocess import check_equal, cut, needs_gcc, preprocessed
from support.trees import Given

NAMES = ("a.h", "b.h", "c.h", "sub/a.h", "sub/b.h", "deep/sub/a.h", "../a.h", "sub/../b.h", "l/a.h")
PLACES = ("", "one/", "two/", "two/sub/", "one/sub/", "one/deep/sub/", "two/deep/")
FILES = tuple(place + name for place in PLACES for name in ("a.h", "b.h", "c.h"))
LINKS = ("l", "one/l", "two/sub/l", "one/m.h")
TARGETS = (".", "..", "sub", "../two", "../two/sub", "../one", "a.h", "../two/c.h", "nowhere", "l")

MACROS = st.sampled_from(
    [
        "#define N <{0}>",
        '#define N "{0}"',
        "#define N H({0})\n#define H(x) <x>",
        "#define S(x) #x\n#define X(x) S(x)\n#define N X({0})",
        "#define D sub\n#define N <D/a.h>",
        "#define P(a, b) <a##b.h>\n#define N P(,a)",
    ]
)
ASKS = st.sampled_from(
    [
        '#if __has_include("{0}")\n#include "{0}"\n#endif',
        "#if __has_include(<{0}>)\n#include <{0}>\n#endif",
        "#if __has_include(<{0}>)\nint has_{1};\n#endif",
        "#ifdef N\n#if __has_include(N)\nint has_n_{1};\n#include N\n#endif\n#endif",
        "#define HAS(x) __has_include(<x>)\n#if HAS({0})\nint asked_{1};\n#endif",
        "#if __has_include_next(<{0}>)\n#include_next <{0}>\n#endif",
        "/* #include */ # /* */ include_\\\nnext <a.h>",
    ]
)


@st.composite
def texts(draw: st.DrawFn, last: bool = False) -> bytes:
    """A header that includes itself at most once and fails only where a header is missing."""
    number = draw(st.integers(0, 10**6))
    lines = [f"#ifndef G{number}", f"#define G{number}", f"int text_{number};"]
    if draw(st.booleans()):
        lines.append("#undef N\n" + draw(MACROS).format(draw(st.sampled_from(NAMES))))
    for _ in range(draw(st.integers(0, 3))):
        ask = draw(ASKS)
        if "include_" in ask and "has" not in ask and draw(st.integers(0, 4)):
            continue  # it mostly fails, and tells little then
        lines.append(ask.format(draw(st.sampled_from(NAMES)), draw(st.integers(0, 999))))
    return "\n".join([*lines, "#endif", ""]).encode()


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Given]:
    """A unit and some headers and links around it."""
    files: dict[str, Given] = {"main.cu": draw(texts())}
    for path in draw(st.sets(st.sampled_from(FILES), min_size=2, max_size=8)):
        files[path] = draw(texts())
    for path in draw(st.sets(st.sampled_from(LINKS), max_size=2)):
        files[path] = draw(st.sampled_from(TARGETS))
    return files


@needs_gcc
@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=False
)
@given(trees(), st.sampled_from((b"exit 0\n", b"exit 1\n")))
def test_the_cut_root_is_the_whole_one_to_a_compiler(
    files: dict[str, Given], search: bytes
) -> None:
    made = cut(files, search=search)
    event("whole" if made.note else "cut")
    event(f"accepted: {preprocessed(made, made.whole)[0]}")
    check_equal(made)


@needs_gcc
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trees(), st.data())
def test_equal_cut_roots_preprocess_alike(files: dict[str, Given], data: st.DataObject) -> None:
    """What reuse rests on: a change that leaves the cut root alone leaves the text alone."""
    path = data.draw(st.sampled_from(FILES))
    changed = {**files, path: data.draw(texts())}
    if data.draw(st.booleans()):
        changed = {name: text for name, text in files.items() if name != path}
    before, after = cut(files), cut(changed)
    event("same" if before.tree == after.tree else "other")
    if before.tree == after.tree:
        assert preprocessed(before, before.whole) == preprocessed(after, after.whole)


@given(st.binary(max_size=400))
def test_a_scan_is_read_back_as_it_was(noise: bytes) -> None:
    found = scan(b'#define A(x) <x> /*\n*/\n#include A\n#if F("\n' + noise)
    assert decode(encode(found)) == found


DIRECTIVES = st.lists(
    st.sampled_from(
        [b"#", b"include", b" ", b"<", b">", b'"', b"a.h", b"\n", b"\\\n", b"/*", b"*/", b"//",
         b"define", b"X", b"(", b")", b",", b"##", b"__has_include", b"if", b"'", b"\r\n", b"%:",
         b"#if 0\n", b"\n#endif\n", b'R"(', b')"', b"1'0", b'#include "a.h"\n']
    ),
    max_size=40,
).map(b"".join)  # fmt: skip


@settings(max_examples=300)
@given(DIRECTIVES)
def test_a_scan_is_read_back_whatever_the_tokens(text: bytes) -> None:
    found = scan(text)
    assert decode(encode(found)) == found


@needs_gcc
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(DIRECTIVES)
def test_tokens_in_any_order(text: bytes) -> None:
    """A `#include` that the compiler sees, the scan sees."""
    files: dict[str, Given] = {"main.cu": text + b"\n", "a.h": b"int a;\n", "one/a.h": b"int b;\n"}
    made = cut(files)
    whole_ok, whole = preprocessed(made, made.whole)
    if whole_ok and not made.note:
        ok, cut_text = preprocessed(made, made.tree)
        assert ok
        assert cut_text == whole
