"""The graph of derivations in groups that fit on a page, with what changed marked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from reprobuild.core.diff.dag import GraphDiff, Kind, Look
from reprobuild.core.encoding import Value

_ORDER = ("root", "added", "removed", "inherits", "same")


def group_name(name: str) -> str:
    """Files of one input, and units of one module, are drawn as one."""
    head = name.partition(":")[0].partition("/")[0]
    return re.sub(r"#\d+\Z", "", head)


@dataclass(slots=True)
class Group:
    """Derivations that are drawn as one; `needs` are names of groups, `depth` 0 has none."""

    name: str
    count: int = 0
    changed: int = 0
    state: str = "same"
    depth: int = 0
    needs: list[str] = field(default_factory=list)

    def take(self, kind: str) -> None:
        """Adds one derivation; the most telling state wins."""
        self.count += 1
        self.changed += kind != "same"
        if _ORDER.index(kind) < _ORDER.index(self.state):
            self.state = kind

    def document(self) -> dict[str, Value]:
        """The plain form."""
        return {
            "changed": self.changed,
            "count": self.count,
            "depth": self.depth,
            "name": self.name,
            "needs": list(self.needs),
            "state": self.state,
        }


def grouped(
    look: Look,
    roots: Sequence[str],
    graph: GraphDiff,
    rename: Callable[[str], str],
) -> list[dict[str, Value]]:
    """Groups of derivations below `roots` (new side), inputs first."""
    state = {c.new: str(c.kind) for c in graph.changes.values() if c.new}
    groups: dict[str, Group] = {}
    member: dict[str, str] = {}
    for drv in _post_order(look, roots):
        node = look(drv)
        assert node is not None
        name = member[drv] = group_name(rename(node.name))
        group = groups.setdefault(name, Group(name))
        group.take(state.get(drv, "same"))
        for below in node.inputs.values():
            other = member.get(below)
            if other is not None and other != name and other not in group.needs:
                group.needs.append(other)
    for change in graph.of(Kind.REMOVED):
        name = group_name(change.name)
        if name not in groups:
            groups[name] = Group(name, 1, 1, "removed")
    _depths(groups)
    return [group.document() for group in groups.values()]


def _post_order(look: Look, roots: Sequence[str]) -> list[str]:
    done: dict[str, None] = {}
    stack = [(drv, False) for drv in reversed(roots)]
    while stack:
        drv, ready = stack.pop()
        if drv in done:
            continue
        node = look(drv)
        if node is None:
            continue
        if ready:
            done[drv] = None
            continue
        stack.append((drv, True))
        stack += [(below, False) for below in node.inputs.values() if below not in done]
    return list(done)


def _depths(groups: Mapping[str, Group]) -> None:
    """Longest way down; what a cycle of groups (they can have some) would prolong is cut off."""
    for _ in range(len(groups)):
        moved = False
        for group in groups.values():
            deepest = max((groups[n].depth for n in group.needs if n in groups), default=-1)
            if group.depth < deepest + 1 < len(groups):
                group.depth = deepest + 1
                moved = True
        if not moved:
            return
