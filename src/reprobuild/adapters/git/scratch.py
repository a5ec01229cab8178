"""A scratch git directory over other repositories' objects, and a work tree of attributes only."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from reprobuild.adapters.git.objects import ObjectReader
from reprobuild.adapters.git.plumbing import (
    EMAIL,
    NAME,
    ROOMY,
    WHEN,
    clean_environment,
    git_directory,
    quoted,
)
from reprobuild.core.digest import GitOid

_CONFIG = """\
[core]
\trepositoryformatversion = {version}
\tbare = false
\tfilemode = true
\tsymlinks = true
\tlogallrefupdates = false
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\thooksPath = /dev/null
\tcommitGraph = false
\tfsync = none
[gc]
\tauto = 0
[maintenance]
\tauto = false
[advice]
\tdetachedHead = false
"""


_ROOM = 2 * 2**30


def _memory() -> Path | None:
    """A place in memory, where there is plenty: what is written here lives for seconds."""
    place = Path("/dev/shm")  # noqa: S108 - mkdtemp makes a private directory in it
    try:
        found = os.statvfs(place)
    except OSError:
        return None
    roomy = found.f_bavail * found.f_frsize >= _ROOM and "TMPDIR" not in os.environ
    return place if roomy and os.access(place, os.W_OK) else None


class Scratch:
    """A git directory that is made for one job and removed after it; a context manager.

    Objects come from `sources` (git directories, by alternates) and new ones are written here
    alone. It is no bare repository: its work tree holds the `.gitattributes` files of one tree and
    nothing else, so merges and diffs see the attributes that a checkout of that tree would have.
    It knows no remote: an object that no source has is missing, never fetched behind our back.
    """

    def __init__(
        self,
        sources: Sequence[Path],
        *,
        sha256: bool = False,
        directory: Path | None = None,
    ) -> None:
        self.sources = [git_directory(s) for s in sources]
        self.sha256 = sha256
        self._parent = directory
        self._attributes: dict[bytes, GitOid] = {}
        self._written: set[str] = set()

    def __enter__(self) -> Scratch:
        self.root = Path(tempfile.mkdtemp(prefix="reprobuild-git-", dir=self._parent or _memory()))
        try:
            self._lay_out()
        except BaseException:
            shutil.rmtree(self.root, ignore_errors=True)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def _lay_out(self) -> None:
        self.git_dir, self.work_tree = self.root / "git", self.root / "tree"
        self._objects = str(self.git_dir / "objects")
        for place in ("git/objects/info", "git/objects/pack", "git/refs/heads", "git/info", "tree"):
            (self.root / place).mkdir(parents=True)
        (self.git_dir / "HEAD").write_text("ref: refs/heads/none\n")
        config = _CONFIG.format(version=1 if self.sha256 else 0)
        if self.sha256:
            config += "[extensions]\n\tobjectFormat = sha256\n"
        (self.git_dir / "config").write_text(config)
        lines, shallow = [], set()
        for source in self.sources:
            text = os.fsencode(source / "objects")
            plain = b"\n" not in text and not text.startswith((b'"', b"#"))
            lines.append((text if plain else quoted(text)) + b"\n")
            if (source / "shallow").is_file():
                shallow |= set((source / "shallow").read_bytes().split())
        (self.git_dir / "objects/info/alternates").write_bytes(b"".join(lines))
        if shallow:
            (self.git_dir / "shallow").write_bytes(b"".join(o + b"\n" for o in sorted(shallow)))
        self.env = clean_environment(self.root)
        self.env |= {"GIT_DIR": str(self.git_dir), "GIT_WORK_TREE": str(self.work_tree)}
        self.roomy = {**self.env, **ROOMY}
        self.reader = ObjectReader(self.env, self.work_tree)

    # -- writing ---------------------------------------------------------------------------

    def write_object(self, kind: str, content: bytes) -> GitOid:
        """Writes a loose object (gitformat-loose: zlib of `kind size NUL content`)."""
        raw = f"{kind} {len(content)}\0".encode() + content
        algorithm = hashlib.sha256 if self.sha256 else hashlib.sha1
        name = algorithm(raw, usedforsecurity=False).hexdigest()
        if name not in self._written:
            self._write_loose(name, zlib.compress(raw, 0))
            self._written.add(name)
        return GitOid(name)

    def _write_loose(self, name: str, data: bytes) -> None:
        """Gives a loose object its name when it is whole: other processes may look for it."""
        place = f"{self._objects}/{name[:2]}"  # plain text: a path object costs more than the file
        partial = f"{place}/partial_{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        try:
            descriptor = os.open(partial, flags, 0o600)
        except FileNotFoundError:
            os.mkdir(place)  # noqa: PTH102
            descriptor = os.open(partial, flags, 0o600)
        with open(descriptor, "wb", buffering=0) as file:  # noqa: PTH123
            left = memoryview(data)
            while left:
                left = left[file.write(left) :]
        os.replace(partial, f"{place}/{name[2:]}")  # noqa: PTH105

    def write_commit(self, tree: GitOid, parents: Sequence[GitOid], message: str) -> GitOid:
        """Writes a commit of the composer, with its fixed identity and date."""
        who = f"{NAME} <{EMAIL}> {WHEN}"
        lines = [f"tree {tree}", *(f"parent {p}" for p in parents)]
        lines += [f"author {who}", f"committer {who}", "", message]
        return self.write_object("commit", ("\n".join(lines) + "\n").encode())

    @property
    def empty_tree(self) -> GitOid:
        """The tree of nothing, written where it is missing."""
        return self.write_object("tree", b"")

    # -- attributes ------------------------------------------------------------------------

    def show_attributes(self, attributes: dict[bytes, GitOid]) -> None:
        """Makes the work tree hold exactly these `.gitattributes` files (path → blob)."""
        if attributes == self._attributes:
            return
        shutil.rmtree(self.work_tree)
        self.work_tree.mkdir()
        for path, blob in attributes.items():
            place = os.path.join(os.fsencode(self.work_tree), path)  # noqa: PTH118 - bytes
            os.makedirs(os.path.dirname(place), exist_ok=True)  # noqa: PTH103, PTH120
            with open(place, "wb") as file:  # noqa: PTH123
                file.write(self.reader.read(blob, "blob"))
        self._attributes = dict(attributes)
