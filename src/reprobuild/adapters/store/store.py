"""`LocalStore`: the store as the rest of the program sees it."""

from __future__ import annotations

import errno
import os

from reprobuild.adapters.store import durable
from reprobuild.adapters.store.blobs import Blobs
from reprobuild.adapters.store.layout import DIRECTORIES, Layout, complete, open_layout
from reprobuild.adapters.store.nodes import Nodes
from reprobuild.adapters.store.once import made_once
from reprobuild.adapters.store.staging import Staging
from reprobuild.core.digest import Digest
from reprobuild.errors import ReprobuildError

TYPE_CHECKING = False  # as typing has it, without importing that or pathlib: who only adds waits
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import BinaryIO

    from reprobuild.adapters.store.gc import Collection
    from reprobuild.adapters.store.info import Info
    from reprobuild.adapters.store.lend import Known, Lender, Unseen
    from reprobuild.adapters.store.materialise import Materialiser
    from reprobuild.adapters.store.quarantine import Quarantine
    from reprobuild.adapters.store.records import Records
    from reprobuild.adapters.store.repaired import Repaired
    from reprobuild.adapters.store.roots import Roots
    from reprobuild.adapters.store.trees import Trees
    from reprobuild.adapters.store.verify_report import Report
    from reprobuild.core.derivation import InputContent
    from reprobuild.core.record import Record
    from reprobuild.core.tree import File, Tree


