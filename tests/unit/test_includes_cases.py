"""Ways to include a file, each held against the preprocessor of this machine.

For every case: the named files are in the cut root (or the note says why it is whole), and the
preprocessor makes one text of both.
"""

from __future__ import annotations

import pytest

from support.preprocess import check_equal, cut, needs_gcc, preprocessed
from support.trees import Given

pytestmark = needs_gcc

# name: (files, paths that must be left, paths that may not be left)
CASES: dict[str, tuple[dict[str, Given], set[str], set[str]]] = {
    "quoted beside the includer": (
        {"main.cu": b'#include "a/x.h"\n', "a/x.h": b'#include "y.h"\n', "a/y.h": b"int y;\n",
         "README": b"nothing\n", "two/z.h": b""},
        {"a/x.h", "a/y.h"}, {"README", "two/z.h"},
    ),
    "a bracket is not looked for beside the includer, nor in directories that are not searched": (
        {"main.cu": b"#include <x.h>\n", "x.h": b"int here;\n", "three/x.h": b"int three;\n",
         "two/x.h": b"int two;\n", "two/deep/x.h": b"int deep;\n"},
        {"two/x.h"}, {"x.h", "three/x.h", "two/deep/x.h"},
    ),
    "a quote is looked for beside the includer and in what is searched": (
        {"main.cu": b'#include "a/x.h"\n', "a/x.h": b'#include "y.h"\n', "a/y.h": b"int a;\n",
         "two/y.h": b"int two;\n", "y.h": b"int top;\n", "three/y.h": b"int three;\n"},
        {"a/x.h", "a/y.h", "two/y.h"}, {"y.h", "three/y.h"},
    ),
    "twins ask beside themselves": (
        {"main.cu": b'#include "a/x.h"\n#include "b/x.h"\n', "a/x.h": b'#include "y.h"\n',
         "b/x.h": b'#include "y.h"\n', "a/y.h": b"int a;\n", "b/y.h": b"int b;\n"},
        {"a/y.h", "b/y.h"}, set(),
    ),
    "a directory that is searched and is a link": (
        {"main.cu": b"#include <x.h>\n", "one": "real/deep", "real/deep/x.h": b'#include "y.h"\n',
         "real/deep/y.h": b"int y;\n", "real/x.h": b"int not_searched;\n"},
        {"one", "real/deep/x.h", "real/deep/y.h"}, {"real/x.h"},
    ),
    "a quote in a file that is a link, beside the link": (
        {"main.cu": b"#include <x.h>\n", "one/x.h": "../real/z.h", "one/y.h": b"int one;\n",
         "real/z.h": b'#include "y.h"\n', "real/y.h": b"int real;\n"},
        {"one/x.h", "one/y.h", "real/z.h"}, set(),
    ),
    "a quote that a macro makes, in a header elsewhere": (
        {"main.cu": b'#define Y "y.h"\n#include "a/x.h"\n', "a/x.h": b"#include Y\n",
         "a/y.h": b"int a;\n"},
        {"a/x.h", "a/y.h"}, set(),
    ),
    "a name with a space before it": (
        {"main.cu": b'#if __has_include(" x.h")\nint spaced;\n#endif\n', " x.h": b"", "x.h": b""},
        {" x.h"}, {"x.h"},
    ),
    "a file that would shadow": (
        {"main.cu": b"#include <x.h>\n", "two/x.h": b"int two;\n", "one/x.h": b"int one;\n"},
        {"one/x.h", "two/x.h"}, set(),
    ),
    "include_next": (
        {"main.cu": b"#include <x.h>\n", "one/x.h": b"#include_next <x.h>\n", "two/x.h": b"int t;"},
        {"one/x.h", "two/x.h"}, set(),
    ),
    "probed and absent, then there": (
        {"main.cu": b"#if __has_include(<x.h>)\nint there;\n#endif\n", "two/x.h": b"",
         "one/n": b""},
        {"two/x.h"}, {"one/n"},
    ),
    "probed by a macro of its operand": (
        {"main.cu": b"#define H <x.h>\n#if __has_include(H)\nint there;\n#endif\n", "two/x.h": b""},
        {"two/x.h"}, set(),
    ),
    "probed by a macro with a parameter": (
        {"main.cu": b"#define HAS(n) __has_include(<n.h>)\n#if HAS(x)\nint there;\n#endif\n",
         "two/x.h": b"", "two/n.h": b""},
        {"two/x.h"}, set(),
    ),
    "probed by a macro of a macro": (
        {"main.cu": b"#define HAS(n) __has_include(n)\n#define ASK(n) (1 && HAS(<n/x.h>))\n"
                    b"#if ASK(deep)\nint there;\n#endif\n", "two/deep/x.h": b"", "two/x.h": b""},
        {"two/deep/x.h"}, set(),
    ),
    "probed by another name of __has_include": (
        {"main.cu": b"#define ASK __has_include\n#define X <x.h>\n#if ASK(X)\nint there;\n#endif\n",
         "two/x.h": b""},
        {"two/x.h"}, set(),
    ),
    "a macro operand": (
        {"main.cu": b"#define STD(h) <sub/h>\n#include STD(x.h)\n", "two/sub/x.h": b"int x;\n"},
        {"two/sub/x.h"}, set(),
    ),
    "a macro operand pasted together": (
        {"main.cu": b"#define CAT(a, b) <a##b.h>\n#include CAT(x, y)\n", "one/xy.h": b"int xy;\n"},
        {"one/xy.h"}, set(),
    ),
    "a macro operand spelled from an expanded argument": (
        {"main.cu": b"#define STR(x) #x\n#define XSTR(x) STR(x)\n#define NAME one/x.h\n"
                    b"#include XSTR(NAME)\n", "one/x.h": b"int x;\n", "NAME": b""},
        {"one/x.h"}, set(),
    ),
    "a macro's name as a macro's body": (
        {"main.cu": b"#define F G\n#define G(x) <x.h>\n#include F(x)\n", "one/x.h": b"int x;\n"},
        {"one/x.h"}, set(),
    ),
    "brackets that are macros": (
        {"main.cu": b"#define LT <\n#define GT >\n#include LT x.h GT\n", "one/x.h": b"int x;\n"},
        set(), set(),
    ),
    "a directory that is a macro": (
        {"main.cu": b"#define DIR sub\n#define H <DIR/x.h>\n#include H\n",
         "two/sub/x.h": b"int sub;\n", "two/DIR/x.h": b"int dir;\n"},
        {"two/sub/x.h"}, set(),
    ),
    "a probe whose directory is a macro": (
        {"main.cu": b"#define DIR sub\n#define H __has_include(<DIR/x.h>)\n#if H\nint x;\n#endif\n",
         "two/sub/x.h": b""},
        {"two/sub/x.h"}, set(),
    ),
    "a number that is a macro": (
        {"main.cu": b"#define V 12\n#define H(v) <x-v.h>\n#define W(v) H(v)\n#include W(V)\n",
         "one/x-12.h": b"int x;\n"},
        {"one/x-12.h"}, set(),
    ),
    "a name of the compiler's own": (
        {"main.cu": b"#define H <x/__GNUC__.h>\n#if __has_include(H)\nint x;\n#endif\n",
         "one/x/12.h": b"int x;\n"},
        set(), set(),
    ),
    "itself": (
        {"main.cu": b"#ifndef A\n#define A\n#include __FILE__\nint a;\n#endif\n"}, set(), set(),
    ),
    "definitions that exclude each other": (
        {"main.cu": b"#if 1\n#define H <a.h>\n#else\n#define H <b.h>\n#endif\n#include H\n",
         "one/a.h": b"int a;\n", "one/b.h": b"int b;\n"},
        {"one/a.h", "one/b.h"}, set(),
    ),
    "a definition in another file": (
        {"main.cu": b'#include "names.h"\n#include NAME\n', "names.h": b"#define NAME <x.h>\n",
         "two/x.h": b"int x;\n"},
        {"names.h", "two/x.h"}, set(),
    ),
    "up and down again": (
        {"main.cu": b'#include "a/b/../x.h"\n', "a/x.h": b"int x;\n", "a/b/README": b""},
        {"a/x.h"}, set(),
    ),
    "up through a link": (
        {"main.cu": b'#include "link/../x.h"\n', "link": "far/below", "far/below/n": b"",
         "far/x.h": b"int far;\n", "x.h": b"int near;\n"},
        {"far/x.h", "link"}, set(),
    ),
    "a directory that is a link": (
        {"main.cu": b"#include <name/x.h>\n", "one/name": "../real", "real/x.h": b"int x;\n"},
        {"one/name", "real/x.h"}, set(),
    ),
    "a file that is a link": (
        {"main.cu": b"#include <x.h>\n", "one/x.h": "../a/b/y.h", "a/b": "../c",
         "c/y.h": b"int y;"},
        {"one/x.h", "a/b", "c/y.h"}, set(),
    ),
    "a loop of links": (
        {"main.cu": b'#include "l/l/l/x.h"\n', "l": ".", "x.h": b"int x;\n", "m": "n", "n": "m"},
        {"l", "x.h", "m", "n"}, set(),
    ),
    "a link beyond the top": (
        {"main.cu": b'#include "x.h"\n', "x.h": "../../../../../../etc/hostname"}, {"x.h"}, set(),
    ),
    "a header that is a directory": (
        {"main.cu": b"#include <x.h>\n", "one/x.h/inside": b"", "two/x.h": b"int x;\n"},
        {"two/x.h"}, {"one/x.h/inside"},
    ),
    "commented, spliced, digraphs": (
        {"main.cu": b"%: /* one\n two */ inc\\\nlude /* three */ <x.h> // four\n# /**/ include \\\n"
                    b'"y.h"\n', "one/x.h": b"int x;\n", "y.h": b"int y;\n"},
        {"one/x.h", "y.h"}, set(),
    ),
    "a comment that a string seems to begin": (
        {"main.cu": b'const char* s = "#/*";\n#include "x.h"\n#define S "/*" \n#include "y.h"\n'
                    b"/* */ int z;\n", "x.h": b"int x;\n", "y.h": b"int y;\n"},
        {"x.h", "y.h"}, set(),
    ),
    "an operand with a comment in it": (
        {"main.cu": b'#include "a/*b.h"\n#include <c//d.h>\nint e; /* */\n',
         "a/*b.h": b"int ab;\n", "one/c/d.h": b"int cd;\n"},
        {"a/*b.h", "one/c/d.h"}, set(),
    ),
    "a macro with a quoted comment behind it": (
        {"main.cu": b'#define H <x.h>\n#include H // see "y.h"\n', "one/x.h": b"int x;\n",
         "y.h": b""},
        {"one/x.h"}, set(),
    ),
    "carriage returns and a mark at the beginning": (
        {"main.cu": b'\xef\xbb\xbf#include "x.h"\r\n#define H "y.h"\r\n#include H\r\n',
         "x.h": b"int x;\r\n", "y.h": b"int y;\r\n"},
        {"x.h", "y.h"}, set(),
    ),
    "names with spaces, and not in ASCII": (
        {"main.cu": '#include "a b.h"\n#include <ü/é.h>\n'.encode(), "a b.h": b"int a;\n",
         "one/ü/é.h": b"int b;\n"},
        {"a b.h", "one/ü/é.h"}, set(),
    ),
    "a pragma that looks at a file": (
        {"main.cu": b'#pragma GCC dependency "x.txt"\nint x;\n', "x.txt": b""}, {"x.txt"}, set(),
    ),
    "a precompiled header": (
        {"main.cu": b'#include "x.h"\n', "x.h": b"int x;\n", "x.h.gch": b"gpch",
         "y.h.gch": b"gpch"},
        {"x.h", "x.h.gch"}, {"y.h.gch"},
    ),
    "a directory of precompiled headers": (
        {"main.cu": b'#include "x.h"\n', "x.h": b"int x;\n", "x.h.gch/one": b"gpch"},
        {"x.h", "x.h.gch/one"}, set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_ways_to_include(case: str) -> None:
    files, there, gone = CASES[case]
    made = cut(files)
    check_equal(made)
    assert there <= made.names
    if not made.note:
        assert not gone & made.names


def test_the_common_ways_need_no_whole_tree() -> None:
    whole = {case for case, (files, _, _) in CASES.items() if cut(files).note}
    assert whole == {"a name of the compiler's own"}


def test_what_is_included_before_anything_else() -> None:
    files: dict[str, Given] = {"main.cu": b"int m;\n", "one/pre.h": b"int pre;\n", "one/n.h": b""}
    made = cut(files, starts=["pre.h"])
    assert "one/pre.h" in made.names
    assert "one/n.h" not in made.names
    check_equal(made, flags=["-include", "pre.h"])


def test_macros_of_the_command_line() -> None:
    files: dict[str, Given] = {"main.cu": b"#include CONFIG\n", "one/c.h": b"int c;\n"}
    made = cut(files, defines=["CONFIG=<c.h>"])
    assert "one/c.h" in made.names
    check_equal(made, flags=["-DCONFIG=<c.h>"])


@pytest.mark.parametrize("text", [b'asm(".incbin \\"x.bin\\"");', b'asm(".include \\"x.s\\"");'])
def test_files_that_the_assembler_reads_need_the_whole_tree(text: bytes) -> None:
    made = cut({"main.cu": text, "x.bin": b"1", "x.s": b"2"})
    assert made.tree == made.whole
    assert "assembler" in made.note


@pytest.mark.parametrize("root", ["/proc/self/root", "../../proc/1/cwd", "/dev/fd/3"])
def test_ways_around_need_the_whole_tree(root: str) -> None:
    made = cut({"main.cu": f'#if __has_include("{root}/x.h")\n#endif\n'.encode(), "x.h": b""})
    assert made.tree == made.whole


CHANGES: dict[str, tuple[dict[str, Given], dict[str, Given | None]]] = {
    "a new file that shadows": (
        {"main.cu": b"#include <x.h>\n", "two/x.h": b"int two;\n"}, {"one/x.h": b"int one;\n"},
    ),
    "one that shadows what the compiler itself includes": (
        {"main.cu": b"int m;\n"}, {"one/crt/host_runtime.h": b"int h;\n"},
    ),
    "a file that was probed and absent": (
        {"main.cu": b"#if __has_include(<x.h>)\nint x;\n#endif\n"}, {"two/x.h": b""},
    ),
    "a file that is gone": (
        {"main.cu": b"#include <x.h>\n", "one/x.h": b"int one;\n", "two/x.h": b"int two;\n"},
        {"one/x.h": None},
    ),
    "a link that leads elsewhere": (
        {"main.cu": b"#include <x.h>\n", "one/x.h": "../a", "a": b"int a;\n", "b": b"int b;\n"},
        {"one/x.h": "../b"},
    ),
    "a directory that becomes a link": (
        {"main.cu": b"#include <n/x.h>\n", "one/n/x.h": b"int a;\n", "other/x.h": b"int b;\n"},
        {"one/n/x.h": None, "one/n": "../other"},
    ),
    "a header that becomes a directory": (
        {"main.cu": b"#include <x.h>\n", "one/x.h": b"int a;\n", "two/x.h": b"int b;\n"},
        {"one/x.h": None, "one/x.h/inside": b""},
    ),
    "a macro that names another file": (
        {"main.cu": b'#include "n.h"\n#include N\n', "n.h": b"#define N <a.h>\n",
         "one/a.h": b"int a;\n", "one/b.h": b"int b;\n"},
        {"n.h": b"#define N <b.h>\n"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGES, ids=str)
def test_what_must_be_compiled_again(case: str) -> None:
    files, changes = CHANGES[case]
    starts = ["crt/host_runtime.h"]
    before = cut(files, starts=starts)
    changed = {**files, **{n: g for n, g in changes.items() if g is not None}}
    after = cut({n: g for n, g in changed.items() if changes.get(n, g) is not None}, starts=starts)
    assert before.tree != after.tree
    check_equal(after)
    if "itself" not in case:
        assert preprocessed(before, before.tree) != preprocessed(after, after.tree)


def test_what_need_not_be_compiled_again() -> None:
    files: dict[str, Given] = {
        "main.cu": b'#include "x.h"\n', "x.h": b"int x;\n", "README": b"1", "pkg/a.py": b"1",
        "one/other.h": b"1",
    }  # fmt: skip
    again = {**files, "README": b"2", "pkg/a.py": b"2", "one/other.h": b"2", "new": b"3"}
    assert cut(files).tree == cut(again).tree


def test_without_the_compilers_list_any_directory_may_be_searched() -> None:
    files: dict[str, Given] = {"main.cu": b"#include <x.h>\n", "three/x.h": b"int three;\n"}
    for search in (b"/inputs/source/one\nexit 1\n", b"/inputs/source/one\n", b""):
        assert "three/x.h" in cut(files, search=search).names
    assert "three/x.h" not in cut(files, search=b"/inputs/source/one\nexit 0\n").names
    listed = b"/inputs/source/nowhere\n/inputs/source/three/../three/\nexit 0\n"
    assert "three/x.h" in cut(files, search=listed).names
