"""Directory nodes: the exact bytes, and everything that is refused."""

from __future__ import annotations

import pytest
from blake3 import blake3

from reprobuild.core.digest import Digest
from reprobuild.core.tree import EMPTY, Directory, Entry, File, Symlink, Tree, decode
from reprobuild.errors import ReprobuildError

D = Digest("11" * 32)
RAW = bytes.fromhex("11" * 32)


def refused(data: bytes) -> None:
    with pytest.raises(ReprobuildError) as caught:
        decode(data)
    assert caught.value.code in ("E-TREE", "E-DIGEST")


def test_bytes_as_the_format_states_them() -> None:
    tree = Tree.of(
        {
            b"x": File(D, 5, executable=True),
            b"dir": Directory(D),
            b"f": File(D, 258),
            b"link": Symlink(b"../a"),
        }
    )
    assert tree.encode() == (
        b"ddir\0" + RAW
        + b"ff\0" + RAW + b"\0\0\0\0\0\0\1\2"
        + b"llink\0" + b"\0\0\0\4../a"
        + b"xx\0" + RAW + b"\0\0\0\0\0\0\0\5"
    )  # fmt: skip
    assert tree.digest.hex == blake3(b"reprobuild/tree/v0\0" + tree.encode()).hexdigest()
    assert decode(tree.encode()) == tree


def test_the_empty_tree() -> None:
    assert decode(b"") == EMPTY == Tree.of({})
    assert EMPTY.digest.hex == blake3(b"reprobuild/tree/v0\0").hexdigest()


def test_order_is_bytewise_by_name_alone() -> None:
    names = [b"a", b"B", b"a.b", b"a-b", b"ab", b"\xff", "é".encode(), b"\x01"]
    tree = Tree.of({name: File(D, 0) for name in names})
    assert [name for name, _ in tree] == sorted(names)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (File(D, 1), File(D, 2)),
        (File(D, 1), File(D, 1, executable=True)),
        (File(D, 1), File(Digest("12" * 32), 1)),
        (File(D, 1), Directory(D)),
        (Symlink(b"a"), Symlink(b"b")),
    ],
)
def test_every_field_is_in_the_digest(one: Entry, other: Entry) -> None:
    assert Tree.of({b"n": one}).digest != Tree.of({b"n": other}).digest
    assert Tree.of({b"n": one}).digest != Tree.of({b"m": one}).digest


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"/", b"a\0b", b"x" * 256])
def test_names_that_are_refused(name: bytes) -> None:
    with pytest.raises(ReprobuildError):
        Tree.of({name: Directory(D)})
    refused(b"d" + name + b"\0" + RAW)


@pytest.mark.parametrize("name", [b"...", b".a", b"-", b" ", b"\n", b"\xff\xfe", b"x" * 255])
def test_names_that_are_odd_but_allowed(name: bytes) -> None:
    tree = Tree.of({name: Directory(D)})
    assert decode(tree.encode()) == tree


@pytest.mark.parametrize("target", [b"", b"a\0b", b"x" * 4096])
def test_link_targets_that_are_refused(target: bytes) -> None:
    with pytest.raises(ReprobuildError):
        Tree.of({b"l": Symlink(target)})
    refused(b"ll\0" + len(target).to_bytes(4, "big") + target)


@pytest.mark.parametrize("size", [-1, 2**63])
def test_sizes_that_are_refused(size: int) -> None:
    with pytest.raises(ReprobuildError):
        Tree.of({b"f": File(D, size)})


def test_disorder_and_twins_are_refused() -> None:
    a, b = b"da\0" + RAW, b"db\0" + RAW
    assert len(decode(a + b).entries) == 2
    refused(b + a)
    refused(a + a)
    refused(a + b"la\0\0\0\0\1x")


@pytest.mark.parametrize(
    "data",
    [b"z", b"za\0" + RAW, b"\0", b"d", b"da", b"da\0", b"da\0" + RAW[:-1], b"fa\0" + RAW,
     b"la\0\xff\xff\xff\xffx", b"fa\0" + RAW + b"\xff" * 8, b"Da\0" + RAW],
)  # fmt: skip
def test_damage_is_refused(data: bytes) -> None:
    refused(data)


def test_get() -> None:
    tree = Tree.of({b"a": Directory(D)})
    assert tree.get(b"a") == Directory(D)
    assert tree.get(b"b") is None
