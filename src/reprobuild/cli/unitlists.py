"""The part of `lock` that lists what patterns of units match, in trees that it makes for that."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.app import App
    from reprobuild.core.digest import Digest
    from reprobuild.core.flake import Flake
    from reprobuild.core.graph import Graph
    from reprobuild.core.kinds.context import Located
    from reprobuild.core.lock import Lock
    from reprobuild.engine.lock import Locked

_WAIT = frozenset(("E-OUTPUT-OPEN", "E-FETCH", "E-OFFLINE", "E-GIT-FETCH"))
"""Why an output has no lists yet: what it needs cannot be had now."""


def with_lists(app: App, flake: Flake, old: Lock | None, locked: Locked) -> Locked:
    """The new lock with the lists of every output that can be evaluated.

    Nothing is made where no unit is a pattern. A tree that cannot be had leaves its output without
    lists, and evaluating that says so.
    """
    from reprobuild.core.graph import Graph
    from reprobuild.engine.evaluate import Evaluator
    from reprobuild.engine.listing import Lists, has_patterns
    from reprobuild.engine.lock import changes

    components = app.project.components
    if not has_patterns(components):
        return locked
    outputs = dict(locked.lock.outputs)
    for name in flake.outputs:
        graph = Graph()
        lists = Lists(graph, old, app.store, lambda g, located: _made(app, g, located))
        evaluator = Evaluator(flake, components, locked.lock, name, graph=graph, lister=lists)
        try:
            evaluator.evaluate()
        except ReprobuildError as error:
            if error.code not in _WAIT:
                raise
        outputs[name] = outputs[name].model_copy(update={"units": lists.rows})
    lock = locked.lock.model_copy(update={"outputs": outputs})
    return replace(locked, lock=lock, changed=changes(old, lock))


def _made(app: App, graph: Graph, located: Located) -> Digest:
    from reprobuild.cli.options import machine_memory
    from reprobuild.core.derivation import Isolation
    from reprobuild.engine.realize import Wishes
    from reprobuild.engine.scheduler import Limits

    limits = Limits(jobs=1, cores=2, memory=int(machine_memory() * 0.5))
    wishes = Wishes(isolation=Isolation.FULL, limits=limits)
    done = app.building.realizer(Isolation.FULL).realize(graph, [located.drv], wishes)
    return done.chosen[located.drv].outputs[located.output]
