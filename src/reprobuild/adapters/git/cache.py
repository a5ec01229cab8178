"""Which git directories hold a source's objects, and bringing in what none of them has."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from reprobuild.adapters.git import transport
from reprobuild.adapters.git.files import replace_file
from reprobuild.adapters.git.partial import with_promisors
from reprobuild.adapters.git.plumbing import git_directory, local_path, run
from reprobuild.adapters.git.scratch import Scratch
from reprobuild.core.digest import GitOid
from reprobuild.core.integration.address import check_url
from reprobuild.core.integration.model import check_ref
from reprobuild.core.redact import redact
from reprobuild.errors import ReprobuildError

Rewrite = Callable[[str], Sequence[str]]
"""Where to look for an address: the user's mirrors in order, then the address itself."""


def no_rewrite(url: str) -> Sequence[str]:
    """No mirrors."""
    return [url]


@dataclass(frozen=True, slots=True)
class Located:
    """Repositories that together hold what was asked for; `remote` can be asked for more."""

    sources: tuple[Path, ...]
    remote: str = ""


class GitCache:
    """Objects of remote repositories, one bare repository for each address under `root`.

    Local repositories (a path, `file://`) are read in place: nothing is copied or written there.
    """

    def __init__(
        self, root: Path, *, rewrite: Rewrite = no_rewrite, offline: bool = False, base: Path
    ) -> None:
        """`base` is what relative paths start from."""
        self._root, self._rewrite, self.offline, self._base = root, rewrite, offline, base
        self._expected: dict[str, set[str]] = {}
        self._answers: dict[str, dict[str, GitOid | None]] = {}
        self._asking = threading.Lock()

    def path(self, url: str) -> Path:
        """The cache repository of an address."""
        bare = redact(url)
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", bare.rstrip("/").removesuffix(".git"))[-60:]
        return (
            self._root / f"{name.strip('-.')}-{hashlib.sha256(bare.encode()).hexdigest()[:12]}.git"
        )

    def _candidates(self, url: str) -> tuple[list[Path], list[str]]:
        local: list[Path] = []
        remote: list[str] = []
        for place in self._rewrite(check_url(url)):
            path = local_path(check_url(place))
            if path is None:
                remote.append(place)
                continue
            try:
                local.append(git_directory(self._base / path))
            except ReprobuildError:
                continue
        return local, remote

    def locate(self, url: str, commits: Sequence[GitOid], refs: Iterable[str] = ()) -> Located:
        """Repositories that hold all of `commits`; what is missing is fetched.

        `refs` are names under which a server that refuses bare commits may have them. Raises
        E-OFFLINE, E-GIT-FETCH, or E-GIT-MISSING-OBJECT when nobody has a commit.
        """
        local, remote = self._candidates(url)
        local = list(dict.fromkeys(p for path in local for p in with_promisors(path)))
        cached = self.path(url)
        sources = [*([cached] if (cached / "HEAD").exists() else []), *local]
        absent = missing_commits(sources, commits)
        first = remote[0] if remote else ""
        if not absent:
            return Located(tuple(sources), first)
        names = ", ".join(c.hex for c in absent)
        if not remote and not local:
            raise _nothing_at(url)
        if not remote:
            raise ReprobuildError(
                "E-GIT-MISSING-OBJECT",
                f"{', '.join(str(p) for p in local)} lacks commit {names}",
                objects=[c.hex for c in absent],
            )
        if self.offline:
            raise ReprobuildError(
                "E-OFFLINE",
                f"commit {names} of {redact(url)} is not here and the network is off",
                hint="run once without --offline, or name a mirror that has it in [mirrors]",
                url=redact(url),
                objects=[c.hex for c in absent],
                lacking=[str(p) for p in local] or None,
            )
        transport.init_bare(cached, sha256=len(commits[0].hex) == 64)
        try:
            used = self._bring(cached, remote, absent, list(refs))
        except ReprobuildError as error:
            if local:  # a mirror that is out of date is the nearer thing to mend
                error.facts["lacking"] = [str(p) for p in local]
                error.hint = f"{local[0]}, which stands for it here, lacks {names}: update it"
            raise
        return Located((cached, *local), used)

    def _bring(
        self, cached: Path, remote: Sequence[str], absent: Sequence[GitOid], refs: Sequence[str]
    ) -> str:
        failure: ReprobuildError | None = None
        for place in remote:
            for wanted in ([c.hex for c in absent], list(refs)):
                if not wanted:
                    continue
                try:
                    transport.fetch(cached, place, wanted)
                except ReprobuildError as error:
                    failure = error
                    continue
                left = missing_commits([cached], absent)
                if not left:
                    transport.keep(cached, absent)
                    return place
                failure = ReprobuildError(
                    "E-GIT-MISSING-OBJECT",
                    f"{redact(place)} has no commit {', '.join(c.hex for c in left)}",
                    objects=[c.hex for c in left],
                )
        assert failure is not None
        raise failure

    def bring_blobs(self, url: str, remote: str, blobs: Sequence[GitOid]) -> None:
        """Fetches single objects into the cache."""
        cached = self.path(url)
        transport.init_bare(cached, sha256=len(blobs[0].hex) == 64)
        for start in range(0, len(blobs), 5000):
            wanted = [b.hex for b in blobs[start : start + 5000]]
            transport.fetch(cached, remote, wanted, negotiate=False)

    def expect(self, refs: Mapping[str, Iterable[str]]) -> None:
        """Refs, by address, that will be asked for: they come along with the first answer."""
        for url, names in refs.items():
            self._expected.setdefault(url, set()).update(names)

    def resolve(self, url: str, refs: Iterable[str]) -> dict[str, GitOid]:
        """What refs point to: local repositories are read, a remote gets one `ls-remote` in all.

        Refs that nobody has are left out. With the network off a remote is as it was last seen;
        raises E-OFFLINE for what was never seen, E-GIT-FETCH where no repository is.
        """
        local, remote = self._candidates(url)
        if not local and not remote:
            raise _nothing_at(url)
        wanted = list(dict.fromkeys(refs))
        found: dict[str, GitOid] = {}
        for path in local:
            found |= read_refs(path, [r for r in wanted if r not in found])
        left = [r for r in wanted if r not in found]
        if not left or not remote:
            return found
        with self._asking:
            known = self._answers.setdefault(url, {})
            if any(r not in known for r in left):
                if self.offline:
                    asked = [r for r in left if r not in known]
                    answer = self._recall(url, asked, remote[0])
                else:
                    asked = sorted({*left, *self._expected.get(url, ())} - known.keys())
                    answer = self._ask(remote, asked)
                    self._remember(url, answer)
                known.update({r: answer.get(r) for r in asked})
        return found | {r: oid for r in left if (oid := known[r]) is not None}

    def _ask(self, remote: Sequence[str], refs: Sequence[str]) -> dict[str, GitOid]:
        failure: ReprobuildError | None = None
        for place in remote:
            try:
                return transport.list_refs(place, refs)
            except ReprobuildError as error:
                failure = error
        assert failure is not None
        raise failure

    def _seen(self, url: str) -> Path:
        return self.path(url).with_suffix(".refs.json")

    def _remember(self, url: str, answer: Mapping[str, GitOid]) -> None:
        """Notes what a remote said; a cache that cannot be written to is no failure."""
        place = self._seen(url)
        try:
            transport.make_home(place.parent)
            before = json.loads(place.read_bytes()) if place.is_file() else {}
            rows = {**before, **{ref: oid.hex for ref, oid in answer.items()}}
            replace_file(place, json.dumps(rows, indent=0, sort_keys=True).encode())
            place.chmod(0o644)  # as the store's own, whatever the caller's umask
        except (OSError, ValueError):
            place.unlink(missing_ok=True)

    def _recall(self, url: str, refs: Sequence[str], remote: str) -> dict[str, GitOid]:
        rows: object = {}
        with suppress(OSError, ValueError):
            rows = json.loads(self._seen(url).read_bytes())
        seen = rows if isinstance(rows, dict) else {}
        unseen = [r for r in refs if not isinstance(seen.get(r), str)]
        if unseen:
            raise ReprobuildError(
                "E-OFFLINE",
                f"the network is off, and only {redact(remote)} can say where {unseen[0]} is",
                url=redact(url),
                refs=unseen,
            )
        return {r: GitOid.parse(seen[r]) for r in refs}


