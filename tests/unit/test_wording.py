"""Numbers as people read them."""

from __future__ import annotations

import json

import pytest

from reprobuild.cli.answer import text
from reprobuild.core.installable import Installable, check_step
from reprobuild.core.wording import json_problem, plural, size
from reprobuild.errors import ReprobuildError


def test_one_is_not_many() -> None:
    words = [plural(count, word) for count in (0, 1, 2) for word in ("kernel", "entry")]
    assert words == ["0 kernels", "0 entries", "1 kernel", "1 entry", "2 kernels", "2 entries"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("[" * 100_000, "it is nested too deeply"),
        ("9" * 5000, "a number in it has thousands of digits"),
        ("[1,", "Expecting value: line 1 column 4 (char 3)"),
    ],
)
def test_what_is_wrong_with_json_is_no_advice_to_programmers(data: str, said: str) -> None:
    with pytest.raises((ValueError, RecursionError)) as error:
        json.loads(data)
    assert isinstance(error.value, ValueError | RecursionError)
    assert json_problem(error.value) == said


def test_small_layers_have_a_size() -> None:
    layers = [
        {"digest": "sha256:a", "size": 318, "component": "small"},
        {"digest": "sha256:b", "size": 3 * 2**20, "component": "large"},
    ]
    image = {"reference": "r", "config_digest": "c", "manifest_digest": "m", "layers": layers}
    said = text({"outputs": {}, "counts": {}, "image": image}, as_json=False)
    assert "sha256:a       318 B  small" in said
    assert "sha256:b     3.0 MiB  large" in said
    assert size(0) == "0 B"


def test_the_only_one_is_named_as_such() -> None:
    with pytest.raises(ReprobuildError) as one:
        check_step(Installable("demo", "tools", "wheell"), ["wheel"])
    assert one.value.hint == "there is only wheel"
    with pytest.raises(ReprobuildError) as two:
        check_step(Installable("demo", "tools", "wheell"), ["wheel", "run"])
    assert two.value.hint == "there are run, wheel"
