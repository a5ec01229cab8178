"""Composing a published lock several ways, in turns, in one run.

What the publishers' script does for seven heads, and the same job by the resolver:

* script – its commands one by one: `ls-remote` and `fetch` of the base and of each head, a fresh
  checkout, `git merge --no-ff` for each head, `diff --check`, `write-tree`, the patch, and as a
  check the patch applied to the base again. The remote is a `file://` repository on this machine,
  so no network is in it. One thing is kinder than the script: history is fetched to a depth that
  suffices, since mirrors may lack large blobs of long ago.
* at-hand – the same without `ls-remote` and `fetch`: the objects are there before the clock starts,
  the checkout borrows them (`git clone --shared`).
* merges – a shared clone, the checkout, the merges and `write-tree`, and nothing that is written or
  checked after them.
* loop – the bare minimum: `git merge-tree --write-tree` and `git commit-tree` for each head.
* integrate – the resolver in this process: the tree, dispositions (with `squashed_in_base`, which
  takes merges into the bare base that none of the above make) and both digests of the patch.
* compose – the whole job by the command, a process of its own from its start to its end:
  `reprobuild compose`, which does and checks all that the script does and writes the same files.

Prints medians of wall time and of CPU time (user and system, children included) with their spread,
and how many times faster ours is, round by round. Exits 1 unless integrate is at least 10 times
faster than the script's commands with everything at hand, and at most twice as slow as the loop.
With --synthetic, builds 500 heads on 50,000 files instead and prints how long they take and how
much memory that needs, next to a tree a tenth that size.

Without --lock it composes Infernal Invocation r18's B12X, seven heads, where REPROBUILD_MIRRORS
holds a mirror of that repository, and seven made-up heads on 2,000 files where it does not.

    benchmarks/integrate.py [--repository DIR --lock FILE] [--rounds N]
    benchmarks/integrate.py --synthetic [--heads N] [--files N]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from reprobuild.adapters.git.backend import GitRepository
from reprobuild.adapters.git.plumbing import clean_environment, git_directory
from reprobuild.adapters.git.scratch import Scratch
from reprobuild.adapters.toml.load import load_project
from reprobuild.core.digest import GitOid
from reprobuild.core.integration.model import HeadSpec, Integration, IntegrationSpec, Strategy
from reprobuild.core.integration.strategies import integrate
from reprobuild.core.integration.upstream import parse_lock

FASTER, SLOWER = 10.0, 2.0
DEPTH = 100
BASE = "refs/heads/base"


@dataclass(frozen=True)
class Job:
    """What every way composes: a remote on this machine, the heads, the digest of the patch."""

    spec: IntegrationSpec
    remote: Path
    home: Path
    patch_sha256: str

    @property
    def heads(self) -> list[tuple[int, str]]:
        """Number and commit of each head."""
        return [(h.number, h.head.hex) for h in self.spec.heads]


def git(cwd: Path, *argv: str, stdin: bytes = b"", check: bool = True) -> bytes:
    """Plain git with its defaults."""
    done = subprocess.run(
        ["git", *argv],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        check=check,
        env=clean_environment(),
    )
    return done.stdout


def publish(repository: Path, spec: IntegrationSpec, home: Path) -> Path:
    """The remote that the publishers' script asks: a branch, and a ref for each pull request."""
    remote = home / "remote.git"
    git(home, "init", "--quiet", "--bare", str(remote))
    (remote / "objects/info/alternates").write_text(f"{repository}/objects\n")
    git(remote, "update-ref", "refs/heads/base", spec.base.hex)
    for head in spec.heads:
        git(remote, "update-ref", f"refs/pull/{head.number}/head", head.head.hex)
    return remote


def by_script(job: Job) -> str:
    """The publishers' script, command by command, against a remote on this machine."""
    url = f"file://{job.remote}"
    with tempfile.TemporaryDirectory() as name:
        work = Path(name) / "checkout"
        git(Path(name), "ls-remote", url, BASE)
        git(Path(name), "init", "--quiet", str(work))
        git(work, "remote", "add", "origin", url)
        git(work, "fetch", "--quiet", "--no-tags", f"--depth={DEPTH}", "origin", BASE)
        return _script(job, work, url)


