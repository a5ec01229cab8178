"""Identity is what is inside: the same diffIDs and config digest, whatever compresses them."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.builders import layer as layers
from reprobuild.adapters.oci import gzipstream
from reprobuild.adapters.oci.layout import open_layout
from reprobuild.adapters.oci.storelayout import read_image
from reprobuild.adapters.oci.streams import Piece
from reprobuild.adapters.oci.verify import verify_blobs
from reprobuild.core.image import ImageFacts
from support.images import image, layer

CONTENT = b"".join(b"%d lines of text, more or less\n" % n for n in range(90_000))


def made(tmp_path: Path, name: str, **params: str | int) -> ImageFacts:
    """The image, in a store of its own, verified in full."""
    store = MemoryStore(tmp_path / name)
    parts = {"a": {"a/text": CONTENT}, "b": {"b/small": b"x", "b/empty": b""}}
    outputs = {n: layer(store, files, {}, name=n, **params) for n, files in parts.items()}
    tree = image(store, outputs, config={"labels": {"a": "b"}})
    facts = read_image(store, tree)
    with open_layout(store.materialise(tree)) as files:
        verify_blobs(files, facts)
    return facts


def other_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compresses by zlib, as a version of the library with other bytes would."""

    def stream(pieces: Iterable[Piece], level: int, done: gzipstream.Done) -> Iterator[Piece]:
        def compress(member: Piece) -> Piece:
            return gzip.compress(member, min(level, 9), mtime=0)

        return gzipstream.compressed_members(pieces, compress, done, check=lambda: None)

    monkeypatch.setattr(layers, "gzip_stream", stream)


Change = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize(
    ("params", "change"),
    [
        ({"level": 1}, None),
        ({"level": 12}, None),
        ({"compression": "zstd"}, None),
        ({"compression": "none"}, None),
        ({}, other_library),
    ],
    ids=["level-1", "level-12", "zstd", "none", "another-library"],
)
def test_identity_does_not_move(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    params: dict[str, str | int],
    change: Change | None,
) -> None:
    plain = made(tmp_path, "plain")
    if change is not None:
        change(monkeypatch)
    other = made(tmp_path, "other", **params)
    assert other.config_digest == plain.config_digest
    assert [la.diff_id for la in other.layers] == [la.diff_id for la in plain.layers]
    assert other.labels == plain.labels
    assert other.layers[0].digest != plain.layers[0].digest
    assert other.manifest_digest != plain.manifest_digest
