"""A small module with the real toolkit: what is compiled again, links, PTX, other toolkits.

Takes the toolkit from the store that REPROBUILD_TEST_STORE names, else makes one and fetches it.
"""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.quickstart import Command, copy_quickstart

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
]

FLAKE = """
[inputs.small]
kind = "path"
path = "small"

[outputs.small]
components = ["small"]
toolchain = "sm120"
"""

COMPONENT = """
version = "1"
input = "small"
result = "steps.module"

[defaults.cuda-module]
source = "source"
arch = ["sm_120a"]
include = ["source/include", "source/more"]

[steps.module]
kind = "cuda-module"
units = ["one.cu", "two.cu", "host.cpp"]

[steps.linked]
kind = "cuda-module"
relocatable = true
units = ["caller.cu", "called.cu", "host.cpp"]

[steps.wide]
kind = "cuda-module"
units = ["two.cu"]
arch = ["sm_90a", "sm_120a", "sm_120f"]
ptx = true

[steps.lines]
kind = "cuda-module"
units = ["two.cu"]
flags = ["-lineinfo"]
"""

FILES = {
    "one.cu": '#include <scale.h>\n__global__ void one(float* x) { x[threadIdx.x] *= SCALE; }\n',
    "two.cu": '#if __has_include(<option.h>)\n#include <option.h>\n#endif\n#ifndef OPTION\n'
              '#define OPTION 1\n#endif\n__global__ void two(int* x) { *x += OPTION; }\n',
    "host.cpp": '#include <host.h>\nint answer() { return ANSWER; }\n',
    "caller.cu": "__device__ float called(float);\n"
                 "__global__ void caller(float* x) { *x = called(*x); }\n",
    "called.cu": "__device__ float called(float x) { return x * 3; }\n",
    "include/scale.h": "#define SCALE 2.0f\n",
    "include/unused.h": "#define UNUSED\n",
    "include/host.h": "#define ANSWER 42\n",
    "more/README": "A directory of headers.\n",
    "README.md": "Small.\n",
    "tool.py": "print(1)\n",
}  # fmt: skip

Project = tuple[Command, Path]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with the small module, locked and built."""
    directory = copy_quickstart(tmp_path / "project")
    with (directory / "flake-like.toml").open("a") as flake:
        flake.write(FLAKE)
    (directory / "derivations/small.toml").write_text(COMPONENT)
    source = directory / "small"
    # A store that is used again knows what earlier runs compiled.
    mark = f"// {secrets.token_hex(8)}\n"
    for name, text in FILES.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(mark + text)
    given = os.environ.get("REPROBUILD_TEST_STORE")
    command = Command(directory, Path(given) if given else tmp_path / "store")
    command.run("lock", "--update", "small")
    return command, source


def build(command: Command, what: str = "small.small.module") -> dict[str, Any]:
    command.run("lock", "--update", "small")
    return command.json("realize", what)


def tree(document: dict[str, Any]) -> str:
    return str(next(iter(document["outputs"].values()))["tree"])


def compiled(document: dict[str, Any]) -> set[str]:
    return {name.partition(":")[2] for name in document.get("reread", {})}


def test_what_a_change_compiles(project: Project) -> None:
    command, source = project
    first = build(command)
    assert build(command)["counts"]["built"] == 0

    for name in ("README.md", "tool.py", "include/unused.h", "more/README"):
        (source / name).write_text("// changed\n")
        document = build(command)
        assert document["counts"]["built"] == 0, name
        assert tree(document) == tree(first)

    (source / "include/scale.h").write_text("#define SCALE 3.0f\n")
    document = build(command)
    assert compiled(document) == {"one.cu"}
    assert document["reread"]["small.module:one.cu"]["included"] is True
    assert tree(document) != tree(first)

    # found first by an include that found another until now: nothing told that it could be
    shutil.copy(source / "include/scale.h", source / "more/scale.h")
    (source / "include/scale.h").write_text("#define SCALE 2.0f\n")
    assert tree(build(command)) == tree(first)
    (source / "more/scale.h").write_text("#define SCALE 9.0f\n")
    document = build(command)
    assert document["reread"]["small.module:one.cu"]["included"] is False
    assert tree(document) == tree(first)

    # absent until now, and asked for
    (source / "more/option.h").write_text("#define OPTION 7\n")
    document = build(command)
    assert compiled(document) == {"two.cu"}
    assert tree(document) != tree(first)
    (source / "more/option.h").unlink()
    assert tree(build(command)) == tree(first)

    # a header that only another pass of the compiler reads
    (source / "more/crt").mkdir()
    shadow = source / "more/crt/host_runtime.h"
    shadow.write_text(
        "#include_next <crt/host_runtime.h>\n#ifndef SHADOW\n#define SHADOW\n"
        '__attribute__((used)) static const char shadow[] = "read by another pass";\n#endif\n'
    )
    document = build(command)
    assert compiled(document) == {"one.cu", "two.cu"}
    library = Path(next(iter(document["outputs"].values()))["path"], "module.so").read_bytes()
    assert b"read by another pass" in library


def test_the_cut_root_gives_the_object_of_the_whole_one(project: Project) -> None:
    command, source = project
    first = build(command)
    text = (source / "include/scale.h").read_text()
    # what the assembler reads cannot be told, so this unit is compiled with its whole trees
    (source / "include/scale.h").write_text(text + "// .incbin\n#if 0\nincbin\n#endif\n")
    document = build(command)
    assert tree(document) == tree(first)


def test_relocatable_code(project: Project) -> None:
    command, _ = project
    document = build(command, "small.small.linked")
    path = Path(next(iter(document["outputs"].values()))["path"], "linked.so")
    kernels = command.json("kernels", "small.small.linked")
    assert "caller" in str(kernels)
    assert path.stat().st_size > 0
    assert command.json("realize", "small.small.linked", "--check")["counts"]["checked"] == 1


def test_several_architectures_and_ptx(project: Project) -> None:
    command, _ = project
    build(command, "small.small.wide")
    kernels = command.json("kernels", "small.small.wide")
    module = next(iter(kernels["modules"].values()))
    assert set(module["archs"]) == {"sm_90a", "sm_120a", "sm_120f"}
    assert module["ptx"]


def test_line_tables_are_the_same_twice(project: Project) -> None:
    command, _ = project
    build(command, "small.small.lines")
    unit = "small.lines:two.cu"
    graph = command.json("graph", "small.small.lines", "--format", "json")
    assert unit in str(graph)
    document = command.json("realize", "small.small.lines", "--check=closure")
    assert document["counts"]["checked"] >= 2


@pytest.mark.parametrize("minor", [0, 1, 2, 4, 5])
def test_other_toolkits(project: Project, minor: int) -> None:
    command, source = project
    flake = command.project / "flake-like.toml"
    name = f'toolchain = "sm120-cuda13-{minor}"'
    text = flake.read_text()
    head, _, tail = text.rpartition('toolchain = "sm120"')
    flake.write_text(head + name + tail)
    document = build(replace(command), "small.small.module")
    kernels = command.json("kernels", "small.small.module")
    assert {"sm_120a"} == set(next(iter(kernels["modules"].values()))["archs"])
    assert tree(document)
    assert source.is_dir()
