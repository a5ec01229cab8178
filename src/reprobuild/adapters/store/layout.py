"""Where things lie in a store, and how one is opened or made.

format                        "reprobuild store 0\\n"
blobs/ab/<hex>[.x]            file content; ".x" is the executable one
trees/ab/<hex>                directory nodes (core/tree.py)
drvs/ab/<hex>                 derivation documents
records/<action>/<record>     records
chosen/ab/<drv>               "<action>/<record>/<drv>\\n": a memo
roots/<name>                  what collection keeps
logs/  tmp/  locks/
materialised/<tree>[.f|.x]    trees (and single blobs) as directories and files, a cache
build/                        work directories of builds that run, or failed and were kept
cache/                        git objects, cut downloads: may be lost without harm
runtime/                      what sandboxes share while builds run, where the system has no place
quarantine/<action>/<record>  records that a person set aside: kept, never used
reserve                       room that collection needs on a full disk
.git/                         a bare minimum, so that `git clean -xdf` around it steps over
"""

from __future__ import annotations

import errno
import os

from reprobuild.adapters.store import durable, paths
from reprobuild.adapters.store.paths import FORMAT, FORMAT_TEXT, PLACEHOLDER, RESERVE
from reprobuild.adapters.store.reading import read_file
from reprobuild.errors import ReprobuildError

TYPE_CHECKING = False  # as typing has it, without importing that or pathlib: who only adds waits
if TYPE_CHECKING:
    from pathlib import Path

DIRECTORIES = (
    "blobs",
    "trees",
    "drvs",
    "records",
    "chosen",
    "roots",
    "logs",
    "tmp",
    "locks",
    "materialised",
    "build",
    "cache",
    "runtime",
)
QUARANTINE = "quarantine"
"""Records that were set aside; made when the first one is."""
DOCUMENTS = ("drvs", "records", QUARANTINE, "chosen", "roots")
"""Where those are that say something of content."""
BESIDE = (PLACEHOLDER, ".gitignore", ".git", "format", QUARANTINE, RESERVE)
"""What else may lie there: the checkout's own files among them."""
_OURS = frozenset({*DIRECTORIES, ".git", RESERVE})


class Layout:
    """The paths of one store; strings, not Path, where many are made or imports matter."""

    __slots__ = ("blobs", "drvs", "root", "seen", "trees")

    def __init__(self, root: str) -> None:
        self.root = root
        self.blobs = f"{root}/blobs/"
        self.trees = f"{root}/trees/"
        self.drvs = f"{root}/drvs/"
        self.seen = f"{root}/cache/seen"

    def blob(self, hex_digest: str, executable: bool) -> str:
        """A blob's file."""
        return paths.blob(self.blobs, hex_digest, executable)

    def tree(self, hex_digest: str) -> str:
        """A directory node's file."""
        return f"{self.trees}{hex_digest[:2]}/{hex_digest}"

    def drv(self, hex_digest: str) -> str:
        """A derivation document's file."""
        return f"{self.drvs}{hex_digest[:2]}/{hex_digest}"

    def chosen(self, hex_digest: str) -> str:
        """The memo of a derivation."""
        return f"{self.root}/chosen/{hex_digest[:2]}/{hex_digest}"

    def records(self, action_hex: str) -> str:
        """The directory of an action's records."""
        return f"{self.root}/records/{action_hex}"

    def record(self, action_hex: str, hex_digest: str) -> str:
        """A record's file."""
        return f"{self.records(action_hex)}/{hex_digest}"

    def lock(self, name: str) -> str:
        """A lock's file."""
        return f"{self.root}/locks/{name}"

    def directory(self, name: str) -> Path:
        """One of `DIRECTORIES`."""
        from pathlib import Path

        return Path(self.root, name)


