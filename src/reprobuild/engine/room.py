"""A build's own sandbox, to look around in: the request that would have run it, not run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from reprobuild.core.derivation import SANDBOX
from reprobuild.core.digest import Digest
from reprobuild.core.graph import Graph
from reprobuild.engine.loans import placed
from reprobuild.engine.realize import Realizer, Wishes
from reprobuild.engine.resolve import input_content
from reprobuild.engine.workplace import work_directory
from reprobuild.errors import ReprobuildError
from reprobuild.ports import BuildRequest


def sandboxed(graph: Graph, start: Digest) -> Digest:
    """The last sandboxed derivation that `start` needs; raises E-USAGE when there is none."""
    built = [d for d in graph.order([start]) if graph.nodes[d].builder == SANDBOX]
    if not built:
        raise ReprobuildError("E-USAGE", f"{graph.nodes[start].name} is made without a sandbox")
    return built[-1]


@contextmanager
def room(
    realizer: Realizer, graph: Graph, drv: Digest, wishes: Wishes, kept: Path | None, terminal: str
) -> Iterator[BuildRequest]:
    """The request of `drv`, its inputs made first; `kept` is what a failed build left behind.

    The build's command stands in $REPROBUILD_COMMAND. A fresh work directory is removed after.
    """
    node = graph.nodes[drv]
    if node.builder != SANDBOX:
        raise ReprobuildError(
            "E-USAGE", f"{node.name} is made by {node.builder}, which has no sandbox"
        )
    if kept is not None and not (kept / "build").is_dir():
        raise ReprobuildError(
            "E-USAGE",
            f"{kept} is no directory that a build left",
            file=str(kept),
            hint="name the `kept` directory of an error after `realize --keep-failed`",
        )
    done = realizer.realize(graph, sorted({entry.drv for entry in node.inputs}), wishes)
    inputs = {
        entry.name: input_content(
            realizer.content, entry, done.chosen[entry.drv].outputs[entry.output], node.name
        )
        for entry in node.inputs
    }
    builder = realizer.builder
    workdir = kept or work_directory(builder.work, "shell")
    try:
        request = builder.request(node, inputs, workdir, partial(placed, builder.content))
        env = {**request.env, "REPROBUILD_COMMAND": shlex.join(node.argv), "TERM": terminal}
        for name in node.outputs:
            (workdir / "out" / name).mkdir(parents=True, exist_ok=True)
        yield replace(request, env=env)
    finally:
        if kept is None:
            builder.executor.discard(workdir)


def interactive_shell(request: BuildRequest) -> Sequence[str]:
    """bash where the root has one (dash as the first process knows no job control), else sh."""
    roots = [mount.source for mount in request.mounts if mount.at == "/"]
    if any((root / "usr/bin/bash").exists() or (root / "bin/bash").exists() for root in roots):
        return ("/bin/bash", "-i")
    return ("/bin/sh", "-i")
