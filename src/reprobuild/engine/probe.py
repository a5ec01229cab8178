"""A command tried in the sandbox on an integration tree: what `integrate --bisect` runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from reprobuild.core.derivation import SANDBOX, Derivation, FixedOutput, Input
from reprobuild.core.digest import Digest, GitOid
from reprobuild.core.encoding import Value
from reprobuild.core.graph import Graph
from reprobuild.core.integration.model import IntegrationSpec
from reprobuild.core.sandboxenv import base_environment
from reprobuild.engine.integrate import Trial
from reprobuild.errors import ReprobuildError

SCRIPT = """\
cp -R /inputs/source /build/source
if command -v chmod > /dev/null; then chmod -R u+w /build/source; fi
cd /build/source
/bin/sh -c "$PROBE"
mkdir -p "$out"
echo passed > "$out/passed"
"""
FAILED = frozenset({"E-BUILD-FAILED"})


def root_of(graph: Graph, target: Digest) -> Input:
    """The root file system that the last sandboxed build before `target` (or it) runs in.

    Raises E-USAGE when nothing below it is built in a sandbox.
    """
    for digest in reversed(graph.order([target])):
        node = graph.nodes[digest]
        if node.builder == SANDBOX:
            return next(entry for entry in node.inputs if entry.at == "/")
    raise ReprobuildError(
        "E-USAGE",
        "nothing of this component is built in a sandbox, so there is no root to run in",
        hint="give the component a step with a `root` (docs/language.md), as its build will have",
    )


def probe(
    graph: Graph,
    root: Input,
    command: str,
    origin: Mapping[str, Value],
    trees: Mapping[GitOid, IntegrationSpec],
    realize: Callable[[Graph, Digest], object],
) -> Trial:
    """A function that says how `command` fails on an integration tree; None where it passes.

    Every trial is a derivation like any other: sandboxed, logged, and on record, so that a second
    bisection over the same trees runs nothing. `trees` says how each tree is come by. Failures
    other than the command's own are raised.
    """

    place = {k: v for k, v in origin.items() if k in ("kind", "url", "path", "ref")}

    def tried(tree: GitOid) -> ReprobuildError | None:
        source = Derivation(
            "bisect.source",
            "fetch",
            fixed=FixedOutput("git-tree", oid=tree),
            origin={**place, **trees[tree].document()},
        )
        drv = graph.add(source)
        trial = Derivation(
            name="bisect.probe",
            builder=SANDBOX,
            inputs=(replace(root, name="root"), Input("source", drv, at="/inputs/source")),
            argv=("/bin/sh", "-eu", "-c", SCRIPT),
            env={**base_environment(), "out": "/out/out", "PROBE": command},
        )
        try:
            realize(graph, graph.add(trial))
        except ReprobuildError as error:
            if error.code not in FAILED:
                raise
            return error
        return None

    return tried


def prefixes(
    spec: IntegrationSpec, tips: tuple[GitOid, ...], base_tree: GitOid
) -> dict[GitOid, IntegrationSpec]:
    """For the tree after each count of heads, the spec that gives it."""
    found: dict[GitOid, IntegrationSpec] = {base_tree: replace(spec, heads=(), patches=())}
    for count, tree in enumerate(tips, 1):
        found.setdefault(tree, replace(spec, heads=spec.heads[:count], patches=()))
    return found
