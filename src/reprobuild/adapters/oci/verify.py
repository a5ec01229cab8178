"""An image checked from nothing but itself: blobs, layers, trees, lists, labels, tracked sources.

What holds it together: the config names the layers by diffID; the statement in the last layer names
those of all others, with the tree of each and a list of every file; labels follow from the
statement; tracked files make up the git tree that a label names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

from reprobuild.adapters.builders.assembly import show
from reprobuild.adapters.builders.decompress import DAMAGE as PACKING
from reprobuild.adapters.builders.decompress import decompressed
from reprobuild.adapters.builders.tarread import DAMAGE, entries
from reprobuild.adapters.oci.layout import CHUNK, LayoutFiles, blob_name
from reprobuild.adapters.oci.statement import Inside
from reprobuild.core import filelist, tracked
from reprobuild.core.digest import Digest, blob_hasher
from reprobuild.core.encoding import Value
from reprobuild.core.filelist import DIRECTORY, EXECUTABLE, FILE, LINK, Listed
from reprobuild.core.image import ImageFacts, Layer
from reprobuild.core.kinds.labels import labels_of
from reprobuild.core.tree import Entry, File, Symlink
from reprobuild.core.treebuilder import TreeBuilder
from reprobuild.errors import ReprobuildError

MOST_SHOWN = 200


class _Hashing:
    """A reader that hashes what it gives."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self.sha256 = hashlib.sha256()
        self.size = 0

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        self.sha256.update(data)
        self.size += len(data)
        return data


@dataclass(slots=True)
class Seen:
    """What a layer's tar really holds: entries by path, contents, git object names."""

    listed: dict[bytes, Listed] = field(default_factory=dict)
    blobs: dict[bytes, Digest] = field(default_factory=dict)
    oids: dict[bytes, str] = field(default_factory=dict)


@dataclass(slots=True)
class Verification:
    """What was checked: the image, how many components and files, and what does not hold.

    `sources` has a row for each component with tracked files: `files`, `installed`, `equal`,
    `different` (paths), `git_tree`.
    """

    facts: ImageFacts
    components: int = 0
    files: int = 0
    problems: list[str] = field(default_factory=list)
    sources: dict[str, dict[str, Value]] = field(default_factory=dict)


def verify_image(files: LayoutFiles, image: ImageFacts, inside: Inside) -> Verification:
    """Reads every layer once. Raises E-IMAGE-VERIFY only for what cannot be read at all."""
    result = Verification(image)
    statement = inside.statement
    rows: Sequence[Mapping[str, Any]] = statement["components"]
    result.components = len(rows)
    stated = {str(la["diff_id"]): la for row in rows for la in row["layers"]}
    result.problems += _order(image, inside)
    seen: dict[str, Seen] = {}
    sha256 = any(len(str(_source(r).get("integration_tree", ""))) == 64 for r in rows)
    for layer in image.layers:
        said = stated.get(str(layer.diff_id))
        found, problems = read_layer(
            files, layer, listing=said is not None, sha256=sha256, packed=image.manifest_known
        )
        result.problems += problems
        if said is None or found is None:
            continue
        name = str(said["name"])
        seen[name] = found
        result.files += sum(entry.kind != DIRECTORY for entry in found.listed.values())
        expected = {e.path: e for e in filelist.parse(inside.files.get(name, b""))}
        result.problems += compare(name, expected, found.listed)
        tree = _tree(expected, found)
        if str(tree) != said["placed"]:
            result.problems.append(
                f"the layer {name} holds the tree {tree}, the statement says {said['placed']}"
            )
    result.problems += _labels(statement, image)
    for row in rows:
        if row["name"] in inside.sources:
            result.sources[row["name"]] = _sources(row, inside, seen, result.problems, sha256)
    return result


def verify_blobs(files: LayoutFiles, image: ImageFacts) -> None:
    """Reads every layer and checks digest, size and diffID; raises E-IMAGE-VERIFY."""
    for layer in image.layers:
        _, problems = read_layer(files, layer, listing=False, packed=image.manifest_known)
        if problems:
            raise ReprobuildError(
                "E-IMAGE-VERIFY", problems[0], component=layer.component, problems=problems
            )


