"""Records: to bytes and back, and what is refused."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from reprobuild.core.derivation import Isolation
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import encode
from reprobuild.core.record import Record
from reprobuild.errors import ReprobuildError

FULL = Record(
    action=Digest("11" * 32),
    drv=Digest("22" * 32),
    outputs={"out": Digest("33" * 32), "dev": Digest("44" * 32)},
    isolation=Isolation.HOST_TOOLCHAIN,
    duration_ms=1234,
    peak_memory=5 * 2**30,
    log="abc.log",
    name="demo.step",
    unenforced=("memory", "processes"),
    notes=("whole trees",),
)
OTHER: dict[str, Any] = {
    "action": Digest("55" * 32),
    "drv": Digest("55" * 32),
    "outputs": {"out": Digest("55" * 32)},
    "isolation": Isolation.NONE,
    "duration_ms": 1,
    "peak_memory": 1,
    "log": "x",
    "name": "y",
    "unenforced": (),
    "notes": (),
}


def test_to_bytes_and_back() -> None:
    for record in (FULL, Record(FULL.action, FULL.drv, {"out": FULL.drv})):
        assert Record.decode(record.encode()) == record
        assert Record.decode(record.encode()).digest == record.digest


def test_every_field_is_kept() -> None:
    assert set(OTHER) == {field.name for field in fields(Record)}
    for name, value in OTHER.items():
        other = replace(FULL, **{name: value})
        assert other.digest != FULL.digest
        assert Record.decode(other.encode()) == other


def test_order_of_outputs_does_not_matter() -> None:
    assert replace(FULL, outputs=dict(reversed(list(FULL.outputs.items())))).digest == FULL.digest


@pytest.mark.parametrize("name", ["action", "drv", "outputs", "isolation"])
@pytest.mark.parametrize("value", [None, 1, "x", [], {"out": "zz"}, "full", {"out": 1}])
def test_wrong_values_are_refused(name: str, value: object) -> None:
    if (name, value) == ("isolation", "full"):
        return
    if name == "outputs" and value == []:
        value = "y"
    document = {**json.loads(FULL.encode()), name: value}
    with pytest.raises(ReprobuildError) as caught:
        Record.decode(encode(document))
    assert caught.value.code in ("E-ENCODING", "E-DIGEST")


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"{}", b'"x"', b"{", FULL.encode()[:-1]])
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ReprobuildError) as caught:
        Record.decode(data)
    assert caught.value.code == "E-ENCODING"


@pytest.mark.parametrize("name", ["action", "drv", "outputs", "isolation", "duration_ms", "log"])
def test_missing_fields_are_refused(name: str) -> None:
    document = json.loads(FULL.encode())
    del document[name]
    with pytest.raises(ReprobuildError) as caught:
        Record.decode(encode(document))
    assert caught.value.code == "E-ENCODING"
