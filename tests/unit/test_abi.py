"""The runtime ABI: joined, compared with what is declared, and read from real files."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.elf.read import read_elf
from reprobuild.core.abi import (
    Abi,
    ElfFacts,
    built_facts,
    contradictions,
    join,
    newest,
    output_parts,
)
from reprobuild.core.check import check_project
from reprobuild.engine.abi import read_abi
from reprobuild.errors import ReprobuildError
from support.releases import project

ONE = Abi({"cuda": "13.3", "interpreter": "cp311"})
OTHER = Abi({"cuda": "13.2", "interpreter": "cp311", "nccl": "2.31.2"})


def test_what_is_not_stated_agrees_with_anything() -> None:
    whole = join([("a", ONE), ("b", Abi({"nccl": "2.31.2"})), ("c", Abi({}))])
    assert whole.facts == {**ONE.facts, "nccl": "2.31.2"}
    assert whole.digest != ONE.digest
    assert Abi(dict(reversed(list(whole.facts.items())))).digest == whole.digest


def test_a_join_of_two_abis_names_both() -> None:
    with pytest.raises(ReprobuildError) as caught:
        join([("b12x", ONE), ("vllm", OTHER)])
    assert caught.value.code == "E-ABI"
    message = caught.value.message
    for part in ("vllm", "b12x", ONE.digest.short, OTHER.digest.short, "cuda 13.3", "cuda 13.2"):
        assert part in message
    assert caught.value.facts["fields"] == ["cuda"]


def test_a_flake_that_joins_two_abis_is_refused() -> None:
    flake, components = project().flake, dict(project().components)
    components["vllm"] = components["vllm"].model_copy(update={"abi": {"cuda": "13.2"}})
    problems = check_project(flake, components)
    (first,) = [p for p in problems if p.path == ("outputs", "quickstart", "components")]
    assert "cannot be put together: component vllm is of ABI" in first.message
    assert "the output of ABI" in first.message
    assert check_project(flake, project().components) == []


def test_an_outputs_abi_takes_its_versions_from_the_release() -> None:
    output = project().flake.outputs["infernal-invocation-r21"]
    ((name, abi),) = output_parts(output, project().components)
    assert name == "the output"
    versions = {"cuda": "13.3", "nccl": "2.31.2", "torch": "2.13.0"}
    assert abi.facts == {"architectures": "sm_120a", **versions}


def test_versions_are_numbers() -> None:
    assert newest(["2.9", "2.34", "2.4"]) == "2.34"
    assert newest([]) == ""


@pytest.mark.parametrize(
    ("declared", "built", "said"),
    [
        ({"interpreter": "cp311"}, built_facts([], ["a/x.cpython-312-x86_64-linux-gnu.so"], {}, {}),
         "a/x.cpython-312-x86_64-linux-gnu.so is for interpreter cp312; the ABI has cp311"),
        ({"interpreter": "cp311"}, built_facts(
            [], [], {"x.dist-info/WHEEL": "A: 1\nTag: cp310-cp310-linux_x86_64\n"}, {}),
         "x.dist-info/WHEEL is for interpreter cp310; the ABI has cp311"),
        ({"cuda": "13.3"}, built_facts([ElfFacts("m.so", ("libcudart.so.12",))], [], {}, {}),
         "m.so needs cuda 12; the ABI has 13.3"),
        ({"nccl": "3.0"}, built_facts([ElfFacts("m.so", ("libnccl.so.2",))], [], {}, {}),
         "m.so needs nccl 2; the ABI has 3.0"),
        ({"glibc": "2.34"}, built_facts([ElfFacts("m.so", (), {"GLIBC": "2.36"})], [], {}, {}),
         "m.so needs glibc 2.36; the ABI has 2.34"),
        ({"cxx11-abi": "0"}, built_facts([ElfFacts("m.so", (), {}, cxx11=True)], [], {}, {}),
         "m.so is for cxx11-abi 1; the ABI has 0"),
        ({"architectures": "sm_120a"}, built_facts([], [], {}, {"sm_120a": "m.so", "sm_90a": "n"}),
         "m.so holds code for sm_90a; the ABI has sm_120a"),
    ],
)  # fmt: skip
def test_files_of_another_abi(declared: dict[str, str], built: object, said: str) -> None:
    assert contradictions(Abi(declared), built) == [said]  # type: ignore[arg-type]


def test_abi3_and_pure_wheels_say_nothing() -> None:
    text = "Tag: cp39-abi3-manylinux_2_28_x86_64\nTag: py3-none-any\n"
    assert built_facts([], ["x.abi3.so"], {"x.dist-info/WHEEL": text}, {}).facts == {}


CPP = """\
#include <string>
extern "C" int f(const char* s) { return std::string(s).append("x").size(); }
"""
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


def library(tmp_path: Path, *flags: str) -> Path:
    (tmp_path / "a.cpp").write_text(CPP)
    out = tmp_path / "liba.so"
    subprocess.run(
        ["g++", "-shared", "-fPIC", "-O0", *flags, "-o", str(out), str(tmp_path / "a.cpp")],
        check=True,
    )
    return out


@needs_compiler
@pytest.mark.parametrize("abi", ["1", "0"])
def test_a_library_says_what_it_needs(abi: str, tmp_path: Path) -> None:
    with library(tmp_path, f"-D_GLIBCXX_USE_CXX11_ABI={abi}").open("rb") as file:
        found = read_elf(file, "liba.so")
    assert found is not None
    assert "libstdc++.so.6" in found.needed
    assert found.versions["GLIBCXX"].startswith("3.4")
    assert found.cxx11 is (abi == "1")


@needs_compiler
def test_a_tree_is_read(tmp_path: Path) -> None:
    top = tmp_path / "tree"
    (top / "p").mkdir(parents=True)
    (tmp_path / "build").mkdir()
    shutil.copy(library(tmp_path / "build"), top / "p" / "x.cpython-311-x86_64-linux-gnu.so")
    (top / "p" / "notes.txt").write_text("ELF\n")
    store = MemoryStore()
    found = read_abi(store, store.capture(top), read_elf, {})
    assert found.files == 1
    assert found.facts["interpreter"][0] == "cp311"
    assert set(found.minimum) >= {"glibcxx"}


def test_damaged_files_are_no_elf_files() -> None:
    whole = Path(sys.executable).resolve().read_bytes()[: 1 << 20]
    assert read_elf(io.BytesIO(b"\x7fELF"), "x") is None
    assert read_elf(io.BytesIO(b""), "x") is None
    for cut in range(0, len(whole), len(whole) // 40):
        read_elf(io.BytesIO(whole[:cut]), "x")
    for at in range(16, 4000, 37):
        bad = bytearray(whole[:8192])
        bad[at] ^= 0xFF
        read_elf(io.BytesIO(bytes(bad)), "x")
