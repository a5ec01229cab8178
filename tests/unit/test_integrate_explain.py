"""Conflicts explained, the algebra of a stack, absorption, moved heads, bisection."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from reprobuild.core.digest import GitOid
from reprobuild.core.integration.absorb import absorptions
from reprobuild.core.integration.algebra import COLLIDE, COMMUTE, ORDER, analyze
from reprobuild.core.integration.conflict import Explanation, explain, parse_markers
from reprobuild.core.integration.drawing import algebra_svg
from reprobuild.core.integration.findbase import find_base
from reprobuild.core.integration.model import IntegrationSpec, Strategy
from reprobuild.core.integration.moved import moved_error, moved_heads
from reprobuild.core.integration.render import algebra_text, explanation_text
from reprobuild.core.integration.strategies import Stack, integrate
from reprobuild.engine.integrate import attempt, bisect
from reprobuild.errors import ReprobuildError
from support.gitkit import Origin, merge_spec, opened

LINES = [f"line {n}\n" for n in range(1, 41)]


def text(**edits: str) -> str:
    """The lines with some replaced."""
    out = list(LINES)
    for key, value in edits.items():
        out[int(key[1:]) - 1] = value + "\n"
    return "".join(out)


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    return Origin.make(tmp_path / "origin.git")


def explained(origin: Origin, spec: IntegrationSpec) -> Explanation:
    with opened(origin.path) as repository:
        stack = Stack.start(repository, spec)
        for head in spec.heads:
            step = stack.push(head)
            if step.failed:
                return explain(stack, step)
    raise AssertionError("nothing failed")


def test_the_colliding_head_is_named_not_just_the_file(origin: Origin) -> None:
    base = origin.commit({"a": text()})
    origin.pull(1, {"a": text(_2="two by one")}, [base])
    origin.pull(2, {"a": text(_30="thirty by two")}, [base])
    origin.pull(3, {"b": "b\n"}, [base])
    origin.pull(4, {"a": text(_30="thirty by four")}, [base])
    found = explained(origin, merge_spec(origin, base, 1, 2, 3, 4))
    assert found.number == 4
    assert found.with_heads == (2,)
    assert found.minimal == (2,)
    assert found.order is None
    (path,) = found.paths
    assert path.path == "a" and path.touched_by == (1, 2)
    (hunk,) = path.hunks
    assert (hunk.ours, hunk.theirs) == (("thirty by two",), ("thirty by four",))
    assert hunk.ours_by == (2,)
    assert hunk.ours_line == 1 + text(_30="thirty by two").splitlines().index("thirty by two")
    said = "\n".join(explanation_text(found, {2: "The second", 3: "Another", 4: "The last"}))
    assert f"a:{hunk.ours_line} as the heads before it leave it" in said
    assert "#2 The second" in said and "#4 The last" in said and "Another" not in said
    assert "CONFLICT (content);" in said
    assert "PR #4 collides with #2" in said
    assert "thirty by two" in said and "| thirty by four" in said
    assert "smallest set that cannot stand together: #2, #4" in said


def test_lines_of_two_heads_in_one_hunk(origin: Origin) -> None:
    base = origin.commit({"a": text()})
    origin.pull(1, {"a": text(_10="ten")}, [base])
    origin.pull(2, {"a": text(_10="ten", _11="eleven")}, [origin.pulls[1]])
    origin.pull(3, {"a": text(_10="X", _11="Y")}, [base])
    found = explained(origin, merge_spec(origin, base, 1, 2, 3))
    assert found.paths[0].hunks[0].ours_by == (1, 2)
    assert found.with_heads == (1, 2)
    assert found.minimal in ((1,), (2,))


def test_a_head_that_collides_with_the_base_itself(origin: Origin) -> None:
    start = origin.commit({"a": text()})
    base = origin.commit({"a": text(_5="base")}, [start])
    origin.pull(1, {"c": "c\n"}, [base])
    origin.pull(2, {"a": text(_5="head")}, [start])
    found = explained(origin, merge_spec(origin, base, 1, 2))
    assert found.with_heads == () and found.minimal == ()
    assert found.paths[0].hunks[0].ours_by == (0,)
    assert "collides with the base itself" in "\n".join(explanation_text(found))


def test_a_deleted_file_and_another_order_that_works(origin: Origin) -> None:
    """2 holds 1's commits: before 1's revert by 3 it merges, after it it does not."""
    base = origin.commit({"a": text(), "b": "b\n"})
    origin.pull(1, {"a": text(_3="three")}, [base])
    origin.pull(2, {"a": text(_3="three", _4="four")}, [origin.pulls[1]])
    origin.pull(3, {"a": text(_3="drei")}, [origin.pulls[1]])
    origin.pull(4, {"a": text(_3="drei", _4="four")}, [origin.pulls[3]])
    spec = merge_spec(origin, base, 1, 3, 2)
    found = explained(origin, spec)
    assert found.number == 2
    assert found.with_heads == (3,)
    deleted = origin.commit({"b": None}, [base])
    origin.pulls[5] = deleted
    origin.pull(6, {"b": "changed\n"}, [base])
    gone = explained(origin, merge_spec(origin, base, 5, 6))
    (path,) = gone.paths
    assert path.path == "b" and path.ours is None and path.hunks == ()
    assert path.touched_by == (5,) and gone.with_heads == (5,)


def test_an_order_that_works_is_found(origin: Origin) -> None:
    """3 merged 1 and 2 and settled their conflict: behind it, 2 is there already."""
    base = origin.commit({"x": "x\n"})
    origin.pull(1, {"x": "x1\n"}, [base])
    origin.pull(2, {"x": "x2\n"}, [base])
    origin.pulls[3] = origin.commit({"x": "x1 x2\n"}, [origin.pulls[1], origin.pulls[2]])
    origin.pull(4, {"y": "y\n"}, [base])
    found = explained(origin, merge_spec(origin, base, 1, 2, 4, 3))
    assert found.number == 2
    assert found.order == (1, 4, 3, 2)
    with opened(origin.path) as repository:
        done = integrate(repository, merge_spec(origin, base, *found.order))
    assert done.heads[3].contained_in == 3
    assert "an order that works: #1, #4, #3, #2" in "\n".join(explanation_text(found))


def test_the_same_change_under_another_name_is_told(origin: Origin) -> None:
    base = origin.commit({"a": text()})
    origin.pull(1, {"a": text(_8="eight")}, [base])
    again = origin.commit({"a": text(_8="eight")}, [base], message="the same again")
    origin.pull(2, {"a": text(_8="other")}, [again])
    found = explained(origin, merge_spec(origin, base, 1, 2))
    assert any("PR #1" in line and again.hex[:12] in line for line in found.same_change)


def test_parse_markers_counts_our_lines() -> None:
    content = (
        b"a\n<<<<<<< ours\nb\nc\n=======\nd\n>>>>>>> theirs\ne\n<<<<<<< o\n=======\nf\n>>>>>>> t\n"
    )
    assert parse_markers(content) == [
        (2, 1, [b"b\n", b"c\n"], [b"d\n"]),
        (9, 4, [], [b"f\n"]),
    ]


def relations(origin: Origin, spec: IntegrationSpec) -> dict[tuple[int, int], str]:
    with opened(origin.path) as repository:
        found = analyze(repository, spec)
    return {(p.first, p.second): p.relation for p in found.pairs}


def test_which_heads_commute_and_which_collide(origin: Origin) -> None:
    base = origin.commit({"a": text(), "d/x": "x\n"})
    origin.pull(1, {"a": text(_1="one")}, [base])
    origin.pull(2, {"a": text(_40="forty")}, [base])
    origin.pull(3, {"a": text(_1="uno")}, [base])
    origin.pull(4, {"z": "z\n"}, [base])
    origin.pull(5, {"d": "a file where a directory was\n", "d/x": None}, [base])
    found = relations(origin, merge_spec(origin, base, 1, 2, 3, 4, 5))
    assert found[1, 2] == COMMUTE
    assert found[1, 3] == COLLIDE
    assert found[2, 3] == COMMUTE
    assert {found[n, 4] for n in (1, 2, 3)} == {COMMUTE}
    assert found[4, 5] == COMMUTE


def test_the_map_of_a_stack(origin: Origin) -> None:
    base = origin.commit({"a": text()})
    origin.pull(1, {"a": text(_5="five")}, [base])
    origin.pull(2, {"a": text(_5="five", _6="six")}, [origin.pulls[1]])
    origin.pull(3, {"c": "c\n"}, [base])
    origin.pull(4, {"d": "d\n"}, [base])
    spec = merge_spec(origin, base, 1, 2, 3, 4)
    with opened(origin.path) as repository:
        found = analyze(repository, spec)
        without_4 = integrate(repository, spec.without(4)).tree
        backwards = integrate(repository, merge_spec(origin, base, 4, 3)).tree
    assert found.failed == 0
    assert found.needs[2] == (1,)
    assert found.core == (3, 4)
    assert found.core_tree == backwards
    assert {w.number: w.tree for w in found.without}[4] == without_4
    picture = algebra_svg(found, "a <stack> & more")
    root = ET.fromstring(picture.encode())
    ids = {e.get("id") for e in root.iter() if e.get("id")}
    assert ids == {"pr-1", "pr-2", "pr-3", "pr-4"}
    assert picture == algebra_svg(found, "a <stack> & more")
    said = "\n".join(algebra_text(found, []))
    assert "#2  needs #1" in said
    assert "order-independent core: #3, #4" in said


def test_a_stack_that_stops_is_mapped_all_the_same(origin: Origin) -> None:
    base = origin.commit({"a": text()})
    origin.pull(1, {"a": text(_5="five")}, [base])
    origin.pull(2, {"a": text(_5="fuenf")}, [base])
    origin.pull(3, {"c": "c\n"}, [base])
    with opened(origin.path) as repository:
        found = analyze(repository, merge_spec(origin, base, 1, 2, 3))
    assert (found.failed, found.tree) == (2, None)
    without = {w.number: (w.tree is not None, w.fails_at) for w in found.without}
    assert without == {1: (True, 0), 2: (True, 0), 3: (False, 2)}
    assert found.core == (3,)
    ET.fromstring(algebra_svg(found).encode())


def test_order_matters_without_a_conflict(origin: Origin) -> None:
    """An attribute that one head brings changes what the next merges mean."""
    base = origin.commit({"list.txt": "start\n"})
    origin.pull(1, {".gitattributes": "*.txt merge=union\n", "list.txt": "start\none\n"}, [base])
    origin.pull(2, {"list.txt": "start\ntwo\n"}, [base])
    assert relations(origin, merge_spec(origin, base, 1, 2)) == {(1, 2): ORDER}


def test_directory_renames_are_not_taken_for_disjoint(origin: Origin) -> None:
    base = origin.commit({f"old/{n}": f"content {n}\n" * 9 for n in range(4)})
    moves: dict[str | bytes, str | None] = {f"old/{n}": None for n in range(4)}
    moves |= {f"new/{n}": f"content {n}\n" * 9 for n in range(4)}
    origin.pull(1, moves, [base])
    origin.pull(2, {"old/added": "fresh\n"}, [base])
    with opened(origin.path) as repository:
        found = analyze(repository, merge_spec(origin, base, 1, 2))
        clean = repository.merge(origin.pulls[1], origin.pulls[2]).clean
    assert not clean  # git suspects that the file belongs into the renamed directory
    assert found.pairs[0].relation == COLLIDE


def test_absorption_tells_squashed_from_squashed_then_edited(origin: Origin) -> None:
    start = origin.commit({"a": text(), "b": text()})
    origin.pull(1, {"a": text(_1="one")}, [start])
    origin.pull(2, {"b": text(_2="two")}, [start])
    origin.pull(3, {"c": "c\n"}, [start])
    held = origin.pull(4, {"e": "e\n"}, [start])
    one = origin.commit({"a": text(_1="one")}, [held], message="PR 1, squashed")
    two = origin.commit({"b": text(_2="two")}, [one], message="PR 2, squashed")
    base = origin.commit({"b": text(_2="two, edited")}, [two])
    with opened(origin.path) as repository:
        found = {a.number: (a.state, a.at) for a in absorptions(
            repository, merge_spec(origin, base, 1, 2, 3, 4))}  # fmt: skip
        assert found == {
            1: ("absorbed", None),
            2: ("squashed_then_edited", two),
            3: ("apart", None),
            4: ("contained", None),
        }
        spec = merge_spec(origin, start, 1, 2, 3)
        later = {a.number: a.state for a in absorptions(repository, spec, base)}
    assert later == {1: "absorbed", 2: "squashed_then_edited", 3: "apart"}


def test_attempt_gives_the_error_and_what_explains_it(origin: Origin) -> None:
    base = origin.commit({"a": text()})
    origin.pull(1, {"a": text(_1="one")}, [base])
    origin.pull(2, {"a": text(_1="uno")}, [base])
    with opened(origin.path) as repository:
        good = attempt(repository, merge_spec(origin, base, 1), lambda path: b"")
        bad = attempt(repository, merge_spec(origin, base, 1, 2), lambda path: b"")
    assert good.integration is not None and good.error is None
    assert bad.integration is None and bad.error is not None
    assert bad.explanation is not None and bad.explanation.with_heads == (1,)


def test_moved_heads_and_their_range_diff(origin: Origin) -> None:
    base = origin.commit({"a": text()})
    old = origin.pull(1, {"a": text(_1="one")}, [base], "Change one")
    same = origin.pull(2, {"b": "b\n"}, [base])
    spec = merge_spec(origin, base, 1, 2)
    new = origin.pull(1, {"a": text(_1="one, better")}, [base], "Change one")
    refs = {"refs/pull/1/head": new, "refs/pull/2/head": same}
    (moved,) = moved_heads(spec, refs)
    assert (moved.number, moved.pinned, moved.live) == (1, old, new)
    with opened(origin.path) as repository:
        difference = repository.range_diff(base, old, new)
    assert "1:  " in difference and "one, better" in difference
    error = moved_error(replace(moved, range_diff=difference), "reprobuild lock --update x.pulls.1")
    assert "PR #1 moved" in error.message and "lock --update x.pulls.1" in error.hint
    (gone,) = moved_heads(spec, {"refs/pull/1/head": old})
    assert gone.live is None and "PR #2 is gone" in moved_error(gone, "x").message


@pytest.mark.parametrize("bad", range(1, 8))
def test_bisect_finds_the_first_head_that_fails(origin: Origin, bad: int) -> None:
    base = origin.commit({"a": "a\n"})
    for number in range(1, 8):
        origin.pull(number, {f"f{number}": "x\n"}, [base])
    spec = merge_spec(origin, base, *range(1, 8))
    runs: list[GitOid] = []
    with opened(origin.path) as repository:
        done = integrate(repository, spec)

        def trial(tree: GitOid) -> ReprobuildError | None:
            runs.append(tree)
            there = repository.entry(tree, f"f{bad}".encode()) is not None
            failure = ReprobuildError("E-BUILD-FAILED", "no", tail=[tree.hex], drv="x")
            return failure if there else None

        found = bisect(spec, done, trial)
    assert found.number == bad
    # what is shown is how it failed with that head, not with some later one
    assert found.document()["tail"] == [done.tips[bad - 1].hex]
    assert "drv" not in found.document()
    assert len(runs) == len(set(runs)) <= 5


def test_bisect_refuses_commands_that_tell_nothing(origin: Origin) -> None:
    base = origin.commit({"a": "a\n"})
    origin.pull(1, {"b": "b\n"}, [base])
    spec = merge_spec(origin, base, 1)
    with opened(origin.path) as repository:
        done = integrate(repository, spec)
    failure = ReprobuildError("E-BUILD-FAILED", "no", log="/log", tail=["no such command"])
    with pytest.raises(ReprobuildError) as caught:
        bisect(spec, done, lambda tree: None)
    assert (caught.value.code, caught.value.facts) == ("E-BISECT", {})
    with pytest.raises(ReprobuildError) as caught:
        bisect(spec, done, lambda tree: failure)
    assert caught.value.code == "E-BISECT"
    assert caught.value.facts == {"log": "/log", "tail": ["no such command"]}


def test_a_base_is_found_by_the_tree(origin: Origin) -> None:
    start = origin.commit({"a": text()})
    origin.pull(1, {"b": "b\n"}, [start])
    line = [start]
    for number in range(6):
        line.append(origin.commit({"n": f"{number}\n"}, [line[-1]]))
    with opened(origin.path) as repository:
        tree = integrate(repository, merge_spec(origin, line[2], 1)).tree
        spec = merge_spec(origin, line[-1], 1)
        assert find_base(repository, spec, tree) == line[2]
        assert find_base(repository, spec, origin.tree(start)) is None


def test_a_pinned_branch_has_no_stack(origin: Origin) -> None:
    base = origin.commit({"a": "a\n"})
    spec = IntegrationSpec(Strategy.PINNED_BRANCH, base, composition=base)
    with opened(origin.path) as repository, pytest.raises(ReprobuildError) as caught:
        analyze(repository, spec)
    assert caught.value.code == "E-USAGE"