class LocalStore:
    """Content, records, roots and locks in one directory (ports.ContentStore, ports.Catalog).

    Use `LocalStore.open`. Safe for threads; several processes may have one open. Every method
    that writes raises E-STORE-WRITE (with path, reason and free space) when the disk refuses.
    """

    def __init__(self, layout: Layout, *, local_locks: bool = False) -> None:
        self._layout = layout
        self._local_locks = local_locks
        self._locks_hold = False
        self._staging = Staging(layout)
        self._blobs = Blobs(self._staging, layout)
        self._nodes = Nodes(self._staging)

    @classmethod
    def open(
        cls, path: str | Path, *, create: bool = False, local_locks: bool = False
    ) -> LocalStore:
        """The store at `path`, made when absent and `create` is given.

        Where `path` holds a README.md (a checkout's store/), the data lies in `path`/data.
        `local_locks` is the user's word that no other machine uses it (lockcheck.py).
        Raises E-NO-STORE, E-STORE-FORMAT or E-STORE-WRITE.
        """
        layout = open_layout(path, create=create)
        complete(layout)
        return cls(layout, local_locks=local_locks)

    @property
    def path(self) -> Path:
        """The data directory."""
        from pathlib import Path

        return Path(self._layout.root)

    @property
    def logs(self) -> Path:
        """The directory of build logs, named by `Record.log`."""
        return self._layout.directory("logs")

    def close(self) -> None:
        """Gives up what has not passed a barrier and frees descriptors. Not needed at exit."""
        if "_lender" in self.__dict__:
            self._lender.close()
        self._staging.close()

    def __enter__(self) -> LocalStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- ContentStore --------------------------------------------------------------------------

    def contains(self, tree: Digest) -> bool:
        """Whether the tree is here, with everything below it."""
        return self._nodes.contains(tree.hex)

    def tree(self, digest: Digest) -> Tree:
        """The verified directory node; raises E-STORE-MISSING or E-STORE-DAMAGED."""
        return self._trees.get(digest)

    def node(self, digest: Digest) -> bytes:
        """The verified bytes of a directory node; raises E-STORE-MISSING."""
        return self._nodes.node(digest)

    def open_blob(self, digest: Digest) -> BinaryIO:
        """A raw reader that raises E-STORE-DAMAGED in place of a wrong content's last bytes."""
        return self._blobs.open(digest)

    def read_blob(self, file: File) -> bytes:
        """All of a file's content; raises E-STORE-MISSING or E-STORE-DAMAGED."""
        return self._blobs.read(file)

    def has_blob(self, file: File) -> bool:
        """Whether the content is here with that size, in either mode."""
        return self._blobs.present(file.digest.hex, file.executable, file.size) or (
            self._blobs.present(file.digest.hex, not file.executable, file.size)
        )

    def add_blob(self, source: BinaryIO, *, executable: bool = False, size: int = -1) -> File:
        """Stores what `source` yields; raises E-CONTENT-SIZE when `size` bytes were promised."""
        with durable.writing(self.path, "a blob"):
            return self._blobs.add_stream(source, executable, size)

    def add_trees(self, nodes: Mapping[Digest, Tree]) -> None:
        """Stores directory nodes; raises E-TREE and E-STORE-MISSING (see trees.py)."""
        with durable.writing(self.path, "directory nodes"):
            self._trees.add_all(nodes)

    def capture(self, directory: str | Path, *, limit: int = 2**62) -> Digest:
        """Stores a directory as a tree.

        Raises E-OUTPUT-SPECIAL, E-OUTPUT-SIZE (over `limit` bytes), E-OUTPUT-CHANGED and
        E-OUTPUT-READ, each with the path.
        """
        from reprobuild.adapters.store.capture import Keeping
        from reprobuild.adapters.store.taking import Taking

        with durable.writing(self._layout.root, f"the tree of {directory}"):
            taker = Keeping(self._blobs, self._nodes, self._staging)
            return Digest.from_raw(Taking(str(directory), taker, limit).run())

    def materialise(self, tree: Digest) -> Path:
        """The tree as a read-only directory, verified when it is made or first used here."""
        return self._materialiser.tree(tree)

    def materialise_blob(self, digest: Digest, *, executable: bool) -> Path:
        """The blob as a read-only file, verified when it is made or first used here."""
        return self._materialiser.blob(digest, executable)

    def lend(self, tree: Digest) -> Known | Unseen:
        """The tree as a read-only directory, not verified yet if nothing has done so (lend.py)."""
        return self._lender.lend(tree)

    def changed(self, inputs: Iterable[InputContent]) -> Sequence[InputContent]:
        """Those of some inputs that were shown and are not what they should be: a look at every
        inode, and at every byte where that does not say enough. They are put away."""
        changed = self._materialiser.changed
        return [
            found
            for found in inputs
            if changed(found.digest, is_file=found.is_file, executable=found.executable)
        ]

    @made_once
    def _lender(self) -> Lender:
        from reprobuild.adapters.store.lend import Lender

        return Lender(self._materialiser)

    @made_once
    def _materialiser(self) -> Materialiser:
        from reprobuild.adapters.store.materialise import Materialiser

        return Materialiser(self._staging, self._blobs, self._trees)

    def barrier(self) -> None:
        """All that was added or found present through this object is named and durable."""
        self._staging.barrier()

    # -- Catalog -------------------------------------------------------------------------------

    # Who only brings content needs none of these.

    @made_once
    def _trees(self) -> Trees:
        from reprobuild.adapters.store.trees import Trees

        return Trees(self._staging, self._blobs)

    @made_once
    def _records(self) -> Records:
        from reprobuild.adapters.store.records import Records

        return Records(self._staging, self._trees)

    @made_once
    def _roots(self) -> Roots:
        from reprobuild.adapters.store.roots import Roots

        return Roots(self._staging)

    def records(self, action: Digest) -> Sequence[Record]:
        """All records of an action, in order of their digests."""
        return self._records.of_action(action)

    def realized(self, drv: Digest) -> Record | None:
        """The record last chosen for a derivation (a memo; may be absent)."""
        return self._records.chosen(drv)

    def disputed(self) -> dict[Digest, Digest]:
        """Derivations whose action gave different results, with that action."""
        return {
            result.record.drv: result.record.action
            for found in self.quarantine.disagreements()
            for result in found.results
            if not found.settled
        }

    def add_record(self, record: Record) -> None:
        """Appends a record; raises E-STORE-MISSING when one of its trees is not here.

        When another of its action says otherwise, no remembered answer, and no choice of what
        was made of it, may hide that.
        """
        self.add_records([record])

    def add_records(self, records: Sequence[Record]) -> None:
        """The same for many, with no more synchronisations than for a few."""
        if self._records.add_all(records):
            from reprobuild.adapters.store.dependants import forget_dependants

            self._roots.forget_answers()
            actions, drvs = {r.action.hex for r in records}, {r.drv.hex for r in records}
            with durable.writing(self.path, "that a result is disputed"):
                forget_dependants(self._layout, actions, drvs)

    def choose(self, drv: Digest, record: Record) -> None:
        """Notes that `drv` resolved to `record`."""
        self._records.choose(drv, record)

    def add_derivations(self, documents: Mapping[Digest, bytes]) -> None:
        """Stores derivation documents; raises E-DERIVATION for one under a wrong digest."""
        self._records.add_derivations(documents)

    def derivation(self, drv: Digest) -> bytes | None:
        """A stored derivation document, verified."""
        return self._records.derivation(drv)

    def set_root(self, name: str, document: bytes) -> None:
        """Writes a root after a barrier; its `keep` says what stays (see roots.py)."""
        self._roots.write(name, document)

    def root(self, name: str) -> bytes | None:
        """A root's document, or None."""
        return self._roots.read(name)

    def roots(self) -> list[str]:
        """The names of all roots, sorted."""
        return self._roots.names()

    def remove_root(self, name: str) -> bool:
        """Removes a root; whether there was one."""
        return self._roots.remove(name)

    def lock_action(self, action: Digest) -> AbstractContextManager[None]:
        """Exclusive among all threads and processes; dies with its owner."""
        from reprobuild.adapters.store import locks

        return locks.exclusive(self._layout.lock(f"action-{action.hex}"))

    def lease(self) -> AbstractContextManager[None]:
        """Shared: while it is held nothing is collected. Raises E-STORE-LOCKS (lockcheck.py)."""
        from reprobuild.adapters.store import locks

        self._require_locks()
        return locks.lease(self._layout.directory("locks") / "store")

    def _require_locks(self) -> None:
        if not self._locks_hold:
            from reprobuild.adapters.store.lockcheck import require_locks

            require_locks(self.path, local=self._local_locks)
            self._locks_hold = True

    # -- upkeep --------------------------------------------------------------------------------

    def free_bytes(self) -> int:
        """Bytes that can still be written where the store lies."""
        return durable.free_bytes(self.path)

    def require_writable(self) -> None:
        """Raises E-STORE-WRITE where this user may not add to the store, and says whose it is."""
        for name in DIRECTORIES:
            path = f"{self._layout.root}/{name}"
            if name not in ("cache", "runtime") and not os.access(path, os.W_OK | os.X_OK):
                error = PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
                if os.statvfs(self._layout.root).f_flag & os.ST_RDONLY:
                    error = PermissionError(errno.EROFS, os.strerror(errno.EROFS), path)
                raise durable.write_error(self._layout.root, "to the store", error)

    def require_space(self, wanted: int) -> None:
        """Raises E-DISK-SPACE when fewer than `wanted` bytes are free."""
        free = self.free_bytes()
        if free < wanted:
            raise ReprobuildError(
                "E-DISK-SPACE",
                f"{wanted // 2**20} MiB are needed at {self.path}, {free // 2**20} MiB are free",
                path=str(self.path),
                needed_bytes=wanted,
                free_bytes=free,
            )

    def verify(self, *, jobs: int | None = None) -> Report:
        """Hashes everything again and names every damaged, missing or misplaced object.

        Collection and repair wait meanwhile: what they take away would be taken for lost.
        """
        from reprobuild.adapters.store import locks
        from reprobuild.adapters.store.verify import verify

        with locks.looking(f"{self._layout.root}/locks/store"):
            return verify(self._layout, jobs=jobs or os.cpu_count() or 1)

    def repair(self, *, jobs: int | None = None, others: Sequence[LocalStore] = ()) -> Repaired:
        """Brings back what is damaged from this store and `others`; removes what cannot be, and
        what leads to it. Raises E-STORE-BUSY, E-STORE-WRITE."""
        from reprobuild.adapters.store.repair import repair

        self._require_locks()
        layouts = [other._layout for other in others]
        return repair(self._layout, jobs=jobs or os.cpu_count() or 1, others=layouts)

    def readmit(self, repaired: Repaired) -> None:
        """Puts back what a repair took of records and roots, where its content is here again."""
        from reprobuild.adapters.store.repaired import readmit

        readmit(self._records, self._roots, repaired, self._trees.contains)

    def gc(
        self,
        *,
        dry_run: bool = False,
        wait: bool = False,
        older_than: float | None = None,
        free: int | None = None,
        max_size: int | None = None,
    ) -> Collection:
        """Removes what no root keeps; raises E-STORE-BUSY while leases are out, unless `wait`.

        `older_than` in seconds, `free` and `max_size` in bytes: see retention.Policy.
        """
        from reprobuild.adapters.store.gc import collect
        from reprobuild.adapters.store.retention import Policy

        self._require_locks()
        policy = Policy(older_than, free, max_size)
        return collect(self._layout, self._roots, dry_run=dry_run, wait=wait, policy=policy)

    @property
    def quarantine(self) -> Quarantine:
        """Actions with different results, and what was set aside of them."""
        from reprobuild.adapters.store.quarantine import Quarantine

        self._require_locks()
        return Quarantine(self._layout, self._roots)

    def info(self) -> Info:
        """Counts and bytes by kind."""
        from reprobuild.adapters.store.info import info

        return info(self._layout)
