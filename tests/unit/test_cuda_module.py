"""cuda-module: commands, links, what is refused, and what a unit's derivation reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from pydantic import ValidationError

from reprobuild.core.component import CudaModuleStep, Rendered, ScriptStep, TemplateStep
from reprobuild.core.derivation import Derivation
from reprobuild.core.digest import Digest
from reprobuild.core.graph import Graph
from reprobuild.core.kinds.context import Located
from reprobuild.core.kinds.cuda_flags import check_flags
from reprobuild.core.kinds.cuda_module import cuda_module
from reprobuild.core.kinds.cuda_units import matching
from reprobuild.core.kinds.script import script
from reprobuild.core.kinds.template import template
from reprobuild.core.reference import Ref
from reprobuild.errors import ReprobuildError


@dataclass
class Context:
    """A step's view of a project in which every reference leads somewhere."""

    name: str = "app.kernels"
    version: str = "1"
    graph: Graph = field(default_factory=Graph)
    files: tuple[bytes, ...] = ()

    def resolve(self, ref: Ref) -> Located:
        return Located(self._source(ref.target), path=ref.path)

    def resolve_all(self, ref: Ref) -> tuple[Located, ...]:
        return (self.resolve(ref),)

    def _source(self, name: str) -> Digest:
        return self.graph.add(Derivation(name.replace("/", "."), "builtin:unpack", params=name))

    def matching(self, tree: Ref, pattern: str, exclude: Sequence[str]) -> tuple[str, ...]:
        return matching(self.files, pattern, exclude)

    def toolchain_root(self, toolchain: str | None, root: Ref | None) -> Located:
        return Located(self._source(f"root.{toolchain}"))

    def toolchain_cuda(self, toolchain: str | None) -> Located:
        return Located(self._source(f"cuda.{toolchain}"))

    def add(self, derivation: Derivation) -> Located:
        return Located(self.graph.add(derivation), derivation.outputs[0])

    def named(self, name: str) -> Derivation:
        return next(d for d in self.graph.nodes.values() if d.name == name)

    @property
    def names(self) -> list[str]:
        return [d.name for d in self.graph.nodes.values() if d.name.startswith(self.name)]


def spec(**fields: Any) -> CudaModuleStep:
    base = {"kind": "cuda-module", "source": "steps.data", "units": ("csrc/a.cu",),
            "arch": ("sm_120a",)}  # fmt: skip
    return CudaModuleStep.model_validate({**base, **fields}, by_name=False)


def made(**fields: Any) -> Context:
    context = Context()
    cuda_module(spec(**fields), context)
    return context


def test_one_compile_a_unit_one_link_one_check() -> None:
    context = made(units=("csrc/a.cu", "csrc/b.cpp"))
    assert context.names == [
        "app.kernels:csrc:a.cu", "app.kernels:csrc:b.cpp", "app.kernels", "app.kernels:check",
    ]  # fmt: skip
    device = context.named("app.kernels:csrc:a.cu").argv
    assert device[:3] == ("/cuda/bin/nvcc", "-c", "/inputs/steps/data/csrc/a.cu")
    assert "-gencode=arch=compute_120a,code=sm_120a" in device
    assert not [word for word in device if "code=compute" in word]
    assert "--frandom-seed=csrc/a.cu" in device
    host = context.named("app.kernels:csrc:b.cpp").argv
    assert host[0] == "/usr/bin/g++"
    assert "-frandom-seed=csrc/b.cpp" in host
    assert context.named("app.kernels").argv[1:3] == (
        "/inputs/objects/0/unit.o", "/inputs/objects/1/unit.o",
    )  # fmt: skip


def test_several_architectures_and_ptx() -> None:
    context = made(arch=("sm_120a", "sm_120f"), ptx=True)
    codes = [w for w in context.named("app.kernels:csrc:a.cu").argv if w.startswith("-gencode")]
    assert codes == [
        "-gencode=arch=compute_120a,code=sm_120a",
        "-gencode=arch=compute_120f,code=sm_120f",
        "-gencode=arch=compute_120f,code=compute_120f",
    ]
    check = cast("dict[str, Any]", context.named("app.kernels:check").params)
    assert check["forbid-ptx"] is False
    plain = cast("dict[str, Any]", made().named("app.kernels:check").params)
    assert plain["forbid-ptx"] is True


def test_relocatable_code_is_linked_twice() -> None:
    context = made(units=("a.cu", "b.cpp", "c.cu"), relocatable=True)
    assert "-dc" in context.named("app.kernels:a.cu").argv
    assert "-c" not in context.named("app.kernels:a.cu").argv
    device = context.named("app.kernels:device-link").argv
    assert [w for w in device if w.endswith("unit.o")] == [
        "/inputs/objects/0/unit.o", "/inputs/objects/2/unit.o",
    ]  # fmt: skip
    link = context.named("app.kernels").argv
    assert "/inputs/objects/device/device.o" in link
    assert "-lcudadevrt" in link


