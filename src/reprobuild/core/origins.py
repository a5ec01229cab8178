"""From pinned inputs to fetch derivations: what is promised, and how it may be come by."""

from __future__ import annotations

from typing import Any

from reprobuild.core.derivation import Derivation, FixedOutput
from reprobuild.core.digest import Digest, GitOid, Sha256, document_digest
from reprobuild.core.encoding import Value
from reprobuild.core.flake import (
    DebInput,
    FixtureInput,
    GitInput,
    Input,
    OciInput,
    PathInput,
    SdistInput,
    Source,
    UrlInput,
    WheelInput,
)
from reprobuild.core.integration.promise import KEY as PROMISED
from reprobuild.core.integration.promise import HeadFacts, Promise
from reprobuild.core.lock import FilesPin, GitPin, PathPin, Pin, PinnedSource
from reprobuild.core.schema import Model

SPEC_DOMAIN = "reprobuild/declaration/v0"


_PROSE = {
    "heads": {"__all__": {"title", "summary"}},
    "exclusions": True,
    "patch_sha256": True,
    "tree": True,
}


def spec_digest(model: Model) -> Digest:
    """What a pin remembers of the declaration it was made for, to tell when that changed.

    Titles, summaries and exclusions are prose, and a published tree or patch is an assertion
    that is checked each time: none of them can move a pin.
    """
    exclude: Any = _PROSE if isinstance(model, Source) else None
    document = model.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=exclude)
    return document_digest(SPEC_DOMAIN, document)


def fetches(name: str, declared: Input, pin: Pin) -> list[Derivation]:
    """The fetch derivations of a pinned input: one a file, or one for a tree or an image."""
    if isinstance(pin, FilesPin):
        return [_file(name, declared, pin, index) for index in range(len(pin.files))]
    if isinstance(pin, GitPin):
        fixed = FixedOutput("git-tree", oid=GitOid.parse(pin.tree))
        origin: dict[str, Value] = {
            **git_place(declared),
            "base": pin.rev,
            "heads": [],
            "ref": pin.ref,
            "strategy": "merge",
        }
    elif isinstance(pin, PathPin):
        assert isinstance(declared, PathInput)
        fixed = FixedOutput("tree", tree=Digest.parse(pin.tree))
        origin = {"kind": "path", "path": declared.path}
    else:
        assert isinstance(declared, OciInput)
        fixed = FixedOutput("oci-image", sha256=Sha256.parse(pin.digest))
        origin = {"kind": "oci", "reference": declared.reference}
    return [Derivation(f"inputs.{name}", "fetch", fixed=fixed, origin={"input": name, **origin})]


def _file(name: str, declared: Input, pin: FilesPin, index: int) -> Derivation:
    file = pin.files[index]
    origin: dict[str, Value] = {
        "input": name,
        "kind": pin.kind,
        "name": file.name,
        "version": file.version,
        "filename": file.filename,
        "size": file.size,
    }
    if isinstance(declared, DebInput):
        origin |= {
            "suite": declared.suite,
            "architecture": declared.architecture,
            "location": file.location,
        }
    elif isinstance(declared, UrlInput):
        origin |= {"url": declared.url}
    else:
        assert isinstance(declared, (WheelInput, SdistInput))
    fixed = FixedOutput("file", filename=file.filename, sha256=Sha256.parse(file.sha256))
    return Derivation(f"inputs.{name}:{index}", "fetch", fixed=fixed, origin=origin)


def git_place(declared: Input) -> dict[str, Value]:
    """Where a git repository is, as an origin says it."""
    if isinstance(declared, FixtureInput):
        return {"kind": "fixture", "path": declared.path}
    assert isinstance(declared, GitInput)
    return {"kind": "git", "url": declared.url}


def integrated_source(
    component: str, declared: Input, source: Source, pin: PinnedSource
) -> Derivation:
    """The fetch derivation of an integrated source: named by its git tree alone."""
    titles = {head.number: head for head in source.heads}
    heads: list[Value] = []
    for head in pin.heads:
        wanted = titles.get(head.number)
        heads.append(
            {
                "number": head.number,
                "head": head.head,
                "ref": wanted.full_ref if wanted else f"refs/pull/{head.number}/head",
                "title": wanted.title if wanted else "",
                "commits": list(head.commits or ()),
            }
        )
    origin: dict[str, Value] = {
        **git_place(declared),
        "input": source.input,
        "base": pin.base,
        "ref": pin.base_ref,
        "strategy": pin.strategy,
        "heads": heads,
        "composition": pin.composition,
        "composition_ref": source.composition_ref,
        "patches": [{"path": p.path, "sha256": p.sha256, "title": p.title} for p in source.patches],
        "resolutions": [r.model_dump(mode="json") for r in pin.resolutions],
        PROMISED: Promise(
            pin.patch_sha256,
            pin.patch_digest,
            tuple(HeadFacts(h.number, h.disposition, h.squashed_in_base) for h in pin.heads),
        ).document(),
    }
    fixed = FixedOutput("git-tree", oid=GitOid.parse(pin.tree))
    return Derivation(f"sources.{component}", "fetch", fixed=fixed, origin=origin)
