"""Heads and dependencies: what happened to each."""

from __future__ import annotations

from reprobuild.core.diff.side import Head, InputSide, Package
from reprobuild.core.diff.sources import compare_heads, compare_inputs, longest_rising


def heads(*rows: tuple[int, str] | tuple[int, str, str]) -> list[Head]:
    return [Head(row[0], row[1], row[2] if len(row) > 2 else "merged") for row in rows]


def numbers(rows: tuple[Head, ...]) -> list[int]:
    return [head.number for head in rows]


def test_added_dropped_moved() -> None:
    found = compare_heads(heads((1, "a"), (2, "b"), (3, "c")), heads((1, "a"), (3, "x"), (4, "d")))
    assert numbers(found.added) == [4]
    assert numbers(found.dropped) == [2]
    assert [(o.head, n.head) for o, n in found.moved] == [("c", "x")]
    assert found.reordered == ()
    assert found.kept == 1


def test_reordered_names_the_fewest() -> None:
    old = heads(*((n, "a") for n in (1, 2, 3, 4, 5)))
    new = heads(*((n, "a") for n in (5, 1, 2, 3, 4)))
    assert compare_heads(old, new).reordered == (5,)


def test_a_head_that_came_moves_nobody() -> None:
    old = heads((1, "a"), (2, "a"))
    assert compare_heads(old, heads((9, "a"), (1, "a"), (7, "a"), (2, "a"))).reordered == ()


def test_absorbed_while_still_listed() -> None:
    old, new = heads((1, "a"), (2, "b")), heads((1, "a", "already_in_base"), (2, "b"))
    found = compare_heads(old, new)
    assert numbers(found.absorbed) == [1]
    assert found.changed == ()


def test_absorbed_and_dropped() -> None:
    found = compare_heads(heads((1, "a"), (2, "b")), heads((2, "b")), contained=[1])
    assert numbers(found.absorbed) == [1]
    assert numbers(found.dropped) == [1]


def test_another_disposition() -> None:
    old, new = heads((1, "a", "already_in_base")), heads((1, "a", "merged"))
    assert [(o.disposition, n.disposition) for o, n in compare_heads(old, new).changed] == [
        ("already_in_base", "merged")
    ]


def test_unknown_dispositions_say_nothing() -> None:
    old = [Head(1, "a")]
    assert not compare_heads(old, heads((1, "a", "already_in_base"))).any


def test_longest_rising() -> None:
    assert longest_rising([]) == set()
    assert longest_rising([3, 0, 1, 2]) == {0, 1, 2}


def deb(**versions: str) -> InputSide:
    packages = tuple(Package(n, v, f"digest of {n} {v}") for n, v in versions.items())
    return InputSide("debian", "deb", packages=packages, toolchain=True)


def test_packages_by_name() -> None:
    old, new = {"debian": deb(gcc="12.2", libc6="2.36-9")}, {"debian": deb(gcc="12.3", zlib="1")}
    rows = compare_inputs(old, new)["debian"]
    assert [(r.name, r.old, r.new) for r in rows] == [
        ("gcc", "12.2", "12.3"),
        ("libc6", "2.36-9", ""),
        ("zlib", "", "1"),
    ]
    assert all(row.toolchain for row in rows)


def test_other_bytes_under_one_version() -> None:
    old = {"x": InputSide("x", "wheel", packages=(Package("x", "1", "aa"),))}
    new = {"x": InputSide("x", "wheel", packages=(Package("x", "1", "bb"),))}
    (row,) = compare_inputs(old, new)["x"]
    assert row.rebuilt


def test_an_input_of_one_content() -> None:
    old, new = InputSide("v", "git", "t1", "r1"), InputSide("v", "git", "t2", "r2")
    (row,) = compare_inputs({"v": old}, {"v": new})["v"]
    assert (row.old, row.new, row.old_digest, row.new_digest) == ("r1", "r2", "t1", "t2")
