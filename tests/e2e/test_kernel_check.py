"""A kernel check as a gate: FlashInfer's modules, built for sm_90a, are called through TVM FFI.

There is no GPU here: a stand-in for libcudart runs the three kernels on the processor, so all but
the kernels themselves is as on a machine with a GPU (tests/data/cuda/fake_cudart.c).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.quickstart import Command, copy_quickstart, edit

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed"),
]
NUMPY = os.environ.get("REPROBUILD_TEST_NUMPY", sys.executable)
"""A Python that has numpy."""
SOURCE = Path(__file__).resolve().parents[1] / "data" / "cuda" / "fake_cudart.c"


def has_numpy() -> bool:
    done = subprocess.run([NUMPY, "-c", "import numpy"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """A project whose runtime library is the stand-in, on a machine that seems to have a GPU."""
    if not has_numpy():
        pytest.skip("numpy is not installed; REPROBUILD_TEST_NUMPY names a Python that has it")
    project = copy_quickstart(tmp_path / "project")
    runtime = project / "standin" / "libcudart.so.13"
    runtime.parent.mkdir()
    versions = tmp_path / "versions"
    versions.write_text("libcudart.so.13 { global: *; };")
    link = ["-Wl,-soname,libcudart.so.13", f"-Wl,--version-script={versions}"]
    build = ["gcc", "-O2", "-shared", "-fPIC", *link, "-o", str(runtime), str(SOURCE), "-lm"]
    subprocess.run(build, check=True)
    edit(project / "flake-like.toml", "[inputs.cuda-runtime]",
         '[inputs.standin]\nkind = "path"\npath = "standin"\n\n[inputs.cuda-runtime]')  # fmt: skip
    edit(project / "flake-like.toml", '["cuda-runtime", "tvm-ffi", "flashinfer"]',
         '["cuda-runtime", "standin", "tvm-ffi", "flashinfer"]')  # fmt: skip
    (project / "derivations" / "standin.toml").write_text('result = "inputs.standin"\n')
    component = project / "derivations" / "flashinfer.toml"
    text = component.read_text().replace(
        "components.cuda-runtime/nvidia/cu13/lib", "inputs.standin"
    )
    component.write_text(text)
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "nvidia-smi").write_text("#!/bin/sh\necho Stand-in\n")
    (bin_ / "nvidia-smi").chmod(0o755)
    (bin_ / "python3").write_text(f'#!/bin/sh\nexec {NUMPY} "$@"\n')
    (bin_ / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")
    store = os.environ.get("REPROBUILD_TEST_STORE")
    command = Command(project, Path(store) if store else tmp_path / "store")
    command.run("lock")
    command.run("realize", "quickstart-sm90a")
    # The gate's subject is the image; its kernels need not be made here.
    return command


def test_modules_are_run_and_compared(machine: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    found = machine.json("qualify", "quickstart", "--gate", "kernels-run")["gates"]["kernels-run"]
    assert found["state"] == "passed"
    for function in ("silu_and_mul", "nvfp4_kv_dequant", "hash_topk"):
        assert f"{function} on sm_90: " in found["detail"]
    assert found["hardware"].startswith("1 × Stand-in, ")
    file = machine.project / "evidence" / "quickstart" / "kernels-run.json"
    evidence = json.loads(file.read_text())
    listed = machine.json("kernels", "quickstart-sm90a")
    assert {m["archs"][0] for m in listed["modules"].values()} == {"sm_90a"}
    assert {name: row["tree"] for name, row in listed["checks"].items()} == {
        name.removeprefix("quickstart-sm90a."): tree for name, tree in evidence["modules"].items()
    }
    assert sorted(evidence["modules"]) == [
        f"quickstart-sm90a.flashinfer.{name}" for name in
        ("fp4_kv_dequant", "hash_topk", "silu_and_mul")
    ]  # fmt: skip
    for tree in evidence["modules"].values():
        machine.run("store", "cat", tree)

    monkeypatch.setenv("REPROBUILD_FAKE_WRONG", "1")
    machine.run("qualify", "quickstart", "--gate", "kernels-run", status=9)
    evidence = json.loads(file.read_text())
    assert not evidence["passed"]
    assert "silu_and_mul ended with 1: " in evidence["detail"]
    assert "too large in float16 1×64" in evidence["detail"]


def test_checks_are_part_of_nothing_that_is_built(machine: Command) -> None:
    before = machine.json("show", "quickstart-sm90a")
    program = machine.project / "checks" / "flashinfer.py"
    program.write_text(program.read_text() + "# more\n")
    assert machine.json("show", "quickstart-sm90a") == before
    assert machine.json("realize", "quickstart-sm90a")["counts"]["built"] == 0
