"""layer: a tree as one image layer.

Inputs: `tree`, the content; `base-0`… image layouts and `below-0`… placed trees that lie beneath,
in that order (only needed for where they have links and special directories). Parameters: `name`
(the component's), `prefix` (where in the image), `compression` (gzip, zstd, none), `level`,
`mtime`, `owners` ({path in the image: {mode, uid, gid, xattrs}}, mode as octal text, extended
attributes' values in base64), `owners_elsewhere` (whether some of these paths may be in another
layer), `beneath_owners` (the same for directories that lie beneath in `below-N`), `replace`
(patterns of what may take another file's place), `remove` (paths beneath that go away, as
whiteouts), `architecture` (of the base to look at).

Outputs: `out` with `layer.json`, `layer.tar.gz` (or `layer.tar.zst`, or `layer.tar`) and `files`
(core/filelist.py); `tree`, the content as it lies in the image, which the image step checks layers
against each other with.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO, cast

from reprobuild.adapters.builders.assembly import Assembly, subtree
from reprobuild.adapters.builders.below import (
    OPAQUE,
    WHITEOUT,
    Beneath,
    Stack,
    TreeBeneath,
    image_beneath,
)
from reprobuild.adapters.builders.globs import Selection
from reprobuild.adapters.builders.params import Params, numbered
from reprobuild.adapters.builders.placement import Placement
from reprobuild.adapters.oci.gzipstream import gzip_stream
from reprobuild.adapters.oci.streams import Measure, Memory, PieceReader, ahead, close, passed
from reprobuild.adapters.oci.tarstream import PIECE, Overrides, tar_pieces
from reprobuild.adapters.oci.zstdstream import zstd_stream
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value, encode
from reprobuild.core.image import LAYER, LAYER_GZIP, LAYER_ZSTD
from reprobuild.core.imagetar import Attributes
from reprobuild.core.tree import Directory, Entry, File, Symlink
from reprobuild.core.treebuilder import TreeBuilder
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore

KEYS = (
    "name",
    "prefix",
    "compression",
    "level",
    "mtime",
    "owners",
    "owners_elsewhere",
    "beneath_owners",
    "replace",
    "remove",
    "architecture",
)
FILES = b"files"
BLOBS = {"gzip": b"layer.tar.gz", "zstd": b"layer.tar.zst", "none": b"layer.tar"}
MEDIA = {"gzip": LAYER_GZIP, "zstd": LAYER_ZSTD, "none": LAYER}
MAX_ID = 2**32 - 2
DEFAULT_MTIME = 1


def build(
    params: Value, inputs: Mapping[str, Digest], content: ContentStore
) -> Mapping[str, Digest]:
    """See the module text. Raises E-PARAMS, E-IMAGE, E-IMAGE-OVERLAP, E-COMPRESSOR."""
    read = Params("layer", params, KEYS)
    compression = read.text("compression", "gzip", choices=("gzip", "zstd", "none"))
    level = read.integer("level", 6, least=1, most=12)
    mtime = read.integer("mtime", DEFAULT_MTIME, most=2**40)
    bases, below = numbered(inputs, "base"), numbered(inputs, "below")
    if "tree" not in inputs or len(inputs) != 1 + len(bases) + len(below):
        raise ReprobuildError("E-PARAMS", "layer takes the inputs `tree`, `base-N` and `below-N`")
    architecture = read.text("architecture", "amd64")
    beneath: list[Beneath] = [image_beneath(content, inputs[n], architecture) for n in bases]
    beneath += [TreeBeneath(content, inputs[n]) for n in below]
    patterns = read.texts("replace")
    stack = Stack(beneath)
    removed = [stack.remove(path.strip("/").encode()) for path in read.texts("remove")]
    placement = Placement(
        content,
        stack,
        read.text("name", "this layer"),
        Selection.of(patterns, []) if patterns else None,
    )
    placed = placement.place(inputs["tree"], read.text("prefix", "").encode())
    placed = _whiteouts(content, placed, removed)
    beneath_paths = _attributes(read, "beneath_owners", mtime, None)
    inherited = {
        path: beneath_paths.get(path, attributes or Attributes(0o755, mtime=mtime))
        for path, attributes in placement.inherited.items()
    }
    elsewhere = read.flag("owners_elsewhere")
    stated = _attributes(
        read, "owners", mtime, lambda path: subtree(content, placed, path), skip=elsewhere
    )
    paths = {**inherited, **stated}
    lines: list[str] = []
    document, blob = pack(
        content,
        placed,
        Overrides(mtime, paths),
        compression,
        level,
        lines,
    )
    builder = TreeBuilder()
    builder.add(FILES, content.add_blob(io.BytesIO("".join(lines).encode("ascii"))))
    builder.add(b"layer.json", content.add_blob(io.BytesIO(encode(document))))
    builder.add(BLOBS[compression], blob)
    digest, nodes = builder.build()
    content.add_trees(nodes)
    return {"out": digest, "tree": placed}


def _whiteouts(
    content: ContentStore, placed: Digest, removed: Sequence[tuple[bytes, ...]]
) -> Digest:
    """The tree with a whiteout for each place; where it has a directory of its own there, that is
    made opaque, since a whiteout would take it away as well."""
    if not removed:
        return placed
    assembly = Assembly(content)
    assembly.put(b"", Directory(placed), "this layer")
    empty = content.add_blob(io.BytesIO(b""))
    for parts in removed:
        here = assembly.lookup(b"/".join(parts))
        if isinstance(here, Directory):
            assembly.put(b"/".join((*parts, OPAQUE)), empty, "its whiteouts")
        elif here is None:
            assembly.put(b"/".join((*parts[:-1], WHITEOUT + parts[-1])), empty, "its whiteouts")
    return assembly.build()


def _attributes(
    read: Params,
    table: str,
    mtime: int,
    entry_at: Callable[[bytes], Entry] | None,
    *,
    skip: bool = False,
) -> dict[bytes, Attributes]:
    """The stated attributes by path; `entry_at` finds the entry, and raises where none is, unless
    such paths are to be skipped."""
    out: dict[bytes, Attributes] = {}
    stated = read.table_of_tables(table, ("mode", "uid", "gid", "xattrs"))
    for path, said in stated.items():
        key = path.strip("/").encode()
        try:
            entry = entry_at(key) if entry_at is not None else None
        except ReprobuildError:
            if not skip:
                raise
            continue
        if isinstance(entry, Symlink):
            default = "0777"
        else:
            default = "0644" if isinstance(entry, File) and not entry.executable else "0755"
        mode = said.text("mode", default)
        if not mode or len(mode) > 5 or set(mode) - set("01234567") or int(mode, 8) > 0o7777:
            raise ReprobuildError("E-PARAMS", f"{mode!r} is no octal mode for {path}", key=path)
        from base64 import b64decode

        try:
            xattrs = {
                name: b64decode(value, validate=True)
                for name, value in said.table("xattrs").items()
            }
        except ValueError as error:
            raise ReprobuildError(
                "E-PARAMS", f"an extended attribute of {path} is no base64", key=path
            ) from error
        if any("=" in name or "." not in name for name in xattrs):
            raise ReprobuildError("E-PARAMS", f"an extended attribute of {path} has a bad name")
        out[key] = Attributes(
            int(mode, 8),
            said.integer("uid", 0, most=MAX_ID),
            said.integer("gid", 0, most=MAX_ID),
            mtime,
            xattrs,
        )
    return out


def pack(
    content: ContentStore,
    tree: Digest,
    overrides: Overrides,
    compression: str,
    level: int,
    lines: list[str] | None = None,
) -> tuple[dict[str, Value], File]:
    """Stores the layer's blob, streamed; returns what layer.json says, and the blob.

    `lines` is told of every entry, as by `tar_pieces`.
    """
    packed = compression != "none"
    memory = Memory(PIECE)
    tar = ahead(tar_pieces(content, tree, overrides, lines, memory))
    measure = Measure(memory.give_back)
    if compression == "gzip":
        pieces = gzip_stream(tar, level, measure.show)
    elif compression == "zstd":
        pieces = zstd_stream(tar, measure.show)
    else:
        pieces = passed(tar, measure.show)
    reader = PieceReader(pieces, hashed=packed)
    try:
        blob = content.add_blob(cast(BinaryIO, reader))
    finally:
        reader.close()
        close(tar)  # the thread that reads the store ends here, whatever still holds the rest
    document: dict[str, Value] = {
        "diff_id": measure.sha256.hexdigest(),
        "digest": (reader if packed else measure).sha256.hexdigest(),
        "media_type": MEDIA[compression],
        "size": reader.size,
        "uncompressed_size": measure.size,
    }
    return document, blob