def by_hand(job: Job) -> str:
    """The same with every object at hand: nothing is asked for, nothing is fetched."""
    with tempfile.TemporaryDirectory() as name:
        return _script(job, _shared(job, Path(name)), None)


def _shared(job: Job, home: Path) -> Path:
    git(home, "clone", "--quiet", "--shared", "--no-checkout", str(job.remote), "checkout")
    return home / "checkout"


def _script(job: Job, work: Path, url: str | None) -> str:
    base = job.spec.base.hex
    git(work, "checkout", "--quiet", "--detach", base)
    for number, head in job.heads:
        if url is not None:
            ref, local = f"refs/pull/{number}/head", f"refs/remotes/origin/pr-{number}"
            git(work, "ls-remote", url, ref)
            git(work, "fetch", "--quiet", "--no-tags", f"--depth={DEPTH}", "origin",
                f"{ref}:{local}")  # fmt: skip
            git(work, "rev-parse", local)
        git(work, "merge-base", "--is-ancestor", head, head)
        git(work, "merge-base", "--is-ancestor", head, base, check=False)
        _merge(work, number, head)
    git(work, "diff", "--check", base)
    tree = git(work, "write-tree").decode().strip()
    patch = git(work, "diff", "--binary", "--full-index", base)
    file = work.parent / "integration.patch"
    file.write_bytes(patch)
    git(work, "reset", "--hard", "--quiet", base)
    git(work, "clean", "-fdx", "--quiet")
    if patch:
        git(work, "apply", "--index", str(file))
    assert git(work, "write-tree").decode().strip() == tree
    assert hashlib.sha256(patch).hexdigest() == job.patch_sha256
    return tree


def _merge(work: Path, number: int, head: str) -> None:
    message = f"release composition: PR #{number}"
    git(work, "merge", "--no-ff", "--no-edit", "-m", message, head)


def by_merges(job: Job) -> str:
    """A checkout and the merges."""
    with tempfile.TemporaryDirectory() as name:
        work = _shared(job, Path(name))
        git(work, "checkout", "--quiet", "--detach", job.spec.base.hex)
        for number, head in job.heads:
            _merge(work, number, head)
        return git(work, "write-tree").decode().strip()


def by_loop(job: Job) -> str:
    """merge-tree and commit-tree, nothing else."""
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        git(here, "init", "--quiet", "--bare", ".")
        (here / "objects/info/alternates").write_text(f"{job.remote}/objects\n")
        tip, tree = job.spec.base.hex, ""
        for number, head in job.heads:
            out = git(here, "merge-tree", "--write-tree", tip, head)
            tree = out.decode().split()[0]
            made = git(here, "commit-tree", tree, "-p", tip, "-p", head, "-m", str(number))
            tip = made.decode().strip()
        return tree


def by_integrate(job: Job) -> str:
    """The resolver, as `reprobuild integrate` calls it."""
    done = compose(job.remote, job.spec)
    assert done.patch_sha256.hex == job.patch_sha256
    return done.tree.hex


def by_compose(job: Job) -> str:
    """The command, as a process."""
    with tempfile.TemporaryDirectory() as name:
        subprocess.run(
            [sys.executable, "-m", "reprobuild", "--store", str(job.home / "store"), "compose",
             str(job.home / "manifest.json"), "--output-dir", name],
            check=True, capture_output=True,
        )  # fmt: skip
        result = json.loads((Path(name) / "integration.lock.json").read_bytes())["result"]
        patch = (Path(name) / "integration.patch").read_bytes()
        assert hashlib.sha256(patch).hexdigest() == result["patch_sha256"] == job.patch_sha256
        return str(result["tree"])


def compose(repository: Path, spec: IntegrationSpec) -> Integration:
    """One integration with all that belongs to it."""
    with Scratch([repository]) as scratch:
        return integrate(GitRepository(scratch), spec)


