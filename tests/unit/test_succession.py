"""The next revision, and where the old one is still said."""

from __future__ import annotations

import pytest

from reprobuild.core.succession import mentions, next_revision, renamed


@pytest.mark.parametrize(
    ("before", "after"),
    [("r21", "r22"), ("r9", "r10"), ("v2-rc9", "v2-rc10"), ("r009", "r010"), ("7", "8")],
)
def test_the_last_number_goes_on(before: str, after: str) -> None:
    assert next_revision(before) == after


@pytest.mark.parametrize("text", ["final", "r2-final", ""])
def test_what_does_not_end_in_a_number_has_no_next(text: str) -> None:
    assert next_revision(text) is None


def test_only_the_word_itself_is_renamed() -> None:
    assert renamed("cu133-r2.yml r21 xr2 r2x r2", "r2", "r3") == "cu133-r3.yml r21 xr2 r2x r3"


def test_a_new_revision_is_text_and_no_pattern() -> None:
    assert renamed("a-r2", "r2", r"\g<0>") == r"a-\g<0>"


def test_mentions_name_their_places() -> None:
    table = {"a": "r2", "b": [{"c": "since r2"}, "r21"], "d": 2}
    assert list(mentions(table, "r2", ("x",))) == ["x.a", "x.b.0.c"]