def open_layout(path: str | Path, *, create: bool) -> Layout:
    """The layout of the store at `path`, made when it is absent and `create` is given.

    Raises E-USAGE (a path that is too long), E-NO-STORE, E-STORE-FORMAT (a newer format, or a
    directory with other things in it) and E-STORE-WRITE.
    """
    root = paths.data_directory(os.path.abspath(path))
    try:
        _check_format(root, read_file(f"{root}/format", 200))
        return Layout(root)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise ReprobuildError(
                "E-USAGE",
                f"the store's path is too long for this file system: {len(os.fsencode(root))} bytes"
                f" ({root[:40]}…)",
                hint="name a store elsewhere with --store DIR or $REPROBUILD_STORE",
                path=root,
            ) from error
        raise ReprobuildError(
            "E-STORE-FORMAT", f"cannot read {root}/format: {error.strerror}", path=root
        ) from error
    try:
        _refuse_foreign(root)
    except ReprobuildError:
        if os.path.exists(f"{root}/format"):  # somebody made it meanwhile, and put things in
            return open_layout(path, create=create)
        raise
    if not create:
        raise ReprobuildError("E-NO-STORE", f"there is no store at {root}", path=root)
    with durable.writing(root, "a new store"):
        _make(root)
    return Layout(root)


def complete(layout: Layout) -> None:
    """Makes directories that are missing: copies through archives or buckets lose empty ones.

    What cannot be made is left for the use that needs it to say. Raises E-STORE-DAMAGED where
    something else has a directory's name: what lay in it is not gone, and who took it for empty
    would drop what refers to it.
    """
    with os.scandir(layout.root) as entries:
        here = {entry.name: entry for entry in entries if entry.name in DIRECTORIES}
    for name, entry in here.items():
        if name != "cache" and not entry.is_dir():
            raise ReprobuildError(
                "E-STORE-DAMAGED",
                f"{entry.path} is no directory, as it has to be in a store",
                hint="put the directory back; or move away what is there, and an empty one is made",
                path=entry.path,
            )
    absent = [name for name in DIRECTORIES if name not in here]
    try:
        for name in absent:
            durable.ensure_directory(f"{layout.root}/{name}")
        if absent:
            durable.sync_directory(layout.root)
    except OSError:
        return


def _check_format(root: str, data: bytes) -> None:
    number = paths.format_number(data)
    if number is None:
        text = data.decode("utf-8", "replace").removesuffix("\n")
        raise ReprobuildError(
            "E-STORE-FORMAT",
            f"{root}/format does not name a store format: {text[:80]!r}",
            path=root,
            got=text[:80],
        )
    if number > FORMAT:
        raise ReprobuildError(
            "E-STORE-FORMAT",
            f"the store at {root} has format {number}; this version knows up to {FORMAT}",
            hint="use the newer reprobuild that made it, or another store directory",
            path=root,
            got=str(number),
        )


def _refuse_foreign(root: str) -> None:
    try:
        names = os.listdir(root)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ReprobuildError(
            "E-STORE-FORMAT", f"cannot list {root}: {error.strerror}", path=root
        ) from error
    # A making that was cut short leaves only our own names, without `format`, which comes last.
    foreign = sorted(name for name in names if name not in _OURS)
    if foreign or any(os.listdir(f"{root}/{d}") for d in ("blobs", "records") if d in names):
        raise ReprobuildError(
            "E-STORE-FORMAT",
            f"{root} holds other things and no store format file"
            + (f" ({', '.join(foreign[:5])})" if foreign else ""),
            hint="name an empty or absent directory for the store",
            path=root,
        )


def _make(root: str) -> None:
    from reprobuild.adapters.store import reserve

    os.makedirs(os.path.dirname(root), exist_ok=True)
    durable.ensure_directory(root)
    for name in DIRECTORIES:
        durable.ensure_directory(f"{root}/{name}")
    # What git itself asks of a repository before `clean` leaves it alone: HEAD, objects, refs.
    for name in (".git", ".git/objects", ".git/refs"):
        durable.ensure_directory(f"{root}/{name}")
    _write_if_absent(root, ".git/HEAD", b"ref: refs/heads/store\n")
    _write_if_absent(root, "format", f"{FORMAT_TEXT}{FORMAT}\n".encode())
    reserve.set_aside(root)
    durable.sync_directory(os.path.dirname(root))


def _write_if_absent(root: str, name: str, data: bytes) -> None:
    path = f"{root}/{name}"
    if os.path.exists(path):
        return
    # Two processes may make the store at once, and one may have died while making it.
    unique = f"{os.path.basename(path)}-{os.getpid()}-{os.urandom(4).hex()}"
    temporary = os.path.join(root, "tmp", unique)
    durable.write_document(temporary, path, data, replace=False)
