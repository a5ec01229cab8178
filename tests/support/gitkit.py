"""Repositories for tests, made by plain git, and the composition that a checkout gives.

`Origin` writes commits with plumbing commands and knows nothing of the code under test;
`checkout_composition` is what the publishers' script does: clone, merge in a work tree, diff.
"""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reprobuild.adapters.git.backend import GitRepository
from reprobuild.adapters.git.scratch import Scratch
from reprobuild.core.digest import GitOid
from reprobuild.core.integration.model import HeadSpec, IntegrationSpec, Strategy

Files = Mapping[str | bytes, str | bytes | tuple[int, bytes] | None]

ENV = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "Tess Ter",
    "GIT_AUTHOR_EMAIL": "tess@example.org",
    "GIT_AUTHOR_DATE": "1600000000 +0200",
    "GIT_COMMITTER_NAME": "Tess Ter",
    "GIT_COMMITTER_EMAIL": "tess@example.org",
    "GIT_COMMITTER_DATE": "1600000000 +0200",
}
COMPOSER = {
    "GIT_AUTHOR_NAME": "Release Composer",
    "GIT_AUTHOR_EMAIL": "release-composer@local",
    "GIT_COMMITTER_NAME": "Release Composer",
    "GIT_COMMITTER_EMAIL": "release-composer@local",
    "GIT_AUTHOR_DATE": "2000-01-01T00:00:00+00:00",
    "GIT_COMMITTER_DATE": "2000-01-01T00:00:00+00:00",
}


def git(
    cwd: Path,
    *argv: str,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    check: bool = True,
) -> str:
    """Plain git; its standard output without the last newline."""
    done = subprocess.run(
        ["git", *argv],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        env={**ENV, **(env or {})},
        check=False,
    )
    if check and done.returncode:
        raise AssertionError(f"git {argv}: {done.stderr.decode('utf-8', 'replace')}")
    return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")


