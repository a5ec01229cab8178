"""Plans over any graph: closed, ordered, stable, and honest about what realizing then does."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.world import World, glue, graph_of, step, wish
from reprobuild.core.derivation import Derivation
from reprobuild.engine.plan import Deed


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[str, tuple[int, ...]]]:
    """Nodes with the numbers of the nodes before them that they need; some need none."""
    size = draw(st.integers(1, 7))
    rows: list[tuple[str, tuple[int, ...]]] = []
    for index in range(size):
        kind = draw(st.sampled_from(["step", "glue"])) if index else "source"
        needs = draw(st.sets(st.integers(0, index - 1), min_size=1, max_size=3)) if index else set()
        rows.append((kind, tuple(sorted(needs))))
    return rows


def build(world: World, rows: list[tuple[str, tuple[int, ...]]]) -> list[Derivation]:
    made: list[Derivation] = []
    for index, (kind, needs) in enumerate(rows):
        if kind == "source":
            made.append(world.source(f"n{index}", f"text {index}\n"))
        elif kind == "step":
            made.append(step(f"n{index}", *(made[n] for n in needs)))
        else:
            made.append(glue(f"n{index}", *(made[n] for n in needs)))
    return made


@given(graphs(), st.data())
@settings(max_examples=40)
def test_plan_and_deed_agree(rows: list[tuple[str, tuple[int, ...]]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as home:
        world = World(Path(home))
        nodes = build(world, rows)
        graph = graph_of(nodes)
        for target in data.draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=3)):
            plan = world.realizer().plan(graph, [target.digest], wish())
            assert plan == world.realizer().plan(graph, [target.digest], wish())
            order = [s.drv for s in plan.steps]
            assert len(set(order)) == len(order)
            for place, planned in enumerate(plan.steps):
                if planned.deed is Deed.REUSE:
                    assert planned.record is not None
                    continue
                for entry in graph.nodes[planned.drv].inputs:
                    assert entry.drv in order[:place]
            done = world.realize(target, nodes)
            assert set(done.chosen) == set(order)
            assert done.reused == len(plan.of(Deed.REUSE))
            assert done.fetched == len(plan.of(Deed.FETCH))
            assert done.built + done.cut_off == len(plan.of(Deed.BUILD))
            (left,) = world.realizer().plan(graph, [target.digest], wish()).steps
            assert (left.deed, left.drv) == (Deed.REUSE, target.digest)
