"""Real releases: published locks against mirrors of the repositories that they are about.

`REPROBUILD_MIRRORS` names a directory with `b12x.git`, `sparkinfer.git`… or
`<owner>+<name>/repo`; where it also holds the publishers' `blackwell-llm-docker`, every lock that
they ever committed is replayed too.
"""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

from reprobuild.core.integration.address import repository_name
from reprobuild.core.integration.upstream import UpstreamLock, parse_lock
from support.cliin import cli
from support.gitkit import git

DATA = Path(__file__).parents[1] / "data" / "locks"
SHIPPED = sorted(DATA.glob("*.lock.json"))


def mirror(name: str) -> Path:
    """The mirror of a repository; skips the test where there is none."""
    root = os.environ.get("REPROBUILD_MIRRORS")
    if not root:
        pytest.skip("REPROBUILD_MIRRORS is not set: no mirrors of the published repositories")
    for place in (Path(root) / f"{name}.git", *Path(root).glob(f"*+{name}/repo")):
        if place.is_dir():
            return place
    pytest.skip(f"REPROBUILD_MIRRORS holds no mirror of {name}")


def needs(lock: UpstreamLock, place: Path) -> None:
    """Skips, with the reason, where the mirror is older than the lock."""
    commits = [c.hex for c in lock.spec().commits_needed() if c != lock.composition]
    if lock.composition is not None and (not lock.stack or lock.candidates):
        commits.append(lock.composition.hex)
    done = subprocess.run(
        ["git", "cat-file", "--batch-check"],
        cwd=place,
        input="\n".join(commits).encode(),
        capture_output=True,
        check=True,
    )
    absent = [row for row in done.stdout.decode().splitlines() if row.endswith(" missing")]
    if absent:
        pytest.skip(f"the mirror lacks {len(absent)} commits of this lock, the first {absent[0]}")


def check(data: bytes, name: str, tmp_path: Path) -> None:
    lock = parse_lock(data, name)
    place = mirror(repository_name(lock.repository))
    needs(lock, place)
    path = tmp_path / "x.lock.json"
    path.write_bytes(data)
    said = cli("--offline", "--json", "integrate", "--lock", str(path), "--repository", str(place))
    assert said.status == 0, said
    document = said.document
    assert document["matches"] is True
    assert document["tree"] == lock.tree.hex
    if lock.patch_sha256 is not None:
        assert document["patch_sha256"] == lock.patch_sha256.hex
    if not document["replayed"] and not lock.stack:
        assert {h["number"]: h["disposition"] for h in document["heads"]} == lock.dispositions


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.name.removesuffix(".lock.json"))
def test_published_locks(path: Path, tmp_path: Path) -> None:
    check(path.read_bytes(), path.name, tmp_path)


@cache
def _all_locks() -> list[tuple[str, bytes]]:
    place = mirror("blackwell-llm-docker")
    names = [n for n in git(place, "ls-tree", "-r", "--name-only", "HEAD").splitlines()
             if n.endswith(".lock.json")]  # fmt: skip
    return [(n, git(place, "show", f"HEAD:{n}").encode() + b"\n") for n in names]


def test_every_published_lock_can_be_read() -> None:
    for name, data in _all_locks():
        assert parse_lock(data, name).heads is not None


def test_every_published_lock_whose_commits_are_here(tmp_path: Path) -> None:
    checked: list[str] = []
    for index, (name, data) in enumerate(_all_locks()):
        if repository_name(parse_lock(data, name).repository) not in ("b12x", "sparkinfer"):
            continue
        try:
            (tmp_path / str(index)).mkdir()
            check(data, name, tmp_path / str(index))
        except pytest.skip.Exception:
            continue
        checked.append(name)
    assert len(checked) >= 40, checked


def test_a_base_that_is_not_named_is_found(tmp_path: Path) -> None:
    lock_file = DATA / "infernal-invocation-r18__b12x__integration.lock.json"
    lock = json.loads(lock_file.read_text())
    place = mirror("b12x")
    needs(parse_lock(lock_file.read_bytes(), "x"), place)
    home = tmp_path / "new"
    home.mkdir()
    assert cli("-C", str(home), "init", "--from-lock", str(lock_file)).status == 0
    flake = home / "flake-like.toml"
    text = flake.read_text().replace(f'base-commit = "{lock["base"]["commit"]}"\n', "")
    assert text != flake.read_text()
    flake.write_text(text)
    config = tmp_path / "config.toml"
    url = lock["base"]["repository"]
    config.write_text(f'[mirrors]\n"{url}" = "file://{place}"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPROBUILD_CONFIG", str(config))
        said = cli("-C", str(home), "--store", str(tmp_path / "store"), "--offline", "lock")
    assert said.status == 0, said
    pinned = (home / "flake-like.lock").read_text()
    assert f'tree = "{lock["result"]["tree"]}"' in pinned
    # several bases of the line may give the tree; the newest one is taken
    assert lock["result"]["patch_sha256"] in pinned or lock["base"]["commit"] not in pinned


def test_init_takes_every_published_lock_and_the_manifest(tmp_path: Path) -> None:
    """Needs no mirror: each file alone becomes a flake that reads."""
    files = [("--from-lock", p) for p in SHIPPED]
    files += [("--from-manifest", p) for p in sorted(DATA.glob("manifest*.json"))]
    for index, (flag, path) in enumerate(files):
        home = tmp_path / str(index)
        home.mkdir()
        assert cli("-C", str(home), "init", flag, str(path)).status == 0, path.name
        said = cli("-C", str(home), "--store", str(tmp_path / "s"), "--json", "show")
        assert said.status in (0, 4), (path.name, said)  # not locked yet, but a sound flake
