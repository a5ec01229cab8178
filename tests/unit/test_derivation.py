"""Derivations: what decides the two digests, and what must not."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from reprobuild.core.derivation import (
    Derivation,
    FixedOutput,
    Hints,
    Input,
    InputContent,
    Isolation,
    check_component_name,
)
from reprobuild.core.digest import Digest, GitOid, Sha256
from reprobuild.errors import ReprobuildError

ONE, TWO = Digest("11" * 32), Digest("22" * 32)
BASE = Derivation(
    name="demo.step",
    builder="sandbox",
    inputs=(Input("root", ONE, at="/"), Input("source", TWO, path="sub", at="/inputs/source")),
    outputs=("out",),
    argv=("/bin/sh", "-c", "true"),
    env={"A": "1"},
)
BUILTIN = Derivation("demo.join", "builtin:join", (Input("a", ONE),), params={"place": [1]})
FETCH = Derivation(
    "inputs.x", "fetch", fixed=FixedOutput("tree", tree=ONE), origin={"kind": "path"}
)
CONTENT = {"root": InputContent(ONE), "source": InputContent(TWO)}

# Every field of a derivation, with another value; None where it decides no digest.
CHANGES: dict[str, Any] = {
    "name": {"name": "demo.other"},
    "builder": {"builder": "builtin:other"},
    "inputs": {"inputs": (*BASE.inputs, Input("more", ONE, at="/more"))},
    "outputs": {"outputs": ("out", "dev")},
    "argv": {"argv": ("/bin/sh", "-c", "false")},
    "env": {"env": {"A": "2"}},
    "cwd": {"cwd": "/elsewhere"},
    "params": {"params": {"x": 1}},
    "system": {"system": "aarch64-linux"},
    "narrow": {"narrow": {"starts": ["a.cu"]}},
    "fixed": None,  # below
    "origin": None,
    "hints": None,
}


def code(call: Any, *words: Any, **named: Any) -> str:
    with pytest.raises(ReprobuildError) as caught:
        call(*words, **named)
    return caught.value.code


def test_every_field_is_judged_here() -> None:
    # what is no parameter is only remembered
    assert set(CHANGES) == {field.name for field in fields(Derivation) if field.init}


@pytest.mark.parametrize("name", [name for name, change in CHANGES.items() if change])
def test_any_fields_change_changes_the_drv(name: str) -> None:
    assert replace(BASE, **CHANGES[name]).digest != BASE.digest


def test_scheduling_and_provenance_change_nothing() -> None:
    other = replace(BASE, hints=Hints(memory=1, cores=9, timeout=2), origin={"from": "elsewhere"})
    assert other.digest == BASE.digest
    assert other.action(CONTENT, "s/1") == BASE.action(CONTENT, "s/1")


@pytest.mark.parametrize(
    "change",
    [{"name": "source2"}, {"drv": ONE}, {"output": "dev"}, {"path": ""}, {"at": "/inputs/other"}],
)
def test_any_change_of_an_input_changes_the_drv(change: dict[str, Any]) -> None:
    inputs = (BASE.inputs[0], replace(BASE.inputs[1], **change))
    assert replace(BASE, inputs=inputs).digest != BASE.digest


def test_order_of_inputs_and_environment_does_not_matter() -> None:
    two = replace(BASE, env={"A": "1", "B": "2"})
    turned = replace(BASE, env={"B": "2", "A": "1"}, inputs=tuple(reversed(BASE.inputs)))
    assert turned.digest == two.digest
    assert turned.action(CONTENT, "s/1") == two.action(CONTENT, "s/1")


# -- the action --------------------------------------------------------------------------------


def test_names_do_not_decide_an_action() -> None:
    assert replace(BASE, name="demo.other").action(CONTENT, "s/1") == BASE.action(CONTENT, "s/1")


@pytest.mark.parametrize("change", [{"drv": ONE}, {"output": "dev"}, {"path": ""}])
def test_where_an_input_came_from_does_not_decide_an_action(change: dict[str, Any]) -> None:
    other = replace(BASE, inputs=(BASE.inputs[0], replace(BASE.inputs[1], **change)))
    assert other.digest != BASE.digest
    assert other.action(CONTENT, "s/1") == BASE.action(CONTENT, "s/1")


@pytest.mark.parametrize("name", ["builder", "outputs", "argv", "env", "cwd", "params", "system"])
def test_the_recipe_decides_an_action(name: str) -> None:
    other = replace(BASE, **CHANGES[name])
    assert other.action(CONTENT, "s/1") != BASE.action(CONTENT, "s/1")


@pytest.mark.parametrize(
    "content",
    [
        {"source": InputContent(ONE)},
        {"source": InputContent(TWO, is_file=True)},
        {"source": InputContent(TWO, is_file=True, executable=True)},
        {"root": InputContent(TWO), "source": InputContent(ONE)},
    ],
)
def test_what_inputs_are_decides_an_action(content: dict[str, InputContent]) -> None:
    given = {**CONTENT, **content}
    digests = {BASE.action(CONTENT, "s/1"), BASE.action(given, "s/1")}
    assert len(digests) == 2


def test_executable_is_told_from_plain() -> None:
    plain = {**CONTENT, "source": InputContent(TWO, is_file=True)}
    executable = {**CONTENT, "source": InputContent(TWO, is_file=True, executable=True)}
    assert BASE.action(plain, "s/1") != BASE.action(executable, "s/1")


def test_place_of_an_input_decides_an_action() -> None:
    moved = replace(BASE, inputs=(BASE.inputs[0], replace(BASE.inputs[1], at="/inputs/other")))
    assert moved.action(CONTENT, "s/1") != BASE.action(CONTENT, "s/1")


def test_the_interpreter_decides_an_action() -> None:
    assert BASE.action(CONTENT, "sandbox/1") != BASE.action(CONTENT, "sandbox/2")


def test_drv_and_action_are_of_different_domains() -> None:
    assert FETCH.action({}, "fetch") != FETCH.digest


# -- fixed outputs -----------------------------------------------------------------------------


def test_fixed_outputs_are_named_by_content_alone() -> None:
    other = Derivation("other.name", "fetch", fixed=FETCH.fixed, origin={"kind": "url", "url": "x"})
    assert other.digest == FETCH.digest
    assert other.action({}, "anything/9") == FETCH.action({}, "fetch")
    assert other.document() == {"fixed": {"kind": "tree", "tree": ONE.hex}}


def test_every_part_of_a_promise_is_hashed() -> None:
    promises = [
        FixedOutput("tree", tree=ONE),
        FixedOutput("tree", tree=TWO),
        FixedOutput("file", "a", sha256=Sha256("11" * 32)),
        FixedOutput("file", "b", sha256=Sha256("11" * 32)),
        FixedOutput("file", "a", sha256=Sha256("22" * 32)),
        FixedOutput("oci-image", sha256=Sha256("11" * 32)),
        FixedOutput("git-tree", oid=GitOid("1" * 40)),
        FixedOutput("git-tree", oid=GitOid("1" * 64)),
    ]
    assert len({Derivation("x", "fetch", fixed=p).digest for p in promises}) == len(promises)


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"argv": ()},
        {"argv": ("a\0b",)},
        {"env": {"A\0": "1"}},
        {"env": {"A": "\0"}},
        {"outputs": ()},
        {"outputs": ("out", "out")},
        {"inputs": (Input("a", ONE, at="/a"), Input("a", TWO, at="/b"))},
        {"inputs": (Input("a", ONE, at="/a"), Input("b", TWO, at="/a"))},
        {"inputs": (Input("a", ONE),)},
        {"builder": "fetch"},
        {"builder": "builtin:x", "fixed": FETCH.fixed},
    ],
)
def test_recipes_that_are_refused(change: dict[str, Any]) -> None:
    assert code(replace, BASE, **change) == "E-DERIVATION"


@pytest.mark.parametrize("name", ["", " ", "-a", ".a", "a b", "a\n", "é", "a" * 201, "../x"])
def test_names_that_are_refused(name: str) -> None:
    assert code(replace, BASE, name=name) == "E-NAME"


@pytest.mark.parametrize("name", ["", "a.b", "a b", "-a", "a/b", "a\n", "a" * 81])
def test_names_of_components_have_no_dot(name: str) -> None:
    assert code(check_component_name, name) == "E-NAME"
    assert check_component_name("flashinfer-0_6+cu13") == "flashinfer-0_6+cu13"


def test_what_cannot_be_encoded_has_no_digest() -> None:
    broken = replace(BUILTIN, params={"x": 1.5})  # type: ignore[dict-item]
    assert code(lambda: broken.digest) == "E-ENCODING"


# -- isolation ---------------------------------------------------------------------------------


def test_weaker_never_serves_a_stricter_wish() -> None:
    grades = [Isolation.FULL, Isolation.HOST_TOOLCHAIN, Isolation.NONE]
    table = [[had.satisfies(wish) for wish in grades] for had in grades]
    assert table == [[True, True, True], [False, True, True], [False, False, True]]
