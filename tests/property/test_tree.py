"""Trees: a digest of content alone, and a decoder that nothing confuses."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fakes.memory_store import MemoryStore
from reprobuild.core.digest import Digest
from reprobuild.core.tree import Directory, File, Symlink, Tree, decode
from reprobuild.errors import ReprobuildError

DIGESTS = st.binary(min_size=32, max_size=32).map(Digest.from_raw)
NAMES = (
    st.binary(min_size=1, max_size=12)
    .filter(lambda n: b"/" not in n and b"\0" not in n and n not in (b".", b".."))
)  # fmt: skip
TARGETS = st.binary(min_size=1, max_size=20).filter(lambda t: b"\0" not in t)
ENTRIES = (
    st.builds(File, DIGESTS, st.integers(0, 2**63 - 1), st.booleans())
    | st.builds(Directory, DIGESTS)
    | st.builds(Symlink, TARGETS)
)
NODES = st.dictionaries(NAMES, ENTRIES, max_size=8)


@given(NODES)
def test_decodes_to_what_was_encoded(entries: dict[bytes, File | Directory | Symlink]) -> None:
    tree = Tree.of(entries)
    assert decode(tree.encode()) == tree
    assert dict(tree.entries) == entries


@given(NODES, st.randoms())
def test_order_of_making_does_not_matter(
    entries: dict[bytes, File | Directory | Symlink], random: object
) -> None:
    items = list(entries.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert Tree.of(dict(items)).digest == Tree.of(entries).digest


@given(NODES, NODES)
def test_is_injective(
    a: dict[bytes, File | Directory | Symlink], b: dict[bytes, File | Directory | Symlink]
) -> None:
    assert (Tree.of(a).encode() == Tree.of(b).encode()) == (a == b)


@given(NODES, st.data())
def test_cut_or_changed_bytes_never_crash(
    entries: dict[bytes, File | Directory | Symlink], data: st.DataObject
) -> None:
    encoded = bytearray(Tree.of(entries).encode())
    cut = data.draw(st.integers(0, len(encoded)))
    del encoded[cut:]
    if encoded and data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(encoded) - 1))
        encoded[place] = data.draw(st.integers(0, 255))
    try:
        tree = decode(bytes(encoded))
    except ReprobuildError as error:
        assert error.code in ("E-TREE", "E-DIGEST")
    else:
        assert tree.encode() == bytes(encoded)


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    try:
        tree = decode(data)
    except ReprobuildError as error:
        assert error.code in ("E-TREE", "E-DIGEST")
    else:
        assert tree.encode() == data


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=3), st.binary(max_size=20), min_size=1, max_size=6
    ),
    st.randoms(),
)
def test_directories_made_in_another_order_are_one_tree(
    files: dict[str, bytes], random: object
) -> None:
    digests: set[Digest] = set()
    for _ in range(2):
        names = list(files)
        random.shuffle(names)  # type: ignore[attr-defined]
        with tempfile.TemporaryDirectory() as top:
            for name in names:
                path = Path(top, name)
                path.write_bytes(files[name])
                os.utime(path, (len(name), 1000 + len(digests)))
            digests.add(MemoryStore().capture(Path(top)))
    assert len(digests) == 1
