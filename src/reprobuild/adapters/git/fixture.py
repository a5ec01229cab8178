"""Fixtures: git repositories made out of text, the same objects on any machine.

A fixture is a directory with `repository.toml` and overlay directories beside it:

    format = 0
    [[commit]]
    id = "base"                     # a name for this file alone
    parents = []                    # ids; the first one's files are what the commit starts from
    refs = ["refs/heads/main"]      # what points here in the end
    message = "Start"
    author = "A <a@example.org>"    # optional
    date = 2026-01-02T03:04:05Z     # optional; author and committer date
    files = "base"                  # overlay directory whose files are added or replaced
    executable = ["run.sh"]         # which of its files are executable
    remove = ["old.py"]             # files or directories that go
    symlinks = { "link" = "target" }
    submodules = { "vendor" = "<commit>" }

Bytes are taken as they are, file modes on disk are not looked at.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from reprobuild.adapters.git.plumbing import clean_environment, quoted, run
from reprobuild.adapters.git.transport import init_bare
from reprobuild.core.digest import Digest, GitOid, tagged
from reprobuild.core.integration.model import check_ref
from reprobuild.errors import ReprobuildError

FILE = "repository.toml"
DOMAIN = "reprobuild/fixture/v0"
IDENTITY = "Fixture <fixture@local>"
_OWN = "refs/reprobuild-fixture/"
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_KEYS = frozenset(
    {
        *("id", "parents", "refs", "message", "author", "date"),
        *("files", "executable", "remove", "symlinks", "submodules"),
    }
)


@dataclass(frozen=True, slots=True)
class FixtureCommit:
    """One `[[commit]]`, checked."""

    id: str
    parents: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    message: str = ""
    author: str = IDENTITY
    date: datetime = _EPOCH
    files: str = ""
    executable: frozenset[str] = frozenset()
    remove: tuple[str, ...] = ()
    symlinks: Mapping[str, str] = field(default_factory=dict)
    submodules: Mapping[str, GitOid] = field(default_factory=dict)


class _Text:
    """The file's text, to say where something stands."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE
        try:
            self.raw = self.path.read_bytes()
            self.document = tomllib.loads(self.raw.decode("utf-8"))
        except FileNotFoundError:
            self.fail(f"{directory} holds no {FILE}")
        except (ValueError, OSError) as error:
            self.fail(f"{self.path}: {error}")
        self.lines = self.raw.decode("utf-8").splitlines()

    def line(self, commit: int, key: str = "") -> int:
        """The line of a commit's key (or of the commit), counted from 1."""
        seen, start = -1, 1
        for number, text in enumerate(self.lines, 1):
            bare = text.replace(" ", "").replace("\t", "")
            if bare.startswith("[[commit]]"):
                seen += 1
                if seen > commit:
                    break
                start = number
            elif key and seen == commit and bare.startswith((f"{key}=", f'"{key}"=')):
                return number
        return start

    def fail(self, message: str, commit: int = -1, key: str = "") -> NoReturn:
        """Raises E-FIXTURE at the place."""
        line = self.line(commit, key) if commit >= 0 else None
        where = f"{self.path}:{line}: " if line else ""
        raise ReprobuildError("E-FIXTURE", where + message, file=str(self.path), line=line, key=key)


def read_fixture(directory: Path) -> tuple[FixtureCommit, ...]:
    """The fixture's commits, parents first; raises E-FIXTURE with file and line."""
    text = _Text(directory)
    unknown = sorted(set(text.document) - {"format", "commit", "description"})
    if unknown:
        text.fail(f"{text.path}: unknown key {unknown[0]!r}")
    if text.document.get("format") != 0:
        text.fail(f"{text.path}: format must be 0")
    rows = text.document.get("commit")
    if not isinstance(rows, list) or not rows:
        text.fail(f"{text.path}: at least one [[commit]] is needed")
    commits: dict[str, FixtureCommit] = {}
    owners: dict[str, str] = {}
    for number, row in enumerate(rows):
        commit = _commit(text, number, row, directory)
        if commit.id in commits:
            text.fail(f"two commits are called {commit.id!r}", number, "id")
        for parent in commit.parents:
            if parent not in commits:
                text.fail(f"parent {parent!r} is no earlier commit", number, "parents")
        for ref in commit.refs:
            if ref in owners:
                text.fail(f"{ref} points to {owners[ref]!r} already", number, "refs")
            if ref.startswith(_OWN):
                text.fail(f"{_OWN} is taken", number, "refs")
            owners[ref] = commit.id
        commits[commit.id] = commit
    return tuple(commits.values())


