"""A lock made up for a flake, as `lock` would write it had it found what it does not look for."""

from __future__ import annotations

import hashlib

from reprobuild.core.digest import Digest
from reprobuild.core.flake import (
    DebInput,
    FixtureInput,
    Flake,
    GitInput,
    Input,
    OciInput,
    PathInput,
    SdistInput,
    Source,
    UrlInput,
    WheelInput,
)
from reprobuild.core.lock import (
    FilesPin,
    GitPin,
    Lock,
    OciPin,
    PathPin,
    Pin,
    PinnedFile,
    PinnedHead,
    PinnedOutput,
    PinnedSource,
)
from reprobuild.core.origins import spec_digest


def oid(text: str) -> str:
    """A made-up git object name."""
    return hashlib.sha1(text.encode()).hexdigest()


def sha256(text: str) -> str:
    """A made-up digest of a file."""
    return hashlib.sha256(text.encode()).hexdigest()


def made_up_lock(flake: Flake) -> Lock:
    """Everything pinned, every head merged."""
    return Lock(
        format=0,
        inputs={name: _pin(name, declared) for name, declared in flake.inputs.items()},
        outputs={
            name: PinnedOutput(
                sources={
                    component: _source(flake, component, source)
                    for component, source in output.sources.items()
                }
            )
            for name, output in flake.outputs.items()
        },
    )


def _pin(name: str, declared: Input) -> Pin:
    spec = spec_digest(declared).hex
    if isinstance(declared, (GitInput, FixtureInput)):
        text = Digest.of(name.encode()).hex if isinstance(declared, FixtureInput) else None
        return GitPin(
            kind=declared.kind,
            spec=spec,
            ref=declared.ref,
            rev=getattr(declared, "rev", None) or oid(f"{name} rev"),
            tree=oid(f"{name} tree"),
            text=text,
        )
    if isinstance(declared, PathInput):
        return PathPin(kind="path", spec=spec, tree=Digest.of(name.encode()).hex)
    if isinstance(declared, OciInput):
        return OciPin(kind="oci", spec=spec, digest=declared.reference.rpartition(":")[2])
    if isinstance(declared, UrlInput):
        file = PinnedFile(
            filename=declared.url.rpartition("/")[2],
            size=1,
            sha256=sha256(name),
            location=declared.url,
        )
        return FilesPin(kind="url", spec=spec, files=(file,))
    assert isinstance(declared, (DebInput, WheelInput, SdistInput))
    ending = {"deb": "_amd64.deb", "wheel": "-py3-none-any.whl", "sdist": ".tar.gz"}[declared.kind]
    files = []
    for package, wanted in declared.wanted():
        version = wanted or "1.0"
        separator = "_" if declared.kind == "deb" else "-"
        filename = package.replace("-", "_") if declared.kind != "deb" else package
        filename += f"{separator}{version.replace(':', '%3a')}{ending}"
        files.append(
            PinnedFile(
                name=package,
                version=version,
                filename=filename,
                size=1,
                sha256=sha256(package),
                location=f"pool/{filename}" if declared.kind == "deb" else "",
            )
        )
    return FilesPin(kind=declared.kind, spec=spec, files=tuple(files))


def _source(flake: Flake, component: str, source: Source) -> PinnedSource:
    declared = flake.inputs[source.input]
    assert isinstance(declared, (GitInput, FixtureInput))
    return PinnedSource(
        spec=spec_digest(source).hex,
        strategy=source.strategy,
        base_ref=source.base or declared.ref,
        base=source.base_commit or oid(f"{component} base"),
        heads=tuple(
            PinnedHead(
                number=h.number,
                head=h.head or oid(f"head {h.number}"),
                disposition="merged",
                commits=h.commits,
            )
            for h in source.heads
        ),
        composition=source.composition_commit,
        tree=oid(f"{component} integrated"),
        patch_sha256=sha256(f"{component} patch"),
        patch_digest=Digest.of(component.encode()).hex,
    )
