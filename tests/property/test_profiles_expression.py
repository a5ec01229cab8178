"""An expression gives the same here and in a POSIX shell."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprobuild.core.profiles.expression import Expression

NAMES = ("A", "B", "MAX_N")
VALUE = st.sampled_from(["", "0", "1", "7", "48"])
NUMBER = st.recursive(
    st.sampled_from([*NAMES, "0", "1", "12"]),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(
        lambda t: f"({t[0]} {t[1]} {t[2]})"
    ),
    max_leaves=5,
)
ATOM = st.one_of(
    st.sampled_from(NAMES),
    st.tuples(NUMBER, st.sampled_from(["<", "<=", ">", ">="]), NUMBER).map(" ".join),
    st.tuples(st.sampled_from(NAMES), st.sampled_from(["==", "!="]), st.sampled_from(
        ["'off'", "'7'", "7", "'x/y'"])).map(" ".join),
)  # fmt: skip
CONDITION = st.recursive(
    ATOM,
    lambda inner: st.one_of(
        inner.map(lambda t: f"not ({t})"),
        st.tuples(inner, st.sampled_from([" and ", " or "]), inner).map(
            lambda t: f"({t[0]}{t[1]}{t[2]})"
        ),
    ),
    max_leaves=5,
)


def shell(script: str, values: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-uc", script], env=values, capture_output=True, text=True, check=False
    )


@settings(max_examples=150, deadline=None)
@given(CONDITION, VALUE, VALUE, VALUE)
def test_conditions(text: str, a: str, b: str, c: str) -> None:
    expression = Expression.parse(text)
    values = dict(zip(NAMES, (a, b, c), strict=True))
    done = shell(f"if {expression.shell_condition()}; then echo yes; else echo no; fi", values)
    assert done.stderr == ""
    assert done.stdout == ("yes\n" if expression.holds(dict(values)) else "no\n")


@settings(max_examples=80, deadline=None)
@given(NUMBER, VALUE, VALUE, VALUE)
def test_numbers(text: str, a: str, b: str, c: str) -> None:
    expression = Expression.parse(text)
    values = dict(zip(NAMES, (a, b, c), strict=True))
    done = shell(f"echo {expression.shell_value()}", values)
    assert (done.stderr, int(done.stdout)) == ("", int(str(expression.value(dict(values))) or 0))


NONE = (
    *("", "a", "A.b", "A()", "A[0]", "A / B", "A ** 2", "-A", "1.5", "'$(x)'", "'a b'", "'`'"),
    *("A < B < C", "A is B", "lambda: 1", "(A := 1)", "[A]", "A if B else C", "True"),
    *("2147483648", "f'{A}'", "A in B", "A + " * 200 + "A"),
)


@pytest.mark.parametrize("text", NONE)
def test_nothing_else_is_an_expression(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Expression.parse(text)
