"""What `lock --update` names, and what accepting a moved head means.

A head that the flake leaves to the lock simply moves in the lock. A head whose commit stands in
the flake moves there: the flake is what people review, so accepting is an edit of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reprobuild.core.flake import FixtureInput, Flake, GitInput, Head
from reprobuild.engine.pinning import GitDiscovery
from reprobuild.errors import ReprobuildError

Pull = tuple[str, str, int]
"""An output, a component and a pull request's number."""


@dataclass(frozen=True, slots=True)
class Update:
    """Inputs to pin anew, and pull requests whose present heads are accepted."""

    inputs: frozenset[str] = frozenset()
    pulls: frozenset[Pull] = frozenset()

    @classmethod
    def parse(cls, names: tuple[str, ...], flake: Flake) -> Update:
        """From `INPUT` and `[OUTPUT.]COMPONENT.pulls.NUMBER`; raises E-USAGE for what is not there.

        Without an output, all outputs that leave the head to the lock are meant, or the only one
        that states it; where several state it, an output has to be named.
        """
        inputs: set[str] = set()
        pulls: set[Pull] = set()
        for name in names:
            where, pulls_, number = name.partition(".pulls.")
            if pulls_ and number.isdigit():
                output, _, component = where.rpartition(".")
                pulls |= _pulls(flake, output, component, int(number), name)
            elif name in flake.inputs:
                inputs.add(name)
            else:
                raise ReprobuildError(
                    "E-USAGE",
                    f"there is no input {name!r} to update",
                    got=name,
                    hint="inputs are " + ", ".join(sorted(flake.inputs)),
                )
        return cls(frozenset(inputs), frozenset(pulls))

    def numbers(self, output: str, component: str) -> set[int]:
        """The pull requests to move in one source."""
        return {n for o, c, n in self.pulls if (o, c) == (output, component)}


def _pulls(flake: Flake, output: str, component: str, number: int, name: str) -> set[Pull]:
    applied: dict[str, Head] = {
        o: head
        for o, declared in flake.outputs.items()
        if (not output or o == output) and component in declared.sources
        for head in declared.sources[component].heads
        if head.number == number
    }
    if not applied:
        there = sorted(
            f"{o}.{c}.pulls.{head.number}"
            for o, declared in flake.outputs.items()
            for c, source in declared.sources.items()
            for head in source.heads
            if c == component or not component
        )
        raise ReprobuildError(
            "E-USAGE",
            f"no output applies pull request {number} to {component}",
            got=name,
            hint="heads that are applied: " + (", ".join(there) or "none"),
        )
    stated = [o for o, head in applied.items() if head.head is not None]
    if len(stated) > 1:
        raise ReprobuildError(
            "E-USAGE",
            f"several outputs state the head of pull request {number}: {', '.join(stated)}",
            got=name,
            hint=f"say which: lock --update {stated[0]}.{component}.pulls.{number}",
        )
    return {(o, component, number) for o in applied}


def accepted_heads(flake: Flake, update: Update, git: GitDiscovery) -> dict[Pull, str]:
    """The present commits of the heads that the flake states and `update` accepts."""
    found: dict[Pull, str] = {}
    for output, component, number in sorted(update.pulls):
        source = flake.outputs[output].sources[component]
        head = next(h for h in source.heads if h.number == number)
        declared = flake.inputs[source.input]
        assert isinstance(declared, (GitInput, FixtureInput))
        if head.head is None:
            continue
        there = declared.model_copy(update={"ref": head.full_ref})
        commit, _ = git.tip(there, None)
        if commit.hex != head.head:
            found[output, component, number] = commit.hex
    return found


def with_heads(flake: Flake, heads: Mapping[Pull, str]) -> Flake:
    """The flake with other commits for some heads, as the edited file will say."""
    outputs = dict(flake.outputs)
    for (output, component, number), commit in heads.items():
        source = outputs[output].sources[component]
        moved = tuple(
            head.model_copy(update={"head": commit}) if head.number == number else head
            for head in source.heads
        )
        # A published tree belongs to the heads it was published for.
        source = source.model_copy(update={"heads": moved, "tree": None})
        sources = {**outputs[output].sources, component: source}
        outputs[output] = outputs[output].model_copy(update={"sources": sources})
    return flake.model_copy(update={"outputs": outputs})
