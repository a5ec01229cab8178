"""git processes at the same time; contents of files merged alone; patches in pieces."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprobuild.adapters.git import difftext
from reprobuild.adapters.git import mergers as mergers_module
from reprobuild.adapters.git.backend import GitRepository
from reprobuild.adapters.git.background import aside, shared_out
from reprobuild.adapters.git.mergers import Mergers
from reprobuild.core.digest import GitOid
from reprobuild.core.integration.backend import MergeOutcome
from reprobuild.core.integration.model import HeadSpec, IntegrationSpec, Strategy
from reprobuild.core.integration.strategies import integrate
from reprobuild.errors import ReprobuildError
from support.gitkit import (
    Composition,
    Origin,
    checkout_composition,
    heads,
    merge_spec,
    opened,
)

LINES = "".join(f"line {n}\n" for n in range(1, 41))


def changed(line: int, text: str, start: str = LINES) -> str:
    rows = start.splitlines(keepends=True)
    rows[line - 1] = text + "\n"
    return "".join(rows)


@given(st.lists(st.integers(0, 1000), max_size=12), st.integers(1, 5))
def test_weights_are_shared_out_wholly_and_evenly(weights: list[int], most: int) -> None:
    groups = shared_out(weights, most)
    assert sorted(i for group in groups for i in group) == list(range(len(weights)))
    assert len(groups) == min(most, len(weights))
    assert all(groups)
    sums = [sum(weights[i] + 1 for i in group) for group in groups]
    assert not sums or max(sums) - min(sums) <= max(weights) + 1


def _versions(origin: Origin) -> tuple[GitOid, list[GitOid]]:
    """A commit, and children of it that each edit a line of their own."""
    root = origin.commit({"a": LINES})
    return root, [origin.commit({"a": changed(n, f"by {n}")}, [root]) for n in (1, 10, 20, 30)]


def _answers(
    repository: GitRepository, pairs: list[tuple[GitOid, GitOid]], *, last: bool
) -> list[MergeOutcome | None]:
    """One process, asked one pair after the other."""
    found: list[MergeOutcome | None] = []
    with Mergers[int](repository.scratch) as mergers:
        merger = mergers.merger()
        mergers.ask(merger, *pairs[0], 0, last=last)
        for job, outcome in mergers.answers():
            found.append(outcome)
            if job + 1 < len(pairs):
                mergers.ask(merger, *pairs[job + 1], job + 1, last=last)
    return found


@pytest.mark.parametrize("sha256", [False, True])
def test_one_process_answers_one_question_after_the_other(tmp_path: Path, sha256: bool) -> None:
    origin = Origin.make(tmp_path / "origin.git", sha256=sha256)
    root, edits = _versions(origin)
    clash = origin.commit({"a": changed(1, "else"), "x" * 200: "x\n"}, [root])
    pairs = [(edits[0], edits[1]), (edits[0], clash), (edits[2], edits[3]), (edits[0], edits[3])]
    with opened(origin.path, sha256=sha256) as repository:
        expected = [repository.merge(*pair) for pair in pairs]
        found = _answers(repository, pairs, last=False)
    assert [(o.tree, o.clean, o.conflicts) for o in found if o] == [
        (o.tree, o.clean, o.conflicts) for o in expected
    ]
    assert [o.clean for o in expected] == [True, False, True, True]


def test_an_answer_that_stays_behind_comes_when_the_input_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mergers_module, "_push", lambda *_: "")
    monkeypatch.setattr(mergers_module, "_PATIENCE", 0.2)
    origin = Origin.make(tmp_path / "origin.git")
    _, edits = _versions(origin)
    pairs = [(edits[0], edits[1]), (edits[0], edits[2]), (edits[0], edits[3])]
    with opened(origin.path) as repository:
        expected = [repository.merge(*pair).tree for pair in pairs]
        assert [o and o.tree for o in _answers(repository, pairs, last=False)] == expected
        assert [o and o.tree for o in _answers(repository, pairs, last=True)] == expected


def test_a_merge_that_fails_takes_no_other_with_it(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    _, edits = _versions(origin)
    absent = GitOid("1" * 40)
    pairs = [(edits[0], edits[1]), (edits[0], absent), (edits[0], edits[2])]
    with opened(origin.path) as repository:
        found = _answers(repository, pairs, last=False)
    assert [o is not None for o in found] == [True, False, True]


def test_mergers_that_are_left_leave_nobody_at_work(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    _, edits = _versions(origin)
    with opened(origin.path) as repository:
        mergers = Mergers[str](repository.scratch)
        merger = mergers.merger()
        with pytest.raises(KeyboardInterrupt), mergers:
            mergers.ask(merger, edits[0], edits[1], "nobody waits for it", last=False)
            started = [merger._process]
            assert [p.poll() for p in started if p] == [None]
            raise KeyboardInterrupt
        assert all(p is not None and p.returncode is not None for p in started)


def test_what_fails_aside_is_raised_where_its_result_is_asked_for(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    with opened(origin.path) as repository:
        env, root = repository.scratch.env, repository.scratch.root
        with aside(["cat-file", "blob", "1" * 40], env=env, cwd=root, directory=root) as result:
            with pytest.raises(ReprobuildError) as caught:
                result()
            assert caught.value.code in ("E-GIT", "E-GIT-MISSING-OBJECT")
        with aside(["version"], env=env, cwd=root, directory=root) as result:
            assert result().read().startswith(b"git version ")


@pytest.fixture
def no_whole_merge(monkeypatch: pytest.MonkeyPatch) -> list[tuple[GitOid, GitOid]]:
    """Counts the merges that git was handed as a whole."""
    seen: list[tuple[GitOid, GitOid]] = []
    whole = GitRepository._merge

    def counted(self: GitRepository, ours: GitOid, theirs: GitOid) -> MergeOutcome:
        seen.append((ours, theirs))
        return whole(self, ours, theirs)

    monkeypatch.setattr(GitRepository, "_merge", counted)
    return seen


def _stack(origin: Origin, *, attributes: str = "") -> GitOid:
    files: dict[str | bytes, str | bytes | tuple[int, bytes] | None] = {
        "deep/er/a.py": LINES,
        "b.py": LINES,
        "c": "c\n",
    }
    if attributes:
        files["deep/.gitattributes"] = attributes
    base = origin.commit(files, ref="refs/heads/main")
    origin.pull(1, {"deep/er/a.py": changed(1, "one"), "b.py": changed(40, "one")}, [base])
    origin.pull(2, {"deep/er/a.py": changed(20, "two"), "b.py": changed(1, "two")}, [base])
    origin.pull(3, {"deep/er/a.py": (0o100755, changed(40, "three").encode()), "d": "d\n"}, [base])
    origin.pull(4, {"b.py": changed(20, "four"), "c": None}, [base])
    return base


@pytest.mark.parametrize("sha256", [False, True])
@pytest.mark.parametrize("attributes", ["", "*.py diff=python\n", "er/*.py merge=union\n"])
def test_files_that_heads_share_are_merged_alone(
    tmp_path: Path,
    no_whole_merge: list[tuple[GitOid, GitOid]],
    attributes: str,
    sha256: bool,
) -> None:
    origin = Origin.make(tmp_path / "origin.git", sha256=sha256)
    base = _stack(origin, attributes=attributes)
    spec = merge_spec(origin, base, 1, 2, 3, 4)
    expected = checkout_composition(origin.path, spec, tmp_path / "work")
    assert isinstance(expected, Composition)
    with opened(origin.path, sha256=sha256) as repository:
        done = integrate(repository, spec)
    assert (done.tree.hex, done.patch_sha256.hex) == (expected.tree, expected.patch_sha256)
    assert no_whole_merge == []


def test_picks_are_merged_alone_as_well(
    tmp_path: Path, no_whole_merge: list[tuple[GitOid, GitOid]]
) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    base = _stack(origin)
    spec = IntegrationSpec(Strategy.CHERRY_PICK, base, heads(origin, 1, 2, 3, 4))
    with opened(origin.path) as repository:
        picked = integrate(repository, spec)
        merged = integrate(repository, merge_spec(origin, base, 1, 2, 3, 4))
    assert picked.tree == merged.tree
    assert no_whole_merge == []


def test_a_collision_is_told_by_git_itself(
    tmp_path: Path, no_whole_merge: list[tuple[GitOid, GitOid]]
) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    base = _stack(origin)
    origin.pull(5, {"b.py": changed(1, "five"), "deep/er/a.py": changed(10, "five")}, [base])
    with opened(origin.path) as repository, pytest.raises(ReprobuildError) as caught:
        integrate(repository, merge_spec(origin, base, 1, 2, 5, 3))
    assert caught.value.code == "E-CONFLICT"
    assert caught.value.facts["paths"] == ["b.py"]
    assert caught.value.facts["collides_with"] == [1, 2]
    assert len(no_whole_merge) == 1


@pytest.mark.parametrize("later", [{"c": None}, {"new": "others\n"}, {"new/deep": "others\n"}])
def test_what_one_side_adds_or_takes_away_is_told_by_git_itself(
    tmp_path: Path, later: dict[str | bytes, str | bytes | tuple[int, bytes] | None]
) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    base = _stack(origin)
    origin.pull(5, {"c": "changed\n", "new": "ours\n"}, [base])
    origin.pull(6, later, [base])
    spec = merge_spec(origin, base, 5, 6)
    assert checkout_composition(origin.path, spec, tmp_path / "work") == 6
    with opened(origin.path) as repository, pytest.raises(ReprobuildError) as caught:
        integrate(repository, spec)
    assert caught.value.code == "E-CONFLICT"


@pytest.mark.parametrize("place", ["", "deep/", "deep/er/"])
def test_attributes_that_forbid_a_merge_hold_for_files_merged_alone(
    tmp_path: Path, place: str
) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    rule = "deep/er/a.py"[len(place) :] + " -merge\n"
    base = origin.commit({"deep/er/a.py": LINES, f"{place}.gitattributes": rule})
    origin.pull(1, {"deep/er/a.py": changed(1, "one")}, [base])
    origin.pull(2, {"deep/er/a.py": changed(40, "two")}, [base])
    spec = merge_spec(origin, base, 1, 2)
    assert checkout_composition(origin.path, spec, tmp_path / "work") == 2
    with opened(origin.path) as repository, pytest.raises(ReprobuildError) as caught:
        integrate(repository, spec)
    assert caught.value.code == "E-CONFLICT"


def test_a_merge_that_is_known_is_done_again_under_other_attributes(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    base = origin.commit({"x": LINES})
    origin.pull(1, {"x": changed(1, "one")}, [base])
    origin.pull(2, {".gitattributes": "x -merge\n"}, [base])
    origin.pull(3, {"x": changed(40, "three")}, [base])
    with opened(origin.path) as repository:
        assert len(integrate(repository, merge_spec(origin, base, 1, 3)).heads) == 2
        with pytest.raises(ReprobuildError) as caught:
            integrate(repository, merge_spec(origin, base, 1, 2, 3))
    assert caught.value.code == "E-CONFLICT"


def test_a_head_that_moves_attributes_moves_what_comes_after(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    base = origin.commit({"x": LINES, ".gitattributes": "# none\n"}, ref="refs/heads/main")
    origin.pull(1, {"x": changed(1, "one")}, [base])
    origin.pull(2, {".gitattributes": "x merge=union\n"}, [base])
    origin.pull(3, {"x": changed(1, "three")}, [base])
    spec = merge_spec(origin, base, 1, 2, 3)
    with opened(origin.path) as repository:
        done = integrate(repository, spec)
    expected = checkout_composition(origin.path, spec, tmp_path / "work")
    assert isinstance(expected, Composition)
    assert done.tree.hex == expected.tree
    assert (tmp_path / "work" / "x").read_text().startswith("one\nthree\nline 2\n")
    early = IntegrationSpec(
        Strategy.MERGE, base, tuple(HeadSpec(n, origin.pulls[n]) for n in (1, 3, 2))
    )
    with opened(origin.path) as repository, pytest.raises(ReprobuildError) as caught:
        integrate(repository, early)
    assert caught.value.code == "E-CONFLICT"


@pytest.mark.parametrize("worth", [0, 1 << 30])
def test_a_patch_says_the_same_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worth: int
) -> None:
    monkeypatch.setattr(difftext, "_WORTH", worth)
    monkeypatch.setattr(difftext, "cores", lambda: 3)
    origin = Origin.make(tmp_path / "origin.git")
    data = bytes(range(256)) * 40
    odd = "*[x] ?\n.txt"
    base = origin.commit({"a": LINES, "bin": data, odd: LINES, ":(top)z": LINES, b"\xff": "x\n"})
    origin.pull(
        1,
        {"a": changed(1, "x"), "bin": data[::-1], odd: "", ":(top)z": "z\n", b"\xff": "y\n"},
        [base],
    )
    spec = merge_spec(origin, base, 1)
    expected = checkout_composition(origin.path, spec, tmp_path / "work")
    assert isinstance(expected, Composition)
    with opened(origin.path) as repository, BytesIO() as sink:
        done = integrate(repository, spec)
        assert done.base_tree is not None
        repository.patch(done.base_tree, done.tree, sink)
        assert sink.getvalue() == expected.patch
