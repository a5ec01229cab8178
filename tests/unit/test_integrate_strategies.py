"""Each strategy and each disposition, on repositories made here; a checkout is the oracle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reprobuild.core.digest import GitOid, Sha256
from reprobuild.core.integration.model import (
    Disposition,
    HeadSpec,
    IntegrationSpec,
    SourcePatch,
    Strategy,
)
from reprobuild.core.integration.strategies import integrate
from reprobuild.errors import ReprobuildError
from support.gitkit import Composition, Origin, checkout_composition, git, merge_spec, opened

LINES = "".join(f"line {n}\n" for n in range(1, 21))


def changed(**lines: str) -> str:
    """LINES with some replaced: `changed(_3="x")`."""
    out = LINES.splitlines(keepends=True)
    for key, text in lines.items():
        out[int(key[1:]) - 1] = text + "\n"
    return "".join(out)


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    return Origin.make(tmp_path / "origin.git")


def agree(origin: Origin, spec: IntegrationSpec, tmp_path: Path) -> Composition:
    """Integrates and compares with a checkout."""
    expected = checkout_composition(origin.path, spec, tmp_path / "work")
    assert isinstance(expected, Composition)
    with opened(origin.path) as repository:
        done = integrate(repository, spec)
    assert done.tree.hex == expected.tree
    assert done.patch_sha256.hex == expected.patch_sha256
    return expected


def test_ordered_merges_give_the_checkouts_tree_and_patch(origin: Origin, tmp_path: Path) -> None:
    base = origin.commit({"a.py": LINES, "b/c.py": LINES}, ref="refs/heads/main")
    later = origin.commit({"b/c.py": changed(_20="newer")}, [base], ref="refs/heads/main")
    origin.pull(1, {"a.py": changed(_1="one")}, [base])
    origin.pull(2, {"a.py": changed(_20="two"), "new/file": "x\n"}, [base])
    origin.pull(3, {"b/c.py": changed(_2="three"), "a.py": changed(_1="one")}, [origin.pulls[1]])
    agree(origin, merge_spec(origin, later, 1, 2, 3), tmp_path)


def test_renames_modes_links_and_binaries(origin: Origin, tmp_path: Path) -> None:
    data = bytes(range(256)) * 20
    base = origin.commit({"old/name.py": LINES, "bin": data, "run.sh": "#!/bin/sh\n"})
    origin.commit({}, [base], ref="refs/heads/main")
    origin.pull(1, {"old/name.py": None, "new/name.py": changed(_9="moved")}, [base])
    origin.pull(2, {"old/name.py": changed(_1="edited")}, [base])
    origin.pull(3, {"run.sh": (0o100755, b"#!/bin/sh\n"), "ln": (0o120000, b"run.sh")}, [base])
    origin.pull(4, {"bin": data[::-1]}, [base])
    expected = agree(origin, merge_spec(origin, base, 1, 2, 3, 4), tmp_path)
    listing = git(tmp_path / "work", "ls-tree", "-r", expected.tree)
    assert "new/name.py" in listing and "old/name.py" not in listing
    assert "100755" in listing and "120000" in listing
    assert b"GIT binary patch" in expected.patch


def test_dispositions_of_merging(origin: Origin) -> None:
    start = origin.commit({"a": LINES})
    old = origin.pull(1, {"a": changed(_1="one")}, [start])
    base = origin.commit({"b": "b\n"}, [old])
    origin.pull(2, {"c": "c\n"}, [base])
    origin.pull(3, {"c": "c\nc\n"}, [origin.pulls[2]])
    origin.pulls[4] = origin.pulls[2]
    spec = merge_spec(origin, base, 1, 3, 4)
    with opened(origin.path) as repository:
        done = integrate(repository, spec)
    kinds = [(h.number, h.disposition, h.contained_in) for h in done.heads]
    assert kinds == [
        (1, Disposition.ALREADY_IN_BASE, 0),
        (3, Disposition.MERGED, 0),
        (4, Disposition.MERGED, 3),
    ]


def test_squashed_in_base_is_remarked_and_the_head_still_merged(origin: Origin) -> None:
    start = origin.commit({"a": LINES})
    origin.pull(1, {"a": changed(_2="two")}, [start])
    origin.pull(2, {"a": changed(_2="two", _3="three")}, [origin.pulls[1]])
    base = origin.commit({"a": changed(_2="two"), "z": "z\n"}, [start])  # 1 squash-merged
    with opened(origin.path) as repository:
        done = integrate(repository, merge_spec(origin, base, 1, 2))
        assert [h.squashed_in_base for h in done.heads] == [True, False]
        assert [h.disposition for h in done.heads] == [Disposition.MERGED, Disposition.MERGED]
        entry = repository.entry(done.tree, b"a")
        assert entry is not None
        assert repository.read_blob(entry.oid) == changed(_2="two", _3="three").encode()


def test_an_absorbed_head_that_is_skipped_would_make_its_successor_conflict(
    origin: Origin,
) -> None:
    start = origin.commit({"a": LINES})
    origin.pull(1, {"a": changed(_2="two")}, [start])
    origin.pull(2, {"a": changed(_2="two and more")}, [origin.pulls[1]])
    squashed = origin.commit({"a": changed(_2="two")}, [start])
    base = origin.commit({"q": "q\n"}, [squashed])
    with opened(origin.path) as repository:
        whole = integrate(repository, merge_spec(origin, base, 1, 2))
        assert whole.heads[0].squashed_in_base
        with pytest.raises(ReprobuildError) as caught:
            integrate(repository, merge_spec(origin, base, 2))
    assert caught.value.code == "E-CONFLICT"


def test_a_head_that_changes_nothing_is_not_squashed(origin: Origin) -> None:
    base = origin.commit({"a": LINES})
    origin.pull(1, {}, [base])
    with opened(origin.path) as repository:
        done = integrate(repository, merge_spec(origin, base, 1))
    assert not done.heads[0].squashed_in_base
    assert done.tree == done.base_tree
    assert done.patch_sha256 == Sha256(
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )


def test_a_conflict_names_the_pull_request_and_the_path(origin: Origin) -> None:
    base = origin.commit({"model.py": "base\n"})
    origin.pull(1, {"model.py": "first\n"}, [base])
    origin.pull(2, {"model.py": "second\n"}, [base])
    with opened(origin.path) as repository, pytest.raises(ReprobuildError) as caught:
        integrate(repository, merge_spec(origin, base, 1, 2))
    assert "PR #2 conflicts with the clean stack" in caught.value.message
    assert caught.value.facts["pull_request"] == 2
    assert caught.value.facts["paths"] == ["model.py"]
    assert caught.value.exit_status == 4


def test_cherry_picks_of_listed_commits(origin: Origin, tmp_path: Path) -> None:
    start = origin.commit({"a": LINES, "b": "b\n"})
    base = origin.commit({"a": changed(_20="end")}, [start], ref="refs/heads/main")
    one = origin.commit({"a": changed(_1="one")}, [start])
    two = origin.commit({"noise": "n\n"}, [one])
    head = origin.pull(7, {"b": "bb\n"}, [two])
    spec = IntegrationSpec(Strategy.CHERRY_PICK, base, (HeadSpec(7, head, commits=(one, head)),))
    expected = agree(origin, spec, tmp_path)
    assert b"noise" not in expected.patch
    with opened(origin.path) as repository:
        done = integrate(repository, spec)
    assert done.heads[0].disposition is Disposition.CHERRY_PICKED
    assert done.heads[0].commits == (one, head)


def test_cherry_pick_takes_the_heads_own_range(origin: Origin, tmp_path: Path) -> None:
    start = origin.commit({"a": LINES})
    base = origin.commit({"a": changed(_20="end")}, [start], ref="refs/heads/main")
    one = origin.commit({"a": changed(_1="one")}, [start])
    two = origin.commit({"b": "b\n"}, [one])
    head = origin.pull(7, {"c": "c\n"}, [two])
    spec = IntegrationSpec(Strategy.CHERRY_PICK, base, (HeadSpec(7, head),))
    with opened(origin.path) as repository:
        done = integrate(repository, spec)
    assert done.heads[0].commits == (one, two, head)
    listed = replace(spec, heads=(HeadSpec(7, head, commits=(one, two, head)),))
    assert agree(origin, listed, tmp_path).tree == done.tree.hex


def test_cherry_pick_of_a_root_commit(origin: Origin) -> None:
    base = origin.commit({"a": "a\n"})
    head = origin.commit({"b": "b\n"}, [], ref="refs/pull/1/head")
    spec = IntegrationSpec(Strategy.CHERRY_PICK, base, (HeadSpec(1, head, commits=(head,)),))
    with opened(origin.path) as repository:
        done = integrate(repository, spec)
    assert done.tree == origin.tree(origin.commit({"a": "a\n", "b": "b\n"}))


def test_cherry_pick_refuses_merges_and_what_is_there_already(origin: Origin) -> None:
    start = origin.commit({"a": LINES})
    base = origin.commit({"a": changed(_1="one")}, [start])
    same = origin.commit({"a": changed(_1="one")}, [start])
    side = origin.commit({"b": "b\n"}, [start])
    merge = origin.commit({"b": "b\n"}, [same, side])
    for commits, code in (((same,), "E-CONFLICT"), ((merge,), "E-INTEGRATION")):
        spec = IntegrationSpec(Strategy.CHERRY_PICK, base, (HeadSpec(1, merge, commits=commits),))
        with opened(origin.path) as repository, pytest.raises(ReprobuildError) as caught:
            integrate(repository, spec)
        assert caught.value.code == code
        assert "PR #1 commit" in caught.value.message


def test_a_range_with_a_merge_says_what_is_left_without_it(origin: Origin) -> None:
    base = origin.commit({"a": LINES}, ref="refs/heads/main")
    one = origin.commit({"b": "b\n"}, [base])
    side = origin.commit({"c": "c\n"}, [base])
    merge = origin.commit({"c": "c\n"}, [one, side])
    head = origin.pull(1, {"d": "d\n"}, [merge])
    spec = IntegrationSpec(Strategy.CHERRY_PICK, base, (HeadSpec(1, head),))
    with opened(origin.path) as repository:
        with pytest.raises(ReprobuildError) as caught:
            integrate(repository, spec)
        left = caught.value.facts["without_merges"]
        assert isinstance(left, list)
        assert set(left) == {one.hex, side.hex, head.hex} and left[-1] == head.hex
        assert caught.value.facts["commit"] == merge.hex
        picked = tuple(GitOid.parse(str(c)) for c in left)
        again = replace(spec, heads=(HeadSpec(1, head, commits=picked),))
        assert integrate(repository, again).tree == origin.tree(head)


def test_cherry_pick_of_commits_that_the_base_has(origin: Origin) -> None:
    head = origin.commit({"a": LINES}, ref="refs/pull/1/head")
    base = origin.commit({"b": "b\n"}, [head])
    spec = IntegrationSpec(Strategy.CHERRY_PICK, base, (HeadSpec(1, head, commits=(head,)),))
    with opened(origin.path) as repository:
        done = integrate(repository, spec)
    assert done.heads[0].disposition is Disposition.ALREADY_IN_BASE


def test_declared_commits_must_belong_to_the_head(origin: Origin) -> None:
    base = origin.commit({"a": LINES})
    stranger = origin.commit({"s": "s\n"}, [base])
    head = origin.pull(1, {"b": "b\n"}, [base])
    spec = IntegrationSpec(Strategy.CHERRY_PICK, base, (HeadSpec(1, head, commits=(stranger,)),))
    with opened(origin.path) as repository, pytest.raises(ReprobuildError) as caught:
        integrate(repository, spec)
    assert f"PR #1 does not contain declared commit {stranger}" in caught.value.message
    assert caught.value.code == "E-ANCESTRY"


def test_pinned_branch_records_its_tree(origin: Origin) -> None:
    base = origin.commit({"a": LINES})
    head = origin.pull(1, {"b": "b\n"}, [base])
    composed = origin.commit({"b": "b\n"}, [base])
    spec = IntegrationSpec(
        Strategy.PINNED_BRANCH,
        base,
        (HeadSpec(1, head),),
        composition=composed,
        composition_ref="refs/heads/release",
    )
    with opened(origin.path) as repository:
        done = integrate(repository, spec)
    assert done.tree == origin.tree(composed)
    assert done.heads[0].disposition is Disposition.RECORDED_IN_COMPOSITION


def test_pinned_branch_must_descend_from_the_base(origin: Origin) -> None:
    base = origin.commit({"a": LINES})
    stranger = origin.commit({"s": "s\n"})
    spec = IntegrationSpec(Strategy.PINNED_BRANCH, base, composition=stranger)
    with opened(origin.path) as repository, pytest.raises(ReprobuildError) as caught:
        integrate(repository, spec)
    assert f"composition commit {stranger} does not descend from base {base}" in (
        caught.value.message
    )


def _stack(origin: Origin) -> tuple[GitOid, list[HeadSpec], GitOid]:
    base = origin.commit({"a": LINES})
    here, specs = base, []
    for number in (1, 2, 3):
        head = origin.pull(number, {f"f{number}": "x\n"}, [base])
        here = origin.commit({f"f{number}": "x\n"}, [here, head])
        specs.append(HeadSpec(number, head, merge_commit=here))
    return base, specs, here


def test_the_merge_stack_check_walks_first_parents(origin: Origin) -> None:
    base, specs, tip = _stack(origin)
    good = IntegrationSpec(
        Strategy.PINNED_BRANCH, base, tuple(specs), composition=tip, merge_stack=True
    )
    with opened(origin.path) as repository:
        assert integrate(repository, good).tree == origin.tree(tip)
    octopus = origin.commit({}, [tip, specs[0].head, specs[1].head])
    extra = origin.commit({"evil": "x\n"}, [tip])
    wrong = {
        "order": replace(good, heads=(specs[1], specs[0], specs[2])),
        "order, without merge commits": replace(
            good, heads=tuple(HeadSpec(s.number, s.head) for s in (specs[1], specs[0], specs[2]))
        ),
        "one too few": replace(good, heads=tuple(specs[1:])),
        "one too many": replace(good, heads=(HeadSpec(9, base), *specs)),
        "another merge commit": replace(
            good, heads=(*specs[:2], replace(specs[2], merge_commit=base))
        ),
        "a commit on top": replace(good, composition=extra),
        "an octopus": replace(good, composition=octopus),
    }
    for name, spec in wrong.items():
        with opened(origin.path) as repository, pytest.raises(ReprobuildError) as caught:
            integrate(repository, spec)
        assert caught.value.code == "E-ANCESTRY", name


def test_source_patches_come_last_and_are_pinned(origin: Origin) -> None:
    base = origin.commit({"a": LINES})
    origin.pull(1, {"b": "b\n"}, [base])
    patched = origin.commit({"a": changed(_5="patched")}, [base])
    patch = (git(origin.path, "diff", "--binary", base.hex, patched.hex) + "\n").encode()
    import hashlib

    digest = Sha256(hashlib.sha256(patch).hexdigest())
    spec = replace(merge_spec(origin, base, 1), patches=(SourcePatch("p.patch", digest),))
    with opened(origin.path) as repository:
        done = integrate(repository, spec, lambda path: patch)
        entry = repository.entry(done.tree, b"a")
        assert entry is not None
        assert repository.read_blob(entry.oid) == changed(_5="patched").encode()
        with pytest.raises(ReprobuildError, match="source patch #1 digest mismatch"):
            integrate(repository, spec, lambda path: patch + b"\n")
        bad = patch.replace(b"line 4", b"line four")
        broken = replace(
            spec, patches=(SourcePatch("p.patch", Sha256(hashlib.sha256(bad).hexdigest())),)
        )
        with pytest.raises(ReprobuildError, match="source patch #1 does not apply"):
            integrate(repository, broken, lambda path: bad)


def test_missing_commits_are_named_with_their_pull_request(origin: Origin) -> None:
    base = origin.commit({"a": LINES})
    ghost = GitOid("1" * 40)
    spec = IntegrationSpec(Strategy.MERGE, base, (HeadSpec(42, ghost),))
    with opened(origin.path) as repository, pytest.raises(ReprobuildError) as caught:
        integrate(repository, spec)
    assert f"{ghost} (PR #42)" in caught.value.message
    assert caught.value.code == "E-GIT-MISSING-OBJECT"


def test_unrelated_histories_are_a_conflict_of_that_head(origin: Origin) -> None:
    base = origin.commit({"a": LINES})
    origin.pulls[1] = origin.commit({"b": "b\n"}, [])
    with opened(origin.path) as repository, pytest.raises(ReprobuildError) as caught:
        integrate(repository, merge_spec(origin, base, 1))
    assert "PR #1 conflicts with the clean stack: refusing to merge unrelated" in (
        caught.value.message
    )


def test_a_spec_survives_its_document() -> None:
    oid = GitOid("a" * 40)
    spec = IntegrationSpec(
        Strategy.CHERRY_PICK,
        oid,
        (HeadSpec(1, GitOid("b" * 40), "title", "refs/heads/x", (oid,)),),
        (SourcePatch("p/q.patch", Sha256("c" * 64), "t"),),
    )
    assert IntegrationSpec.parse(spec.document()) == spec
