"""What toolchains are made of, and what another one builds again, over this project's outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprobuild.adapters.toml.load import load_project
from reprobuild.core.derivation import Derivation
from reprobuild.core.digest import Digest
from reprobuild.core.flake import Flake
from reprobuild.core.project import Project
from reprobuild.engine.evaluate import Evaluator
from reprobuild.engine.toolchains import Toolchains, look

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def project() -> Project:
    return load_project(ROOT)


def evaluated(project: Project, flake: Flake, output: str) -> tuple[Evaluator, list[Digest]]:
    evaluator = Evaluator(flake, project.components, project.lock, output)
    parts = evaluator.evaluate_part
    components = flake.outputs[output].components
    return evaluator, [parts(name).components[name].drv for name in components]


def builds(evaluator: Evaluator, roots: list[Digest]) -> dict[Digest, Derivation]:
    nodes = evaluator.graph.nodes
    return {drv: nodes[drv] for drv in evaluator.graph.closure(roots) if nodes[drv].argv}


@pytest.mark.parametrize("output", ["quickstart-sm90a", "kernels"])
def test_as_much_as_another_toolkit_builds_again(project: Project, output: str) -> None:
    evaluator, roots = evaluated(project, project.flake, output)
    found: Toolchains = {}
    look(found, evaluator, roots)
    outputs = dict(project.flake.outputs)
    outputs[output] = outputs[output].model_copy(update={"toolchain": "sm120-cuda13-5"})
    other, others = evaluated(
        project, project.flake.model_copy(update={"outputs": outputs}), output
    )
    before, after = builds(evaluator, roots), builds(other, others)
    moved = [node for drv, node in after.items() if drv not in before]
    row = found["sm120"]["cuda"].outputs[output]
    assert row.units == sum(node.narrow is not None for node in moved) > 0
    assert row.others == sum(node.narrow is None for node in moved) > 0
    assert len(moved) < len(after)  # what is made without the toolkit stays


def test_parts_are_named_with_what_they_are_made_of(project: Project) -> None:
    found: Toolchains = {}
    evaluator, roots = evaluated(project, project.flake, "quickstart-sm90a")
    look(found, evaluator, roots)
    used = found["sm120"]
    assert used["cuda"].version == "13.3"
    assert "nvidia-cuda-nvcc=13.3.73" in used["cuda"].packages
    assert "g++-12=12.2.0-14+deb12u1" in used["root"].packages
    assert not any(name.startswith("nvidia") for name in used["root"].packages)
    assert set(used["root"].outputs) == {"quickstart-sm90a"}
    assert found["sm120-cuda13-0"]["cuda"].outputs == {}
    document = used["cuda"].document()
    assert document["rebuilds"]["quickstart-sm90a"]["units"] == 5


def test_a_second_output_is_added(project: Project) -> None:
    found: Toolchains = {}
    for output in ("quickstart-sm90a", "kernels"):
        look(found, *evaluated(project, project.flake, output))
    assert set(found["sm120"]["cuda"].outputs) == {"quickstart-sm90a", "kernels"}
