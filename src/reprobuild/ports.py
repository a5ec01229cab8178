"""The protocols between the engine and the world. Their promises are written on them.

The engine is told these at start (by app/); adapters implement them; neither imports the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

if TYPE_CHECKING:  # who only makes a layer, or hashes, waits for none of these
    from reprobuild.core.derivation import FixedOutput, Hints, InputContent, Isolation
    from reprobuild.core.digest import Digest
    from reprobuild.core.encoding import Value
    from reprobuild.core.record import Record
    from reprobuild.core.tree import File, Tree


def _no_hints() -> Hints:
    from reprobuild.core.derivation import Hints

    return Hints()


class ContentReader(Protocol):
    """Blobs and trees by digest, to be read: a store, or what a file holds of one.

    Readers verify; damage raises E-STORE-DAMAGED (E-BUNDLE in a bundle).
    """

    def contains(self, tree: Digest) -> bool:
        """Whether the tree is here, with everything below it."""
        ...

    def tree(self, digest: Digest) -> Tree:
        """The verified directory node; raises E-STORE-MISSING."""
        ...

    def open_blob(self, digest: Digest) -> BinaryIO:
        """A reader that raises E-STORE-DAMAGED at the end when the content is not `digest`."""
        ...


class Loan(Protocol):
    """A tree's directory that may be used before it was looked at."""

    @property
    def path(self) -> Path:
        """The directory; a real one, which may hold anything."""
        ...

    def known(self) -> bool | None:
        """Whether it is what it should be, as far as is known by now (None: nothing is)."""
        ...

    def sound(self) -> bool:
        """Whether it was the tree all the time: looks, or waits for another thread that does.

        Where it was not, `materialise` makes it again, or says why it cannot.
        """
        ...


class ContentStore(ContentReader, Protocol):
    """Blobs and trees by digest.

    What is added is on the disk, whole and named, when the call returns, and durable after
    `barrier`. A tree is only ever added after all that it refers to, so a tree that `contains`
    confirms is complete. Safe for several threads and processes.
    """

    def read_blob(self, file: File) -> bytes:
        """The whole content of a file that fits into memory, verified.

        Raises E-STORE-MISSING, and E-STORE-DAMAGED for another content or size.
        """
        ...

    def add_blob(self, source: BinaryIO, *, executable: bool = False, size: int = -1) -> File:
        """Stores what `source` yields; `size` in bytes, when given, must be met exactly."""
        ...

    def add_trees(self, nodes: Mapping[Digest, Tree]) -> None:
        """Stores directory nodes, children before parents; what they refer to must be here."""
        ...

    def capture(self, directory: Path, *, limit: int = 2**62) -> Digest:
        """Stores a directory of the disk as a tree.

        Modes shrink to the owner's executable bit; setuid bits, owners, times and xattrs are
        dropped; sockets, devices and FIFOs raise E-OUTPUT-SPECIAL, more than `limit` bytes
        E-OUTPUT-SIZE. Nothing outside `directory` is read, whatever its links say.
        """
        ...

    def materialise(self, tree: Digest) -> Path:
        """A read-only directory with the tree's content, made once and shared.

        Every file in it has an inode of its own (no two paths of any materialised tree share
        one), mtime 1 (second of the epoch), mode 0444 or 0555, directories 0555.
        """
        ...

    def materialise_blob(self, digest: Digest, *, executable: bool) -> Path:
        """A read-only file with the blob's content, as above."""
        ...

    def lend(self, tree: Digest) -> Loan:
        """As `materialise`, but does not wait until what was made earlier has been looked at.

        For who uses it in a place that nothing leaves, and asks the loan before it believes in
        what came of that.
        """
        ...

    def changed(self, inputs: Iterable[InputContent]) -> Sequence[InputContent]:
        """Those of some inputs that were shown to builds and have not stayed what they should be.

        What is not among them was sound all the time until now: times of change cannot be set
        back. Costs a look at every inode.
        """
        ...

    def barrier(self) -> None:
        """All that was added or found present through this object is durable afterwards."""
        ...


class CatalogReader(Protocol):
    """Records and derivations, to be read: what is known about content."""

    def records(self, action: Digest) -> Sequence[Record]:
        """All records of an action, in order of their digests."""
        ...

    def realized(self, drv: Digest) -> Record | None:
        """The record last chosen for a derivation, when there is one (a memo; may be absent)."""
        ...

    def derivation(self, drv: Digest) -> bytes | None:
        """A stored derivation document."""
        ...

    def disputed(self) -> Mapping[Digest, Digest]:
        """Derivations whose action gave different results, with that action: a walk of records.

        Nothing is chosen for these, so that neither result is used unseen.
        """
        ...


