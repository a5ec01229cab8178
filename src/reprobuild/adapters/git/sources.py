"""Opening the repositories that hold what a spec needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from reprobuild.adapters.git.backend import GitRepository
from reprobuild.adapters.git.cache import GitCache, Located
from reprobuild.adapters.git.files import reader_below
from reprobuild.adapters.git.partial import saying_what_is_partial
from reprobuild.adapters.git.resolutions import Resolutions
from reprobuild.adapters.git.scratch import Scratch
from reprobuild.adapters.git.transport import init_bare
from reprobuild.adapters.inner import inner_directory
from reprobuild.core.digest import GitOid
from reprobuild.core.encoding import Value
from reprobuild.core.integration.model import IntegrationSpec, Resolution
from reprobuild.core.redact import redact
from reprobuild.errors import ReprobuildError


class GitSources:
    """Origins of kind `git` and `fixture`: opens repositories that hold what a spec needs."""

    def __init__(self, cache: GitCache, fixtures: Path, flake_dir: Path) -> None:
        """`fixtures` is a directory of ours for repositories made from text."""
        self.cache, self._fixtures, self._flake_dir = cache, fixtures, flake_dir
        self.read = reader_below(flake_dir)

    def fixture_repository(self, path: str) -> Path:
        """The repository made from the fixture at `path` (relative to the flake), made once."""
        from reprobuild.adapters.git.fixture import fixture_digest, make_fixture

        directory = inner_directory(self._flake_dir, path)
        into = self._fixtures / f"{fixture_digest(directory).hex[:32]}.git"
        if not (into / "HEAD").exists():
            make_fixture(directory, into, keep=True)
        return into

    def resolutions(self) -> tuple[Resolution, ...]:
        """The project's recorded resolutions."""
        return Resolutions(self._flake_dir).load()

    def locate(self, origin: Mapping[str, Value], spec: IntegrationSpec) -> Located:
        """Where the spec's commits are; fetches what is nowhere."""
        kind = origin.get("kind")
        if kind == "fixture":
            return Located((self.fixture_repository(str(origin.get("path", ""))),))
        if kind != "git":
            raise ReprobuildError("E-BUG", f"git cannot fetch an origin of kind {kind!r}")
        refs = [h.full_ref for h in spec.heads]
        refs += [r for r in (str(origin.get("ref") or ""), spec.composition_ref) if r]
        return self.cache.locate(str(origin["url"]), spec.commits_needed(), refs)

    def resolve(self, url: str, refs: Sequence[str]) -> dict[str, GitOid]:
        """What refs of a repository point to now, in one look."""
        return self.cache.resolve(url, refs)

    @contextmanager
    def open(self, origin: Mapping[str, Value], spec: IntegrationSpec) -> Iterator[GitRepository]:
        """A repository over the spec's objects; blobs that are missing are fetched when allowed."""
        with _saying_where(origin) as places:
            yield from self._open(origin, spec, places)

    def _open(
        self, origin: Mapping[str, Value], spec: IntegrationSpec, places: list[Path]
    ) -> Iterator[GitRepository]:
        located = self.locate(origin, spec)
        supply: Callable[[Sequence[GitOid]], None] | None = None
        sources = places
        sources += located.sources
        if located.remote and not self.cache.offline:
            url = str(origin["url"])
            init_bare(self.cache.path(url), sha256=len(spec.base.hex) == 64)
            if self.cache.path(url) not in sources:
                sources.append(self.cache.path(url))

            def supply(blobs: Sequence[GitOid]) -> None:
                self.cache.bring_blobs(url, located.remote, blobs)

        with (
            saying_what_is_partial(sources),
            Scratch(sources, sha256=len(spec.base.hex) == 64) as scratch,
        ):
            yield GitRepository(scratch, supply)


@contextmanager
def _saying_where(origin: Mapping[str, Value]) -> Iterator[list[Path]]:
    """Adds to E-GIT-OBJECT which repository it is of, and the input, where the origin has it.

    The list takes the repositories on this machine that were looked into.
    """
    places: list[Path] = []
    try:
        yield places
    except ReprobuildError as error:
        if error.code == "E-GIT-OBJECT" and "repository" not in error.facts:
            name = redact(str(origin.get("url") or origin.get("path") or ""))
            error.message = f"{name}: {error.message}"
            error.facts["repository"] = name
            if origin.get("input"):
                error.facts["input"] = str(origin["input"])
            if places:
                error.facts["places"] = [str(place) for place in places]
            where = places[0] if len(places) == 1 else "each of the `places`"
            error.hint = (
                f"run `git -C {where} fsck`; what it complains of was made so on purpose or is "
                "damaged: have it mended where it comes from, or take another commit"
            )
        raise
