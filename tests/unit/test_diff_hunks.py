"""Hunks, and the heads that their lines come from."""

from __future__ import annotations

from reprobuild.core.diff.hunks import Hunk, blame, hunks


def text(*lines: str) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


TEN = [f"line {n}" for n in range(10)]


def cut(old: bytes, new: bytes, *blames: list[tuple[int, bytes]]) -> list[Hunk]:
    found = hunks(old, new, *(blame(rows) for rows in blames))
    assert found is not None
    return found


def test_two_places_are_two_hunks() -> None:
    long = [f"line {n}" for n in range(40)]
    new = [*long]
    new[2], new[30] = "second", "thirtieth"
    found = cut(text(*long), text(*new))
    assert [(h.old_start, h.old_lines, h.new_start, h.new_lines) for h in found] == [
        (1, 6, 1, 6), (28, 7, 28, 7),
    ]  # fmt: skip
    assert found[1].lines[3:5] == ("-line 30", "+thirtieth")


def test_an_added_and_a_removed_file() -> None:
    (added,) = cut(b"", text("a", "b"))
    assert (added.old_start, added.old_lines, added.new_start, added.new_lines) == (0, 0, 1, 2)
    (removed,) = cut(text("a"), b"")
    assert removed.lines == ("-a",)


def test_binary_files_have_no_hunks() -> None:
    assert hunks(b"a\0b", b"a\0c") is None


def test_the_head_that_added_a_line() -> None:
    base, one = text(*TEN), text(*TEN, "by 7")
    two = text("by 9", *TEN, "by 7")
    found = cut(one, two, [(0, base), (7, one)], [(0, base), (7, one), (9, two)])
    assert [h.heads for h in found] == [(9,)]


def test_the_head_that_took_a_line_of_the_base() -> None:
    base, without = text(*TEN), text(*TEN[:4], *TEN[5:])
    (hunk,) = cut(base, without, [(0, base)], [(0, base), (3, without)])
    assert hunk.heads == (3,)


def test_a_dropped_head_gives_its_lines_back() -> None:
    base, with_head = text(*TEN), text(*TEN[:4], "instead", *TEN[5:])
    (hunk,) = cut(with_head, base, [(0, base), (3, with_head)], [(0, base)])
    assert hunk.heads == (3,)


def test_one_head_over_another() -> None:
    base, one = text(*TEN), text(*TEN, "by 7")
    over = text(*TEN, "by 9 over 7")
    (hunk,) = cut(one, over, [(0, base), (7, one)], [(0, base), (7, one), (9, over)])
    assert 9 in hunk.heads


def test_a_base_that_moved_is_nobodys() -> None:
    old, new = text(*TEN), text(*TEN, "of the base")
    (hunk,) = cut(old, new, [(0, old)], [(0, new)])
    assert hunk.heads == ()


def test_no_blame_no_heads() -> None:
    assert cut(text("a"), text("b"))[0].heads == ()


def test_long_lines_are_cut_short() -> None:
    (hunk,) = cut(b"", b"x" * 10_000 + b"\n")
    assert len(hunk.lines[0]) < 500