def test_what_a_unit_says_is_the_units_alone() -> None:
    unit = {"path": "gen.cu", "from": "steps.made", "defines": ("X",), "flags": ("-lineinfo",),
            "host-flags": ("-Wall",), "memory": 7000}  # fmt: skip
    context = made(units=("csrc/a.cu", unit), defines=("ALL",), memory=3000)
    first = context.named("app.kernels:csrc:a.cu")
    second = context.named("app.kernels:gen.cu")
    for word in ("-DX", "-lineinfo", "--compiler-options=-Wall"):
        assert word in second.argv
        assert word not in first.argv
    assert "/inputs/steps/made/gen.cu" in second.argv
    assert "--frandom-seed=steps.made/gen.cu" in second.argv
    assert (first.hints.memory, second.hints.memory) == (3000 * 2**20, 7000 * 2**20)
    assert {i.at for i in second.inputs} == {"/", "/cuda", "/inputs/steps/made", "/search"}


def test_what_narrowing_starts_at() -> None:
    context = made(
        include=("steps.data/include",), **{"system-include": ("inputs.lib",)},
        defines=("H=<x.h>",), **{"pre-include": ("pre.h",)},
    )  # fmt: skip
    asked = cast("dict[str, Any]", context.named("app.kernels:csrc:a.cu").narrow)
    assert asked["defines"] == ["H=<x.h>"]
    assert asked["directories"] == ["/inputs/steps/data/include", "/inputs/inputs/lib"]
    assert asked["inputs"] == ["inputs.lib", "steps.data"]
    assert {"/inputs/steps/data/csrc/a.cu", "pre.h", "crt/host_runtime.h"} <= set(asked["starts"])
    argv = context.named("app.kernels:csrc:a.cu").argv
    assert argv[argv.index("-include") + 1] == "pre.h"


def test_link_inputs() -> None:
    context = made(objects=("steps.extra/x.o",), **{"library-path": ("inputs.lib/lib",)},
                   link=("cudart", "foo"))  # fmt: skip
    link = context.named("app.kernels").argv
    assert link.index("/inputs/steps/extra/x.o") < link.index("-shared")
    assert link.index("-L/inputs/inputs/lib/lib") < link.index("-lfoo")
    places = {i.at for i in context.named("app.kernels").inputs}
    assert {"/inputs/steps/extra/x.o", "/inputs/inputs/lib/lib"} <= places


REFUSED = [
    "--split-compile=2", "-split-compile", "--split-compile-extended=4", "-G", "--device-debug",
    "--use-local-env", "-objtemp", "--objdir-as-tempdir", "--keep", "-k", "--keep-dir=/x",
    "--frandom-seed=1", "-o", "--output-file=x", "-ccbin=/usr/bin/clang", "-gencode", "-arch=sm_90",
    "--gpu-architecture=sm_90", "-code=sm_90", "-std=c++14", "-rdc=true", "-dc", "-dlto", "-x",
    "-E", "--ptx", "-MD", "-MF", "--threads=4", "-t", "--time=/x", "--options-file=x", "@x",
    "-optf",
    "--use-pch=x", "--libdevice-directory=/x", "-ldir", "-include=x.h", "--pre-include=x.h",
    "-isystem=/x", "-I/x", "-I", "-DX", "--define-macro=X", "-L/x", "-lfoo", "--library=foo",
    "-Xcompiler=-I/x", "-Xcompiler=-fPIC,-march=native", "--compiler-options=-Wp,-MD",
    "-Xptxas=--split-compile=4", "-Xlinker=--build-id=uuid", "--forward-unknown-to-host-compiler",
]  # fmt: skip

ALLOWED = [
    "-lineinfo", "--generate-line-info", "-use_fast_math", "--expt-relaxed-constexpr",
    "-Xfatbin=-compress-all", "--compress-mode=size", "-U__CUDA_NO_HALF_OPERATORS__", "-Xptxas=-v",
    "-Xcompiler=-fPIC", "--ftz=true", "-static-global-template-stub=false", "--maxrregcount=64",
    "--extended-lambda", "-g", "-Xptxas=-O3",
]  # fmt: skip


@pytest.mark.parametrize("flag", REFUSED)
def test_refused_with_a_reason(flag: str) -> None:
    with pytest.raises(ReprobuildError) as caught:
        check_flags("app.kernels", [flag])
    assert caught.value.code == "E-CUDA-FLAG"
    assert "app.kernels" in caught.value.message
    assert caught.value.message.partition("is refused: ")[2]


def test_values_as_the_next_word_are_looked_at() -> None:
    with pytest.raises(ReprobuildError):
        check_flags("m", ["-Xcompiler", "-I/x"])
    with pytest.raises(ReprobuildError):
        check_flags("m", ["--compiler-options", "-fPIC,@file"])
    check_flags("m", ["-Xcompiler", "-fPIC", "-lineinfo"])


