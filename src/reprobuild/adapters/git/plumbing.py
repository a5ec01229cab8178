"""Running git so that nothing outside the call can change what it answers.

No system, user or repository configuration, no attributes of the host, no replace refs, grafts or
hooks, no lazy fetching; fixed locale, identity and dates. See gitconfig(5) and git(1),
"ENVIRONMENT VARIABLES".
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO

from reprobuild.core.digest import GitOid
from reprobuild.core.integration.address import is_remote
from reprobuild.core.redact import redact
from reprobuild.errors import ReprobuildError

FLOOR = (2, 39)
NAME = "Release Composer"
EMAIL = "release-composer@local"
PROTOCOLS = ["file:git:http:https:ssh"]
"""What git may speak; a list of one, so that `no_protocols` can take it away for the process."""
WHEN = "946684800 +0000"
"""2000-01-01T00:00:00+00:00, as commit objects write it."""

ROOMY = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432:"
    "glibc.malloc.trim_threshold=268435456:glibc.malloc.top_pad=16777216"
}
"""For git processes that go through file contents. A file of some hundred kilobytes has its memory
fetched from the system and given back at every delta of its chain otherwise, a third of all that
a merge costs. (glibc manual, "Memory Allocation Tunables"; another library does not look at it.)
"""


def no_protocols() -> None:
    """From now on no git process of ours may transfer anything, not even lazily from a file."""
    PROTOCOLS[0] = "none"


def local_path(url: str) -> Path | None:
    """The directory that a `file://` address or a path names; None for anything remote."""
    from urllib.parse import unquote

    if url.startswith("file://"):
        return Path(unquote(url.removeprefix("file://").removeprefix("localhost")))
    return None if is_remote(url) else Path(url)


def git_directory(path: Path) -> Path:
    """The common git directory of a repository: bare, with a checkout, or a linked worktree.

    Raises E-GIT-MISSING-OBJECT where there is none.
    """
    for candidate in (path, path / ".git"):
        with suppress(OSError, ValueError):  # no such place, or none that may be looked into
            place = _pointed_to(candidate) if candidate.is_file() else candidate
            if (place / "objects").is_dir() and (place / "HEAD").exists():
                return place.resolve()
    raise ReprobuildError("E-GIT-MISSING-OBJECT", f"{path} is no git repository", file=str(path))


def _pointed_to(file: Path) -> Path:
    """What a `.git` file of a linked worktree points to (gitrepository-layout(5))."""
    with file.open("rb") as opened:
        text = opened.read(4096).decode("utf-8", "surrogateescape")
    if not text.startswith("gitdir:"):
        return file
    target = file.parent / text.removeprefix("gitdir:").strip()
    common = target / "commondir"
    return target / common.read_text().strip() if common.is_file() else target


def clean_environment(home: Path | None = None) -> dict[str, str]:
    """What every git process gets: nothing inherited but PATH and the temporary directory."""
    place = str(home) if home is not None else "/nonexistent"
    keep = {k: os.environ[k] for k in ("PATH", "TMPDIR", "LD_LIBRARY_PATH") if k in os.environ}
    return {
        **keep,
        "HOME": place,
        "XDG_CONFIG_HOME": place,
        "LC_ALL": "C",
        "LANGUAGE": "C",
        "TZ": "UTC",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_PAGER": "cat",
        "GIT_ALLOW_PROTOCOL": PROTOCOLS[0],
        "GIT_AUTHOR_NAME": NAME,
        "GIT_AUTHOR_EMAIL": EMAIL,
        "GIT_AUTHOR_DATE": WHEN,
        "GIT_COMMITTER_NAME": NAME,
        "GIT_COMMITTER_EMAIL": EMAIL,
        "GIT_COMMITTER_DATE": WHEN,
    }


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stdin: bytes = b"",
    ok: Sequence[int] = (0,),
    umask: int = -1,
) -> tuple[int, bytes, bytes]:
    """Runs `git argv…`, under `umask` where it is not -1; (status, standard output, error).

    Raises E-GIT for a status outside `ok`, E-GIT-MISSING-OBJECT when git lacked an object.
    """
    try:
        done = subprocess.run(
            ["git", *argv],
            input=stdin,
            capture_output=True,
            env=dict(env),
            cwd=cwd,
            check=False,
            umask=umask,
        )
    except FileNotFoundError as error:
        raise ReprobuildError("E-GIT", "git is not installed or not on PATH") from error
    if done.returncode not in ok:
        raise failure(argv, done.returncode, done.stderr)
    return done.returncode, done.stdout, done.stderr


_MISSING = re.compile(
    rb"(?:unable to read|cannot read|could not (?:read|parse|get)|missing|bad object|"
    rb"not a (?:valid|tree)|failed to read|Could not read|bad tree|bad revision)"
    rb"[^\n]*?\b([0-9a-f]{64}|[0-9a-f]{40})\b"
)


def failure(argv: Sequence[str], status: int, stderr: bytes) -> ReprobuildError:
    """The error for a git process that ended with `status`."""
    said = redact(stderr.decode("utf-8", "replace").strip())
    command = _command(argv)
    missing = _MISSING.search(stderr)
    if missing:
        oid = missing.group(1).decode()
        return ReprobuildError(
            "E-GIT-MISSING-OBJECT",
            f"git {command} needs object {oid}, which is not in any repository at hand",
            object=oid,
            said=said[-500:],
        )
    return ReprobuildError(
        "E-GIT", f"git {command} ended with {status}: {said[-500:]}", status=status
    )


def _command(argv: Sequence[str]) -> str:
    """The name of the command that is run; what follows a `-c` or `-C` is none."""
    before = ""
    for word in argv:
        if not word.startswith("-") and before not in ("-c", "-C"):
            return word
        before = word
    return "git"


@contextmanager
def stream(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    ok: Sequence[int] = (0,),
) -> Iterator[IO[bytes]]:
    """The standard output of `git argv…` as a stream; raises like `run` at the end."""
    import tempfile

    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            ["git", *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env=dict(env),
            cwd=cwd,
        )
        assert process.stdout is not None
        try:
            yield process.stdout
        except BaseException:
            process.kill()
            process.stdout.close()
            process.wait()
            raise
        process.stdout.close()
        status = process.wait()
        if status not in ok:
            complaints.seek(0)
            raise failure(argv, status, complaints.read()[-4000:])


@lru_cache(maxsize=1)
def version() -> str:
    """git's version (`2.39.5`); raises E-GIT below the floor."""
    _, out, _ = run(["version"], env=clean_environment())
    found = re.search(rb"(\d+)\.(\d+)(?:\.\d+)*", out)
    if found is None or (int(found.group(1)), int(found.group(2))) < FLOOR:
        raise ReprobuildError(
            "E-GIT", f"git {FLOOR[0]}.{FLOOR[1]} or newer is needed, here is {out.decode()[:60]}"
        )
    return found.group(0).decode()


def quoted(path: bytes) -> bytes:
    """A path in double quotes, as git's quote.c reads it: for fast-import, and for `alternates`."""
    body = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + body + b'"'


def oid(raw: bytes) -> GitOid:
    """An object name as git prints it."""
    return GitOid.parse(raw.decode("ascii", "replace").strip())
