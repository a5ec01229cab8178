"""Evaluating: what is refused, what is shared, and what decides a drv."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from reprobuild.adapters.toml.load import load_project
from reprobuild.core.digest import Digest
from reprobuild.core.graph import Graph
from reprobuild.core.lock import Lock
from reprobuild.core.project import Project
from reprobuild.engine.evaluate import Evaluation, Evaluator
from reprobuild.errors import ReprobuildError
from support.pins import made_up_lock

PROJECT = Path(__file__).parents[1] / "golden/drvs/project"
MINE = Digest("ab" * 32)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PROJECT, tmp_path / "project"))


def evaluate(
    project: Project, lock: Lock | None = None, overrides: dict[str, Digest] | None = None
) -> Evaluation:
    return Evaluator(
        project.flake,
        project.components,
        lock or made_up_lock(project.flake),
        "demo",
        overrides=overrides or {},
        contract_program="# a program\n",
        graph=Graph(),
    ).evaluate()


def drvs(evaluation: Evaluation) -> dict[str, str]:
    return {node.name: digest.hex for digest, node in evaluation.graph.nodes.items()}


def moved(directory: Path, edit: Callable[[], None]) -> set[str]:
    """The names whose drv an edit of the project changes, appears or goes."""
    before = drvs(evaluate(load_project(directory)))
    edit()
    after = drvs(evaluate(load_project(directory)))
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def replace(path: Path, old: str, new: str) -> Callable[[], None]:
    def edit() -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return edit


IMAGE = {"demo.statement", "demo.statement.layer", "demo.image"}


def test_comments_and_prose_move_nothing(directory: Path) -> None:
    edits = [
        replace(directory / "derivations/app.toml", "The application", "Another text"),
        replace(directory / "flake-like.toml", "format = 0", "# a comment\nformat = 0"),
    ]
    for edit in edits:
        assert moved(directory, edit) == set()


def test_limits_move_nothing(directory: Path) -> None:
    edit = replace(directory / "derivations/tools.toml", "timeout = 60", "timeout = 61")
    assert moved(directory, edit) == set()


def test_a_step_moves_what_is_made_of_it_alone(directory: Path) -> None:
    edit = replace(directory / "derivations/tools.toml", "header", "another header")
    assert moved(directory, edit) == {
        "tools.script",
        "tools.layer-tree",
        "demo.tools.layer",
        *IMAGE,
    }


def test_a_unit_of_a_module_moves_alone(directory: Path) -> None:
    edit = replace(directory / "derivations/app.toml", "csrc/add.cu", "csrc/sub.cu")
    names = moved(directory, edit)
    assert not any("scale" in name for name in names)
    assert any("sub" in name for name in names)


def test_release_facts_move_the_image_alone(directory: Path) -> None:
    edit = replace(directory / "flake-like.toml", 'revision = "r1"', 'revision = "r2"')
    assert moved(directory, edit) <= IMAGE


def test_a_level_moves_layers_and_what_holds_them(directory: Path) -> None:
    table = "[outputs.demo.image]\n"
    names = moved(directory, replace(directory / "flake-like.toml", table, f"{table}level = 1\n"))
    assert {n for n in names if n.endswith(".layer")} >= {"demo.tools.layer", "demo.app.layer"}
    assert {n for n in names if not n.endswith(".layer")} == {"demo.statement", "demo.image"}
    evaluation = evaluate(load_project(directory))
    layers = [n for n in evaluation.graph.nodes.values() if n.builder == "builtin:layer"]
    assert {cast("dict[str, int]", n.params)["level"] for n in layers} == {1}


def test_outputs_share_what_they_share(directory: Path) -> None:
    flake = directory / "flake-like.toml"
    text = flake.read_text()
    again = text[text.index("[outputs.demo]") :].replace("outputs.demo", "outputs.next")
    flake.write_text(text + "\n" + again.replace('"r1"', '"r2"'))
    project = load_project(directory)
    graph = Graph()
    found = []
    for name in ("demo", "next"):
        lock = made_up_lock(project.flake)
        found.append(
            Evaluator(
                project.flake, project.components, lock, name, contract_program="#", graph=graph
            ).evaluate()
        )
    one, two = found
    assert one.components == two.components
    assert one.image is not None
    assert two.image is not None
    assert one.image.located != two.image.located


# -- overrides ---------------------------------------------------------------------------------


def test_override_marks_what_depends_on_it(directory: Path) -> None:
    project = load_project(directory)
    clean = evaluate(project)
    dirty = evaluate(project, overrides={"app": MINE})
    assert dirty.dirty == ("app",)
    assert dirty.components["app"] != clean.components["app"]
    assert dirty.components["tools"] == clean.components["tools"]
    assert dirty.image is not None
    assert dirty.image.labels["org.example.dirty"] == "app"
    assert clean.image is not None
    assert "org.example.dirty" not in clean.image.labels


def test_override_of_what_is_not_used_is_clean(directory: Path) -> None:
    flake = directory / "flake-like.toml"
    flake.write_text(flake.read_text() + '\n[inputs.unused]\nkind = "path"\npath = "x"\n')
    project = load_project(directory)
    assert evaluate(project, overrides={"unused": MINE}).dirty == ()


# -- locks that do not do ----------------------------------------------------------------------


def refused(project: Project, lock: Lock) -> ReprobuildError:
    with pytest.raises(ReprobuildError) as caught:
        evaluate(project, lock)
    return caught.value


def test_an_input_that_is_not_pinned(directory: Path) -> None:
    project = load_project(directory)
    whole = made_up_lock(project.flake)
    some = {name: pin for name, pin in whole.inputs.items() if name != "nvcc"}
    error = refused(project, whole.model_copy(update={"inputs": some}))
    assert (error.code, error.facts["input"]) == ("E-LOCK-MISSING", "nvcc")
    opened = whole.model_copy(update={"inputs": some, "open": {"nvcc": "E-FETCH: gone"}})
    error = refused(project, opened)
    assert (error.code, error.exit_status) == ("E-OUTPUT-OPEN", 4)
    assert "E-FETCH: gone" in error.message


def test_a_declaration_that_changed_after_it_was_pinned(directory: Path) -> None:
    lock = made_up_lock(load_project(directory).flake)
    replace(directory / "flake-like.toml", "13.3.0", "13.3.1")()
    error = refused(load_project(directory), lock)
    assert (error.code, error.facts["input"]) == ("E-LOCK-STALE", "nvcc")


def test_heads_that_changed_after_they_were_pinned(directory: Path) -> None:
    lock = made_up_lock(load_project(directory).flake)
    replace(directory / "flake-like.toml", "number = 9", "number = 10")()
    error = refused(load_project(directory), lock)
    assert error.code == "E-LOCK-STALE"
    assert error.facts["key"] == "outputs.demo.sources.app"


def test_titles_of_heads_do_not_make_a_lock_stale(directory: Path) -> None:
    lock = made_up_lock(load_project(directory).flake)
    replace(directory / "flake-like.toml", "Second", "Another title")()
    evaluate(load_project(directory), lock)


def test_a_published_tree_that_is_not_what_came_out(directory: Path) -> None:
    project = load_project(directory)
    lock = made_up_lock(project.flake)
    wrong = "a" * 40
    edit = replace(
        directory / "flake-like.toml",
        '[outputs.demo.sources.app]\ninput = "app"',
        f'[outputs.demo.sources.app]\ninput = "app"\ntree = "{wrong}"',
    )
    edit()
    error = refused(load_project(directory), lock)
    assert (error.code, error.facts["expected"]) == ("E-TREE-MISMATCH", wrong)


def test_an_open_source(directory: Path) -> None:
    project = load_project(directory)
    lock = made_up_lock(project.flake)
    output = lock.outputs["demo"].model_copy(update={"open": {"app": "E-REF-MISSING: gone"}})
    error = refused(project, lock.model_copy(update={"outputs": {"demo": output}}))
    assert error.code == "E-OUTPUT-OPEN"
    assert error.facts["open"] == "app"