WAYS: dict[str, Callable[[Job], str]] = {
    "script": by_script,
    "at-hand": by_hand,
    "merges": by_merges,
    "loop": by_loop,
    "integrate": by_integrate,
    "compose": by_compose,
}


def prepare(repository: Path, spec: IntegrationSpec, home: Path) -> Job:
    """The remote that is asked, the manifest that says what is wanted, and the right patch."""
    job = Job(spec, publish(repository, spec, home), home, "")
    manifest = {
        "schema_version": 1,
        "name": "benchmark",
        "repository": f"file://{job.remote}",
        "base_ref": BASE,
        "pull_requests": [{"number": number, "head": head} for number, head in job.heads],
    }
    (home / "manifest.json").write_text(json.dumps(manifest))
    return replace(job, patch_sha256=compose(repository, spec).patch_sha256.hex)


def spent() -> float:
    """CPU seconds of this process and of those that it ran."""
    used = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in used)


def against_others(repository: Path, spec: IntegrationSpec, rounds: int) -> int:
    """Times every way, in turns."""
    wall: dict[str, list[float]] = {name: [] for name in WAYS}
    cpu: dict[str, list[float]] = {name: [] for name in WAYS}
    trees = set()
    with tempfile.TemporaryDirectory() as home:
        job = prepare(repository, spec, Path(home))
        for turn in range(rounds + 1):
            for name, way in WAYS.items():
                before, started = spent(), time.perf_counter()
                trees.add(way(job))
                if turn:  # the first one warms the page cache
                    wall[name].append(time.perf_counter() - started)
                    cpu[name].append(spent() - before)
    assert len(trees) == 1, trees
    print(f"{len(spec.heads)} heads, {rounds} rounds; seconds: median (least–most)")
    for name in WAYS:
        print(f"{name:>10}   wall {_spread(wall[name])}   CPU {_spread(cpu[name])}")
    print("\nhow many times faster, round by round: by wall time; by CPU time")
    for ours in ("integrate", "compose"):
        for other in ("script", "at-hand", "merges", "loop"):
            print(f"{ours:>10} than {other:<8} {_ratio(wall, other, ours)};   "
                  f"{_ratio(cpu, other, ours)}")  # fmt: skip
    faster, slower = _times(wall, "at-hand", "integrate"), _times(wall, "integrate", "loop")
    print(f"\nintegrate is {statistics.median(faster):.1f} times faster than the script with all "
          f"at hand (at least {FASTER} wanted)")  # fmt: skip
    print(f"integrate takes {statistics.median(slower):.2f} times the bare loop (at most {SLOWER} "
          "wanted)")  # fmt: skip
    enough = statistics.median(faster) >= FASTER and statistics.median(slower) <= SLOWER
    return 0 if enough else 1


def _spread(taken: list[float]) -> str:
    return f"{statistics.median(taken):6.3f} ({min(taken):.3f}–{max(taken):.3f})"


def _times(times: dict[str, list[float]], over: str, under: str) -> list[float]:
    return [o / u for o, u in zip(times[over], times[under], strict=True)]


def _ratio(times: dict[str, list[float]], over: str, under: str) -> str:
    found = _times(times, over, under)
    return f"{statistics.median(found):5.1f} ({min(found):.1f}–{max(found):.1f})"


