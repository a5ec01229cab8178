"""Whole commands over graphs of 1,000 and 10,000 derivations, against Nix on an equal graph.

* no-op – `realize` with everything made, against `nix-build` with everything made;
* plan – from nothing to a plan with every derivation document written and durable, against
  `nix-instantiate`: a store of its own each time;
* builds – 1,000 trivial builds in the sandbox, two at a time, against `nix-build -j2` without one.

    benchmarks/realize.py [--quick] [noop] [plan] [builds]
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import graphs
import nix
from harness import Row, Suite, Way, command, contest, set_aside, tool

PLAN = """\
import sys
from pathlib import Path
from reprobuild.adapters.store.store import LocalStore
from reprobuild.adapters.toml.load import load_project
from reprobuild.core.derivation import Isolation
from reprobuild.core.graph import documents
from reprobuild.engine.evaluate import Evaluator
from reprobuild.engine.plan import make_plan

project = load_project(Path(sys.argv[1]))
with LocalStore.open(Path(sys.argv[2]), create=True) as store, store.lease():
    evaluation = Evaluator(project.flake, project.components, project.lock, "all").evaluate()
    drvs = [place.drv for place in evaluation.components.values()]
    plan = make_plan(evaluation.graph, drvs, store, store, Isolation.FULL)
    store.add_derivations(documents(evaluation.graph, [step.drv for step in plan.steps]))
    assert len(plan.steps) > int(sys.argv[3])
"""


def _run(way: Way) -> None:
    subprocess.run(list(way.argv), env=way.env, check=True, capture_output=True)


def _both(home: Path, count: int, *, chained: bool) -> tuple[Path, Path]:
    """The project, locked, and the expression."""
    project = home / f"project-{count}-{chained}"
    project.mkdir()
    graphs.project(project, count, chained=chained)
    _run(Way(tool("-C", project, "--store", home / "lock", "--quiet", "lock")))
    other = home / f"nix-{count}-{chained}"
    other.mkdir()
    return project, graphs.expression(other, count, chained=chained)


def noop(home: Path, count: int, rounds: int) -> Iterator[Row]:
    """Nothing to do, `count` derivations."""
    if not nix.installed():
        return
    project, expression = _both(home, count, chained=False)
    env = nix.environment(home / "nix-noop")
    ours = Way(tool("-C", project, "--store", home / "noop", "--quiet", "realize"))
    theirs = Way(["nix-build", "--no-out-link", "-j2", str(expression)], env=env)
    nix.pretend_built(expression, env)
    _run(ours)
    again = subprocess.run(list(ours.argv), check=True, capture_output=True, text=True)
    assert again.stdout.splitlines()[-1] == "nothing to do", again.stdout
    yield contest("no-op realize", f"{count:,}", "nix-build", ours, theirs,
                   wanted=1, rounds=rounds)  # fmt: skip


def plan(home: Path, count: int, rounds: int) -> Iterator[Row]:
    """From the files of a project to a plan and stored documents."""
    if not nix.installed():
        return
    project, expression = _both(home, count, chained=True)
    store, other = home / "plan", home / "nix-plan"
    env = nix.environment(other)

    def empty() -> None:
        set_aside(other)
        nix.environment(other)

    ours = Way([sys.executable, "-c", PLAN, str(project), str(store), str(count)],
               prepare=lambda: set_aside(store))  # fmt: skip
    theirs = Way(["nix-instantiate", str(expression)], prepare=empty, env=env)
    yield contest("evaluate and plan from nothing", f"{count:,}", "nix-instantiate", ours, theirs,
                   wanted=1, rounds=rounds)  # fmt: skip


def builds(home: Path, count: int, rounds: int) -> Iterator[Row]:
    """Trivial builds, two at a time, nothing made yet."""
    if not nix.installed():
        return
    project, expression = _both(home, count, chained=False)
    store, other = home / "builds", home / "nix-builds"
    env = nix.environment(other)

    def empty() -> None:
        set_aside(other)
        nix.environment(other)
        _run(Way(["nix-instantiate", str(expression)], env=env))

    ours = Way(tool("-C", project, "--store", store, "--quiet", "realize", "-j2"),
               prepare=lambda: set_aside(store))  # fmt: skip
    theirs = Way(["nix-build", "--no-out-link", "-j2", str(expression)], prepare=empty, env=env)
    yield contest("trivial builds, sandboxed, 2 jobs", f"{count:,}", "nix-build -j2, no sandbox",
                   ours, theirs, wanted=0.5, rounds=rounds, warm=False)  # fmt: skip


ALL: Suite = {
    "noop": (noop, (1000, 10_000)),
    "plan": (plan, (1000, 10_000)),
    "builds": (builds, (200, 1000)),
}


if __name__ == "__main__":
    sys.exit(command(__doc__, ALL))
