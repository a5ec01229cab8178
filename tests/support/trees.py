"""Trees for tests: made of plain values, and shown as plain values."""

from __future__ import annotations

import io
from collections.abc import Mapping

from reprobuild.core.digest import Digest
from reprobuild.core.tree import File, Symlink
from reprobuild.core.treebuilder import TreeBuilder
from reprobuild.ports import ContentStore

Given = bytes | str | tuple[bytes, bool] | None


def make(content: ContentStore, files: Mapping[str | bytes, Given] | Mapping[str, Given]) -> Digest:
    """A tree: bytes are files, text is a link's target, (bytes, True) an executable file, None an
    empty directory."""
    builder = TreeBuilder()
    for name, value in files.items():
        path = name.encode() if isinstance(name, str) else name
        if value is None:
            builder.add_directory(path)
        elif isinstance(value, str):
            builder.add(path, Symlink(value.encode()))
        elif isinstance(value, tuple):
            builder.add(path, content.add_blob(io.BytesIO(value[0]), executable=value[1]))
        else:
            builder.add(path, content.add_blob(io.BytesIO(value)))
    digest, nodes = builder.build()
    content.add_trees(nodes)
    return digest


def listing(content: ContentStore, tree: Digest, prefix: bytes = b"") -> dict[str, Given]:
    """The same values back, by path; names that are not UTF-8 show with backslashes."""
    out: dict[str, Given] = {}
    for name, entry in content.tree(tree):
        path = prefix + name
        key = path.decode("utf-8", "backslashreplace")
        if isinstance(entry, File):
            with content.open_blob(entry.digest) as source:
                data = source.read()
            out[key] = (data, True) if entry.executable else data
        elif isinstance(entry, Symlink):
            out[key] = entry.target.decode("utf-8", "backslashreplace")
        elif not content.tree(entry.digest).entries:
            out[key] = None
        else:
            out.update(listing(content, entry.digest, path + b"/"))
    return out
