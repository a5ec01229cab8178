"""The git objects that integrations read, as a pack in a tree of the store, and back.

    objects.pack    commits down to what all of them share, the trees and blobs of base, heads,
                    merge bases and every commit that a head adds
    shallow         commits whose parents are not in it, one a line

The pack has no deltas and is not compressed, so that its bytes depend on its objects alone; the
bundle compresses it. That it is enough is tried out: the integrations are made from it alone.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path

from reprobuild.adapters.git.backend import GitRepository
from reprobuild.adapters.git.cache import GitCache
from reprobuild.adapters.git.plumbing import clean_environment, run
from reprobuild.adapters.git.scratch import Scratch
from reprobuild.adapters.git.sources import GitSources
from reprobuild.adapters.git.transport import init_bare
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.derivation import FixedOutput
from reprobuild.core.digest import Digest, GitOid
from reprobuild.core.encoding import Value
from reprobuild.core.integration.model import IntegrationSpec
from reprobuild.core.integration.strategies import integrate
from reprobuild.core.tree import File
from reprobuild.core.treebuilder import TreeBuilder
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentReader

PACK, SHALLOW = b"objects.pack", b"shallow"
_PLAIN = ("--threads=1", "--window=0", "--compression=0", "--no-reuse-object", "--quiet")

Wanted = tuple[FixedOutput, Mapping[str, Value]]
"""A promised git tree and its origin."""


def pack_sources(
    store: LocalStore, sources: GitSources, wanted: Iterable[Wanted]
) -> dict[str, Digest]:
    """For each repository's address, the tree with what the integrations need of it.

    Brings in what is not here yet, where that is allowed. Raises E-OFFLINE,
    E-GIT-MISSING-OBJECT.
    """
    by_url: dict[str, list[Wanted]] = {}
    for fixed, origin in wanted:
        if origin.get("kind") == "git":
            by_url.setdefault(str(origin["url"]), []).append((fixed, origin))
    return {url: _pack(store, sources, by_url[url]) for url in sorted(by_url)}


def _pack(store: LocalStore, sources: GitSources, wanted: Sequence[Wanted]) -> Digest:
    objects: set[str] = set()
    shallow: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="pack-", dir=store.path / "build") as folder:
        made = Path(folder) / "made.git"
        sha256 = any(f.oid is not None and len(f.oid.hex) == 64 for f, _ in wanted)
        init_bare(made, sha256=sha256)
        for _, origin in wanted:
            spec = IntegrationSpec.parse(origin)
            with sources.open(origin, spec) as repository:
                done = integrate(repository, spec, sources.read, digest_patch=False)
                repository.supply_tree(done.tree)
                found, edge = _select(repository, spec)
                objects |= found
                shallow |= edge
                pack = _pack_objects(repository, found)
            _index(made, pack)
        edge_text = "".join(f"{c}\n" for c in sorted(shallow)).encode()
        (made / "shallow").write_bytes(edge_text)
        with Scratch([made], sha256=sha256) as scratch:
            alone = GitRepository(scratch)
            for fixed, origin in wanted:
                _try_out(alone, fixed, IntegrationSpec.parse(origin), sources)
            pack = _pack_objects(alone, objects)
    builder = TreeBuilder()
    builder.add(PACK, store.add_blob(io.BytesIO(pack), size=len(pack)))
    builder.add(SHALLOW, store.add_blob(io.BytesIO(edge_text), size=len(edge_text)))
    digest, nodes = builder.build()
    store.add_trees(nodes)
    return digest


def _try_out(
    repository: GitRepository, fixed: FixedOutput, spec: IntegrationSpec, sources: GitSources
) -> None:
    done = integrate(repository, spec, sources.read, digest_patch=False)
    if done.tree != fixed.oid:
        raise ReprobuildError(
            "E-TREE-MISMATCH",
            f"from the packed objects alone the integration came out as {done.tree}, "
            f"not {fixed.oid}",
            expected=str(fixed.oid),
            got=done.tree.hex,
        )


def _select(repository: GitRepository, spec: IntegrationSpec) -> tuple[set[str], set[str]]:
    """(objects, commits at the edge) that the integration can read."""
    tips = [c.hex for c in spec.commits_needed()]
    _, out, _ = repository.run("merge-base", "--octopus", *tips, ok=(0, 1))
    floor = [f"^{line.decode()}^@" for line in out.split()[:1]]
    names = "\n".join([*tips, *floor]) + "\n"
    if floor and not _parents(repository, floor[0][1:-2]):
        names = "\n".join(tips) + "\n"
    _, out, _ = repository.run("rev-list", "--parents", "--stdin", stdin=names.encode())
    rows = [line.split() for line in out.decode().splitlines()]
    commits = {row[0] for row in rows}
    edge = {row[0] for row in rows if not set(row[1:]) <= commits}
    full = set(tips)
    for one, other in combinations(dict.fromkeys(tips), 2):
        _, out, _ = repository.run("merge-base", "--all", one, other, ok=(0, 1))
        full |= set(out.decode().split())
    _, out, _ = repository.run(
        "rev-list", "--stdin", stdin="\n".join([*tips[1:], f"^{tips[0]}"]).encode() + b"\n"
    )
    full |= set(out.decode().split()) & commits
    # the best common ancestors of merge bases: where there are several, they are merged, too
    argv = ("rev-list", "--objects", "--no-walk", "--missing=allow-any", "--stdin")
    _, out, _ = repository.run(*argv, stdin="\n".join(sorted(full)).encode() + b"\n")
    objects = {line.split(b" ", 1)[0].decode() for line in out.splitlines()}
    present = objects - {o.hex for o in repository.absent(GitOid(o) for o in objects)}
    return present | commits, edge


def _parents(repository: GitRepository, commit: str) -> bool:
    return bool(repository.commit(GitOid(commit)).parents)


def _pack_objects(repository: GitRepository, objects: Iterable[str]) -> bytes:
    names = "".join(f"{o}\n" for o in sorted(objects)).encode()
    return repository.run("pack-objects", "--stdout", *_PLAIN, stdin=names)[1]


def _index(git_dir: Path, pack: bytes) -> None:
    env = {**clean_environment(), "GIT_DIR": str(git_dir)}
    run(["index-pack", "--stdin"], env=env, cwd=git_dir, stdin=pack)


def install_sources(store: ContentReader, cache: GitCache, packs: Mapping[str, Digest]) -> int:
    """Puts packed objects where integrations look for them; how many packs were new.

    git itself hashes every object that comes in. Raises E-BUNDLE for a tree that is no such pack.
    """
    new = 0
    for url, tree in packs.items():
        files = {name: entry for name, entry in store.tree(tree) if isinstance(entry, File)}
        if set(files) != {PACK, SHALLOW}:
            raise ReprobuildError("E-BUNDLE", f"the objects of {url} are no pack", tree=str(tree))
        git_dir = cache.path(url)
        mark = git_dir / "imported" / tree.hex
        if mark.exists():
            continue
        edge = _read(store, files[SHALLOW]).decode("ascii", "replace").split()
        oids = [GitOid.parse(text) for text in edge]
        pack = _read(store, files[PACK])
        fresh = not (git_dir / "HEAD").exists()
        init_bare(git_dir, sha256=_is_sha256(oids, pack))
        try:
            _index(git_dir, pack)
        except ReprobuildError as error:
            raise ReprobuildError(
                "E-BUNDLE", f"git does not take the objects of {url}: {error.message}"
            ) from error
        _mark_edge(git_dir, oids, fresh)
        mark.parent.mkdir(exist_ok=True)
        mark.touch()
        new += 1
    return new


def _is_sha256(oids: Sequence[GitOid], pack: bytes) -> bool:
    return bool(oids) and len(oids[0].hex) == 64


def _mark_edge(git_dir: Path, oids: Sequence[GitOid], fresh: bool) -> None:
    """Says where history ends; a commit whose parents are here from elsewhere is no end."""
    path = git_dir / "shallow"
    before = set(path.read_text().split()) if path.exists() else set()
    ends = {o.hex for o in oids}
    if not fresh and oids:
        with Scratch([git_dir], sha256=len(oids[0].hex) == 64) as scratch:
            repository = GitRepository(scratch)
            ends = {
                o.hex
                for o in oids
                if not all(scratch.reader.has(p) for p in repository.commit(o).parents)
            }
    text = "".join(f"{name}\n" for name in sorted(before | ends))
    if text:
        path.write_text(text)


def _read(store: ContentReader, entry: File) -> bytes:
    with store.open_blob(entry.digest) as source:
        return source.read()