def _commit(text: _Text, number: int, row: object, directory: Path) -> FixtureCommit:
    if not isinstance(row, dict):
        text.fail(f"{text.path}: commit must be a list of tables")
    for key in row:
        if key not in _KEYS:
            text.fail(f"unknown key {key!r}; there are {', '.join(sorted(_KEYS))}", number, key)

    def words(key: str) -> tuple[str, ...]:
        value = row.get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            text.fail(f"{key} must be a list of texts", number, key)
        return tuple(value)

    def word(key: str, default: str = "") -> str:
        value = row.get(key, default)
        if not isinstance(value, str) or "\0" in value:
            text.fail(f"{key} must be text", number, key)
        return str(value)

    def table(key: str) -> dict[str, str]:
        value = row.get(key, {})
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            text.fail(f"{key} must be a table of texts", number, key)
        return {inside(k, key): v for k, v in value.items()}

    def inside(path: str, key: str) -> str:
        parts = path.split("/")
        bad = any(p in ("", ".", "..") or p.lower() == ".git" for p in parts)
        if bad or len(path) > 4000 or any(ord(c) < 32 for c in path):
            text.fail(f"{path[:120]!r} is no path inside the repository", number, key)
        return path

    identity = word("id")
    if not identity:
        text.fail("a commit needs an id", number)
    author = word("author", IDENTITY)
    if not _identity(author):
        text.fail(f"author must look like {IDENTITY!r}", number, "author")
    date = row.get("date", _EPOCH)
    if not isinstance(date, datetime) or date.tzinfo is None or date.timestamp() < 0:
        text.fail("date must be a time with its zone, not before 1970", number, "date")
    files = word("files")
    if files:
        inside(files, "files")
        _check_overlay(text, number, directory, files)
    try:
        refs = tuple(check_ref(r) for r in words("refs"))
        submodules = {k: GitOid.parse(v) for k, v in table("submodules").items()}
    except ReprobuildError as error:
        text.fail(error.message, number, "refs" if error.code == "E-REF" else "submodules")
    symlinks = table("symlinks")
    for name, target in symlinks.items():
        if not target or "\0" in target:
            text.fail(f"the link {name!r} needs a target", number, "symlinks")
    executable = frozenset(inside(p, "executable") for p in words("executable"))
    for path in sorted(executable):
        if not files or not (directory / files / path).is_file():
            text.fail(f"{path!r} is not among the commit's files", number, "executable")
    return FixtureCommit(
        identity,
        words("parents"),
        refs,
        word("message"),
        author,
        date,
        files,
        executable,
        tuple(inside(p, "remove") for p in words("remove")),
        symlinks,
        submodules,
    )


def _identity(author: str) -> bool:
    name, _, rest = author.partition(" <")
    mail = rest.removesuffix(">")
    return bool(name) and rest.endswith(">") and not any(c in "<>\n\r" for c in name + mail)


def _check_overlay(text: _Text, number: int, directory: Path, files: str) -> None:
    here = directory
    for part in files.split("/"):
        here = here / part
        if here.is_symlink():
            text.fail(f"{files!r} leads through a symbolic link", number, "files")
    if not here.is_dir():
        text.fail(f"the overlay directory {files!r} is not there", number, "files")
    for path in _walk(here):
        if path.is_symlink() or not path.is_file():
            text.fail(
                f"{path.relative_to(directory)} is no plain file; say links with `symlinks`",
                number,
                "files",
            )
        if any(p.lower() == ".git" for p in path.relative_to(here).parts):
            text.fail(f"{path.relative_to(directory)}: .git cannot be a file", number, "files")


def _walk(directory: Path) -> Iterator[Path]:
    """Everything below that is no directory, sorted by name."""
    for entry in sorted(os.scandir(directory), key=lambda e: os.fsencode(e.name)):
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path))
        else:
            yield Path(entry.path)


