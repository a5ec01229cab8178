"""A million actions on a thousand nodes, simulated: how long, what moves, what it takes here.

The scheduler is the real one; time is not. Durations and sizes of outputs are drawn from the
records of a store (`--store`), else from those of the quickstart, which stand below. The graph is a
release's, many times over: modules of a generator, some translation units and a link, joined by
components, joined in the end.

    benchmarks/simulate.py [--actions N] [--nodes N] [--store DIR] [--seed N]

Printed are the time that it would take against both lower bounds (the longest chain; all the work
spread evenly), how busy the nodes are, what moves between whom, and memory and time here. What is
on paper only is marked so: it is computed from the figures, not simulated.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import resource
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprobuild.core.digest import Digest
from reprobuild.core.record import Record
from reprobuild.engine.scheduler import Cost, Lane, Limits, Scheduler, _State

QUICKSTART = (
    # (kind, milliseconds, bytes of output), as recorded on two nodes of one core each
    ("unit", 26_417, 123_164), ("unit", 2_670, 45_512), ("unit", 37_621, 392_205),
    ("unit", 7_283, 35_431), ("unit", 21_909, 127_396), ("unit", 18_329, 102_148),
    ("unit", 25_312, 93_851), ("link", 760, 74_527), ("link", 868, 43_523),
    ("link", 704, 208_961), ("link", 448, 34_632), ("link", 371, 65_935), ("link", 886, 112_388),
    ("generate", 825, 1_585), ("generate", 1_222, 5_458), ("generate", 2_730, 3_041),
)  # fmt: skip

TOOLCHAIN = 545 * 10**6
"""Bytes that a node needs before its first compile: the CUDA toolchain's root, as it was staged."""

SENT = 3_700
"""Bytes that an action's own messages and changed directories take on the way up."""

OVERHEAD = 0.065
"""Seconds of an action on the way there and back (facts of the trial cluster, idle)."""

LINK = 10 * 10**9 / 8
"""Bytes a second of one 10 Gbit/s link."""

HASH = 1.5 * 10**9
"""Bytes a second that one core names, both digests together, on paper."""


@dataclass
class Kinds:
    """What actions of each kind take: (seconds, bytes) to draw from."""

    unit: list[tuple[float, int]] = field(default_factory=list)
    link: list[tuple[float, int]] = field(default_factory=list)
    generate: list[tuple[float, int]] = field(default_factory=list)


def recorded(store: Path | None) -> tuple[Kinds, str]:
    """From a store's records, where it has enough of each kind; else the quickstart's."""
    kinds = Kinds()
    if store is not None:
        for path in (store / "records").rglob("*"):
            if path.is_file():
                record = Record.decode(path.read_bytes())
                if record.log:
                    seconds = record.duration_ms / 1000
                    kind = kinds.unit if ":" in record.name else kinds.link
                    kind.append((seconds, 100_000))
        kinds.generate = [row for row in kinds.link if row[0] < 5] or kinds.link
        if len(kinds.unit) >= 5 and len(kinds.link) >= 3:
            return kinds, f"{len(kinds.unit)} units and {len(kinds.link)} links of {store}"
        kinds = Kinds()
    for name, milliseconds, size in QUICKSTART:
        getattr(kinds, name).append((milliseconds / 1000, size))
    return kinds, "the quickstart's records"


class Done:
    """A future that is done, and went well."""

    def exception(self) -> None:
        return None


def graph(
    count: int, kinds: Kinds, chance: random.Random
) -> tuple[list[Digest], dict[Digest, set[Digest]], dict[Digest, tuple[float, int]]]:
    """(order, needs, (seconds, bytes)) of about `count` actions."""
    order: list[Digest] = []
    needs: dict[Digest, set[Digest]] = {}
    takes: dict[Digest, tuple[float, int]] = {}
    number = 0

    def add(kind: list[tuple[float, int]], below: set[Digest]) -> Digest:
        nonlocal number
        node = Digest(f"{number:064x}")
        number += 1
        order.append(node)
        needs[node] = below
        takes[node] = chance.choice(kind)
        return node

    links: list[Digest] = []
    while number < count - 1 - count // 2000:
        source = add(kinds.generate, set())
        units = {add(kinds.unit, {source}) for _ in range(chance.randint(4, 40))}
        links.append(add(kinds.link, units))
    groups = [set(links[i : i + 100]) for i in range(0, len(links), 100)]
    parts = {add(kinds.link, group) for group in groups}
    add(kinds.link, parts)
    return order, needs, takes


