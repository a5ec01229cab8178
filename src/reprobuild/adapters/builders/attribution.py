"""Every file of a component's layers accounted for, and held against the tracked sources.

A file is known by its content: it comes from the origin (core/kinds/origins.py) whose tree holds
the same content, at the place that agrees best. What no origin holds, and a file that stands for a
tracked one with other content and no word about why, fails the image: such changes would live in
the image alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reprobuild.adapters.builders.assembly import show
from reprobuild.adapters.builders.globs import Selection
from reprobuild.core.digest import Digest
from reprobuild.core.filelist import DIRECTORY, LINK, Listed
from reprobuild.core.tracked import Correspondence, Tracked, blob_oid
from reprobuild.core.tree import Directory, Entry, File, Symlink
from reprobuild.core.wording import plural
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore

CHUNK = 2**20
KINDS = ("source", "package", "derivation", "addition")
MOST_PLACES = 64
"""How many places of one content are weighed against each other."""


def walk(content: ContentStore, tree: Digest, prefix: bytes = b"") -> Iterator[tuple[bytes, Entry]]:
    """Every entry below a tree, by path."""
    for name, entry in content.tree(tree):
        yield prefix + name, entry
        if isinstance(entry, Directory):
            yield from walk(content, entry.digest, prefix + name + b"/")


@dataclass(frozen=True, slots=True)
class OriginTree:
    """An origin as its kind, its tree (None: `texts` and `links` of a recipe)."""

    kind: str
    tree: Digest | None
    texts: frozenset[str] = frozenset()
    links: frozenset[str] = frozenset()


@dataclass(slots=True)
class Origins:
    """Looks up contents in the origins of one component."""

    content: ContentStore
    trees: Sequence[OriginTree]
    _files: dict[Digest, list[tuple[int, bytes]]] = field(default_factory=lambda: defaultdict(list))
    _links: dict[bytes, list[tuple[int, bytes]]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for index, origin in enumerate(self.trees):
            if origin.tree is None:
                for text in origin.texts:
                    self._files[Digest(text)].append((index, b""))
                for target in origin.links:
                    self._links[target.encode()].append((index, b""))
                continue
            for path, entry in walk(self.content, origin.tree):
                places = (
                    self._files[entry.digest]
                    if isinstance(entry, File)
                    else self._links[entry.target]
                    if isinstance(entry, Symlink)
                    else []
                )
                if len(places) < MOST_PLACES:
                    places.append((index, path))

    def of(self, path: bytes, entry: Entry) -> int | None:
        """The number of the origin of an entry; None where no origin holds it."""
        if isinstance(entry, Directory):
            return None
        places = (
            self._files.get(entry.digest, [])
            if isinstance(entry, File)
            else self._links.get(entry.target, [])
        )

        def rank(place: tuple[int, bytes]) -> tuple[int, int, int]:
            index, at = place
            shared = _common_end(at, path)
            return (-shared, KINDS.index(self.trees[index].kind), index)

        return min(places, key=rank)[0] if places else None


def _common_end(one: bytes, other: bytes) -> int:
    """How many last components two paths share."""
    count = 0
    pairs = zip(reversed(one.split(b"/")), reversed(other.split(b"/")), strict=False)
    for a, b in pairs:
        if a != b:
            break
        count += 1
    return count


@dataclass(frozen=True, slots=True)
class Account:
    """What became of a component's files: the list with origins, and how many are of which kind."""

    lists: Mapping[str, list[Listed]]
    counts: Mapping[str, int]
    installed: int = 0
    equal: int = 0
    changed: tuple[bytes, ...] = ()


def account(
    name: str,
    content: ContentStore,
    layers: Mapping[str, tuple[Digest, list[Listed]]],
    origins: Origins,
    tracked: Mapping[bytes, Digest],
    modified: Mapping[str, str],
) -> Account:
    """Accounts for every file of a component's layers (placed tree and list, by layer).

    `tracked` are the files of the source tree, `modified` the patterns of image paths that may
    differ from them. Raises E-ATTRIBUTION, naming the paths.
    """
    may_differ = Selection.of(list(modified), []) if modified else None
    places = Correspondence()
    for path in tracked:
        places.add(path)
    counts: Counter[str] = Counter()
    lists: dict[str, list[Listed]] = {}
    unknown: list[bytes] = []
    changed: list[bytes] = []
    overlaid: list[bytes] = []
    installed = equal = 0
    for layer, (tree, listed) in layers.items():
        entries = dict(walk(content, tree))
        rows = []
        for row in listed:
            entry = entries[row.path]
            # A whiteout is a declared removal, not a file.
            if row.kind == DIRECTORY or row.path.rpartition(b"/")[2].startswith(b".wh."):
                rows.append(row)
                continue
            index = origins.of(row.path, entry)
            if index is None:
                unknown.append(row.path)
                continue
            kind = origins.trees[index].kind
            rows.append(replace(row, origin=str(index)))
            meant = places.of(row.path) if row.kind != LINK and isinstance(entry, File) else []
            if meant and isinstance(entry, File):
                installed += 1
                if any(tracked[path] == entry.digest for path in meant):
                    equal += 1
                    kind = "source"  # whatever carried it here left it as it was
                elif may_differ is not None and may_differ.takes(row.path):
                    changed.append(row.path)
                else:
                    overlaid.append(row.path)
            counts[kind] += 1
        lists[layer] = rows
    if unknown:
        raise _unaccounted(name, unknown)
    if overlaid:
        raise _overlaid(name, overlaid)
    return Account(lists, dict(counts), installed, equal, tuple(changed))


def _unaccounted(name: str, paths: Sequence[bytes]) -> ReprobuildError:
    return ReprobuildError(
        "E-ATTRIBUTION",
        f"{plural(len(paths), 'file')} of {name} from nothing that is declared, /{show(paths[0])} "
        "among them",
        hint="this cannot come of a recipe; please report it",
        component=name,
        paths=["/" + show(path) for path in paths[:50]],
    )


def _overlaid(name: str, paths: Sequence[bytes]) -> ReprobuildError:
    return ReprobuildError(
        "E-ATTRIBUTION",
        f"/{show(paths[0])} of {name} is a tracked source file, but not as the integration tree "
        f"has it" + (f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""),
        component=name,
        paths=["/" + show(path) for path in paths[:50]],
    )


def tracked_files(content: ContentStore, tree: Digest, *, sha256: bool) -> tuple[
    list[Tracked], dict[bytes, Digest], bool
]:  # fmt: skip
    """The files of a source tree as git names them, their contents, and whether they are all.

    A submodule shows as an empty directory, whose commit is not known here: then they are not all,
    and the tree's object name does not follow from them.
    """
    found: list[Tracked] = []
    contents: dict[bytes, Digest] = {}
    whole = True
    for path, entry in walk(content, tree):
        if isinstance(entry, File):
            with content.open_blob(entry.digest) as source:
                oid = blob_oid(entry.size, iter(lambda: source.read(CHUNK), b""), sha256=sha256)
            found.append(Tracked(0o100755 if entry.executable else 0o100644, oid, path))
            contents[path] = entry.digest
        elif isinstance(entry, Symlink):
            oid = blob_oid(len(entry.target), [entry.target], sha256=sha256)
            found.append(Tracked(0o120000, oid, path))
        elif not content.tree(entry.digest).entries:
            whole = False
    return found, contents, whole
