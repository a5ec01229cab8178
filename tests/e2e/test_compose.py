"""`reprobuild compose` as a drop-in: its files byte for byte, its refusals, its exit statuses."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reprobuild.core.digest import GitOid
from support.cliin import Said, cli
from support.gitkit import ENV, Composition, Origin, checkout_composition, git, merge_spec

LINES = "".join(f"line {n}\n" for n in range(1, 21))


class Release:
    """A remote with a base branch, and manifests about it."""

    def __init__(self, tmp: Path) -> None:
        self.tmp = tmp
        self.origin = Origin.make(tmp / "remote.git")
        self.base = self.origin.commit({"model.py": LINES}, ref="refs/heads/dev/release")

    def manifest(self, *numbers: int, **more: Any) -> Path:
        path = self.tmp / "manifest.json"
        path.write_text(
            json.dumps(
                {
                    "schema_version": 1,
                    "name": "test-release",
                    "repository": str(self.origin.path),
                    "base_ref": "refs/heads/dev/release",
                    "pull_requests": [
                        {"number": n, "head": self.origin.pulls[n].hex} for n in numbers
                    ],
                    **more,
                }
            )
        )
        return path

    def compose(self, manifest: Path) -> Said:
        return cli("compose", str(manifest), "--output-dir", str(self.tmp / "out"))

    @property
    def lock_file(self) -> Path:
        return self.tmp / "out" / "integration.lock.json"

    @property
    def patch(self) -> bytes:
        return (self.tmp / "out" / "integration.patch").read_bytes()

    def refused(self, manifest: Path, *phrases: str) -> Said:
        said = self.compose(manifest)
        assert said.status == 2, said
        for phrase in phrases:
            assert phrase in said.err
        assert said.out == ""
        assert not self.lock_file.exists()
        out = self.tmp / "out"
        assert not out.exists() or list(out.iterdir()) == []
        return said


@pytest.fixture
def release(tmp_path: Path) -> Release:
    return Release(tmp_path)


def test_the_lock_is_the_publishers_to_the_byte(release: Release, tmp_path: Path) -> None:
    head = release.origin.pull(1, {"feature.py": "feature\n"}, [release.base])
    manifest = release.manifest(1)
    said = release.compose(manifest)
    assert said.status == 0, said.err
    spec = merge_spec(release.origin, release.base, 1)
    expected = checkout_composition(release.origin.path, spec, tmp_path / "work")
    assert isinstance(expected, Composition)
    lock = {
        "base": {
            "commit": release.base.hex,
            "ref": "refs/heads/dev/release",
            "repository": str(release.origin.path),
        },
        "composition": None,
        "composition_strategy": "merge",
        "manifest": {"sha256": hashlib.sha256(manifest.read_bytes()).hexdigest()},
        "name": "test-release",
        "pull_requests": [
            {
                "commits": [head.hex],
                "disposition": "merged",
                "head": head.hex,
                "number": 1,
                "ref": "refs/pull/1/head",
                "title": "",
            }
        ],
        "result": {
            "patch": "integration.patch",
            "patch_sha256": expected.patch_sha256,
            "tree": expected.tree,
        },
        "schema_version": 1,
        "source_patches": [],
    }
    assert release.lock_file.read_text() == json.dumps(lock, indent=2, sort_keys=True) + "\n"
    assert release.patch == expected.patch
    assert said.out == json.dumps(lock, sort_keys=True) + "\n"
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "integration.lock.json",
        "integration.patch",
    ]


def test_titles_are_escaped_as_the_publishers_script_does(release: Release) -> None:
    head = release.origin.pull(1, {"f": "f\n"}, [release.base])
    entry = {"number": 1, "head": head.hex, "title": "Größe – “x”"}
    said = release.compose(release.manifest(pull_requests=[entry]))
    assert said.status == 0
    assert "Gr\\u00f6\\u00dfe" in release.lock_file.read_text()
    assert said.document["pull_requests"][0]["title"] == "Größe – “x”"


def test_json_changes_nothing(release: Release) -> None:
    release.origin.pull(1, {"f": "f\n"}, [release.base])
    manifest = release.manifest(1)
    plain = release.compose(manifest)
    first = release.lock_file.read_bytes()
    said = cli("--json", "compose", str(manifest), "--output-dir", str(release.tmp / "out"))
    assert said.out == plain.out
    assert release.lock_file.read_bytes() == first


def test_the_base_is_where_the_branch_is(release: Release) -> None:
    release.origin.pull(1, {"feature.py": "feature\n"}, [release.base])
    newer = release.origin.commit(
        {"update.py": "u\n"}, [release.base], ref="refs/heads/dev/release"
    )
    said = release.compose(release.manifest(1))
    assert said.document["base"]["commit"] == newer.hex
    replay = release.tmp / "replay"
    git(release.tmp, "clone", "--quiet", "--no-checkout", str(release.origin.path), str(replay))
    git(replay, "checkout", "--quiet", "--detach", newer.hex)
    git(replay, "apply", "--index", str(release.tmp / "out" / "integration.patch"))
    assert git(replay, "write-tree") == said.document["result"]["tree"]


def test_no_heads_give_an_empty_patch(release: Release) -> None:
    said = release.compose(release.manifest())
    assert said.status == 0
    assert release.patch == b""
    assert said.document["result"]["tree"] == release.origin.tree(release.base).hex


def test_already_in_base(release: Release) -> None:
    release.origin.pulls[1] = release.base
    git(release.origin.path, "update-ref", "refs/pull/1/head", release.base.hex)
    said = release.compose(release.manifest(1))
    assert said.document["pull_requests"][0]["disposition"] == "already_in_base"


def test_cherry_picks_default_to_the_head_alone(release: Release) -> None:
    one = release.origin.commit({"one.py": "1\n"}, [release.base])
    head = release.origin.pull(1, {"two.py": "2\n"}, [one])
    said = release.compose(release.manifest(1, composition_strategy="cherry_pick"))
    assert said.status == 0, said.err
    entry = said.document["pull_requests"][0]
    assert (entry["commits"], entry["disposition"]) == ([head.hex], "cherry_picked")
    assert b"two.py" in release.patch and b"one.py" not in release.patch


def test_pinned_branch(release: Release) -> None:
    release.origin.pull(1, {"f": "f\n"}, [release.base])
    composed = release.origin.commit({"f": "f\n"}, [release.base], ref="refs/heads/composed")
    more = {
        "composition_strategy": "pinned_branch",
        "composition_ref": "refs/heads/composed",
        "composition_commit": composed.hex,
    }
    said = release.compose(release.manifest(1, **more))
    assert said.document["composition"] == {"ref": "refs/heads/composed", "commit": composed.hex}
    assert said.document["pull_requests"][0]["disposition"] == "recorded_in_composition"
    assert said.document["result"]["tree"] == release.origin.tree(composed).hex
    git(release.origin.path, "update-ref", "refs/heads/composed", release.base.hex)
    again = release.compose(release.manifest(1, **more))
    assert again.status == 2
    assert "composition branch moved" in again.err


def test_refusals_speak_the_publishers_words(release: Release) -> None:
    origin, base = release.origin, release.base
    origin.pull(1, {"model.py": "first\n"}, [base])
    origin.pull(2, {"model.py": "second\n"}, [base])
    stranger = origin.commit({"s": "s\n"}, [base])
    git(origin.path, "update-ref", "refs/heads/stray", origin.commit({"x": "x\n"}).hex)
    stray = git(origin.path, "rev-parse", "refs/heads/stray")
    zero = {"number": 1, "head": "0" * 40}
    listed = {"number": 1, "head": origin.pulls[1].hex, "commits": [stranger.hex]}
    release.refused(release.manifest(pull_requests=[zero]), "PR #1 moved: manifest pins 000000")
    release.refused(
        release.manifest(1, 2),
        "PR #2 conflicts with the clean stack",
        "model.py",
        "init --from-manifest",
    )
    release.refused(
        release.manifest(pull_requests=[listed], composition_strategy="cherry_pick"),
        f"PR #1 does not contain declared commit {stranger}",
    )
    release.refused(
        release.manifest(
            composition_strategy="pinned_branch",
            composition_ref="refs/heads/stray",
            composition_commit=stray,
        ),
        f"composition commit {stray} does not descend from base {base}",
    )
    patch = release.tmp / "p.patch"
    patch.write_text("not a patch\n")
    digest = hashlib.sha256(patch.read_bytes()).hexdigest()
    release.refused(
        release.manifest(source_patches=[{"path": "p.patch", "sha256": "0" * 64}]),
        "source patch #1 digest mismatch",
    )
    release.refused(
        release.manifest(source_patches=[{"path": "p.patch", "sha256": digest}]),
        "source patch #1 does not apply to the composed tree",
    )
    release.refused(
        release.manifest(source_patches=[{"path": "gone.patch", "sha256": digest}]),
        "does not exist",
    )


def test_a_head_before_the_moved_one_is_judged_first(release: Release) -> None:
    origin, base = release.origin, release.base
    origin.pull(1, {"model.py": "first\n"}, [base])
    origin.pull(2, {"model.py": "second\n"}, [base])
    entries = [
        {"number": 1, "head": origin.pulls[1].hex},
        {"number": 2, "head": origin.pulls[2].hex},
        {"number": 3, "head": "0" * 40},
    ]
    git(origin.path, "update-ref", "refs/pull/3/head", base.hex)
    release.refused(release.manifest(pull_requests=entries), "PR #2 conflicts")


def test_whitespace_errors_and_conflict_markers_are_refused(release: Release) -> None:
    release.origin.pull(1, {"w.py": "x = 1   \n"}, [release.base])
    release.refused(release.manifest(1), "git diff --check", "trailing whitespace")


def test_a_patch_that_does_not_give_the_tree_again_is_refused_without_a_trace(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reprobuild.adapters.git.backend import GitRepository

    release.origin.pull(1, {"f": "f\n"}, [release.base])
    monkeypatch.setattr(GitRepository, "apply_patch", lambda self, tree, patch: tree)
    release.refused(release.manifest(1), "patch verification produced tree")


def test_an_old_lock_survives_a_refusal(release: Release) -> None:
    release.origin.pull(1, {"f": "f\n"}, [release.base])
    release.compose(release.manifest(1))
    before = release.lock_file.read_bytes()
    entry = {"number": 1, "head": "0" * 40}
    assert release.compose(release.manifest(pull_requests=[entry])).status == 2
    assert release.lock_file.read_bytes() == before


def test_source_patches_stand_in_the_lock_as_they_were_given(release: Release) -> None:
    patched = release.origin.commit({"model.py": LINES + "patched\n"}, [release.base])
    text = git(release.origin.path, "diff", "--binary", release.base.hex, patched.hex) + "\n"
    (release.tmp / "patches").mkdir()
    (release.tmp / "patches" / "a.patch").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    entry = {"path": "patches/a.patch", "sha256": digest, "title": "A patch"}
    said = release.compose(release.manifest(source_patches=[entry]))
    assert said.document["source_patches"] == [entry]
    assert said.document["result"]["tree"] == release.origin.tree(patched).hex


def test_moved_says_what_accepts_it_in_json(release: Release) -> None:
    release.origin.pull(1, {"f": "f\n"}, [release.base])
    manifest = release.manifest(pull_requests=[{"number": 1, "head": release.base.hex}])
    said = cli("--json", "compose", str(manifest), "--output-dir", str(release.tmp / "out"))
    assert said.status == 2
    error = said.document["error"]
    assert error["code"] == "E-HEAD-MOVED"
    assert error["facts"]["pull_request"] == 1
    assert error["facts"]["got"] == release.origin.pulls[1].hex


def test_moved_shows_what_changed(release: Release) -> None:
    old = release.origin.pull(1, {"f": LINES + "old\n"}, [release.base], "Add f")
    release.origin.pull(1, {"f": LINES + "new\n"}, [release.base], "Add f")
    manifest = release.manifest(pull_requests=[{"number": 1, "head": old.hex}])
    said = release.refused(manifest, "PR #1 moved")
    assert "range_diff" in said.err and "-+old" in said.err and "++new" in said.err


def test_a_manifest_that_is_not_there_and_one_that_is_no_json(release: Release) -> None:
    release.refused(release.tmp / "gone.json", "cannot read")
    bad = release.tmp / "bad.json"
    bad.write_text("{")
    release.refused(bad, "cannot read")


def test_the_output_directory_cannot_be_made(release: Release) -> None:
    release.origin.pull(1, {"f": "f\n"}, [release.base])
    manifest = release.manifest(1)
    (release.tmp / "out").write_text("a file")
    said = release.compose(manifest)
    assert said.status == 10
    assert "E-WRITE" in said.err
    assert (release.tmp / "out").read_text() == "a file"


def test_nothing_but_the_local_repository_is_asked(release: Release) -> None:
    release.origin.pull(1, {"f": "f\n"}, [release.base])
    said = cli(
        "--offline", "compose", str(release.manifest(1)), "--output-dir", str(release.tmp / "out")
    )
    assert said.status == 0


def test_a_remote_repository_needs_the_network(release: Release) -> None:
    manifest = release.manifest(repository="https://forge.invalid/x/y.git")
    said = cli("--offline", "compose", str(manifest), "--output-dir", str(release.tmp / "out"))
    assert said.status == 2
    assert "E-OFFLINE" in said.err


def test_as_a_process_two_runs_are_identical(release: Release) -> None:
    release.origin.pull(1, {"f": "f\n"}, [release.base])
    manifest = release.manifest(1)
    answers = []
    for name in ("one", "two"):
        done = subprocess.run(
            [sys.executable, "-m", "reprobuild", "compose", str(manifest), "--output-dir",
             str(release.tmp / name)],
            capture_output=True, check=True, env=ENV, cwd="/",
        )  # fmt: skip
        files = sorted((release.tmp / name).iterdir())
        answers.append([done.stdout, *(f.read_bytes() for f in files)])
    assert answers[0] == answers[1]
    assert GitOid.parse(json.loads(answers[0][0])["base"]["commit"]) == release.base