def missing_commits(sources: Sequence[Path], commits: Sequence[GitOid]) -> list[GitOid]:
    """Which of `commits` none of the repositories has."""
    if not sources or not commits:
        return list(commits)
    with Scratch(sources, sha256=len(commits[0].hex) == 64) as scratch:
        return [c for c in commits if not scratch.reader.has(c)]


def read_refs(git_dir: Path, refs: Sequence[str]) -> dict[str, GitOid]:
    """What refs of a local repository point to, tags peeled to their commit; those it has.

    The files are read here (gitrepository-layout(5)), so that the repository's configuration, its
    hooks and its owner have no say.
    """
    named = {ref: oid for ref in refs if (oid := _followed(git_dir, ref)) is not None}
    commits = _peeled(git_dir, list(dict.fromkeys(named.values()))) if named else {}
    return {ref: commits[oid] for ref, oid in named.items() if oid in commits}


def _followed(git_dir: Path, ref: str) -> GitOid | None:
    for _ in range(5):  # as many symbolic refs as git follows
        text = _ref_text(git_dir, check_ref(ref))
        if not text.startswith("ref: "):
            return GitOid.parse(text) if text else None
        ref = text.removeprefix("ref: ").strip()
    return None


def _ref_text(git_dir: Path, ref: str) -> str:
    """What stands in a ref's file, or in packed-refs; empty where it is in neither."""
    loose = git_dir / ref
    if loose.is_file():
        with loose.open("rb") as file:
            return file.read(4096).decode("ascii", "replace").strip()
    packed = git_dir / "packed-refs"
    if packed.is_file():
        ending = b" " + ref.encode()
        with packed.open("rb") as lines:
            for line in lines:
                if line.rstrip(b"\n").endswith(ending) and not line.startswith((b"#", b"^")):
                    return line.split(b" ")[0].decode("ascii", "replace")
    return ""


def _peeled(git_dir: Path, oids: Sequence[GitOid]) -> dict[GitOid, GitOid]:
    """The commits that objects are or, being tags, stand for; without those that lead to none."""
    wanted = "".join(f"{oid}^{{commit}}\n" for oid in oids)
    with Scratch([git_dir], sha256=len(oids[0].hex) == 64) as scratch:
        _, out, _ = run(
            ["cat-file", "--batch-check=%(objectname) %(objecttype)"],
            env=scratch.env,
            cwd=scratch.work_tree,
            stdin=wanted.encode(),
        )
    rows = zip(oids, out.decode().splitlines(), strict=True)
    return {
        oid: GitOid.parse(row.removesuffix(" commit"))
        for oid, row in rows
        if row.endswith("commit")
    }


def _nothing_at(url: str) -> ReprobuildError:
    return ReprobuildError(
        "E-GIT-FETCH",
        f"there is no git repository at {redact(url)}",
        hint="check the path, and that what it lies on is mounted",
        url=redact(url),
    )
