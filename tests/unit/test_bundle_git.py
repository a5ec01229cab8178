"""Git objects in bundles: enough to integrate again where nothing else is, and not the whole."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from reprobuild.adapters.bundle.gitpack import PACK, install_sources, pack_sources
from reprobuild.adapters.git.cache import GitCache
from reprobuild.adapters.git.fetcher import GitFetcher
from reprobuild.adapters.git.sources import GitSources
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.derivation import FixedOutput
from reprobuild.core.digest import Digest, GitOid
from reprobuild.core.encoding import Value
from reprobuild.core.integration.model import HeadSpec, IntegrationSpec, Strategy
from reprobuild.core.tree import File
from reprobuild.errors import ReprobuildError
from reprobuild.ports import NullReporter
from support.gitkit import Origin, opened

LINES = "".join(f"line {n}\n" for n in range(60))


def edited(*numbers: int) -> str:
    return "".join(f"line {n}{' changed' if n in numbers else ''}\n" for n in range(60))


def history(origin: Origin) -> tuple[GitOid, list[GitOid]]:
    """A base with a past, and heads: merged, contained already, crossing each other, renaming."""
    root = origin.commit({"a.txt": LINES, "b.txt": LINES, "old/big.bin": b"\0" * 50_000})
    for number in range(5):
        root = origin.commit({f"past{number}.txt": f"{number}\n"}, [root])
    fork = origin.commit({"old/big.bin": None, "c.txt": LINES}, [root])
    one = origin.pull(1, {"a.txt": edited(3)}, [fork])
    two = origin.pull(2, {"b.txt": edited(50)}, [fork])
    cross_one = origin.commit({"x.txt": "x\n"}, [one, two], start=one)
    cross_two = origin.commit({"y.txt": "y\n"}, [two, one], start=two)
    three = origin.pull(3, {"c.txt": edited(7)}, [cross_two])
    moved = origin.commit({"c.txt": None, "moved.txt": LINES}, [fork])
    four = origin.pull(4, {"moved.txt": edited(30)}, [moved])
    base = origin.commit({"main.txt": "main\n"}, [fork])
    base = origin.commit({"a.txt": edited(3), "b.txt": edited(50)}, [base, cross_one], start=base)
    base = origin.commit({"main.txt": "go on\n"}, [base], ref="refs/heads/main")
    return base, [one, three, four]


def spec_of(base: GitOid, heads: list[GitOid]) -> IntegrationSpec:
    return IntegrationSpec(
        Strategy.MERGE, base, tuple(HeadSpec(n, head) for n, head in enumerate(heads, 1))
    )


@pytest.mark.parametrize("sha256", [False, True])
def test_what_is_packed_integrates_alone(tmp_path: Path, sha256: bool) -> None:
    origin = Origin.make(tmp_path / "origin.git", sha256=sha256)
    base, heads = history(origin)
    spec = spec_of(base, heads)
    from reprobuild.core.integration.strategies import integrate

    with opened(origin.path, sha256=sha256) as repository:
        tree = integrate(repository, spec, lambda path: b"", digest_patch=False).tree
    url = str(origin.path)
    place: Mapping[str, Value] = {"kind": "git", "url": url, **spec.document()}
    fixed = FixedOutput("git-tree", oid=tree)
    with (
        LocalStore.open(tmp_path / "one", create=True) as one,
        LocalStore.open(tmp_path / "two", create=True) as two,
    ):
        packs = pack_sources(one, _sources(one, tmp_path), [(fixed, place)])
        again = pack_sources(one, _sources(one, tmp_path), [(fixed, place)])
        assert packs == again
        whole = GitFetcher(_sources(one, tmp_path), one).fetch(fixed, place, NullReporter())
        _copy(one, two, packs[url])
        pack = _content(one, packs[url])
        assert b"\0" * 40_000 not in pack  # what only the past had is not in it
        shutil.rmtree(origin.path)
        with pytest.raises(ReprobuildError):
            GitFetcher(_sources(two, tmp_path), two).fetch(fixed, place, NullReporter())
        cache = GitCache(two.path / "cache" / "git", offline=True, base=tmp_path)
        assert install_sources(two, cache, packs) == 1
        assert install_sources(two, cache, packs) == 0
        got = GitFetcher(_sources(two, tmp_path), two).fetch(fixed, place, NullReporter())
        assert got == whole


def test_a_broken_pack_is_refused(tmp_path: Path) -> None:
    import io

    from reprobuild.core.treebuilder import TreeBuilder

    with LocalStore.open(tmp_path / "store", create=True) as store:
        builder = TreeBuilder()
        builder.add(PACK, store.add_blob(io.BytesIO(b"PACK\0\0\0\2garbage")))
        builder.add(b"shallow", store.add_blob(io.BytesIO(b"")))
        digest, nodes = builder.build()
        store.add_trees(nodes)
        cache = GitCache(store.path / "cache" / "git", offline=True, base=tmp_path)
        with pytest.raises(ReprobuildError) as caught:
            install_sources(store, cache, {"https://example.org/x.git": digest})
        assert caught.value.code == "E-BUNDLE"


def _sources(store: LocalStore, base: Path) -> GitSources:
    home = store.path / "cache" / "git"
    return GitSources(GitCache(home, offline=True, base=base), home / "fixtures", base)


def _copy(one: LocalStore, two: LocalStore, tree: Digest) -> None:
    node = one.tree(tree)
    for _, entry in node:
        assert isinstance(entry, File)
        two.add_blob(one.open_blob(entry.digest), size=entry.size)
    two.add_trees({tree: node})


def _content(store: LocalStore, tree: Digest) -> bytes:
    entry = store.tree(tree).get(PACK)
    assert isinstance(entry, File)
    return store.open_blob(entry.digest).read()
