"""The coverage contract: what a module must hold, as a function and as a built-in."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.builders import builtins
from reprobuild.adapters.cubin.demangle import demangle
from reprobuild.adapters.cubin.inflate import inflate
from reprobuild.core.cubin.coverage import missing_kernels, plain_name, uncovered
from reprobuild.core.cubin.module import Module, read_module
from reprobuild.core.encoding import Value
from reprobuild.errors import ReprobuildError
from support.cubins import FLAG_A, ZSTD, K, cubin, fatbin, library, member
from support.trees import make

SCALE, ADD = "_ZN4demo5scaleIfEEvPT_i", "_ZN4demo3addEPf"
NINETY = member(cubin(K(SCALE), arch=90, suffix="a"), 90)
PTX = member(b".version 9.3", 120, FLAG_A, kind=1)


def read(data: bytes) -> Module:
    module = read_module(data, inflate)
    assert module is not None
    return module


def problems(data: bytes, *archs: str, forbid_ptx: bool = True) -> list[str]:
    module = read(data)
    readable = demangle(k.name for k in module.kernels)
    return uncovered(module, archs, readable, forbid_ptx=forbid_ptx)


def test_all_there() -> None:
    data = library(fatbin(member(cubin(K(SCALE), K(ADD))), NINETY))
    assert problems(library(fatbin(member(cubin(K(SCALE))), NINETY)), "sm_120a", "sm_90a") == []
    assert problems(data, "sm_120a") == []


def test_an_architecture_that_is_lost() -> None:
    (line,) = problems(library(fatbin(NINETY)), "sm_120a")
    assert line == "no machine code for sm_120a (there is code for: sm_90a)"


def test_the_family_is_not_the_architecture() -> None:
    family = library(fatbin(member(cubin(K(SCALE), suffix="f"), 120, 1 << 21)))
    assert problems(family, "sm_120a") != []


def test_one_kernel_that_lost_its_code() -> None:
    """The module has code for the architecture, in another unit."""
    data = library(fatbin(NINETY), fatbin(member(cubin(K(ADD)))))
    assert problems(data, "sm_120a") == [
        "no code for sm_120a in the kernel void demo::scale<float>(float*, int) (for sm_90a only)"
    ]


def test_ptx_beside_the_code() -> None:
    data = library(fatbin(member(cubin(K(SCALE))), PTX))
    assert problems(data, "sm_120a") == ["PTX for sm_120a"]
    assert problems(data, "sm_120a", forbid_ptx=False) == []


def test_a_unit_that_fell_back_to_ptx_fails_even_where_ptx_is_allowed() -> None:
    data = library(fatbin(member(cubin(K(SCALE)))), fatbin(PTX))
    (line,) = problems(data, "sm_120a", forbid_ptx=False)
    assert "1 objects in it hold PTX and no machine code" in line


@pytest.mark.parametrize(
    ("demangled", "plain"),
    [
        ("void demo::scale<float>(float*, int)", "demo::scale"),
        ("void (anonymous namespace)::move<false>(char*)", "(anonymous namespace)::move"),
        ("demo::add(float*)", "demo::add"),
        ("void f<&g(float const&)>(int)", "f"),
        ("void ns::S<std::pair<int, long>>::run<(E)2>(int (*)(int))", "ns::S::run"),
        ("_Zbroken", "_Zbroken"),
        ("", ""),
    ],
)
def test_plain_names(demangled: str, plain: str) -> None:
    assert plain_name(demangled) == plain


@pytest.mark.parametrize(
    "pattern",
    [
        *("demo::scale", "demo::*", "*scale*", SCALE, "void demo::scale<float>(float*, int)"),
        *("*scale<float>*", "demo::sc?le"),
    ],
)
def test_kernels_by_name_or_pattern(pattern: str) -> None:
    readable = demangle([SCALE, ADD])
    assert missing_kernels([pattern], readable) == []


def test_a_kernel_that_is_missing_is_named_with_the_nearest() -> None:
    readable = demangle([SCALE, ADD])
    assert missing_kernels(["demo::scales", "demo::ad", "*mul*"], readable) == [
        "no kernel is called demo::scales (there is demo::scale)",
        "no kernel is called demo::ad (there is demo::add)",
        "no kernel is called *mul*",
    ]


def test_the_builtin_passes_the_tree_on(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path)
    data = library(fatbin(member(cubin(K(SCALE)), flags=FLAG_A | ZSTD)))
    tree = make(store, {"lib/a.so": data, "notes.txt": b"text"})
    params: Value = {"require": ["sm_120a"], "forbid-ptx": True, "kernels": ["demo::scale"]}
    assert builtins()["cuda-check"].build(params, {"module": tree}, store) == {"out": tree}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (library(fatbin(NINETY)), "m.so: no machine code for sm_120a (there is code for: sm_90a)"),
        (library(fatbin(PTX)), "m.so: no machine code for sm_120a (there is code for: none)"),
        (library(), "there is no device code"),
        (library(fatbin(member(cubin(K(ADD))))), "no kernel is called demo::scale"),
    ],
)
def test_the_builtin_fails_with_names(data: bytes, said: str, tmp_path: Path) -> None:
    store = MemoryStore(tmp_path)
    params: Value = {"require": ["sm_120a"], "forbid-ptx": True, "kernels": ["demo::scale"]}
    with pytest.raises(ReprobuildError) as error:
        builtins()["cuda-check"].build(params, {"module": make(store, {"m.so": data})}, store)
    assert error.value.code == "E-KERNEL-COVERAGE"
    assert error.value.exit_status == 9
    found = error.value.facts["problems"]
    assert isinstance(found, list)
    assert any(str(line).startswith(said) for line in found)
