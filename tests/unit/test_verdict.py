"""Verdicts over files made by hand: each cause by itself, and what must not be taken for it.

What real compilers write is in tests/e2e/test_verdict_nvcc.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.cubin.inflate import inflate
from reprobuild.core.cubin.findings import Cause
from reprobuild.core.cubin.names import Level, normal
from reprobuild.core.cubin.verdict import CURES, FileVerdict, judge_files
from reprobuild.engine.verdict import judge, judge_outputs
from support.cubins import (
    FILE,
    FLAG_A,
    LZ4,
    SECTION,
    ZSTD,
    ElfFile,
    K,
    Symbol,
    cubin,
    cubin_file,
    fatbin,
    library,
    library_file,
    member,
)
from support.trees import Given, make

A, B = K("_Z1av"), K("_Z1bv", code=b"\2" * 64)
UNIT = "_ZN33_GLOBAL__N__{}_4_a_cu_{}6hiddenEPf"


def verdict(first: bytes, second: bytes) -> FileVerdict:
    assert first != second
    return judge_files("m.so", first, second, inflate)


def causes(first: bytes, second: bytes) -> list[Cause]:
    return [finding.cause for finding in verdict(first, second).findings]


def host(
    rodata: bytes = b"text", file: str = "a.cudafe1.cpp", text: bytes = b"\x90" * 32, **names: str
) -> bytes:
    elf = ElfFile()
    elf.add(".text", text, flags=6)
    elf.add(".rodata", rodata)
    elf.symbols.append(Symbol(file, kind=FILE, bind=0))
    elf.symbols.append(Symbol(names.get("function", "launch"), ".text", size=len(text)))
    return elf.data()


# -- device code -------------------------------------------------------------------------------


def test_a_kernel_with_other_instructions() -> None:
    other = K("_Z1bv", code=b"\3" * 64)
    found = verdict(library(fatbin(member(cubin(A, B)))), library(fatbin(member(cubin(A, other)))))
    (finding,) = found.findings
    assert (finding.cause, finding.where, found.device) == (
        Cause.DEVICE_CODE,
        ("_Z1bv",),
        "different",
    )
    assert found.line() == "m.so: device code (kernels: _Z1bv); device code differs"


def test_a_kernel_with_the_same_instructions_and_more_registers() -> None:
    more = K("_Z1av", registers=99)
    found = verdict(cubin(A, B), cubin(more, B))
    assert [(f.cause, f.where) for f in found.findings] == [(Cause.DEVICE_CODE, ("_Z1av",))]


def test_a_kernel_in_one_of_them_only() -> None:
    found = verdict(cubin(A, B), cubin(A))
    assert found.findings[0].cause == Cause.DEVICE_CODE
    assert found.findings[0].where == ("_Z1bv",)


def test_code_that_calls_something_else() -> None:
    one, two = K("_Z1av", calls="_Z1fv"), K("_Z1av", calls="_Z1gv")
    assert causes(cubin(one), cubin(two))[0] == Cause.DEVICE_CODE


def test_initialised_data() -> None:
    one = cubin_file([A], data=b"\1\2\3\4").data()
    two = cubin_file([A], data=b"\1\2\3\5").data()
    found = verdict(one, two)
    assert (found.cause, found.device) == (Cause.DEVICE_DATA, "different")
    assert found.findings[0].where == (".nv.global.init",)


def test_an_architecture_in_one_of_them_only() -> None:
    ninety = member(cubin(A, arch=90), 90)
    found = verdict(library(fatbin(member(cubin(A)))), library(fatbin(member(cubin(A)), ninety)))
    assert found.cause == Cause.DEVICE_CODE
    assert found.findings[0].detail == "machine code for sm_90a is in the second only"


def test_another_compiler_that_makes_the_same_code() -> None:
    old = cubin_file([A], tool="Cuda compilation tools, release 13.0, V13.0.88").data()
    found = verdict(cubin(A), old)
    (finding,) = found.findings
    assert (finding.cause, found.device) == (Cause.COMPILER, "identical")
    assert "release 13.3" in finding.detail
    assert "release 13.0" in finding.detail


# -- what is no code ---------------------------------------------------------------------------


@pytest.mark.parametrize(("one", "two"), [(0, ZSTD), (ZSTD, LZ4), (LZ4, 0)])
def test_compression_only(one: int, two: int) -> None:
    payload = cubin(A, B)
    found = verdict(
        library(fatbin(member(payload, flags=FLAG_A | one))),
        library(fatbin(member(payload, flags=FLAG_A | two))),
    )
    (finding,) = found.findings
    assert (finding.cause, found.device) == (Cause.COMPRESSION, "identical")


def test_compression_does_not_hide_a_kernel() -> None:
    other = K("_Z1bv", code=b"\3" * 64)
    one = library(fatbin(member(cubin(A, B), flags=FLAG_A | ZSTD)))
    two = library(fatbin(member(cubin(A, other), flags=FLAG_A | LZ4)))
    assert causes(one, two) == [Cause.DEVICE_CODE]


def test_members_in_another_order() -> None:
    one, two = fatbin(member(cubin(A))), fatbin(member(cubin(B)))
    found = verdict(library(one, two), library(two, one))
    (finding,) = found.findings
    assert (finding.cause, found.device) == (Cause.LINK_ORDER, "identical")


def test_functions_in_another_order() -> None:
    def linked(*names: str) -> bytes:
        elf = ElfFile(kind=3)
        elf.add(".text", b"".join(name.encode() * 16 for name in names), flags=6)
        elf.symbols += [
            Symbol(name, ".text", value=16 * n, size=16) for n, name in enumerate(names)
        ]
        return elf.data()

    assert causes(linked("a", "b"), linked("b", "a")) == [Cause.LINK_ORDER]
    assert causes(linked("a", "b"), linked("a", "c")) != [Cause.LINK_ORDER]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("tmpxft_00000d65_00000000-6_a.cudafe1.cpp", "tmpxft_00000d7c_00000000-6_a.cudafe1.cpp"),
        ("tmpxft_00000d65_00000000-6_a.cudafe1.cpp", "a.cudafe1.cpp"),
        ("out.o.cudafe1.cpp", "a.cudafe1.cpp"),
    ],
)
def test_names_of_intermediate_files(one: str, two: str) -> None:
    assert causes(host(file=one), host(file=two)) == [Cause.TEMPORARY_NAME]


def test_initialisers_called_after_intermediate_files() -> None:
    name = "_GLOBAL__sub_I_tmpxft_{}_00000000_6_a.cudafe1.cpp"
    one, two = (host(function=name.format(process)) for process in ("00005a92", "00005ae5"))
    assert causes(one, two) == [Cause.TEMPORARY_NAME]


def test_a_build_id_follows_what_it_is_of() -> None:
    def linked(mode: int, digest: bytes) -> bytes:
        elf = library_file(fatbin(member(cubin(A), flags=FLAG_A | mode)))
        elf.add(".note.gnu.build-id", digest, kind=7)
        return elf.data()

    assert causes(linked(ZSTD, b"1"), linked(LZ4, b"2")) == [Cause.COMPRESSION]


def test_a_made_up_name_does_not_hide_another_name() -> None:
    one = host(file="tmpxft_00000d65_00000000-6_a.cudafe1.cpp", function="launch")
    two = host(file="tmpxft_00000d7c_00000000-6_a.cudafe1.cpp", function="start")
    assert Cause.HOST_DATA in causes(one, two)


def test_a_process_id_in_names() -> None:
    one = "_ZN44_GLOBAL__N__9b38a233_7_anon_cu_b5ff8b2f_45304onlyEPf"
    two = "_ZN45_GLOBAL__N__9b38a233_7_anon_cu_b5ff8b2f_145304onlyEPf"
    found = verdict(cubin(K(one)), cubin(K(two)))
    assert {f.cause for f in found.findings} == {Cause.TEMPORARY_NAME}
    assert found.device == "identical"


def test_process_ids_of_other_lengths_in_the_data() -> None:
    """What lies behind such a name lies elsewhere then."""

    def built(process: bytes) -> bytes:
        name = b"_ZN44_GLOBAL__N__9b38a233_7_anon_cu_b5ff8b2f_" + process + b"4onlyEPf\0"
        elf = ElfFile()
        elf.add(".text", b"\x90" * 32, flags=6)
        elf.add(".rodata", name + bytes(-len(name) % 8) + b"behind it\0")
        elf.symbols.append(Symbol("", ".rodata", kind=SECTION, bind=0))
        elf.relocations[".text"] = [(8, 1, "", len(name) + -len(name) % 8)]
        return elf.data()

    assert causes(built(b"9999"), built(b"1000001")) == [Cause.TEMPORARY_NAME]


def test_a_checksum_of_the_path_in_names() -> None:
    one, two = UNIT.format("a7d9c774", "table"), UNIT.format("214db5da", "table")
    found = verdict(
        library(fatbin(member(cubin(K(one), A)))), library(fatbin(member(cubin(K(two), A))))
    )
    assert {f.cause for f in found.findings} == {Cause.PATH_NAME}
    assert found.device == "identical"


def test_a_checksum_does_not_hide_other_instructions() -> None:
    one, two = UNIT.format("a7d9c774", "table"), UNIT.format("214db5da", "table")
    found = verdict(cubin(K(one)), cubin(K(two, code=b"\1" * 64)))
    assert (found.cause, found.device) == (Cause.DEVICE_CODE, "different")


def test_a_source_path_in_the_data() -> None:
    one = host(rodata=b"one/a.cu\0\0\0\0more\0")
    two = host(rodata=b"/another/place/a.cu\0more\0")
    assert causes(one, two) == [Cause.PATH_NAME]


def test_a_date_in_the_data() -> None:
    one, two = host(rodata=b"Nov 30 2026 08:39:35"), host(rodata=b"Dec  1 2026 11:00:01")
    assert causes(one, two) == [Cause.TIMESTAMP]


def test_other_text_is_neither_path_nor_date() -> None:
    one, two = host(rodata=b"v1/models"), host(rodata=b"v2/models")
    assert causes(one, two) == [Cause.HOST_DATA]


def test_host_code_only() -> None:
    device = fatbin(member(cubin(A)))
    one, two = library_file(device, kind=1), library_file(device, kind=1)
    two.sections[0].content = b"\x91" + b"\x90" * 31
    found = verdict(one.data(), two.data())
    assert (found.cause, found.device) == (Cause.HOST_CODE, "identical")
    assert found.findings[0].detail == "in launch"
    assert found.line().endswith("host only; device code identical")


def test_debug_information() -> None:
    one, two = ElfFile(), ElfFile()
    one.add(".debug_line", b"/one\0", flags=0)
    two.add(".debug_line", b"/two\0", flags=0)
    assert causes(one.data(), two.data()) == [Cause.DEBUG]


# -- archives, text, trees ---------------------------------------------------------------------


def archive(*members: tuple[str, bytes], time: int = 0) -> bytes:
    out = b"!<arch>\n"
    for name, data in members:
        head = f"{name + '/':<16}{time:<12}{0:<6}{0:<6}{'644':<8}{len(data):<10}`\n"
        out += head.encode() + data + b"\n" * (len(data) % 2)
    return out


def test_archives() -> None:
    one, two = ("a.o", host()), ("b.o", host(rodata=b"other"))
    assert causes(archive(one, two), archive(two, one)) == [Cause.LINK_ORDER]
    assert causes(archive(one), archive(one, time=5)) == [Cause.TIMESTAMP]
    assert causes(archive(one, two), archive(one)) == [Cause.CONTENT]
    changed = verdict(archive(one), archive(("a.o", host(text=b"\x91" * 32))))
    assert (changed.cause, changed.findings[0].where) == (Cause.HOST_CODE, ("a.o",))


@pytest.mark.parametrize(
    ("one", "two", "cause", "said"),
    [
        (b"a\nb\n", b"a\nc\n", Cause.CONTENT, "line 2: 'b' and 'c'"),
        (b"a\nb\n", b"b\na\n", Cause.CONTENT, "the same lines in another order"),
        (b"x /one/a.cu\n", b"x /two/a.cu\n", Cause.PATH_NAME, "line 1"),
        (b"made 2026-01-02\n", b"made 2026-01-03\n", Cause.TIMESTAMP, "line 1"),
        (b"\0" * 9 + b"\1", b"\0" * 9 + b"\2", Cause.CONTENT, "from byte 9 on"),
        (b"\1\2\r\n" + bytes(12) + b"c", b"\1\2\r\n" + b"\1" * 12 + b"c", Cause.TIMESTAMP, ".pyc"),
        (b"\x1f\x8b\x08\0AAAA\2\xff", b"\x1f\x8b\x08\0BBBB\2\xff", Cause.TIMESTAMP, "gzip"),
    ],
)
def test_other_files(one: bytes, two: bytes, cause: Cause, said: str) -> None:
    (finding,) = verdict(one, two).findings
    assert finding.cause == cause
    assert said in finding.detail


def test_two_trees(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path)
    same: dict[str, Given] = {"same/deep.so": library(fatbin(member(cubin(A)))), "readme": b"text"}
    first = make(
        store,
        {**same, "k.so": cubin(A), "gone": b"x", "mode": b"m", "link": "a", "kind": b"file"},
    )
    second = make(
        store,
        {
            **same,
            "k.so": cubin(K("_Z1av", code=b"\7" * 64)),
            "new": b"x",
            "mode": (b"m", True),
            "link": "b",
            "kind": "now-a-link",
        },
    )
    found = judge(store, first, second, inflate)
    details = {file.path: file.findings[0].detail for file in found.files}
    assert found.files[0].path == "k.so"  # the gravest first
    assert found.device == "different"
    assert details == {
        "k.so": "kernels",
        "gone": "is in the first only",
        "new": "is in the second only",
        "mode": "a file that is not executable and an executable file",
        "link": "a link to 'a' and a link to 'b'",
        "kind": "a file that is not executable and a link to 'now-a-link'",
    }
    assert f"cure for device code: {CURES[Cause.DEVICE_CODE]}" in found.lines()
    assert found.names() == {"_Z1av"}
    assert "kernels: a()" in found.renamed({"_Z1av": "a()"}).lines()[0]


def test_equal_trees_and_outputs(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path)
    one, two = make(store, {"a": b"1"}), make(store, {"a": b"2"})
    assert judge(store, one, one, inflate).files == ()
    found = judge_outputs(store, {"out": one, "dev": one}, {"out": one, "dev": two}, inflate)
    assert [file.path for file in found.files] == ["dev/a"]


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    found = verdict(library(b"garbage, no container"), library(b"garbage, no containers"))
    assert found.cause == Cause.CONTENT
    assert "cannot be looked into" in found.findings[0].detail


def test_every_cause_has_a_cure() -> None:
    assert set(CURES) == set(Cause)


# -- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "two", "level"),
    [
        (
            b"_INTERNAL_9b38a233_7_anon_cu_b5ff8b2f_4530",
            b"_INTERNAL_9b38a233_7_anon_cu_2fb50e42_7",
            1,
        ),
        (b"_INTERNAL_9b38a233_7_anon_cu_b5ff8b2f", b"_INTERNAL_00000000_7_anon_cu_11111111", 2),
        (b"__nv_module_id _35def117_4_a_cu_t", b"__nv_module_id _45def117_4_a_cu_t", 2),
        (b"/a/b/k.cuh:12", b"../c/k.cuh:12", 2),
        (b"12:00:01", b"12:59:01", 3),
    ],
)
def test_levels(one: bytes, two: bytes, level: int) -> None:
    for lower in range(level):
        assert normal(one, Level(lower)) != normal(two, Level(lower))
    assert normal(one, Level(level)) == normal(two, Level(level))


def test_two_names_in_one() -> None:
    text = b"_Z1fI" + b"N44_GLOBAL__N__9b38a233_4_a_cu_b5ff8b2f_11AE" * 2 + b"E"
    other = text.replace(b"9b38a233", b"00000000").replace(b"b5ff8b2f", b"11111111")
    assert normal(text, Level.PATH) == normal(other, Level.PATH)


@pytest.mark.parametrize("text", [b"_abcdef12_3_xyz", b"no names here", b"a/b", b"\0\0\0", b""])
def test_what_is_no_made_up_name_stays(text: bytes) -> None:
    assert normal(text, Level.PATH) == text