class Catalog(CatalogReader, Protocol):
    """Records, derivations, roots and locks: what the store knows about its content."""

    def add_record(self, record: Record) -> None:
        """Appends a record, durable on return; content must have passed a barrier before."""
        ...

    def add_records(self, records: Sequence[Record]) -> None:
        """The same for many at once, for little more than the price of one."""
        ...

    def choose(self, drv: Digest, record: Record) -> None:
        """Notes that `drv` resolved to `record`."""
        ...

    def add_derivations(self, documents: Mapping[Digest, bytes]) -> None:
        """Stores canonical derivation documents by drv digest."""
        ...

    def set_root(self, name: str, document: bytes) -> None:
        """Writes a collection root, atomically; what it refers to is kept from then on."""
        ...

    def root(self, name: str) -> bytes | None:
        """A root's document, or None."""
        ...

    def lock_action(self, action: Digest) -> AbstractContextManager[None]:
        """Exclusive among all processes: one action is built once. Dies with its owner."""
        ...

    def lease(self) -> AbstractContextManager[None]:
        """Shared: while it is held nothing is collected. Taken before the first look-up."""
        ...


@dataclass(frozen=True, slots=True)
class Mount:
    """A host path shown read-only at an absolute path of the sandbox."""

    at: str
    source: Path


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """A fully resolved build: nothing is left to look up.

    `mounts` includes the root file system at "/". `workdir` is an empty directory for the build's
    own use: the executor makes what it needs below it and puts outputs under
    `workdir/out/<output>`; the caller removes it through `Executor.discard`. `directories` are
    those outputs that stand there from the beginning, as empty directories.
    """

    label: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    mounts: tuple[Mount, ...]
    outputs: tuple[str, ...]
    workdir: Path
    hints: Hints = field(default_factory=_no_hints)
    directories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BuildOutcome:
    """How a build went.

    `reason` is empty for success, else one of `exit`, `signal`, `timeout`, `silence`,
    `output-size`, `memory`, `interrupted`; `status` is the exit status or signal number. `outputs`
    holds host paths of the outputs that exist.
    """

    reason: str
    status: int
    isolation: Isolation
    duration_ms: int
    peak_memory: int
    outputs: Mapping[str, Path]
    unenforced: tuple[str, ...] = ()


class Wish(Protocol):
    """The wish to stop something, as a `threading.Event` is one."""

    def is_set(self) -> bool:
        """Whether it should stop."""
        ...


class Executor(Protocol):
    """Runs one resolved build at a time for each caller thread; decides nothing."""

    @property
    def version(self) -> str:
        """Part of every action digest (`sandbox/1`): moves when what a build can see changes."""
        ...

    def probe(self) -> Isolation:
        """The grade that can be had here; raises E-SANDBOX… with the way out when it is less
        than was configured."""
        ...

    def run(self, request: BuildRequest, log: BinaryIO, cancel: Wish) -> BuildOutcome:
        """Runs to the end, or kills everything when `cancel` is set; output goes to `log`."""
        ...

    def shell(self, request: BuildRequest, argv: Sequence[str]) -> int:
        """Runs `argv` interactively in the request's sandbox, on the caller's terminal."""
        ...

    def discard(self, workdir: Path) -> None:
        """Removes a work directory, whatever modes and owners the build left behind."""
        ...

    def batch(self) -> AbstractContextManager[None]:
        """While it is open, `discard` may leave small directories to its end. An inner one's end
        begins to remove them, and the outermost's waits until they are gone."""
        ...


class Fetcher(Protocol):
    """Obtains pinned content. May use the network unless offline; runs no foreign code."""

    def fetch(self, fixed: FixedOutput, origin: Mapping[str, Value], report: Reporter) -> Digest:
        """Stores the content and returns its tree.

        Raises E-FETCH-MISMATCH (naming both digests) when something else came, E-OFFLINE when
        the network would be needed and is off, E-FETCH when no origin could be reached.
        """
        ...


class Builtin(Protocol):
    """A built-in builder: a deterministic function of its parameters and input trees."""

    name: str
    version: int

    def build(
        self, params: Value, inputs: Mapping[str, Digest], content: ContentStore
    ) -> Mapping[str, Digest]:
        """The output trees by name. Uses no network, clock or host file."""
        ...


class ImageSink(Protocol):
    """Takes an assembled image: a daemon, a registry, an archive."""

    def put(self, layout: Path, reference: str) -> Mapping[str, str]:
        """Stores the image of an OCI layout; returns identities by their own names."""
        ...


class Reporter(Protocol):
    """Takes progress events; the default does nothing. Never raises."""

    def emit(self, event: str, **fields: Value) -> None:
        """One event (`build-started`, `fetch-progress`…) with its fields, as in docs/events.md."""
        ...


class NullReporter:
    """Takes everything and says nothing."""

    def emit(self, event: str, **fields: Value) -> None:
        """Does nothing."""
