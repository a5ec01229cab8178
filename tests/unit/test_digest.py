"""Digests: parsed strictly, of three types that do not mix, under domain tags."""

from __future__ import annotations

import copy
import io
import operator
import pickle

import pytest
from blake3 import blake3

from reprobuild.core.digest import Digest, GitOid, Sha256, blob_hasher, document_digest, tagged
from reprobuild.errors import ReprobuildError

HEX = "ab" * 32


def test_a_blob_is_named_as_b3sum_names_it() -> None:
    empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert Digest.of(b"").hex == empty
    hasher = blob_hasher()
    source = io.BytesIO(b"x" * 100_000)
    while chunk := source.read(999):
        hasher.update(chunk)
    assert hasher.hexdigest() == Digest.of(b"x" * 100_000).hex


@pytest.mark.parametrize("kind", [Digest, Sha256])
def test_text_and_back(kind: type[Digest] | type[Sha256]) -> None:
    assert kind.parse(HEX) == kind.parse(kind.PREFIX + HEX) == kind(HEX)
    assert str(kind.parse(HEX)) == kind.PREFIX + HEX


@pytest.mark.parametrize("kind", [Digest, Sha256, GitOid])
@pytest.mark.parametrize(
    "text",
    ["", "abc", HEX[:-1], HEX + "0", HEX.upper(), HEX + "\n", " " + HEX, "g" * 64, "md5:" + HEX,
     "\u0661" * 64, "../" + HEX],
)  # fmt: skip
def test_anything_else_is_refused(
    kind: type[Digest] | type[Sha256] | type[GitOid], text: str
) -> None:
    with pytest.raises(ReprobuildError) as caught:
        kind.parse(text)
    assert caught.value.code == "E-DIGEST"


def test_kinds_do_not_mix() -> None:
    three: list[object] = [Digest(HEX), Sha256(HEX), GitOid(HEX)]
    assert len(set(three)) == 3
    for prefix in ("sha256:", "blake3:"):
        with pytest.raises(ReprobuildError):
            GitOid.parse(prefix + HEX)
    with pytest.raises(ReprobuildError):
        Digest.parse("sha256:" + HEX)
    with pytest.raises(ReprobuildError):
        Sha256.parse("blake3:" + HEX)


def test_git_names_have_40_or_64_digits() -> None:
    assert str(GitOid.parse("a" * 40)) == "a" * 40
    assert str(GitOid.parse("a" * 64)) == "a" * 64
    with pytest.raises(ReprobuildError):
        GitOid.parse("a" * 7)


def test_raw_bytes() -> None:
    assert Digest.from_raw(Digest(HEX).raw) == Digest(HEX)
    for length in (0, 31, 33):
        with pytest.raises(ReprobuildError):
            Digest.from_raw(b"x" * length)


def test_tagged_is_domain_nul_payload() -> None:
    assert tagged("a/v0", b"xy").hex == blake3(b"a/v0\0xy").hexdigest()
    assert tagged("a", b"xy") != tagged("ax", b"y")
    assert document_digest("d", {"b": 1, "a": 2}).hex == blake3(b'd\0{"a":2,"b":1}').hexdigest()


def test_order_is_that_of_the_digits() -> None:
    digests = [Digest(c * 64) for c in "f09a"]
    assert [d.hex[0] for d in sorted(digests)] == ["0", "9", "a", "f"]
    assert Digest(HEX).short == HEX[:12]


@pytest.mark.parametrize("kind", [Digest, Sha256, GitOid])
def test_they_are_values(kind: type[Digest] | type[Sha256] | type[GitOid]) -> None:
    one = kind(HEX)
    for name in ("hex", "other"):
        with pytest.raises(AttributeError):
            setattr(one, name, "0")
        with pytest.raises(AttributeError):
            delattr(one, name)
    assert one.hex == HEX and not hasattr(one, "__dict__")
    assert copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one
    assert hash(kind(HEX)) == hash(one)
    assert repr(one) == f"{kind.__name__}({HEX!r})"


def test_order_is_within_a_kind() -> None:
    low, high = Digest("0" * 64), Digest("f" * 64)
    assert low < high and low <= high and low <= Digest("0" * 64)
    assert high > low and high >= low and not low > high
    for compare in (operator.lt, operator.le, operator.gt, operator.ge):
        with pytest.raises(TypeError):
            compare(low, Sha256("f" * 64))