@pytest.mark.parametrize("flag", ALLOWED)
def test_allowed(flag: str) -> None:
    check_flags("m", [flag])


@pytest.mark.parametrize(
    "flag",
    ["-march=native", "-mtune=native", "-DX", "-I/x", "-isystem", "-iquote/x", "-include", "-B/x",
     "-specs=x", "-fplugin=x", "-wrapper", "@x", "-frandom-seed=1", "-Wp,-MD,x", "-Wl,-z",
     "-fmodules-ts", "-fprofile-use", "-save-temps", "-o", "-std=c++14", "-trigraphs"],
)  # fmt: skip
def test_refused_for_the_host(flag: str) -> None:
    with pytest.raises(ReprobuildError):
        check_flags("m", host=[flag])


def test_refused_for_the_link() -> None:
    for flag in ("-o", "@x", "-L/x", "-Wl,--build-id=uuid", "-B/x", "-march=native"):
        with pytest.raises(ReprobuildError):
            check_flags("m", link=[flag])
    check_flags("m", link=["-Wl,-rpath,$ORIGIN", "-Wl,--build-id=sha1", "-s"])


def test_a_units_flags_are_looked_at_too() -> None:
    with pytest.raises(ReprobuildError) as caught:
        made(units=({"path": "a.cu", "flags": ("-G",)},))
    assert "unit a.cu" in caught.value.message


def test_a_template_step() -> None:
    step = TemplateStep.model_validate(
        {
            "kind": "template", "source": "steps.t", "jinja": "inputs.jinja",
            "values": {"a": "1", "b": True}, "texts": {"t": "p.py#T"},
            "files": {
                "x.cu": {"template": "x.jinja", "values": {"a": 2}},
                "d/y.cu": {"copy": "y.cu"},
            },
        },
        by_name=False,
    )  # fmt: skip
    context = Context("app.made")
    located = template(step, context)
    derivation = context.graph.nodes[located.drv]
    import json

    assert json.loads(derivation.argv[3]) == {
        "d/y.cu": {"copy": "y.cu"},
        "x.cu": {
            "template": "x.jinja", "texts": {"t": "p.py#T"}, "values": {"a": 2, "b": True},
        },
    }  # fmt: skip
    assert {i.at for i in derivation.inputs} == {"/", "/inputs/jinja", "/inputs/source"}
    with pytest.raises(ValueError, match="template"):
        Rendered.model_validate({"values": {"a": 1}}, by_name=False)


def test_a_script_that_makes_kernels_is_held_to_what_it_states() -> None:
    step = {"kind": "script", "argv": ("make",), "outputs": ("cubins", "log")}
    plain = Context()
    made = script(ScriptStep.model_validate(step), plain)
    assert plain.names == ["app.kernels"]
    for stated in ({"require": ("sm_120a",)}, {"forbid-ptx": True}, {"kernels": ("k*",)}):
        context = Context()
        checked = script(ScriptStep.model_validate({**step, **stated}, by_name=False), context)
        check = context.named("app.kernels:check")
        assert checked == Located(next(d for d, n in context.graph.nodes.items() if n is check))
        (module,) = check.inputs
        assert (module.drv, module.output) == (made.drv, "cubins")
        assert check.params == {"forbid-ptx": False, "kernels": [], "require": []} | {
            key: list(value) if isinstance(value, tuple) else value for key, value in stated.items()
        }


def test_patterns_become_the_units_that_they_match() -> None:
    files = (b"csrc/b.cu", b"csrc/a.cu", b"csrc/a.h", b"csrc/x/c.cu", b"csrc/\xff.cu", b"host.cpp")
    units = (
        {"path": "csrc/*.cu", "defines": ("MANY",)},
        {"path": "csrc/a.cu", "memory": 9000},
        {"path": "**/*.c*", "exclude": ("csrc/x",)},
    )
    context = Context(files=files)
    cuda_module(spec(units=units), context)
    assert [n.partition(":")[2] for n in context.names if ":" in n and "check" not in n] == [
        "csrc:b.cu", "csrc:a.cu", "host.cpp",
    ]  # fmt: skip
    assert "-DMANY" in context.named("app.kernels:csrc:b.cu").argv
    # named by itself, it is compiled as it is named there
    assert "-DMANY" not in context.named("app.kernels:csrc:a.cu").argv
    assert context.named("app.kernels:csrc:a.cu").hints.memory == 9000 * 2**20


@pytest.mark.parametrize(
    "unit", [{"path": "a.cu", "exclude": ["b.cu"]}, {"path": "csrc/[a.cu"}, {"path": "../*.cu"}]
)
def test_patterns_that_cannot_be(unit: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        spec(units=(unit,))
