"""What `verify` says, and what it knows while it looks."""

from __future__ import annotations

from errno import EINVAL, EISDIR

from reprobuild.adapters.store.reading import read_file

TYPE_CHECKING = False  # as typing has it: dataclasses take a small store longer than its hashing
if TYPE_CHECKING:
    from collections.abc import Iterator

    from reprobuild.core.tree import Tree


class Problem:
    """One thing that is off; equal to another that says the same.

    `kind` is `damaged` (content is not what the name says), `missing` (referred to, not here),
    `misplaced` (no place for such a file), `mode` (permissions, times, links).
    """

    __slots__ = ("kind", "object", "path", "reason")

    def __init__(self, kind: str, object: str, path: str, reason: str) -> None:
        self.kind = kind
        self.object = object
        self.path = path
        self.reason = reason

    def _all(self) -> tuple[str, ...]:
        return self.kind, self.object, self.path, self.reason

    def __eq__(self, other: object) -> bool:
        return self._all() == other._all() if isinstance(other, Problem) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return f"Problem{self._all()}"

    def __str__(self) -> str:
        return f"{self.kind}: {self.object}: {self.reason} ({self.path})"


class Report:
    """What was looked at, and every problem, sorted by path."""

    __slots__ = (
        "blobs", "bytes", "drvs", "materialised", "problems", "records", "roots", "trees",
    )  # fmt: skip

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.blobs = 0
        self.trees = 0
        self.drvs = 0
        self.records = 0
        self.roots = 0
        self.materialised = 0
        self.bytes = 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Report):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def say(self, kind: str, thing: str, path: str, reason: str) -> None:
        """Notes a problem."""
        self.problems.append(Problem(kind, thing, path, reason))

    def document(self, thing: str, path: str) -> bytes | None:
        """A document's bytes; None where it is gone, or no file, or cannot be read, as noted."""
        try:
            return read_file(path)
        except FileNotFoundError:  # somebody removed it since it was listed
            return None
        except OSError as error:
            if error.errno in (EINVAL, EISDIR):
                self.misplaced(path)
            else:
                self.say("damaged", thing, path, f"unreadable: {error.strerror}")
            return None

    def misplaced(self, path: str) -> None:
        """Notes what lies where no such file belongs."""
        self.say("misplaced", path.rpartition("/")[2], path, "not the store's")

    def missing(self, thing: str, path: str, reason: str) -> None:
        """Notes what `path` refers to, and is not here."""
        self.say("missing", thing, path, reason)

    def facts(self) -> dict[str, int | list[str]]:
        """All of it in plain values, for a document."""
        numbers: dict[str, int | list[str]] = {
            name: getattr(self, name) for name in self.__slots__ if name != "problems"
        }
        return {**numbers, "problems": [str(problem) for problem in self.problems]}


class Nodes:
    """Directory nodes by their digest's digits; kept as bytes, since few are looked into again."""

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}

    def put(self, name: str, data: bytes) -> None:
        """Adds a node by its bytes, which are sound."""
        self._data[name] = data

    def bytes(self, name: str) -> bytes:
        """A node as it was put."""
        return self._data[name]

    def get(self, name: str) -> Tree | None:
        """A node, when it was put."""
        from reprobuild.core.tree import decode

        data = self._data.get(name)
        return None if data is None else decode(data)

    def __getitem__(self, name: str) -> Tree:
        tree = self.get(name)
        if tree is None:
            raise KeyError(name)
        return tree

    def __setitem__(self, name: str, tree: Tree) -> None:
        self._data[name] = tree.encode()

    def values(self) -> Iterator[Tree]:
        """All nodes."""
        return (self[name] for name in self._data)

    def __contains__(self, name: str) -> bool:
        return name in self._data

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)


class Known:
    """What was found to be good."""

    __slots__ = ("aside", "blobs", "drvs", "inodes", "records", "trees")

    def __init__(self) -> None:
        self.blobs: dict[str, int] = {}
        """`<hex>` or `<hex>.x` → size."""
        self.inodes: dict[int, str] = {}
        """Inodes of good blobs with a second link → their key in `blobs`."""
        self.trees = Nodes()
        self.drvs: set[str] = set()
        self.records: set[tuple[str, str]] = set()
        self.aside: set[tuple[str, str]] = set()
        """Records in quarantine."""
