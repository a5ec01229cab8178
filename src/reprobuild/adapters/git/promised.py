"""Integrating what is pinned, and holding the lock to all that it says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO

from reprobuild.adapters.git.backend import GitRepository
from reprobuild.adapters.git.sources import GitSources
from reprobuild.core.digest import GitOid
from reprobuild.core.encoding import Value
from reprobuild.core.flake import FixtureInput, Flake, GitInput
from reprobuild.core.integration.model import Integration, IntegrationSpec, Resolution
from reprobuild.core.integration.patchfile import source_patch
from reprobuild.core.integration.promise import Promise
from reprobuild.core.integration.resolve import resolved_content
from reprobuild.core.integration.strategies import integrate
from reprobuild.core.lock import Lock
from reprobuild.core.origins import integrated_source, spec_digest
from reprobuild.errors import ReprobuildError

_NOT_HERE = frozenset({"E-OFFLINE", "E-GIT-MISSING-OBJECT", "E-GIT-FETCH"})
_BINARY = b"\nGIT binary patch\n"


def integrate_promised(
    repository: GitRepository,
    sources: GitSources,
    origin: Mapping[str, Value],
    spec: IntegrationSpec,
    tree: GitOid,
) -> Integration:
    """The integration of an origin, which gives `tree` and all else that the origin promises.

    Raises E-TREE-MISMATCH saying what is promised and what came, and what `integrate` raises.
    """
    name = str(origin.get("url") or origin.get("path") or "")
    done = integrate(repository, spec, sources.read, digest_patch=False)
    if done.tree != tree:
        raise ReprobuildError(
            "E-TREE-MISMATCH",
            f"{name}: the integration came out as tree {done.tree}, the lock promises {tree}",
            expected=tree.hex,
            got=done.tree.hex,
        )
    promise = Promise.of(origin)
    wrong = list(_differences(repository, sources, spec, done, promise)) if promise else []
    if wrong:
        raise ReprobuildError(
            "E-TREE-MISMATCH",
            f"{name}: the tree is the one that is pinned, but not what the lock says of it: "
            f"{wrong[0]}",
            hint="restore flake-like.lock, as the lock was changed by other means than `lock`; or "
            f"pin anew with `reprobuild lock --update {origin.get('input', 'INPUT')}`",
            input=str(origin.get("input", "")) or None,
            differences=wrong if len(wrong) > 1 else None,
        )
    return done


def _differences(
    repository: GitRepository,
    sources: GitSources,
    spec: IntegrationSpec,
    done: Integration,
    promise: Promise,
) -> Iterator[str]:
    yield from promise.differences(spec, done)
    records = sources.resolutions() if spec.resolutions else ()
    for resolution in spec.resolutions:
        if resolution not in records:
            yield _unrecorded(resolution)
    assert done.base_tree is not None
    wrong = promise.patch_difference(repository.patch(done.base_tree, done.tree).hex)
    if wrong and promise.patch_digest == done.patch_digest.hex:
        # Of binary files a patch holds what zlib made of them, which is not the same in every
        # build of zlib: that the change is the one that was pinned has been seen already.
        text = _Binary()
        repository.patch(done.base_tree, done.tree, text)
        wrong = "" if text.found else wrong
    if wrong:
        yield wrong


def _unrecorded(resolution: Resolution) -> str:
    return f"the resolution of {resolution.path} is not recorded in resolutions/ as the lock has it"


class _Binary(BytesIO):
    """A sink that keeps nothing of a patch but whether a binary file is in it."""

    found = False
    _end = b"\n"

    def write(self, data: bytes) -> int:  # type: ignore[override]  # chunks are bytes
        self.found = self.found or _BINARY in self._end + data
        self._end = data[-len(_BINARY) :] if len(data) >= len(_BINARY) else self._end + data
        return len(data)


@dataclass(slots=True)
class PinCheck:
    """Integrates every pinned source of a lock anew, as far as its objects are at hand."""

    sources: GitSources
    flake: Flake
    lock: Lock
    _seen: list[Mapping[str, Value]] = field(default_factory=list)

    def run(self) -> None:
        """Raises E-TREE-MISMATCH, or what keeps heads from going on, for a pin that is wrong.

        A source whose repository is not here, or not with all that it takes, is passed over.
        """
        for name, output in self.flake.outputs.items():
            pins = self.lock.outputs.get(name)
            for component, wanted in output.sources.items():
                pin = pins.sources.get(component) if pins else None
                declared = self.flake.inputs[wanted.input]
                assert isinstance(declared, (GitInput, FixtureInput))
                if pin is None or pin.spec != spec_digest(wanted).hex:
                    continue  # it is open: its pin is of a former declaration
                made = integrated_source(component, declared, wanted, pin)
                assert made.fixed is not None and made.fixed.oid is not None
                where = f"outputs.{name}.sources.{component}"
                self._one(where, {**made.origin, "tree": made.fixed.oid.hex}, made.fixed.oid)

    def _files(self, spec: IntegrationSpec) -> None:
        """What lies in the project for an integration, which is at hand in any case."""
        for index, patch in enumerate(spec.patches):
            source_patch(index, patch, self.sources.read)
        records = self.sources.resolutions() if spec.resolutions else ()
        for resolution in spec.resolutions:
            if resolution not in records:
                raise ReprobuildError("E-LOCK-STALE", _unrecorded(resolution))
            if resolution.result is not None:
                resolved_content(resolution, self.sources.read)

    def _one(self, where: str, origin: Mapping[str, Value], tree: GitOid) -> None:
        if origin in self._seen:
            return
        self._seen.append(origin)
        spec = IntegrationSpec.parse(origin)
        try:
            self._files(spec)
            with self.sources.open(origin, spec) as repository:
                integrate_promised(repository, self.sources, origin, spec, tree)
        except ReprobuildError as error:
            if error.code not in _NOT_HERE:
                error.facts.setdefault("key", where)
                raise
