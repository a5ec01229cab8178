"""A store tree as the bytes of a layer's tar, streamed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from reprobuild.core.digest import Digest
from reprobuild.core.imagetar import BLOCK, DIRECTORY, END, REGULAR, SYMLINK, Attributes, header
from reprobuild.core.tree import Directory, File
from reprobuild.ports import ContentStore

CHUNK = 2**20


@dataclass(frozen=True, slots=True)
class Overrides:
    """Attributes that are not the default: by path, for entries that exist.

    `mtime` (seconds since the epoch) is everything else's.
    """

    mtime: int
    paths: Mapping[bytes, Attributes] = field(default_factory=dict)

    def of(self, path: bytes, default_mode: int) -> Attributes:
        """The attributes of the entry at `path`."""
        found = self.paths.get(path)
        return found if found is not None else Attributes(default_mode, mtime=self.mtime)


def tar_pieces(content: ContentStore, tree: Digest, overrides: Overrides) -> Iterator[bytes]:
    """The tar of `tree`: each directory before what it holds, names in order of their bytes."""
    yield from _entries(content, tree, b"", overrides)
    yield END


def _entries(
    content: ContentStore, tree: Digest, prefix: bytes, overrides: Overrides
) -> Iterator[bytes]:
    for name, entry in content.tree(tree).entries:
        path = prefix + name
        if isinstance(entry, Directory):
            yield header(DIRECTORY, path, overrides.of(path, 0o755))
            yield from _entries(content, entry.digest, path + b"/", overrides)
        elif isinstance(entry, File):
            mode = 0o755 if entry.executable else 0o644
            yield header(REGULAR, path, overrides.of(path, mode), size=entry.size)
            if entry.size:
                with content.open_blob(entry.digest) as source:
                    while chunk := source.read(CHUNK):
                        yield chunk
                yield bytes(-entry.size % BLOCK)
        else:
            yield header(SYMLINK, path, overrides.of(path, 0o777), target=entry.target)