def fixture_digest(directory: Path) -> Digest:
    """The digest of a fixture's text: of what repository.toml says and the files it takes."""
    commits = read_fixture(directory)
    parts = [(directory / FILE).read_bytes()]
    rows = [b"%d\0" % len(parts[0])]
    for overlay in sorted({c.files for c in commits if c.files}):
        for path in _walk(directory / overlay):
            data = path.read_bytes()
            rows.append(os.fsencode(path.relative_to(directory)) + b"\0%d\0" % len(data))
            parts.append(data)
    return tagged(DOMAIN, b"".join(rows) + b"\n" + b"".join(parts))


def make_fixture(directory: Path, into: Path, *, keep: bool = False) -> dict[str, GitOid]:
    """Makes the bare repository `into` out of the text; returns what its refs point to.

    `into` appears whole or not at all. One that is there already is replaced, or with `keep`
    (for names that say the content: another process made the same) left as it is. Raises E-FIXTURE.
    """
    commits = read_fixture(directory)
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fixture-", dir=into.parent) as scratch:
        made = Path(scratch) / "repository.git"
        init_bare(made)
        env = {**clean_environment(), "GIT_DIR": str(made)}
        argv = ["git", "fast-import", "--quiet", "--force", "--date-format=raw"]
        with tempfile.TemporaryFile() as stream:
            for chunk in _stream(directory, commits):
                stream.write(chunk)
            stream.seek(0)
            done = subprocess.run(argv, stdin=stream, env=env, capture_output=True, check=False)
        if done.returncode:
            raise ReprobuildError(
                "E-FIXTURE",
                f"git cannot make the fixture {directory}: "
                f"{done.stderr.decode('utf-8', 'replace').splitlines()[:1]}",
                file=str(directory / FILE),
            )
        refs = _refs(env)
        doomed = "".join(f"delete {n}\n" for n in refs if n.startswith(_OWN))
        run(["update-ref", "--stdin"], env=env, stdin=doomed.encode())
        refs = {n: o for n, o in refs.items() if not n.startswith(_OWN)}
        if into.exists() and not keep:
            into.rename(Path(scratch) / "old")
        try:
            made.rename(into)
        except OSError:
            if not (keep and into.is_dir()):
                raise
    return refs


def _refs(env: Mapping[str, str]) -> dict[str, GitOid]:
    _, out, _ = run(["for-each-ref", "--format=%(objectname) %(refname)"], env=env)
    rows = (line.split(" ", 1) for line in out.decode().splitlines())
    return {name: GitOid.parse(oid) for oid, name in rows}


def _stream(directory: Path, commits: tuple[FixtureCommit, ...]) -> Iterator[bytes]:
    """The fast-import stream (git-fast-import(1))."""
    marks = {commit.id: number for number, commit in enumerate(commits, 1)}
    for commit in commits:
        date = f"{int(commit.date.timestamp())} +0000"
        # a branch of its own keeps fast-import from taking an earlier commit as the parent
        yield f"commit {_OWN}{marks[commit.id]}\nmark :{marks[commit.id]}\n".encode()
        yield f"author {commit.author} {date}\ncommitter {IDENTITY} {date}\n".encode()
        yield _data(commit.message.encode())
        for number, parent in enumerate(commit.parents):
            yield f"{'merge' if number else 'from'} :{marks[parent]}\n".encode()
        for path in commit.remove:
            yield b"D " + quoted(path.encode()) + b"\n"
        if commit.files:
            overlay = directory / commit.files
            for file in _walk(overlay):
                name = os.fsencode(file.relative_to(overlay))
                executable = os.fsdecode(name) in commit.executable
                mode = b"100755" if executable else b"100644"
                yield b"M " + mode + b" inline " + quoted(name) + b"\n" + _data(file.read_bytes())
        for path, target in commit.symlinks.items():
            yield b"M 120000 inline " + quoted(path.encode()) + b"\n" + _data(target.encode())
        for path, oid in commit.submodules.items():
            yield f"M 160000 {oid} ".encode() + quoted(path.encode()) + b"\n"
        yield b"\n"
    for commit in commits:
        for ref in commit.refs:
            yield f"reset {ref}\nfrom :{marks[commit.id]}\n\n".encode()


def _data(content: bytes) -> bytes:
    return b"data %d\n" % len(content) + content + b"\n"
