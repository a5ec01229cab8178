"""Composing a published lock three ways, in turns, in one run.

* checkout – what the publishers' script does: fetch from a repository on this machine, a fresh
  checkout, `git merge` for each head, the patch, and the patch applied again as a check;
* loop – the bare minimum: `git merge-tree --write-tree` and `git commit-tree` for each head;
* ours – `integrate`, with dispositions and both patch digests.

Prints medians and ratios; exits 1 unless ours is at least 10 times faster than the checkout and at
most twice as slow as the loop. With --synthetic, builds 500 heads on 50,000 files instead and
prints how long they take and how much memory that needs, next to a tree a tenth that size.

    benchmarks/integrate.py --repository DIR --lock FILE [--rounds N]
    benchmarks/integrate.py --synthetic [--heads N] [--files N]
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from reprobuild.adapters.git.backend import GitRepository
from reprobuild.adapters.git.plumbing import clean_environment, git_directory
from reprobuild.adapters.git.scratch import Scratch
from reprobuild.core.digest import GitOid
from reprobuild.core.integration.model import HeadSpec, Integration, IntegrationSpec, Strategy
from reprobuild.core.integration.strategies import integrate
from reprobuild.core.integration.upstream import parse_lock

FASTER, SLOWER = 10.0, 2.0
DEPTH = 100


def git(cwd: Path, *argv: str, stdin: bytes = b"", **env: str) -> bytes:
    """Plain git with its defaults."""
    done = subprocess.run(
        ["git", *argv],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        check=True,
        env={**clean_environment(), **env},
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


def by_checkout(remote: Path, spec: IntegrationSpec) -> str:
    """The publishers' script, command by command, against a remote on this machine.

    One thing is kinder to it: history is fetched to a depth that suffices, since mirrors may lack
    large blobs of long ago.
    """
    url = f"file://{remote}"
    with tempfile.TemporaryDirectory() as name:
        work = Path(name) / "checkout"
        git(Path(name), "ls-remote", url, "refs/heads/base")
        git(Path(name), "init", "--quiet", str(work))
        git(work, "remote", "add", "origin", url)
        git(work, "fetch", "--quiet", "--no-tags", f"--depth={DEPTH}", "origin", "refs/heads/base")
        git(work, "checkout", "--quiet", "--detach", spec.base.hex)
        for head in spec.heads:
            ref, local = f"refs/pull/{head.number}/head", f"refs/remotes/origin/pr-{head.number}"
            git(work, "ls-remote", url, ref)
            git(work, "fetch", "--quiet", "--no-tags", f"--depth={DEPTH}", "origin",
                f"{ref}:{local}")  # fmt: skip
            git(work, "rev-parse", local)
            git(work, "merge-base", "--is-ancestor", head.head.hex, head.head.hex)
            subprocess.run(
                ["git", "merge-base", "--is-ancestor", head.head.hex, spec.base.hex],
                cwd=work, env=clean_environment(), check=False,
            )  # fmt: skip
            message = f"release composition: PR #{head.number}"
            git(work, "merge", "--no-ff", "--no-edit", "-m", message, head.head.hex)
        git(work, "diff", "--check", spec.base.hex)
        tree = git(work, "write-tree").decode().strip()
        patch = git(work, "diff", "--binary", "--full-index", spec.base.hex)
        git(work, "reset", "--hard", "--quiet", spec.base.hex)
        git(work, "clean", "-fdx", "--quiet")
        if patch:
            git(work, "apply", "--index", "-", stdin=patch)
        assert git(work, "write-tree").decode().strip() == tree
        return tree


def by_loop(repository: Path, spec: IntegrationSpec) -> str:
    """merge-tree and commit-tree, nothing else."""
    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        git(here, "init", "--quiet", "--bare", ".")
        (here / "objects/info/alternates").write_text(f"{repository}/objects\n")
        tip, tree = spec.base.hex, ""
        for head in spec.heads:
            out = git(here, "merge-tree", "--write-tree", tip, head.head.hex)
            tree = out.decode().split()[0]
            made = git(
                here, "commit-tree", tree, "-p", tip, "-p", head.head.hex, "-m", str(head.number)
            )
            tip = made.decode().strip()
        return tree


def by_us(repository: Path, spec: IntegrationSpec) -> str:
    """The resolver, as `reprobuild integrate` calls it."""
    return compose(repository, spec).tree.hex


def compose(repository: Path, spec: IntegrationSpec) -> Integration:
    """One integration with all that belongs to it."""
    with Scratch([repository]) as scratch:
        return integrate(GitRepository(scratch), spec)


def against_others(repository: Path, spec: IntegrationSpec, rounds: int) -> int:
    """Times the three, in turns."""
    ways: dict[str, Callable[[Path, IntegrationSpec], str]] = {
        "checkout": by_checkout,
        "loop": by_loop,
        "ours": by_us,
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    trees = set()
    with tempfile.TemporaryDirectory() as home:
        remote = publish(repository, spec, Path(home))
        for turn in range(rounds + 1):
            for name, way in ways.items():
                started = time.perf_counter()
                trees.add(way(remote, spec))
                if turn:  # the first one warms the page cache
                    times[name].append(time.perf_counter() - started)
    assert len(trees) == 1, trees
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    for name, taken in times.items():
        spread = f"{min(taken):.3f}–{max(taken):.3f}"
        print(f"{name:>9}  median {medians[name]:.3f} s  ({spread}, {rounds} rounds)")
    faster = medians["checkout"] / medians["ours"]
    slower = medians["ours"] / medians["loop"]
    print(f"ours is {faster:.1f} times faster than the checkout (at least {FASTER} wanted)")
    print(f"ours takes {slower:.2f} times the bare loop (at most {SLOWER} wanted)")
    return 0 if faster >= FASTER and slower <= SLOWER else 1


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
        with tempfile.TemporaryDirectory() as name:
            repository, spec = synthetic(Path(name), 7, 2000)
            return against_others(repository, spec, options.rounds)
    lock = parse_lock(options.lock.read_bytes(), str(options.lock))
    return against_others(git_directory(options.repository), lock.spec(), options.rounds)


if __name__ == "__main__":
    sys.exit(main())
