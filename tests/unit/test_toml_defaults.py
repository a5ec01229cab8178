"""Defaults of a kind, merged into steps; messages lead to where a thing was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprobuild.adapters.toml.load import load_components
from reprobuild.core.component import CudaModuleStep
from reprobuild.errors import ReprobuildError

HEAD = 'result = "steps.a"\n\n[defaults.cuda-module]\nsource = "source"\narch = ["sm_120a"]\n'
STEPS = '\n[steps.a]\nkind = "cuda-module"\nunits = ["a.cu"]\n'


def load(tmp_path: Path, text: str) -> dict[str, CudaModuleStep]:
    directory = tmp_path / "derivations"
    directory.mkdir(exist_ok=True)
    (directory / "app.toml").write_text(text)
    steps = load_components(directory)["app"].steps
    assert all(isinstance(step, CudaModuleStep) for step in steps.values())
    return {n: s for n, s in steps.items() if isinstance(s, CudaModuleStep)}


def problem(tmp_path: Path, text: str) -> ReprobuildError:
    with pytest.raises(ReprobuildError) as caught:
        load(tmp_path, text)
    assert caught.value.code == "E-COMPONENT"
    return caught.value


def test_a_step_takes_what_it_does_not_say(tmp_path: Path) -> None:
    steps = load(tmp_path, HEAD + 'defines = ["A"]\n' + STEPS + '[steps.b]\nkind = "cuda-module"\n'
                 'units = ["b.cu"]\ndefines = ["B"]\narch = ["sm_90a"]\n')  # fmt: skip
    assert steps["a"].arch == ("sm_120a",)
    assert steps["a"].defines == ("A",)
    assert steps["b"].arch == ("sm_90a",)
    assert steps["b"].defines == ("B",)


def test_also_appends(tmp_path: Path) -> None:
    text = HEAD + 'defines = ["A"]\n' + STEPS + 'also = { defines = ["B"], flags = ["-lineinfo"] }'
    step = load(tmp_path, text)["a"]
    assert step.defines == ("A", "B")
    assert step.flags == ("-lineinfo",)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        (HEAD + 'std = "c++3"\n' + STEPS, 6, 7),
        (HEAD + "stdd = 1\n" + STEPS, 6, 1),
        (HEAD + 'flags = [1]\n' + STEPS, 6, 10),
        (HEAD + STEPS + "also = { defines = [7] }\n", 10, 21),
        (HEAD + STEPS + 'also = { defines = "A" }\n', 10, 20),
        (HEAD + '[defaults.cuda-modul]\nstd = "c++20"\n' + STEPS, 6, 11),
        (HEAD + 'kind = "script"\n' + STEPS, 6, 1),
        ('defaults = 1\nresult = "steps.a"\n', 1, 12),
        ('defaults.script = 1\nresult = "steps.a"\n', 1, 19),
        (HEAD + STEPS + "also = 1\n", 10, 1),
    ],
)  # fmt: skip
def test_places_of_what_is_wrong(tmp_path: Path, text: str, line: int, column: int) -> None:
    error = problem(tmp_path, text)
    assert (error.facts["line"], error.facts["column"]) == (line, column), error.message


def test_one_slip_in_defaults_is_one_problem(tmp_path: Path) -> None:
    """However many steps inherit it."""
    more = "".join(f'[steps.s{i}]\nkind = "cuda-module"\nunits = ["{i}.cu"]\n' for i in range(30))
    error = problem(tmp_path, HEAD + 'std = "c++3"\n' + STEPS + more)
    assert error.facts["line"] == 6
    assert "more problem" not in error.message


def test_flags_are_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ReprobuildError) as caught:
        load(tmp_path, HEAD + STEPS.replace('["a.cu"]', '["a.cu", "a.cu"]'))
    assert "given twice" in caught.value.message