@dataclass
class Origin:
    """A bare repository that stands for a remote."""

    path: Path
    sha256: bool = False
    clock: int = 1_600_000_000
    pulls: dict[int, GitOid] = field(default_factory=dict)

    @classmethod
    def make(cls, path: Path, *, sha256: bool = False) -> Origin:
        """An empty one."""
        path.mkdir(parents=True)
        form = "sha256" if sha256 else "sha1"
        git(path, "init", "--quiet", "--bare", f"--object-format={form}", "-b", "main", ".")
        return cls(path, sha256)

    def blob(self, content: bytes) -> str:
        """A blob's name."""
        return git(self.path, "hash-object", "-w", "--stdin", stdin=content)

    def commit(
        self,
        files: Files,
        parents: Sequence[GitOid] = (),
        *,
        ref: str = "",
        message: str = "change",
        start: GitOid | None = None,
    ) -> GitOid:
        """The first parent's files (or `start`'s) with some set (None: removed), committed."""
        index = {"GIT_INDEX_FILE": str(self.path / "test-index")}
        (self.path / "test-index").unlink(missing_ok=True)
        origin = start or (parents[0] if parents else None)
        if origin is not None:
            git(self.path, "read-tree", origin.hex, env=index)
        rows = []
        for name, value in files.items():
            path = name if isinstance(name, bytes) else name.encode()
            if value is None:
                rows.append(b"0 " + b"0" * (64 if self.sha256 else 40) + b"\t" + path + b"\0")
                continue
            mode, content = value if isinstance(value, tuple) else (0o100644, value)
            data = content.encode() if isinstance(content, str) else content
            blob = data.decode() if mode == 0o160000 else self.blob(data)
            rows.append(f"{mode:06o} {blob}".encode() + b"\t" + path + b"\0")
        git(self.path, "update-index", "-z", "--index-info", stdin=b"".join(rows), env=index)
        tree = git(self.path, "write-tree", env=index)
        self.clock += 60
        date = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), f"{self.clock} +0200")
        flags = [word for parent in parents for word in ("-p", parent.hex)]
        made = git(self.path, "commit-tree", tree, *flags, "-m", message, env=date)
        if ref:
            git(self.path, "update-ref", ref, made)
        return GitOid.parse(made)

    def bulk(self, stream: bytes) -> dict[str, GitOid]:
        """Many commits at once (git-fast-import(1)); what all refs point to afterwards."""
        git(self.path, "fast-import", "--quiet", "--force", "--date-format=raw", stdin=stream)
        rows = git(self.path, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        refs = {name: GitOid.parse(oid) for name, oid in (row.split(" ") for row in rows)}
        for name, oid in refs.items():
            if name.startswith("refs/pull/"):
                self.pulls[int(name.split("/")[2])] = oid
        return refs

    def pull(
        self, number: int, files: Files, parents: Sequence[GitOid], message: str = ""
    ) -> GitOid:
        """A pull request's head."""
        ref = f"refs/pull/{number}/head"
        head = self.commit(files, parents, ref=ref, message=message or f"PR {number}")
        self.pulls[number] = head
        return head

    def tree(self, commit: GitOid) -> GitOid:
        """A commit's tree."""
        return GitOid.parse(git(self.path, "rev-parse", f"{commit}^{{tree}}"))

    def show(self, tree: GitOid, path: str, *objects: Path) -> str:
        """A file's content in a tree."""
        return git(self.path, "cat-file", "blob", f"{tree}:{path}")


def bulk_commit(
    ref: str, mark: int, files: Mapping[bytes, tuple[str, bytes] | None], parent: int = 0
) -> bytes:
    """One commit of a `bulk` stream: path → (mode, content), or None to remove."""
    parts = [
        f"reset {ref}\ncommit {ref}\nmark :{mark}\n"
        f"committer Tess Ter <tess@example.org> {1_600_000_000 + mark} +0000\ndata 1\nx\n".encode()
    ]
    if parent:
        parts.append(f"from :{parent}\n".encode())
    for path, value in files.items():
        name = b'"' + path.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
        if value is None:
            parts.append(b"D " + name + b"\n")
        else:
            mode, content = value
            parts.append(f"M {mode} inline ".encode() + name + b"\n")
            parts.append(b"data %d\n" % len(content) + content + b"\n")
    return b"".join(parts) + b"\n"


def heads(origin: Origin, *numbers: int) -> tuple[HeadSpec, ...]:
    """Heads of an origin, in this order."""
    return tuple(HeadSpec(n, origin.pulls[n]) for n in numbers)


def merge_spec(origin: Origin, base: GitOid, *numbers: int) -> IntegrationSpec:
    """Ordered merges."""
    return IntegrationSpec(Strategy.MERGE, base, heads(origin, *numbers))


@contextmanager
def opened(*places: Path, sha256: bool = False) -> Iterator[GitRepository]:
    """A `Repository` over git directories."""
    with Scratch(places, sha256=sha256) as scratch:
        yield GitRepository(scratch)


@dataclass(frozen=True)
class Composition:
    """What a checkout gave."""

    tree: str
    patch: bytes

    @property
    def patch_sha256(self) -> str:
        """The digest of the patch."""
        return hashlib.sha256(self.patch).hexdigest()


def checkout_composition(
    origin: Path, spec: IntegrationSpec, work: Path, env: Mapping[str, str] | None = None
) -> Composition | int:
    """The incumbent's way; the number of the head that conflicts, or 0 for whitespace errors."""
    extra = {**COMPOSER, **(env or {})}
    git(work.parent, "clone", "--quiet", "--no-checkout", str(origin), str(work), env=extra)
    git(work, "fetch", "--quiet", "origin", "+refs/pull/*:refs/pull/*", env=extra, check=False)
    git(work, "checkout", "--quiet", "--detach", spec.base.hex, env=extra)
    for head in spec.heads:
        steps: list[list[str]]
        if spec.strategy is Strategy.CHERRY_PICK:
            steps = [["cherry-pick", c.hex] for c in head.commits or (head.head,)]
        else:
            message = f"release composition: PR #{head.number}"
            steps = [["merge", "--no-ff", "--no-edit", "-m", message, head.head.hex]]
        for step in steps:
            done = subprocess.run(
                ["git", *step], cwd=work, env={**ENV, **extra}, capture_output=True, check=False
            )
            if done.returncode:
                return head.number
    tree = git(work, "write-tree", env=extra)
    patch = subprocess.run(
        ["git", "diff", "--binary", "--full-index", spec.base.hex],
        cwd=work,
        env={**ENV, **extra},
        capture_output=True,
        check=True,
    ).stdout
    return Composition(tree, patch)


@dataclass(frozen=True)
class Daemon:
    """A `git daemon` on this machine."""

    port: int

    def url(self, name: str) -> str:
        """The address of a repository below the daemon's directory."""
        return f"git://127.0.0.1:{self.port}/{name}"


@contextmanager
def git_daemon(root: Path) -> Iterator[Daemon]:
    """Serves the repositories below `root`; skips the test where git has no daemon."""
    if not (Path(git(root, "--exec-path")) / "git-daemon").exists():
        pytest.skip("git daemon is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        ["git", "daemon", "--export-all", f"--base-path={root}", "--listen=127.0.0.1",
         f"--port={port}", "--reuseaddr", str(root)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENV, process_group=0,
    )  # fmt: skip
    try:
        for _ in range(400):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        else:
            raise AssertionError("git daemon did not start")
        yield Daemon(port)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
