"""`MemoryStore`: ports.ContentStore and ports.Catalog over dicts, for tests of what uses a store.

It keeps the store's promises: content is checked, references must be here, records do not dangle,
and speak only of what has passed a barrier. `materialise` writes to a directory of its own.
"""

from __future__ import annotations

import io
import os
import stat
import tempfile
import threading
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO

from reprobuild.adapters.store.lend import Known
from reprobuild.core.derivation import InputContent
from reprobuild.core.digest import Digest
from reprobuild.core.record import Record
from reprobuild.core.tree import Directory, Entry, File, Symlink, Tree
from reprobuild.errors import ReprobuildError
from reprobuild.ports import Loan


class MemoryStore:
    """A whole store in memory. `home` is where `materialise` writes (a fresh directory if None)."""

    def __init__(self, home: Path | None = None) -> None:
        self._home = home
        self._lock = threading.RLock()
        self._actions: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self.blobs: dict[Digest, bytes] = {}
        self.trees: dict[Digest, Tree] = {}
        self.drvs: dict[Digest, bytes] = {}
        self.recorded: dict[Digest, dict[Digest, Record]] = {}
        self.chosen: dict[Digest, Record] = {}
        self.root_documents: dict[str, bytes] = {}
        self.barriers = 0
        self.spoilt: set[Digest] = set()
        self._loose: set[Digest] = set()
        """Trees that came since the last barrier: the real store could lose them yet."""

    # -- ContentStore --------------------------------------------------------------------------

    def contains(self, tree: Digest) -> bool:
        """As the port says."""
        return tree in self.trees

    def tree(self, digest: Digest) -> Tree:
        """As the port says."""
        try:
            return self.trees[digest]
        except KeyError:
            raise _missing("tree", digest) from None

    def open_blob(self, digest: Digest) -> BinaryIO:
        """As the port says."""
        try:
            return io.BytesIO(self.blobs[digest])
        except KeyError:
            raise _missing("blob", digest) from None

    def read_blob(self, file: File) -> bytes:
        """As the port says."""
        with self.open_blob(file.digest) as source:
            data = source.read()
        if len(data) != file.size:
            raise ReprobuildError("E-STORE-DAMAGED", f"{len(data)} bytes instead of {file.size}")
        return data

    def add_blob(self, source: BinaryIO, *, executable: bool = False, size: int = -1) -> File:
        """As the port says."""
        data = source.read()
        if size >= 0 and len(data) != size:
            raise ReprobuildError("E-CONTENT-SIZE", f"{len(data)} bytes instead of {size}")
        digest = Digest.of(data)
        self.blobs[digest] = data
        return File(digest, len(data), executable)

    def add_trees(self, nodes: Mapping[Digest, Tree]) -> None:
        """As the port says."""
        for digest, tree in nodes.items():
            if tree.digest != digest:
                raise ReprobuildError("E-TREE", f"a node has the digest {tree.digest}")
            for _, entry in tree:
                if isinstance(entry, Directory):
                    here = entry.digest in nodes or entry.digest in self.trees
                elif isinstance(entry, File):
                    here = entry.digest in self.blobs
                    if here and len(self.blobs[entry.digest]) != entry.size:
                        raise ReprobuildError("E-STORE-DAMAGED", "a blob of another size")
                else:
                    here = True
                if not here:
                    raise _missing("object", entry.digest)  # type: ignore[union-attr]
        self.trees.update(nodes)
        self._loose |= set(nodes)

    def capture(self, directory: Path, *, limit: int = 2**62) -> Digest:
        """As the port says."""
        digest, _ = self._capture(os.fsencode(directory), limit)
        return digest

    def _capture(self, directory: bytes, left: int) -> tuple[Digest, int]:
        entries: dict[bytes, Entry] = {}
        for name in os.listdir(directory):
            path = directory + b"/" + name
            info = os.lstat(path)
            if stat.S_ISLNK(info.st_mode):
                entries[name] = Symlink(os.readlink(path))
            elif stat.S_ISDIR(info.st_mode):
                below, left = self._capture(path, left)
                entries[name] = Directory(below)
            elif stat.S_ISREG(info.st_mode):
                left -= info.st_size
                if left < 0:
                    raise ReprobuildError("E-OUTPUT-SIZE", f"{directory!r} is too large")
                with open(path, "rb") as file:
                    entries[name] = self.add_blob(
                        file, executable=bool(info.st_mode & stat.S_IXUSR)
                    )
            else:
                raise ReprobuildError("E-OUTPUT-SPECIAL", f"{path!r} is special", path=str(path))
        tree = Tree.of(entries)
        self.trees[tree.digest] = tree
        self._loose.add(tree.digest)
        return tree.digest, left

    def materialise(self, tree: Digest) -> Path:
        """As the port says."""
        with self._lock:
            final = self._place() / tree.hex
            if not final.exists():
                self._write(tree, final)
            return final

    def materialise_blob(self, digest: Digest, *, executable: bool) -> Path:
        """As the port says."""
        with self._lock:
            final = self._place() / (digest.hex + (".x" if executable else ".f"))
            if not final.exists():
                with self.open_blob(digest) as source:
                    _write_file(final, source.read(), executable)
            return final

    def lend(self, tree: Digest) -> Loan:
        """As the port says: sound from the first moment."""
        return Known(self.materialise(tree))

    def changed(self, inputs: Iterable[InputContent]) -> Sequence[InputContent]:
        """As the port says: nobody can change them, unless a test says so in `spoilt`."""
        return [found for found in inputs if found.digest in self.spoilt]

    def _place(self) -> Path:
        if self._home is None:
            scratch = tempfile.TemporaryDirectory(prefix="memory-store-")
            weakref.finalize(self, scratch.cleanup)
            self._home = Path(scratch.name)
        self._home.mkdir(parents=True, exist_ok=True)
        return self._home

    def _write(self, digest: Digest, path: Path) -> None:
        tree = self.tree(digest)
        path.mkdir()
        for name, entry in tree:
            there = path / os.fsdecode(name)
            if isinstance(entry, Directory):
                self._write(entry.digest, there)
            elif isinstance(entry, Symlink):
                os.symlink(os.fsdecode(entry.target), there)
            else:
                with self.open_blob(entry.digest) as source:
                    _write_file(there, source.read(), entry.executable)
        os.utime(path, (1, 1))
        path.chmod(0o555)

    def barrier(self) -> None:
        """As the port says; counted in `barriers`."""
        self.barriers += 1
        self._loose.clear()

    # -- Catalog -------------------------------------------------------------------------------

    def records(self, action: Digest) -> Sequence[Record]:
        """As the port says."""
        return tuple(r for _, r in sorted(self.recorded.get(action, {}).items()))

    def realized(self, drv: Digest) -> Record | None:
        """As the port says."""
        return self.chosen.get(drv)

    def disputed(self) -> dict[Digest, Digest]:
        """As the port says."""
        return {
            record.drv: action
            for action, found in self.recorded.items()
            if len({tuple(sorted(r.outputs.items())) for r in found.values()}) > 1
            for record in found.values()
        }

    def add_record(self, record: Record) -> None:
        """As the port says."""
        for tree in record.outputs.values():
            if tree not in self.trees:
                raise _missing("tree", tree)
            assert tree not in self._loose, f"{record.name} is recorded before its content is safe"
        self.recorded.setdefault(record.action, {})[record.digest] = record

    def add_records(self, records: Sequence[Record]) -> None:
        """As the port says."""
        for record in records:
            self.add_record(record)

    def choose(self, drv: Digest, record: Record) -> None:
        """As the port says."""
        self.chosen[drv] = record

    def add_derivations(self, documents: Mapping[Digest, bytes]) -> None:
        """As the port says."""
        self.drvs.update(documents)

    def derivation(self, drv: Digest) -> bytes | None:
        """As the port says."""
        return self.drvs.get(drv)

    def set_root(self, name: str, document: bytes) -> None:
        """As the port says."""
        if not name:
            raise ReprobuildError("E-NAME", "a root needs a name")
        self.root_documents[name] = document

    def root(self, name: str) -> bytes | None:
        """As the port says."""
        return self.root_documents.get(name)

    def lock_action(self, action: Digest) -> AbstractContextManager[None]:
        """As the port says, within this process."""
        with self._lock:
            lock = self._actions[action.hex]
        return _held(lock)

    def lease(self) -> AbstractContextManager[None]:
        """As the port says; nothing is ever collected here."""
        return _nothing()


def _write_file(path: Path, data: bytes, executable: bool) -> None:
    path.write_bytes(data)
    os.utime(path, (1, 1))
    path.chmod(0o555 if executable else 0o444)


def _missing(kind: str, digest: Digest) -> ReprobuildError:
    return ReprobuildError("E-STORE-MISSING", f"the {kind} {digest} is not in the store")


@contextmanager
def _held(lock: threading.Lock) -> Iterator[None]:
    with lock:
        yield


@contextmanager
def _nothing() -> Iterator[None]:
    yield
