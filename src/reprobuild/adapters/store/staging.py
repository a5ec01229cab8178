"""What one opened store has written and not yet named: the group commit behind `barrier`.

New content is written to tmp/<session>/ and can be found at once through this object. The barrier
makes the bytes durable, then gives blobs their names, then trees, children before parents, with
the directories made durable between the steps. So a name that exists, in whatever order a power
failure lets things reach the disk, has its whole content behind it, and a named tree is complete.
"""

from __future__ import annotations

import os
from _thread import allocate_lock  # threading imports what takes as long as all of this

from reprobuild.adapters.store import dirlock, durable
from reprobuild.adapters.store.dirstack import discard
from reprobuild.adapters.store.layout import Layout
from reprobuild.adapters.store.seen import Seen
from reprobuild.errors import ReprobuildError

TYPE_CHECKING = False  # as typing has it, without importing that
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Staging:
    """Pending blobs and trees of one `LocalStore`. Safe for threads."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.seen = Seen(layout.seen)
        """Which blobs need not be read again."""
        self._state = allocate_lock()
        self._commit = allocate_lock()
        self._blobs: dict[tuple[str, bool], str] = {}
        self._trees: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._touched: set[str] = set()
        self._durable_shards: set[str] = set()
        self._session: str | None = None
        self._session_fd = -1
        self._root_fd = -1
        self._counter = 0
        self._broken = False

    # -- temporary files ---------------------------------------------------------------------

    def temporary(self) -> str:
        """A fresh name in this session's own directory under tmp/."""
        with self._state:
            if self._broken:
                raise self._refusal()
            session = self._session or self._open_session()
            self._counter += 1
            return f"{session}/{self._counter}"

    def corner(self, number: int) -> str:
        """How temporary names of another process's begin (apart.py); raises OSError.

        In a directory of its own by `number`: two that make files in one wait for each other.
        """
        session, _, unique = self.temporary().rpartition("/")
        directory = f"{session}/apart-{number}"
        durable.ensure_directory(directory)
        return f"{directory}/{unique}-"

    @property
    def session_fd(self) -> int:
        """What holds the lock of this session's directory, where there is one. Whoever writes
        there has it as well: collection leaves the directory to the last of them."""
        return self._session_fd

    @property
    def root_fd(self) -> int:
        """A descriptor of the store's directory, older than everything written here."""
        if self._root_fd < 0:
            with self._state:
                self._open_root()
        return self._root_fd

    def _open_root(self) -> None:
        if self._root_fd < 0:
            self._root_fd = os.open(self.layout.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _open_session(self) -> str:
        self._open_root()
        while True:
            path = os.path.join(self.layout.root, "tmp", f"{os.getpid()}-{os.urandom(6).hex()}")
            durable.mkdir(path)
            # Held while this process lives: collection removes directories whose lock is free.
            fd = dirlock.try_directory(path)
            if fd is not None:
                self._session, self._session_fd = path, fd
                return path

    def close(self) -> None:
        """Drops what is pending and this session's directory."""
        self.seen.keep()
        with self._commit, self._state:
            if self._session is not None:
                for path in (*self._blobs.values(), *(p for p, _ in self._trees.values())):
                    durable.forget(path)
                discard(self._session)
                os.close(self._session_fd)
            if self._root_fd >= 0:
                os.close(self._root_fd)
            self._blobs.clear()
            self._trees.clear()
            self._session, self._session_fd, self._root_fd = None, -1, -1

    # -- look-up -----------------------------------------------------------------------------

    def blob(self, hex_digest: str, executable: bool) -> str | None:
        """The pending file of a blob."""
        return self._blobs.get((hex_digest, executable))

    def tree(self, hex_digest: str) -> str | None:
        """The pending file of a directory node."""
        entry = self._trees.get(hex_digest)
        return entry[0] if entry is not None else None

    # -- additions ---------------------------------------------------------------------------

    def add_blob(self, hex_digest: str, executable: bool, path: str) -> None:
        """Hands over a complete temporary file; a second one of the same content is dropped."""
        with self._state:
            if self._broken:
                raise self._refusal()
            kept = self._blobs.setdefault((hex_digest, executable), path)
        if kept is not path:
            durable.forget(path)

    def add_tree(self, hex_digest: str, path: str, children: tuple[str, ...]) -> None:
        """Hands over a complete directory node; all that it refers to was added before."""
        with self._state:
            if self._broken:
                raise self._refusal()
            kept = self._trees.setdefault(hex_digest, (path, children))
        if kept[0] is not path:
            durable.forget(path)

    def touch(self, path: str) -> None:
        """Notes that the named object `path` was found present: its name joins the barrier."""
        with self._state:
            self._touched.add(path[: path.rindex("/")])

    def touch_directory(self, path: str) -> None:
        """The same for what lies in the directory `path`."""
        with self._state:
            self._touched.add(path)

    # -- the barrier -------------------------------------------------------------------------

    def barrier(self) -> None:
        """Names all that is pending, durably; raises E-STORE-WRITE.

        After a failure the kernel may have dropped the very bytes it could not write, so nothing
        more is taken through this object: what was pending is given up.
        """
        with self._commit:
            with self._state:
                if self._broken:
                    raise self._refusal()
                blobs = list(self._blobs.items())
                trees = dict(self._trees)
                touched = self._touched
                self._touched = set()
            if not blobs and not trees and not touched:
                return
            try:
                self._commit_all(blobs, trees, touched)
                self.seen.keep()
            except BaseException as error:
                with self._state:
                    self._touched |= touched
                    if isinstance(error, OSError):
                        self._broken = True
                if isinstance(error, OSError):
                    raise durable.write_error(self.layout.root, "new content", error) from error
                raise

    def _commit_all(
        self,
        blobs: Sequence[tuple[tuple[str, bool], str]],
        trees: dict[str, tuple[str, tuple[str, ...]]],
        touched: set[str],
    ) -> None:
        contents = [path for _, path in blobs]
        contents += [path for path, _ in trees.values()]
        # A barrier that was interrupted has named some already.
        if len(contents) <= durable.FEW:
            contents = [path for path in contents if os.path.lexists(path)]
        self._sync(contents)
        directories = set(touched)
        for (hex_digest, executable), path in blobs:
            final = self.layout.blob(hex_digest, executable)
            if self._name(path, final, directories):
                self.seen.later(hex_digest, executable, final)
            with self._state:
                del self._blobs[(hex_digest, executable)]
        self._sync_directories(directories)
        for level in _levels(trees):
            directories = set()
            for hex_digest in level:
                self._name(trees[hex_digest][0], self.layout.tree(hex_digest), directories)
                with self._state:
                    del self._trees[hex_digest]
            self._sync_directories(directories)

    def _name(self, path: str, final: str, directories: set[str]) -> bool:
        """Whether `path` has that name now, and no other file had it."""
        shard = final[: final.rindex("/")]
        directories.add(shard)
        try:
            placed = durable.rename_new(path, final)
        except FileNotFoundError:
            if os.path.lexists(final):
                return False
            durable.ensure_directory(shard)
            placed = durable.rename_new(path, final)
        if not placed:
            durable.forget(path)
        return placed

    def _sync_directories(self, directories: Iterable[str]) -> None:
        # A shard may be new as well, ours or another's: its own name is in the parent.
        wanted = set(directories)
        new = wanted - self._durable_shards
        self._sync(sorted(wanted | {shard[: shard.rindex("/")] for shard in new}))
        self._durable_shards |= new

    def _sync(self, paths: Sequence[str]) -> None:
        durable.sync_paths(paths, self.root_fd)

    def _refusal(self) -> ReprobuildError:
        return ReprobuildError(
            "E-STORE-WRITE",
            f"an earlier write to {self.layout.root} failed; nothing more is taken",
            path=self.layout.root,
        )


def _levels(trees: dict[str, tuple[str, tuple[str, ...]]]) -> list[list[str]]:
    """The pending trees by height: each level refers only to lower ones and to named trees."""
    height: dict[str, int] = {}
    for start in trees:
        stack = [start]
        while stack:
            top = stack[-1]
            children = [child for child in trees[top][1] if child in trees]
            open_children = [child for child in children if child not in height]
            if top in height or not open_children:
                stack.pop()
                height[top] = max((height[child] + 1 for child in children), default=0)
            else:
                stack += open_children
    levels: list[list[str]] = [[] for _ in range(max(height.values(), default=-1) + 1)]
    for hex_digest, level in height.items():
        levels[level].append(hex_digest)
    return levels