def synthetic(home: Path, heads: int, files: int) -> tuple[Path, IntegrationSpec]:
    """A repository of `files` files, and heads that each edit a few of them."""
    repository = home / f"{files}.git"
    git(home, "init", "--quiet", "--bare", str(repository))
    place = [f"src/m{n % 50}/p{n % 1000}/file{n}.py" for n in range(files)]
    body = "".join(f"line {n}\n" for n in range(20))
    shared = [f"shared{n}.txt" for n in range(5)]
    long = [f"entry {n}\n" for n in range(heads + 1)]
    start = {p: body + p + "\n" for p in place} | {p: "".join(long) for p in shared}
    stream = [_commit("refs/heads/main", 1, start)]
    for number in range(1, heads + 1):
        edits = {}
        for index in (number * 3 % files, number * 3 % files + 1):  # no two heads edit one file
            edits[place[index]] = start[place[index]] + f"{number}\n"
        met = [*long[:number], f"by {number}\n", *long[number + 1 :]]
        edits[shared[number % 5]] = "".join(met)  # but each meets others, at its own line
        edits[f"new/head{number}.py"] = body
        stream.append(_commit(f"refs/pull/{number}/head", number + 1, edits, "from :1\n"))
    git(repository, "fast-import", "--quiet", "--date-format=raw", stdin="".join(stream).encode())
    refs = git(repository, "for-each-ref", "--format=%(refname) %(objectname)").decode()
    found = dict(row.split(" ") for row in refs.splitlines())
    specs = tuple(
        HeadSpec(n, GitOid.parse(found[f"refs/pull/{n}/head"])) for n in range(1, heads + 1)
    )
    return repository, IntegrationSpec(
        Strategy.MERGE, GitOid.parse(found["refs/heads/main"]), specs
    )


def _commit(ref: str, mark: int, files: dict[str, str], parent: str = "") -> str:
    who = f"committer B <b@example.org> {1_600_000_000 + mark} +0000"
    rows = [f"reset {ref}\ncommit {ref}\nmark :{mark}\n{who}\ndata 1\nx\n{parent}"]
    for path, text in files.items():
        rows.append(f"M 100644 inline {path}\ndata {len(text)}\n{text}\n")
    return "".join(rows) + "\n"


def many_heads(heads: int, files: int) -> int:
    """How long, and how much memory, in a process of its own for each size of tree."""
    with tempfile.TemporaryDirectory() as name:
        for size in (files // 10, files):
            repository, spec = synthetic(Path(name), heads, size)
            child = os.fork()
            if child == 0:
                started = time.perf_counter()
                done = compose(repository, spec)
                taken = time.perf_counter() - started
                assert len(done.heads) == heads
                mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
                gits = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
                print(
                    f"{heads} heads on {size} files: {taken:.1f} s, "
                    f"peak {mine} MiB here, {gits} MiB in git",
                    flush=True,
                )
                os._exit(0)
            _, status = os.waitpid(child, 0)
            if status:
                return 1
    return 0


def published() -> tuple[Path, IntegrationSpec] | None:
    """The seven heads of a release of this project's flake, where there is a mirror for them."""
    root = os.environ.get("REPROBUILD_MIRRORS")
    places = [Path(root) / "b12x.git", *Path(root).glob("*+b12x/repo")] if root else []
    for place in places:
        if place.is_dir():
            flake = load_project(Path(__file__).resolve().parents[1]).flake
            source = flake.outputs["infernal-invocation-r18"].sources["b12x"]
            heads = tuple(HeadSpec(h.number, GitOid.parse(str(h.head))) for h in source.heads)
            base = GitOid.parse(str(source.base_commit))
            return git_directory(place), IntegrationSpec(Strategy.MERGE, base, heads)
    return None


def main() -> int:
    """Parses the call."""
    parser = argparse.ArgumentParser(description="The resolver against other ways to compose.")
    parser.add_argument("--repository", type=Path)
    parser.add_argument("--lock", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--synthetic", action="store_true")
    parser.add_argument("--heads", type=int, default=500)
    parser.add_argument("--files", type=int, default=50_000)
    options = parser.parse_args()
    if options.synthetic:
        return many_heads(options.heads, options.files)
    if options.repository is None or options.lock is None:
        found = published()
        if found is not None:
            print("Infernal Invocation r18, B12X")
            return against_others(*found, options.rounds)
        print("seven made-up heads on 2,000 files")
        with tempfile.TemporaryDirectory() as name:
            repository, spec = synthetic(Path(name), 7, 2000)
            return against_others(repository, spec, options.rounds)
    lock = parse_lock(options.lock.read_bytes(), str(options.lock))
    return against_others(git_directory(options.repository), lock.spec(), options.rounds)


if __name__ == "__main__":
    sys.exit(main())
