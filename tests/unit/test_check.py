"""What fits together, and what does not: the checks across flake and components."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from reprobuild.core.check import check_project
from reprobuild.core.component import Component
from reprobuild.core.flake import Flake

FLAKE = """
format = 0
[inputs.repo]
kind = "git"
url = "https://git.example.org/app"
ref = "refs/heads/main"
[inputs.tree]
kind = "path"
path = "tree"
[inputs.wheel]
kind = "wheel"
name = "pkg"
version = "1.0"
[inputs.debs]
kind = "deb"
packages = ["a", "b"]
"""

ROOT = """
result = "steps.root"
[steps.root]
kind = "rootfs"
packages = ["inputs.debs"]
"""

SCRIPT = """
[steps.run]
kind = "script"
run = "true"
inputs = { a = "source" }
"""

RELEASE = """
[outputs.demo.image]
[outputs.demo.release]
codename = "demo"
revision = "r1"
date = 2026-01-02
repository = "example.org/demo"
"""

IMAGE = '[image]\nplace = [{ from = "steps.run", to = "" }]\n'


def frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: frozen(item) for key, item in value.items()}
    return tuple(frozen(item) for item in value) if isinstance(value, list) else value


def found(flake: str, **components: str) -> list[str]:
    """The problems, as `FILE KEY.PATH: message`."""
    parsed = {
        name: Component.model_validate(frozen(tomllib.loads(text)))
        for name, text in components.items()
    }
    problems = check_project(Flake.model_validate(frozen(tomllib.loads(FLAKE + flake))), parsed)
    return [f"{p.file} {'.'.join(map(str, p.path))}: {p.message}" for p in problems]


def test_a_component_may_take_its_source_from_the_output_alone() -> None:
    flake = (
        '[toolchains.t]\nroot = "components.root"\n[outputs.demo]\ncomponents = ["app"]\n'
        '[outputs.demo.sources.app]\ninput = "repo"\n'
    )
    assert found(flake, root=ROOT, app='result = "steps.run"\n' + SCRIPT) == []


def test_source_without_any_input() -> None:
    flake = '[toolchains.t]\nroot = "components.root"\n[outputs.demo]\ncomponents = ["app"]\n'
    (problem,) = found(flake, root=ROOT, app='result = "steps.run"\n' + SCRIPT)
    assert problem.startswith("derivations/app.toml steps.run.inputs.a: `source` needs an `input`")


def test_source_is_judged_by_the_kind_behind_it() -> None:
    app = 'input = "wheel"\nresult = "steps.u"\n[steps.u]\nkind = "unpack"\narchive = "source"\n'
    assert found("", app=app) == []
    (problem,) = found("", app=app.replace('"wheel"', '"repo"'))
    assert "`repo` is a git input; needed here is one of: sdist, url, wheel" in problem


def test_the_only_toolchain_is_the_one_that_is_meant() -> None:
    app = 'input = "repo"\nresult = "steps.run"\n' + SCRIPT
    output = '[outputs.demo]\ncomponents = ["app"]\n'
    one = '[toolchains.t]\nroot = "components.root"\n'
    two = one + '[toolchains.u]\nroot = "components.root"\n'
    assert found(one + output, root=ROOT, app=app) == []
    for flake in (output, two + output):
        (problem,) = found(flake, root=ROOT, app=app)
        assert "a script needs a toolchain; neither this step nor output `demo`" in problem
    named = app.replace('run = "true"', 'run = "true"\nroot = "components.root"')
    assert found(two + output, root=ROOT, app=named) == []


def test_what_no_output_needs_may_lack_a_toolchain() -> None:
    app = 'input = "repo"\nresult = "steps.run"\n' + SCRIPT
    assert found('[outputs.demo]\ncomponents = ["root"]\n', root=ROOT, app=app) == []


def test_a_layer_may_hold_the_components_own_result() -> None:
    app = ROOT + '[image]\nplace = [{ from = "components.app", to = "" }]\n'
    assert found('[outputs.demo]\ncomponents = ["app"]\n', app=app) == []


def test_a_layer_is_built_too() -> None:
    """A step that only the image needs lacks its toolchain all the same."""
    app = ROOT.replace("result", 'input = "repo"\nresult') + SCRIPT + IMAGE
    (problem,) = found('[outputs.demo]\ncomponents = ["app"]\n', app=app)
    assert "derivations/app.toml steps.run: a script needs a toolchain" in problem


def test_a_circle_through_two_components_and_a_toolchain() -> None:
    flake = '[toolchains.t]\nroot = "components.a"\n[outputs.demo]\ncomponents = ["b"]\n'
    a = 'result = "components.b"\n'
    b = 'result = "steps.run"\n[steps.run]\nkind = "script"\nrun = "true"\ntoolchain = "t"\n'
    (problem,) = found(flake, a=a, b=b)
    assert problem == (
        "derivations/a.toml result: this needs itself: components.a → components.b → "
        "components.b.run → toolchains.t.root → components.a"
    )


def test_two_ways_to_one_thing_are_no_circle() -> None:
    join = (
        'result = "steps.j"\n[steps.j]\nkind = "join"\n'
        'place = [{ from = "components.root", to = "a" }, { from = "components.mid", to = "b" }]\n'
    )
    mid = 'result = "components.root"\n'
    assert found('[outputs.demo]\ncomponents = ["top"]\n', root=ROOT, mid=mid, top=join) == []


@pytest.mark.parametrize(
    ("component", "tag", "says"),
    [
        ('version = "1.0"\ninput = "repo"', "{app.version}", None),
        ('version = "1.0"\ninput = "repo"', "{app.tree:7}-{app.commit:7}", None),
        ('input = "repo"', "{app.version}", "needs a `version`"),
        ('input = "wheel"', "x{app.version}", None),
        ('input = "debs"', "x{app.version}", "needs a `version`"),
        ('input = "tree"', "{app.tree}", "needs an `input` that is a repository"),
        ('version = "1.0+cu133"\ninput = "repo"', "{app.version}", "'+' in '1.0+cu133'"),
        ('input = "repo"', "{app.drv}", None),
        ('input = "repo"', "{app.drv}{app.drv}{app.drv}", "at most 128"),
        ('input = "repo"', "{root.drv}", "this output has no component `root`"),
        ('input = "repo"', "{date}{revision}{codename}", None),
        ('input = "repo"', "{cuda}", "unknown placeholder {cuda}"),
        ('input = "repo"', "{app}", "unknown placeholder {app}"),
    ],
)
def test_tags(component: str, tag: str, says: str | None) -> None:
    flake = f'[outputs.demo]\ncomponents = ["app"]\n{RELEASE}tag = "{tag}"\n'
    step = '[steps.run]\nkind = "script"\nrun = "true"\nroot = "components.root"\n'
    problems = found(flake, root=ROOT, app=f'{component}\nresult = "steps.run"\n{step}{IMAGE}')
    if says is None:
        assert problems == []
    else:
        (problem,) = problems
        assert problem.startswith("flake-like.toml outputs.demo.release.tag: ")
        assert says in problem


def test_versions_at_run_time_are_placeholders() -> None:
    flake = (
        f'[outputs.demo]\ncomponents = ["root"]\n{RELEASE}'
        'tag = "cu{cuda}-{cuda.version}-torch{torch}"\n'
        'runtime = { cuda = "13.3", torch = "2.13.0" }\n'
    )
    assert found(flake, root=ROOT) == []
