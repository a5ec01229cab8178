"""Two releases of a small CUDA module, with the real toolkit: from pull request to kernel to layer.

Takes the toolkit from the store that REPROBUILD_TEST_STORE names, else makes one and fetches it.
"""

from __future__ import annotations

import os
import shutil
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
kind = "fixture"
path = "small"

[outputs.small]
components = ["small"]
toolchain = "sm120"

[outputs.small.release]
codename = "small"
revision = "r1"
date = 2026-01-02
repository = "example.org/small"
label-prefix = "org.example"
tag = "{codename}-{small.tree:7}-{date}-{revision}"

[outputs.small.image]
entrypoint = ["/opt/small/module.so"]

[outputs.small.sources.small]
input = "small"
heads = [
  { number = 1, title = "Three in place of two" },
  { number = 2, title = "A table in shared memory" },
  { number = 3, title = "Words" },
]
"""

COMPONENT = """
version = "1"
input = "small"
result = "steps.module"

[steps.module]
kind = "cuda-module"
source = "source"
arch = ["sm_120a"]
include = ["source/include"]
units = ["one.cu", "two.cu"]

[image]
place = [{ from = "steps.module", to = "opt/small" }]
"""

FILES = {
    "one.cu": '#include <scale.h>\n__global__ void one(float* x) { x[threadIdx.x] *= SCALE; }\n',
    "two.cu": "#include <table.h>\n"
              "__global__ void two(int* x) { *x += 1; }\n"
              "__global__ void steady(int* x) { *x -= 1; }\n",
    "include/scale.h": "#define SCALE 2.0f\n",
    "include/table.h": "#define SIZE 1\n",
    "README.md": "Small.\n",
}  # fmt: skip

PULLS = {
    1: {"include/scale.h": "#define SCALE 3.0f\n"},
    2: {
        "two.cu": "#include <table.h>\n"
        "__global__ void two(int* x) {\n"
        "  __shared__ int table[SIZE];\n"
        "  table[threadIdx.x] = x[threadIdx.x];\n"
        "  __syncthreads();\n"
        "  x[threadIdx.x] += table[SIZE - 1 - threadIdx.x];\n"
        "}\n"
        "__global__ void steady(int* x) { *x -= 1; }\n"
        "__global__ void three(int* x) { *x = 3; }\n",
        "include/table.h": "#define SIZE 64\n",
    },
    3: {"README.md": "Small, in words.\n"},
}


def fixture(directory: Path) -> None:
    """The repository: a start, and each pull request on it."""
    text = 'format = 0\n\n[[commit]]\nid = "start"\nrefs = ["refs/heads/main"]\n'
    text += 'message = "Start"\ndate = 2026-01-01T00:00:00Z\nfiles = "start"\n'
    layers: dict[str, dict[str, str]] = {"start": FILES}
    for number, files in PULLS.items():
        text += f'\n[[commit]]\nid = "p{number}"\nparents = ["start"]\n'
        text += f'refs = ["refs/pull/{number}/head"]\nmessage = "{number}"\n'
        text += f'date = 2026-01-0{number + 1}T00:00:00Z\nfiles = "p{number}"\n'
        layers[f"p{number}"] = files
    for layer, files in layers.items():
        for name, content in files.items():
            (directory / layer / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / layer / name).write_text(content)
    (directory / "repository.toml").write_text(text)


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Both releases, built: `small` with all three heads, `small-old` with none."""
    home = tmp_path_factory.mktemp("kernels")
    directory = copy_quickstart(home / "project")
    inputs, outputs = FLAKE[: FLAKE.index("[outputs")], FLAKE[FLAKE.index("[outputs") :]
    bare = outputs[: outputs.index("heads =")] + "heads = []\n"
    older = bare.replace("outputs.small", "outputs.small-old").replace('"r1"', '"r0"')
    with (directory / "flake-like.toml").open("a") as flake:
        flake.write("\n".join((inputs, outputs, older)))
    (directory / "derivations/small.toml").write_text(COMPONENT)
    fixture(directory / "small")
    given = os.environ.get("REPROBUILD_TEST_STORE")
    command = Command(directory, Path(given) if given else home / "store")
    command.run("lock", "--update", "small")
    command.run("realize", "small-old", "small")
    return command


@pytest.fixture(scope="module")
def report(command: Command) -> dict[str, Any]:
    return command.json("diff", "small-old", "small")


def pull(report: dict[str, Any], number: int) -> dict[str, Any]:
    row: dict[str, Any] = next(r for r in report["pull_requests"] if r["number"] == number)
    return row


def test_kernels_that_came_and_changed(report: dict[str, Any]) -> None:
    assert report["kernels"]["counts"] == {"added": 1, "changed": 2, "kept": 1, "removed": 0}
    (module,) = report["kernels"]["modules"].values()
    assert module["added"] == ["three(int*)"]
    changed = {row["kernel"]: row for row in module["changed"]}
    assert set(changed) == {"one(float*)", "two(int*)"}
    assert changed["two(int*)"]["shared"] == {"old": 0, "new": 1024 + 256}  # 1 KiB is the system's
    assert changed["one(float*)"]["code"] is True
    assert "shared" not in changed["one(float*)"]


def test_each_head_reaches_its_own_kernels(report: dict[str, Any]) -> None:
    one, two, words = (pull(report, number) for number in (1, 2, 3))
    assert one["units"] == {"of": 2, "reached": ["small.module:one.cu"]}
    assert one["kernel_names"] == ["one(float*)"]
    assert one["layers"] == two["layers"] != []
    assert two["units"] == {"of": 2, "reached": ["small.module:two.cu"]}
    assert two["kernel_names"] == ["three(int*)", "two(int*)"]
    assert words["files"] == ["README.md"]
    assert words["units"] == {"of": 2, "reached": []}
    assert words["kernels"] == 0
    assert "small" not in [layer.partition(".")[0] for layer in words["layers"]]
    assert one["bytes"] > words["bytes"]


def test_a_lost_kernel_fails_the_check(command: Command) -> None:
    command.run("diff", "small-old", "small", "--fail-on", "kernel-lost")
    done = command.run("diff", "small", "small-old", "--fail-on", "kernel-lost", status=9)
    assert "three(int*)" in done


def test_the_page_shows_them(command: Command, tmp_path: Path) -> None:
    page = tmp_path / "diff.html"
    command.run("diff", "small-old", "small", "--format", "html", "-o", str(page))
    text = page.read_text()
    assert "three(int*)" in text
    assert "1 of 2 units" in text
