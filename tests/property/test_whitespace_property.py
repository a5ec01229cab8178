"""What is told from a patch alone never misses what `git diff --check` would complain of."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reprobuild.core.digest import GitOid
from reprobuild.core.integration.whitespace import may_fail_check
from support.gitkit import Origin, opened

LINE = st.sampled_from(
    [
        *("", "", " ", "a", "b", "a ", "a\t", "\ta", " \ta", "a \tb", "a\r", "\r", "\x0c"),
        *("=======", "======= x", "<<<<<<< x", ">>>>>>> y", "||||||| z", "<<<<<<"),
        *("+", "@@ ", "diff --git a b", "\\ No"),
    ]
)
END = st.sampled_from(["", "\n", "\n\n"])
FILE = st.tuples(st.lists(LINE, max_size=6), END).map(lambda f: "\n".join(f[0]) + f[1])
TREE = st.dictionaries(st.sampled_from(["a", "b c", "d/e"]), FILE, min_size=1, max_size=2)


def tree(origin: Origin, files: dict[str, str]) -> GitOid:
    return origin.tree(
        origin.commit({"keep": "k\n", **{bytes(p, "utf-8"): t for p, t in files.items()}})
    )


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(before=TREE, after=TREE)
def test_no_complaint_is_missed(before: dict[str, str], after: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        origin = Origin.make(Path(name) / "origin.git")
        old, new = tree(origin, before), tree(origin, after)
        with opened(origin.path) as repository:
            complaint = repository.check_whitespace(old, new)
            _, patch, _ = repository.run("diff", "--binary", "--full-index", old.hex, new.hex)
            assert repository.check_whitespace(old, new, patch) == complaint
    assert may_fail_check(patch) or not complaint


def test_an_ordinary_patch_asks_nothing_of_git() -> None:
    lines = [
        *("diff --git a/f b/f", "--- a/f", "+++ b/f", "@@ -1,3 +1,6 @@"),
        *(" one", "-two \t", "+two", "+", "+\tthree", " ", " four"),
        *("diff --git a/g b/g", "GIT binary patch", "literal 3", "KcmY#", ""),
    ]
    patch = "\n".join(lines).encode()
    assert not may_fail_check(patch)
    for line in (b"+two ", b"+ \tx", b"+<<<<<<< ours", b"+=======\n", b"+x\r"):
        assert may_fail_check(patch.replace(b"+two\n", line + b"\n")), line
    assert may_fail_check(b"--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n one\n+\n")
    assert may_fail_check(b"@@ -1 +1,2 @@\n one\n+\n \n\\ No newline at end of file\n@@ -9 +9 @@\n")


def test_attributes_may_change_the_rules(tmp_path: Path) -> None:
    origin = Origin.make(tmp_path / "origin.git")
    attributes = {".gitattributes": "*.py whitespace=tab-in-indent\n"}
    old, new = tree(origin, attributes), tree(origin, {**attributes, "a.py": "\tx\n"})
    with opened(origin.path) as repository:
        _, patch, _ = repository.run("diff", "--binary", "--full-index", old.hex, new.hex)
        assert not may_fail_check(patch)
        assert "tab in indent" in repository.check_whitespace(old, new, patch)