def read_layer(
    files: LayoutFiles, layer: Layer, *, listing: bool, sha256: bool = False, packed: bool = True
) -> tuple[Seen | None, list[str]]:
    """A layer's entries (None unless `listing`), and what of its digests does not hold.

    Raises E-IMAGE-VERIFY when it cannot be unpacked.
    """
    name = blob_name(layer.digest)
    seen = Seen() if listing else None
    try:
        with files.open(name) as source:
            magic = source.read(8)
            source.seek(0)
            outer = _Hashing(source)
            inner = _Hashing(decompressed(cast("BinaryIO", outer), magic))
            if seen is not None:
                _take(cast("BinaryIO", inner), seen, sha256)
            while inner.read(CHUNK):
                pass
            while outer.read(CHUNK):
                pass
    except (*DAMAGE, *PACKING) as error:
        raise ReprobuildError(
            "E-IMAGE-VERIFY", f"layer {layer.digest} cannot be read: {error}"
        ) from error
    checks = [("diffID", layer.diff_id.hex, inner.sha256.hexdigest())]
    if packed:
        checks.append(("digest", layer.digest.hex, outer.sha256.hexdigest()))
        checks.append(("size", str(layer.size), str(outer.size)))
    who = layer.component or str(layer.digest)
    return seen, [
        f"layer {who} has the {what} {got}, not {promised}"
        for what, promised, got in checks
        if promised != got
    ]


def _take(stream: BinaryIO, seen: Seen, sha256: bool) -> None:
    for archive, info in entries(stream):
        path = info.name.encode("utf-8", "surrogateescape").removeprefix(b"./").rstrip(b"/")
        if not path:
            continue
        mode = info.mode & 0o7777
        if info.isdir():
            seen.listed[path] = Listed(DIRECTORY, mode, info.uid, info.gid, 0, path)
        elif info.issym():
            target = info.linkname.encode("utf-8", "surrogateescape")
            seen.listed[path] = Listed(LINK, mode, info.uid, info.gid, 0, path, target=target)
        elif info.isreg():
            content, blob = hashlib.sha256(), blob_hasher()
            git = hashlib.sha256() if sha256 else hashlib.sha1(usedforsecurity=False)
            git.update(b"blob %d\0" % info.size)
            reader = cast("BinaryIO", archive.extractfile(info))
            while chunk := reader.read(CHUNK):
                for hasher in (content, blob, git):
                    hasher.update(chunk)
            seen.listed[path] = Listed(
                FILE, mode, info.uid, info.gid, info.size, path, content.hexdigest()
            )
            seen.blobs[path] = Digest(blob.hexdigest())
            seen.oids[path] = git.hexdigest()
        else:
            seen.listed[path] = Listed("?", mode, info.uid, info.gid, 0, path)


def compare(
    name: str, expected: Mapping[bytes, Listed], found: Mapping[bytes, Listed]
) -> list[str]:
    """Every entry that differs between a layer's list and what is there, in words."""
    out = []
    for path in sorted({*expected, *found}):
        want, have = expected.get(path), found.get(path)
        place = f"/{show(path)} of {name}"
        if want is None:
            out.append(f"{place} is not in the list")
        elif have is None:
            out.append(f"{place} is missing")
        elif {EXECUTABLE: FILE}.get(want.kind, want.kind) != have.kind:
            out.append(f"{place} is of another kind")
        elif (want.content, want.size, want.target) != (have.content, have.size, have.target):
            out.append(f"{place} has other content")
        elif (want.mode, want.uid, want.gid) != (have.mode, have.uid, have.gid):
            out.append(
                f"{place} has mode {have.mode:04o} of {have.uid}:{have.gid}, not "
                f"{want.mode:04o} of {want.uid}:{want.gid}"
            )
    return out


