"""Inventories: exact bytes, and what a changed or an old one meets."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprobuild.adapters.bundle.service import Bundles
from reprobuild.adapters.keys.keyring import signed_by
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.bundle.inventory import QR_BYTES, Inventory, decode_inventory
from reprobuild.core.bundle.signing import (
    BUNDLE,
    Signature,
    Stamp,
    parse_signatures,
    sign,
    trusted_by,
)
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.errors import ReprobuildError
from reprobuild.settings import Settings
from support.bundles import TestSigner, TestTrust

DIGESTS = st.binary(min_size=32, max_size=32).map(lambda raw: Digest(raw.hex()))
LISTS = st.sets(DIGESTS, max_size=6).map(lambda found: tuple(sorted(found)))
INVENTORIES = st.builds(
    lambda store, counter, closures, trees, sign: Inventory(store, counter, closures, trees).signed(
        TestSigner() if sign else None
    ),
    st.binary(min_size=16, max_size=16),
    st.integers(0, 2**64 - 1),
    LISTS,
    LISTS,
    st.booleans(),
)


@given(INVENTORIES)
def test_reading_gives_back_what_was_written(inventory: Inventory) -> None:
    assert decode_inventory(inventory.encode()) == inventory


@given(INVENTORIES, st.data())
def test_no_change_goes_unseen(inventory: Inventory, data: st.DataObject) -> None:
    raw = bytearray(inventory.encode())
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] ^= data.draw(st.integers(1, 255))
    try:
        found = decode_inventory(bytes(raw))
    except ReprobuildError as error:
        assert error.code == "E-BUNDLE"
        return
    assert found.signature != inventory.signature  # nothing else may differ, and that is checked
    assert found.digest == inventory.digest


@given(INVENTORIES, st.integers(1, 60))
def test_a_cut_one_is_refused(inventory: Inventory, left_out: int) -> None:
    with pytest.raises(ReprobuildError):
        decode_inventory(inventory.encode()[:-left_out])


def test_digests_are_sorted_and_come_once() -> None:
    one, two = sorted((Digest.of(b"1"), Digest.of(b"2")))
    for closures in ((two, one), (one, one)):
        with pytest.raises(ReprobuildError):
            decode_inventory(Inventory(bytes(16), 1, closures).encode())


def test_how_many_fit_into_a_qr_code() -> None:
    digests = tuple(sorted(Digest.of(bytes([n])) for n in range(87)))
    assert len(Inventory(bytes(16), 1, digests).signed(TestSigner()).encode()) <= QR_BYTES


def test_an_old_one_is_not_taken_again(tmp_path: Path) -> None:
    with LocalStore.open(tmp_path / "store", create=True) as store:
        bundles = Bundles(lambda: store, Settings())
        signer = TestSigner()

        def use(counter: int, by: TestSigner | None = signer, name: bytes = bytes(16)) -> None:
            found = Inventory(name, counter, (Digest.of(b"c"),)).signed(by)
            bundles.check_inventory(decode_inventory(found.encode()), signed_by)

        use(3)
        use(3)
        use(5)
        with pytest.raises(ReprobuildError, match="whose number 5 was used"):
            use(4)
        with pytest.raises(ReprobuildError, match="another key"):
            use(6, None)
        with pytest.raises(ReprobuildError, match="another key"):
            use(6, TestSigner(2))
        use(1, None, b"another store   ")
        raw = bytearray(Inventory(bytes(16), 7, ()).signed(signer).encode())
        raw[-1] ^= 1
        with pytest.raises(ReprobuildError, match="does not hold"):
            bundles.check_inventory(decode_inventory(bytes(raw)), signed_by)


def test_each_has_a_higher_number(tmp_path: Path) -> None:
    with LocalStore.open(tmp_path / "store", create=True) as store:
        first, again = (Bundles(lambda: store, Settings()).next_inventory() for _ in range(2))
        assert first[0] == again[0]
        assert again[1] == first[1] + 1


def test_a_bundle_keeps_its_number(tmp_path: Path) -> None:
    """The same content exported again must give the same bytes."""
    with LocalStore.open(tmp_path / "store", create=True) as store:
        bundles = Bundles(lambda: store, Settings())
        first, second = bundles.stamp(Digest.of(b"1")), bundles.stamp(Digest.of(b"2"))
        assert second.serial == first.serial + 1
        assert bundles.stamp(Digest.of(b"1")) == first
        name, _ = bundles.next_inventory()
        assert first.store == second.store == name
        assert bundles.stamp(Digest.of(b"2")) == second
        assert bundles.next_inventory()[1] == 2


def test_an_old_bundle_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    with LocalStore.open(tmp_path / "store", create=True) as store:
        bundles = Bundles(lambda: store, Settings())

        def made(serial: int, key: bytes = b"k" * 32, maker: bytes = b"m" * 16) -> Signature:
            return Signature(key, bytes(64), Stamp(maker, serial))

        for serial in (3, 3, 5):
            bundles.check_age(made(serial), ["a", "b"])
            bundles.note_age(made(serial), ["b", "a"])
        with pytest.raises(ReprobuildError) as caught:
            bundles.check_age(made(4), ["a", "b"])
        assert caught.value.code == "E-BUNDLE-OLD"
        bundles.note_age(made(4), ["a", "b"])  # taken where that was meant
        with pytest.raises(ReprobuildError):
            bundles.check_age(made(4), ["a", "b"])
        bundles.check_age(made(4), ["a"])
        bundles.check_age(made(4, key=b"l" * 32), ["a", "b"])
        bundles.check_age(made(4, maker=b"n" * 16), ["a", "b"])
        bundles.check_age(Signature(b"k" * 32, bytes(64)), ["a", "b"])


@pytest.mark.parametrize("change", ["serial", "store", "none"])
def test_a_stamp_is_signed(change: str) -> None:
    signer, digest = TestSigner(), Digest.of(b"bundle")
    (row,) = sign(signer, BUNDLE, digest, Stamp(bytes(16), 7))
    assert isinstance(row, dict)
    trust = TestTrust(signer.key)
    (whole,) = parse_signatures([row])
    assert trusted_by(trust, [whole], BUNDLE, digest) == whole
    if change == "none":
        row = {k: v for k, v in row.items() if k in ("key", "signature")}
    else:
        row = {**row, change: 8 if change == "serial" else "11" * 16}
    assert trusted_by(trust, parse_signatures([row]), BUNDLE, digest) is None


@pytest.mark.parametrize(
    "change",
    [{"serial": -1}, {"serial": True}, {"serial": 2**63}, {"serial": "1"}, {"store": "00"},
     {"store": 1}, {"more": 1}],
)  # fmt: skip
def test_stamps_that_are_none(change: dict[str, Value]) -> None:
    (row,) = sign(TestSigner(), BUNDLE, Digest.of(b"bundle"), Stamp(bytes(16), 7))
    assert isinstance(row, dict)
    with pytest.raises(ReprobuildError):
        parse_signatures([{**row, **change}])
