"""Tag patterns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprobuild.core.pattern import Pattern, Placeholder, tag_problem
from reprobuild.errors import ReprobuildError

PUBLISHED = "{codename}-vllm{vllm.tree:7}-b12x{b12x.tree:7}-fi{flashinfer.commit:7}-cu{cuda}-{date}"


def test_the_publishers_pattern() -> None:
    values = {
        "codename": "jovian",
        "vllm.tree": "0123456789abcdef",
        "b12x.tree": "fedcba9876543210",
        "flashinfer.commit": "aaaaaaaaaaaa",
        "cuda": "133",
        "date": "20260729",
    }
    pattern = Pattern.parse(PUBLISHED)
    assert pattern.names() == tuple(values)
    assert pattern.render(values) == "jovian-vllm0123456-b12xfedcba9-fiaaaaaaa-cu133-20260729"


def test_parts() -> None:
    assert Pattern.parse("a{b.tree:12}c{d}").parts == (
        "a",
        Placeholder("b.tree", 12),
        "c",
        Placeholder("d"),
    )
    assert Pattern.parse("{a}{a}").names() == ("a",)
    assert (Placeholder("b.tree").component, Placeholder("b.tree").field) == ("b", "tree")
    assert (Placeholder("date").component, Placeholder("date").field) == ("", "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a}b", "character 2"),
        ("ab{c", "character 3"),
        ("{}", "no placeholder"),
        ("{a b}", "no placeholder"),
        ("{a.b.c}", "no placeholder"),
        ("{a:0}", "no placeholder"),
        ("{a:1000}", "no placeholder"),
        ("{a:x}", "no placeholder"),
        ("{{a}}", "no placeholder"),
        ("{-a}", "no placeholder"),
    ],
)
def test_what_is_no_pattern(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Pattern.parse(text)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("{a}", {}),
        ("{a}", {"a": ""}),
        ("{a}", {"a": "-x"}),
        ("{a}", {"a": "1+2"}),
        ("{a}", {"a": "x" * 129}),
        ("{a}", {"a": "x\n"}),
    ],
)
def test_what_gives_no_tag(text: str, values: dict[str, str]) -> None:
    with pytest.raises(ReprobuildError) as caught:
        Pattern.parse(text).render(values)
    assert caught.value.code == "E-FLAKE"


def test_the_longest_tag() -> None:
    assert tag_problem("x" * 128) == ""
    assert "129" in tag_problem("x" * 129)


@given(st.text(alphabet="abc{}:.109-", max_size=20))
def test_parsing_loses_nothing(text: str) -> None:
    try:
        pattern = Pattern.parse(text)
    except ValueError:
        return
    again = "".join(
        part
        if isinstance(part, str)
        else "{" + part.name + (f":{part.length}" if part.length else "") + "}"
        for part in pattern.parts
    )
    assert again == text
