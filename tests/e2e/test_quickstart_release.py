"""The quickstart's declarations: pinned, what they say they are, and shared where they can be."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from reprobuild.adapters.git.fixture import make_fixture, read_fixture
from reprobuild.adapters.toml.load import load_project
from reprobuild.core.lock import FilesPin, Lock, PinnedSource
from reprobuild.core.project import Project
from support.quickstart import PROJECT, Command, copy_quickstart

STAND_INS = ("b12x", "lmcache", "vllm")


@pytest.fixture(scope="module")
def project() -> Project:
    return load_project(PROJECT)


@pytest.fixture(scope="module")
def lock(project: Project) -> Lock:
    assert project.lock is not None
    return project.lock


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    base = tmp_path_factory.mktemp("quickstart")
    return Command(copy_quickstart(base / "project"), base / "store")


def _git(*words: str, at: Path) -> str:
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    identity = ("-c", "user.name=Tester", "-c", "user.email=tester@local")
    return subprocess.run(
        ["git", *identity, *words], cwd=at, env=env, check=True, capture_output=True, text=True
    ).stdout.strip()


def _integrated(name: str, pin: PinnedSource, at: Path) -> Path:
    """A checkout in which git itself merged the pinned heads, one after another."""
    repository = at / f"{name}.git"
    make_fixture(PROJECT / "fixtures" / name, repository)
    tree = at / name
    _git("clone", "-q", "--no-checkout", str(repository), str(tree), at=at)
    _git("fetch", "-q", "origin", "refs/*:refs/all/*", at=tree)
    _git("checkout", "-q", "--detach", pin.base, at=tree)
    for head in pin.heads:
        _git("merge", "-q", "--no-ff", "-m", f"#{head.number}", head.head, at=tree)
    return tree


def test_the_lock_is_complete_and_current_without_a_network(command: Command) -> None:
    command.run("lock", "--check", offline=True)


def test_debian_packages_come_from_the_release_s_own_section(lock: Lock, project: Project) -> None:
    for name, declared in project.flake.inputs.items():
        if declared.kind != "deb":
            continue
        pin = lock.inputs[name]
        assert isinstance(pin, FilesPin)
        wanted = dict(declared.wanted())
        assert {f.name: f.version for f in pin.files} == wanted
        for file in pin.files:
            # Security and point-release updates of the archive lie below pool/updates.
            assert file.location.startswith("pool/main/"), file


def test_every_package_is_pinned_to_a_version(project: Project) -> None:
    for name, declared in project.flake.inputs.items():
        if declared.kind in ("deb", "wheel"):
            assert all(version for _, version in declared.wanted()), name


@pytest.mark.parametrize("output", ["quickstart", "quickstart-r2"])
@pytest.mark.parametrize("name", STAND_INS)
def test_git_itself_merges_the_heads_to_the_pinned_tree(
    lock: Lock, output: str, name: str, tmp_path: Path
) -> None:
    pin = lock.outputs[output].sources[name]
    tree = _integrated(name, pin, tmp_path)
    assert _git("rev-parse", "HEAD^{tree}", at=tree) == pin.tree
    dispositions = [head.disposition for head in pin.heads]
    assert dispositions[0] == "already_in_base"
    assert dispositions.count("merged") >= 3


@pytest.mark.parametrize("name", STAND_INS)
def test_two_heads_change_one_file(lock: Lock, name: str, tmp_path: Path) -> None:
    pin = lock.outputs["quickstart"].sources[name]
    repository = tmp_path / "r.git"
    make_fixture(PROJECT / "fixtures" / name, repository)
    changed: list[str] = []
    for head in pin.heads:
        if head.disposition == "merged":
            base = _git("merge-base", pin.base, head.head, at=repository)
            changed += _git("diff", "--name-only", base, head.head, at=repository).split()
    assert len(changed) > len(set(changed))


@pytest.mark.parametrize("name", STAND_INS)
def test_a_stand_in_says_that_it_is_one(name: str) -> None:
    directory = PROJECT / "fixtures" / name
    assert "stand-in" in (directory / "README.md").read_text().lower()
    assert "stand-in" in str(tomllib.loads((directory / "repository.toml").read_text()))
    start = directory / read_fixture(directory)[0].files
    for text in [*start.rglob("README.md"), *start.rglob("pyproject.toml")]:
        assert "stand-in" in text.read_text().lower(), text


@pytest.mark.parametrize(
    ("name", "inside"), [("vllm", ""), ("b12x", "python"), ("lmcache", "python")]
)
def test_a_stand_in_runs(lock: Lock, name: str, inside: str, tmp_path: Path) -> None:
    tree = _integrated(name, lock.outputs["quickstart"].sources[name], tmp_path)
    printed = [
        subprocess.run(
            [sys.executable, "-m", f"{name}_standin"],
            cwd=tree / inside,
            env={"PATH": os.defpath, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert printed[0] == printed[1]
    said = json.loads(printed[0])
    assert said["stand_in_for"] == name
    expected: dict[str, Any] = {
        "b12x": lambda: said["row"][:4] == [0.5, 0.5625, 0.625, 0.6875] and said["row"][8] == 0.5,
        "lmcache": lambda: said["hits"] == 6,
        "vllm": lambda: [len(said["made"][r]) for r in ("r1", "r2", "r3")] == [4, 8, 12],
    }
    assert expected[name](), said


def test_e4m3_reference(lock: Lock, tmp_path: Path) -> None:
    tree = _integrated("b12x", lock.outputs["quickstart"].sources["b12x"], tmp_path)
    program = "from b12x_standin.reference import e4m3; print([e4m3(b) for b in range(256)])"
    values = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tree / "python",
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip("[]\n")
    table = [float(word) for word in values.split(",")]
    # The format's landmarks: smallest subnormal and normal, one, the largest, and no infinity.
    assert (table[0x01], table[0x08], table[0x38], table[0x7E]) == (2.0**-9, 2.0**-6, 1.0, 448.0)
    assert [b for b, value in enumerate(table) if math.isnan(value)] == [0x7F, 0xFF]
    assert table[0x81:0xFF] == [-value for value in table[0x01:0x7F]]


def test_two_revisions_differ_in_one_component(command: Command) -> None:
    outputs = command.json("show", offline=True)["outputs"]
    old, new = outputs["quickstart"], outputs["quickstart-r2"]
    assert old["reference"] != new["reference"]
    drvs = [
        {name: part["drv"] if isinstance(part, dict) else part for name, part in o.items()}
        for o in (old["components"], new["components"])
    ]
    assert {name for name in drvs[0] if drvs[0][name] != drvs[1][name]} == {"vllm"}


def test_the_image_s_tag_names_the_trees(command: Command, lock: Lock) -> None:
    reference = command.json("show", "quickstart", offline=True)["outputs"]["quickstart"][
        "reference"
    ]
    assert reference.startswith("reprobuild/quickstart:quiet-quickstart-")
    for name in STAND_INS:
        assert f"{name}{lock.outputs['quickstart'].sources[name].tree[:7]}" in reference
    assert reference.endswith("-fi0.6.18-cu133-20260901-r1")