def _tree(expected: Mapping[bytes, Listed], found: Seen) -> Digest:
    """The store's digest of what a layer holds; the list tells which files are executable where an
    owner's mode says otherwise (contents and modes are compared apart)."""
    builder = TreeBuilder()
    for path, have in found.listed.items():
        if have.kind == DIRECTORY:
            builder.add_directory(path)
            continue
        entry: Entry
        if have.kind == LINK:
            entry = Symlink(have.target)
        elif path in found.blobs:
            want = expected.get(path)
            executable = want.kind == EXECUTABLE if want is not None else bool(have.mode & 0o100)
            entry = File(found.blobs[path], have.size, executable)
        else:
            continue
        builder.add(path, entry)
    return builder.build()[0]


def _order(image: ImageFacts, inside: Inside) -> list[str]:
    """Whether the layers are exactly those that the statement names, and its own."""
    rows: Sequence[Mapping[str, Any]] = inside.statement["components"]
    if not any(row["layers"] for row in rows):
        names = [layer.component for layer in image.layers]
        return [
            f"there is no layer of the component {row['name']}"
            for row in rows
            if row["name"] not in names
        ]
    base = inside.statement.get("base")
    expected = list(base.get("diff_ids", [])) if isinstance(base, Mapping) else []
    names = ["base"] * len(expected)
    for row in rows:
        expected += [str(layer["diff_id"]) for layer in row["layers"]]
        names += [str(layer["name"]) for layer in row["layers"]]
    have = [str(layer.diff_id) for layer in image.layers]
    out = [
        f"the layer {diff_id} of {name} is not in the image"
        for diff_id, name in zip(expected, names, strict=True)
        if diff_id not in have
    ]
    out += [
        f"the statement does not know the layer {diff_id}"
        for index, diff_id in enumerate(have)
        if diff_id not in expected and index != inside.layer
    ]
    if not out and have != [*expected, have[inside.layer]]:
        out.append("the layers are in another order than the statement says")
    return out


def _labels(statement: Mapping[str, Any], image: ImageFacts) -> list[str]:
    try:
        expected = labels_of(statement)
        prefix = str(statement["release"]["label_prefix"])
    except (KeyError, TypeError, AttributeError) as error:
        return [f"the statement lacks {error}, of which labels are made"]
    out = []
    for key, value in sorted(expected.items()):
        if key not in image.labels:
            out.append(f"there is no label {key}")
        elif image.labels[key] != value:
            out.append(f"the label {key} is {image.labels[key]}, the statement says {value}")
    out += [
        f"the statement knows no label {key}"
        for key in sorted(image.labels)
        if key.startswith(f"{prefix}.") and key not in expected
    ]
    return out


def _source(row: Mapping[str, Any]) -> Mapping[str, Any]:
    source = row.get("source")
    return source if isinstance(source, Mapping) else {}


def _sources(
    row: Mapping[str, Any],
    inside: Inside,
    seen: Mapping[str, Seen],
    problems: list[str],
    sha256: bool,
) -> dict[str, Value]:
    name = str(row["name"])
    files = list(tracked.parse(inside.sources[name]))
    places = tracked.Correspondence()
    oids: dict[bytes, str] = {}
    for file in files:
        if file.mode != 0o120000:
            places.add(file.path)
            oids[file.path] = file.oid
    stated = str((row.get("tracked") or {}).get("git_tree", ""))
    git_tree = tracked.tree_oid(files, sha256=sha256)
    if stated:
        promised = str(_source(row).get("integration_tree", ""))
        if git_tree != promised:
            problems.append(
                f"the tracked files of {name} make up the git tree {git_tree}, not {promised}"
            )
    installed = equal = 0
    different: list[Value] = []
    for layer, found in seen.items():
        if layer.partition(".")[0] != name:
            continue
        for path, oid in found.oids.items():
            meant = places.of(path)
            if not meant:
                continue
            installed += 1
            if any(oids[p] == oid for p in meant):
                equal += 1
            else:
                different.append("/" + show(path))
    excused = set((row.get("tracked") or {}).get("changed", []))
    problems += [
        f"{path} of {name} is not as its tracked source"
        for path in different
        if path not in excused
    ]
    return {
        "different": different,
        "equal": equal,
        "files": len(files),
        "git_tree": git_tree if stated else "",
        "installed": installed,
        "integration_tree": str(_source(row).get("integration_tree", "")),
    }
