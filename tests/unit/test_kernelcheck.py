"""Kernel checks: what a program is told, what its end means, and what the evidence holds."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from reprobuild.adapters.qualify.bench import HostBench
from reprobuild.core.component import Component, CudaModuleStep, KernelCheck, Unit
from reprobuild.core.evidence import parse_evidence
from reprobuild.core.gates import Gate
from reprobuild.core.reference import Ref
from reprobuild.engine.kernelcheck import Place, run_checks
from reprobuild.engine.qualify import NotRun, Shown, Subject, run_gates
from reprobuild.errors import ReprobuildError

TREE = "blake3:" + "a" * 64
SUBJECT = Subject("demo", "demo:r1", "", "blake3:" + "1" * 64)


class Bench(HostBench):
    """This machine, as if it had a GPU."""

    def __init__(self, bin_: Path) -> None:
        bin_.mkdir()
        (bin_ / "python3").symlink_to(sys.executable)
        super().__init__({"PATH": f"{bin_}:/usr/bin:/bin"})

    def command(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[int, str]:
        # subprocess looks for a program on the caller's own PATH.
        return super().command([sys.executable, *argv[1:]], env)

    def gpus(self) -> int:
        return 1


def place(program: str = "checks/one.py", *arguments: str) -> Place:
    check = KernelCheck(module=Ref("steps", "m"), program=program, arguments=arguments)
    return Place(check, TREE, Path("/store/m"), {"tvm-ffi": Path("/store/ffi/lib.so")})


def project(tmp_path: Path, text: str) -> Path:
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "one.py").write_text(text)
    return tmp_path


def test_a_program_is_told_where_things_are(tmp_path: Path) -> None:
    text = """
import os, sys
print("heard", sys.argv[1:])
print(os.environ["REPROBUILD_MODULE"], os.environ["REPROBUILD_USE_TVM_FFI"])
"""
    bench = Bench(tmp_path / "bin")
    home = project(tmp_path, text)
    shown = run_checks({"d.c.one": place("checks/one.py", "a b")}, "d", home, bench)
    assert shown == Shown(True, "/store/m /store/ffi/lib.so", {"d.c.one": TREE})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("print('3 cases')", Shown(True, "3 cases", {"d.c.one": TREE})),
        ("print('too large'); raise SystemExit(1)",
         Shown(False, "d.c.one ended with 1: too large", {"d.c.one": TREE})),
        ("print('no GPU'); raise SystemExit(77)", NotRun("d.c.one: no GPU")),
        ("import os; os.abort()", Shown(False, "d.c.one ended with -6: no output",
         {"d.c.one": TREE})),
        ("", Shown(True, "no output", {"d.c.one": TREE})),
    ],
)  # fmt: skip
def test_what_its_end_means(tmp_path: Path, text: str, expected: Shown | NotRun) -> None:
    bench = Bench(tmp_path / "bin")
    assert run_checks({"d.c.one": place()}, "d", project(tmp_path, text), bench) == expected


def test_one_that_fails_does_not_hide_the_others(tmp_path: Path) -> None:
    text = "import sys; print(sys.argv[1]); sys.exit(int(sys.argv[1]))"
    home, bench = project(tmp_path, text), Bench(tmp_path / "bin")
    places = {f"d.c.{n}": place("checks/one.py", str(n)) for n in (0, 3, 4)}
    shown = run_checks(places, "d", home, bench)
    assert isinstance(shown, Shown)
    assert not shown.passed
    assert shown.detail == "d.c.3 ended with 3: 3; d.c.4 ended with 4: 4"
    assert sorted(shown.modules) == ["d.c.0", "d.c.3", "d.c.4"]


def test_what_is_not_made_is_not_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "bin")
    missing = run_checks({"d.c.a": place(), "d.c.b": None}, "d", tmp_path, bench)
    assert missing == NotRun("d.c.b is not made here; run `reprobuild realize d`")
    assert run_checks({}, "d", tmp_path, bench) == NotRun("no component of d states a check")


def test_evidence_names_the_trees_that_were_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "bin")
    gates = {"run": Gate(kind="kernel-check")}
    shown = Shown(True, "fine", {"d.c.one": TREE})
    (result,) = run_gates(gates, {"kernel-check": lambda gate: shown}, SUBJECT, bench, "t")
    evidence = result.evidence
    assert evidence is not None
    assert evidence.modules == {"d.c.one": TREE}
    assert parse_evidence(evidence.text().encode(), "x") == evidence
    assert TREE.encode() in evidence.message()
    for wrong in ('"blake3:aa"', "3", f'["{TREE}"]'):
        text = evidence.text().replace(f'"{TREE}"', wrong)
        with pytest.raises(ReprobuildError) as caught:
            parse_evidence(text.encode(), "x")
        assert caught.value.code == "E-EVIDENCE"


def test_a_kernel_check_needs_a_gpu() -> None:
    class NoGpu(Bench):
        def __init__(self) -> None:
            HostBench.__init__(self, {})

        def gpus(self) -> int:
            return 0

    gates = {"run": Gate(kind="kernel-check")}
    (result,) = run_gates(gates, {}, SUBJECT, NoGpu(), "t")
    assert (result.evidence, result.reason) == (None, "needs a GPU; there are 0 here")


def test_the_same_recipe_for_another_architecture() -> None:
    step = CudaModuleStep(
        kind="cuda-module", source=Ref("source"), units=(Unit(path="a.cu"),), arch=("sm_120a",),
        require=("sm_120a",), kernels=("k",),
    )  # fmt: skip
    component = Component(steps={"m": step}, result=Ref("steps", "m"))
    other = component.for_arch(("sm_90a",)).steps["m"]
    assert other == step.model_copy(update={"arch": ("sm_90a",), "require": ()})
    assert component.for_arch(()) is component
