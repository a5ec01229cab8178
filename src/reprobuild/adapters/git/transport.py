"""Talking to remotes: the only place where git may use the network.

The user's own configuration is heard here, and only here, because credentials, proxies and
certificate authorities live in it; what comes is checked by content.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from reprobuild.adapters.git.plumbing import clean_environment, run
from reprobuild.adapters.store.durable import is_shared
from reprobuild.core.digest import GitOid
from reprobuild.core.integration.address import check_url, secret_in
from reprobuild.core.integration.model import check_ref
from reprobuild.core.redact import redact
from reprobuild.errors import ReprobuildError

_PASSED = (
    "HOME", "XDG_CONFIG_HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "SSH_AGENT_PID", "GIT_SSH",
    "GIT_SSH_COMMAND", "GIT_ASKPASS", "SSH_ASKPASS", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH",
    "GIT_SSL_CERT", "GIT_SSL_KEY", "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE",
    "GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL",
)  # fmt: skip
_SAFE = (
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "protocol.ext.allow=never",
    "-c", "safe.directory=*",
    "-c", "gc.auto=0",
    "-c", "maintenance.auto=false",
    "-c", "fetch.fsckObjects=false",
    "-c", "fetch.recurseSubmodules=false",
    "-c", "fetch.writeCommitGraph=false",
    "-c", "transfer.bundleURI=false",
)  # fmt: skip
_UMASK = 0o022
"""For what git writes into a cache: modes as the store's own, whatever the caller's umask."""


def transport_environment() -> dict[str, str]:
    """The environment of a network command: clean, but for what reaching a host takes."""
    env = clean_environment()
    for name in ("GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL", "HOME",
                 "XDG_CONFIG_HOME"):  # fmt: skip
        env.pop(name, None)
    for name, value in os.environ.items():
        if name in _PASSED or name.lower().endswith("_proxy"):
            env[name] = value
    env.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")
    return env


def list_refs(url: str, refs: Iterable[str]) -> dict[str, GitOid]:
    """What the refs point to now, in one `ls-remote`; refs that are not there are left out.

    Raises E-GIT-FETCH when the repository cannot be reached.
    """
    wanted = [check_ref(r) for r in refs]
    peeled = {f"{r}^{{}}": r for r in wanted if r.startswith("refs/tags/")}
    _, out, _ = _network(["ls-remote", "--", check_url(url), *wanted, *peeled], url)
    found: dict[str, GitOid] = {}
    for line in out.decode("utf-8", "replace").splitlines():
        oid, _, name = line.partition("\t")
        if name in wanted:
            found.setdefault(name, GitOid.parse(oid))
        elif name in peeled:  # the commit that an annotated tag stands for
            found[peeled[name]] = GitOid.parse(oid)
    return found


def fetch(git_dir: Path, url: str, wanted: Sequence[str], *, negotiate: bool = True) -> None:
    """Brings objects (by name or by ref) into `git_dir`; raises E-GIT-FETCH.

    Commits come with their history but without blobs, where the server can do that. Nothing is
    recorded but objects: no refs move, no FETCH_HEAD is written. `negotiate=False` for single
    blobs, which no history leads to.
    """
    argv = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance",
            "--no-recurse-submodules", "--refmap="]  # fmt: skip
    argv += ["--filter=blob:none", "--stdin", "--", check_url(url)]
    if not negotiate:
        argv[:0] = ["-c", "fetch.negotiationAlgorithm=noop"]
    names = "".join(f"{w}\n" for w in wanted)
    _network(argv, url, git_dir=git_dir, stdin=names.encode())


def _network(
    argv: Sequence[str], url: str, *, git_dir: Path | None = None, stdin: bytes = b""
) -> tuple[int, bytes, bytes]:
    env = transport_environment()
    if secret_in(url):
        bare = redact(url)
        # git writes the address that it is told into the configuration of the cache (as a partial
        # clone's promisor): it is told one without credentials, and from the environment, which
        # leaves nothing behind, what to reach it by (git-config(1), url.<base>.insteadOf).
        argv = [bare if word == url else word for word in argv]
        env |= {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"url.{url}.insteadOf",
            "GIT_CONFIG_VALUE_0": bare,
        }
    if git_dir is not None:
        env["GIT_DIR"] = str(git_dir)
    try:
        return run([*_SAFE, *argv], env=env, cwd=git_dir or Path("/"), stdin=stdin, umask=_UMASK)
    except ReprobuildError as error:
        if error.code == "E-GIT" and "not installed" in error.message:
            raise
        said = _without_secrets(str(error.facts.get("said") or error.message), url)
        raise ReprobuildError(
            "E-GIT-FETCH",
            f"git cannot {_verb(argv)} from {redact(url)}: {said}",
            url=redact(url),
        ) from error


def _without_secrets(said: str, url: str) -> str:
    """What git said, without the credentials of the address, in whatever form it repeats them."""
    match = re.match(r"\w+://([^/@\s]*)@", url)
    if match:
        for secret in (match[1], match[1].partition(":")[2]):
            if secret:
                said = said.replace(secret, "…")
    return redact(said)


def _verb(argv: Sequence[str]) -> str:
    return "list refs" if "ls-remote" in argv else "fetch"


def keep(git_dir: Path, commits: Iterable[GitOid]) -> None:
    """Lets refs of ours point to commits, so that later fetches need not bring them again."""
    rows = "".join(f"update refs/reprobuild/{c} {c}\n" for c in commits)
    env = {**clean_environment(), "GIT_DIR": str(git_dir)}
    run(["update-ref", "--stdin"], env=env, stdin=rows.encode(), umask=_UMASK)


def init_bare(git_dir: Path, *, sha256: bool = False) -> None:
    """Makes an empty bare repository, unless there is one."""
    if (git_dir / "HEAD").exists():
        return
    make_home(git_dir.parent)
    form = "sha256" if sha256 else "sha1"
    argv = ["init", "--quiet", "--bare", "--template=", f"--object-format={form}"]
    if is_shared(git_dir.parent):
        argv.append("--shared=group")  # git then sees to the modes of all that it writes there
    run([*argv, str(git_dir)], env=clean_environment(), umask=_UMASK)


def make_home(directory: Path) -> None:
    """The directory of cache repositories, whatever the caller's umask: as the store's own are,
    shared by a group where the one above is."""
    directory.mkdir(parents=True, exist_ok=True)
    mode = 0o2775 if is_shared(directory.parent) else 0o755
    if stat.S_IMODE(directory.stat().st_mode) != mode:
        with suppress(PermissionError):  # another account's, which has made it as it should be
            directory.chmod(mode)


__all__ = ["fetch", "init_bare", "keep", "list_refs", "make_home", "transport_environment"]