def longest(
    order: list[Digest],
    needs: dict[Digest, set[Digest]],
    takes: dict[Digest, tuple[float, int]],
) -> float:
    """Seconds of the longest chain."""
    ends: dict[Digest, float] = {}
    for node in order:
        ends[node] = max((ends[n] for n in needs[node]), default=0.0) + takes[node][0] + OVERHEAD
    return max(ends.values())


def simulate(options: argparse.Namespace) -> None:
    chance = random.Random(options.seed)
    kinds, source = recorded(options.store)
    order, needs, takes = graph(options.actions, kinds, chance)
    bare = _memory()
    scheduler = Scheduler(
        order=order,
        needs=needs,
        cost=lambda _: Cost(),
        limits=Limits(1, 1, 2**40),
        cancel=threading.Event(),
        weight=lambda node: round(takes[node][0] * 1000),
        lane=Lane(lambda: options.nodes, lambda _: True, lambda _: None, most=options.nodes),
        here=lambda _: False,
    )
    begun = time.process_time()
    state = _State(scheduler)
    ready = time.process_time() - begun
    now, busy, running = 0.0, 0.0, 0
    events: list[tuple[float, int, Digest, Any]] = []
    used = list(range(options.nodes))
    warm: set[int] = set()
    placed: dict[Digest, int] = {}
    begun = time.process_time()
    while True:
        for node in state.startable():
            place = used.pop()
            warm.add(place)
            placed[node] = place
            future: Any = Done()
            state.running[future] = node
            running += 1
            heapq.heappush(events, (now + takes[node][0] + OVERHEAD, running, node, future))
            busy += takes[node][0]
        if not events:
            break
        now, _, node, future = heapq.heappop(events)
        used.append(placed.pop(node))
        state.finish(future)
    spent = time.process_time() - begun
    assert not state.result().skipped
    chain = longest(order, needs, takes)
    work = sum(t for t, _ in takes.values()) / options.nodes
    bound = max(chain, work)
    out = sum(size for _, size in takes.values())
    count = len(order)
    print(f"{count:,} actions on {options.nodes:,} nodes; durations: {source}; seed {options.seed}")
    print(f"time               {now:12,.0f} s   ×{now / bound:.3f} of the larger lower bound")
    print(f"  longest chain    {chain:12,.0f} s")
    print(f"  work, spread     {work:12,.0f} s")
    print(f"nodes busy         {busy / (now * options.nodes):12.1%}   (at work, not on the way)")
    print(f"decisions          {count / spent:12,.0f} a second of one core, {ready:.1f} s to begin")
    print(f"actions            {count / now:12,.1f} a second")
    print(f"memory             {_memory():12,.0f} MiB at most, {bare:,.0f} of it the graph")
    print(f"to the nodes       {len(warm) * TOOLCHAIN / 1e9:12,.1f} GB of toolchain, once each")
    print(f"sent from here     {count * SENT / 1e9:12,.2f} GB of messages, and the toolchain once")
    print(f"received here      {out / 1e9:12,.2f} GB of outputs, to be named")
    print("on paper:")
    print(f"  toolchain over one link of 10 Gbit/s   {len(warm) * TOOLCHAIN / LINK:10,.0f} s")
    print(f"  outputs over one such link             {out / LINK:10,.0f} s")
    print(f"  naming the outputs on one core         {out / HASH:10,.0f} s")
    for name, cost in (("2 ms of Python an action here", 0.002), ("15 ms", 0.015)):
        share = count * cost / now
        print(f"  {name:<38} {share:10.2f} cores all the time")


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actions", type=int, default=1_000_000)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", type=Path, default=os.environ.get("REPROBUILD_STORE"))
    simulate(parser.parse_args())


if __name__ == "__main__":
    main()
