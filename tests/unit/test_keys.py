"""Keys: made, kept to the user, rotated, revoked; and what is believed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from reprobuild.adapters.keys.keyring import Keyring, public_pem, read_public, signed_by
from reprobuild.core.publickey import key_id
from reprobuild.core.rotation import DOMAIN, Rotation, leading_to, parse, render, vouched
from reprobuild.errors import ReprobuildError


@pytest.fixture
def ring(tmp_path: Path) -> Keyring:
    return Keyring(tmp_path / "config")


def code(error: pytest.ExceptionInfo[ReprobuildError]) -> tuple[str, int]:
    return error.value.code, error.value.exit_status


def test_a_key_signs_and_is_believed(ring: Keyring) -> None:
    made = ring.generate()
    signature = ring.signer().sign(b"text")
    assert (len(made.key), len(signature)) == (32, 64)
    assert ring.verify(made.key, b"text", signature)
    assert not ring.verify(made.key, b"texts", signature)
    assert not ring.verify(made.key, b"text", signature[:-1] + bytes([signature[-1] ^ 1]))
    assert not ring.verify(bytes(32), b"text", signature)


def test_a_key_that_is_not_there_yet(ring: Keyring) -> None:
    with pytest.raises(ReprobuildError) as first:
        ring.signer()
    assert code(first) == ("E-KEY", 3)
    assert first.value.message == "you have no signing key yet"
    assert first.value.hint == "`reprobuild key generate` makes it"
    ring.generate("work")
    with pytest.raises(ReprobuildError) as other:
        ring.signer("wrok")
    assert other.value.message == "there is no key wrok of yours"
    assert other.value.hint == "there are: work; `reprobuild key generate wrok` makes it"


def test_private_keys_are_the_users_alone(ring: Keyring) -> None:
    old = os.umask(0)
    try:
        ring.generate("work")
    finally:
        os.umask(old)
    assert (ring.home / "keys/work.pem").stat().st_mode & 0o777 == 0o600
    assert (ring.home / "keys").stat().st_mode & 0o777 == 0o700
    assert "PRIVATE" not in repr(ring.signer("work"))


def test_a_key_that_others_can_read_does_not_sign(ring: Keyring) -> None:
    ring.generate()
    (ring.home / "keys/default.pem").chmod(0o640)
    with pytest.raises(ReprobuildError) as error:
        ring.signer()
    assert code(error) == ("E-KEY", 3)
    assert "chmod 600" in error.value.hint


def test_no_key_is_overwritten(ring: Keyring) -> None:
    before = ring.generate().key
    with pytest.raises(ReprobuildError) as error:
        ring.generate()
    assert code(error) == ("E-KEY", 3)
    assert ring.signer().key == before


def test_others_are_believed_when_told(ring: Keyring, tmp_path: Path) -> None:
    other = Keyring(tmp_path / "other")
    key = other.generate().key
    signature = other.signer().sign(b"x")
    assert not ring.verify(key, b"x", signature)
    ring.trust("friend", read_public(other.home / "keys/default.pub"))
    assert ring.verify(key, b"x", signature)
    assert [(k.name, k.own) for k in ring.known()] == [("friend", False)]


def test_rotation_keeps_the_old_key_and_vouches_for_the_new(ring: Keyring) -> None:
    first = ring.generate()
    signature = ring.signer().sign(b"old")
    old, new = ring.rotate()
    assert (old.key, ring.signer().key) == (first.key, new.key)
    assert ring.signer(old.name).key == first.key
    assert ring.verify(old.key, b"old", signature)
    (row,) = json.loads((ring.home / "keys.json").read_text())["rotated"]
    message = b"reprobuild/key-rotation/v0\0" + new.key
    assert signed_by(first.key, message, bytes.fromhex(row["signature"]))


def test_what_is_revoked_is_believed_no_more(ring: Keyring) -> None:
    made = ring.generate()
    signature = ring.signer().sign(b"x")
    ring.revoke(made.id[:12], "lost")
    assert not ring.verify(made.key, b"x", signature)
    assert ring.known()[0].revoked == "lost"
    for attempt in (ring.signer, lambda: ring.trust("again", made.key)):
        with pytest.raises(ReprobuildError) as error:
            attempt()
        assert code(error) == ("E-KEY", 3)


def test_after_one_that_is_revoked_comes_another(ring: Keyring) -> None:
    old = ring.generate()
    with pytest.raises(ReprobuildError):
        ring.generate()
    ring.revoke("default", "lost")
    with pytest.raises(ReprobuildError) as error:
        ring.rotate()
    assert error.value.hint == "`reprobuild key generate` makes another of that name"
    new = ring.generate()
    assert new.key != old.key
    assert ring.signer().key == new.key
    assert {(k.name, k.key, k.revoked) for k in ring.known()} == {
        ("default", new.key, ""),
        (f"default.{old.id[:12]}", old.key, "lost"),
    }
    assert not ring.verify(old.key, b"x", b"")
    assert ring.rotations(new.key) == []


def test_trust_follows_a_rotation(ring: Keyring, tmp_path: Path) -> None:
    first = ring.generate()
    other = Keyring(tmp_path / "other")
    other.trust("friend", first.key)
    ring.rotate()
    _, last = ring.rotate()
    data = ring.rotation_file().read_bytes()
    names = [k.name for k in other.trust_rotated(data)]
    assert len(names) == 2
    assert all(name.startswith("friend.") for name in names)
    assert other.verify(last.key, b"x", ring.signer().sign(b"x"))
    assert other.trust_rotated(data) == []


def test_nobody_vouches_for_a_stranger(ring: Keyring, tmp_path: Path) -> None:
    first = ring.generate()
    ring.rotate()
    data = ring.rotation_file().read_bytes()
    stranger = Keyring(tmp_path / "stranger")
    with pytest.raises(ReprobuildError) as error:
        stranger.trust_rotated(data)
    assert code(error) == ("E-KEY", 3)
    # What is revoked vouches for nothing, whoever believed it before.
    stranger.trust("friend", first.key)
    stranger.revoke("friend", "stolen")
    with pytest.raises(ReprobuildError):
        stranger.trust_rotated(data)
    # And a revoked successor is not brought back.
    late = Keyring(tmp_path / "late")
    late.trust("friend", first.key)
    (made,) = late.trust_rotated(data)
    late.revoke(made.name)
    with pytest.raises(ReprobuildError):
        late.trust_rotated(data)


def test_a_forged_rotation_is_worth_nothing(ring: Keyring, tmp_path: Path) -> None:
    first = ring.generate()
    thief = Keyring(tmp_path / "thief")
    stolen = thief.generate()
    forged = Rotation(first.key, stolen.key, thief.signer().sign(DOMAIN + stolen.key))
    victim = Keyring(tmp_path / "victim")
    victim.trust("friend", first.key)
    with pytest.raises(ReprobuildError):
        victim.trust_rotated(render([forged]))
    assert [k.key for k in victim.known()] == [first.key]


def test_rotations_that_run_in_circles() -> None:
    keys = [bytes([n]) * 32 for n in range(4)]
    rows = [Rotation(keys[n], keys[(n + 1) % 4], bytes(64)) for n in range(4)]
    assert parse(render(rows)) == rows
    found = vouched(rows, [keys[2]], lambda *_: True)
    assert found == dict.fromkeys([keys[3], keys[0], keys[1]], keys[2])
    assert len(leading_to(rows, keys[0])) == 4
    assert vouched(rows, [keys[2]], lambda *_: True, {key_id(keys[0])}) == {keys[3]: keys[2]}
    assert vouched(rows, [keys[2]], lambda *_: True, {key_id(keys[2])}) == {}


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"format": 1, "rotated": []}', '{"format": 0, "rotated": [{"from": "00"}]}',
     '{"format": 0, "rotated": [{"from": "00", "to": "00", "signature": "00"}]}', "[" * 100_000],
    ids=range(6),
)  # fmt: skip
def test_what_is_no_document_of_rotations(text: str) -> None:
    with pytest.raises(ReprobuildError) as error:
        parse(text.encode())
    assert error.value.code == "E-SIGNATURE"


def test_a_damaged_state_is_not_taken_for_empty(ring: Keyring) -> None:
    made = ring.generate()
    ring.revoke(made.id)
    (ring.home / "keys.json").write_text("{")
    with pytest.raises(ReprobuildError) as error:
        ring.verify(made.key, b"x", bytes(64))
    assert code(error) == ("E-KEY", 3)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".x", "x" * 65])
def test_names_that_are_none(ring: Keyring, name: str) -> None:
    with pytest.raises(ReprobuildError) as error:
        ring.generate(name)
    assert error.value.code == "E-KEY"


@pytest.mark.parametrize("text", ["", "text", "-----BEGIN PUBLIC KEY-----\nAAAA\n"])
def test_files_that_are_no_keys(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.pub").write_text(text)
    with pytest.raises(ReprobuildError) as error:
        read_public(tmp_path / "x.pub")
    assert error.value.code == "E-KEY"


def test_a_known_vector() -> None:
    """RFC 8032, 7.1, test 2."""
    key = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
    signature = bytes.fromhex(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert signed_by(key, b"\x72", signature)
    assert not signed_by(key, b"\x73", signature)
    assert len(key_id(key)) == 64
    assert public_pem(key).startswith(b"-----BEGIN PUBLIC KEY-----")
