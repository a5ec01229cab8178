"""Labels, tag values and the statement of an image: literal fields of its recipe.

The keys follow the publishers' scheme (`PREFIX.COMPONENT.repo|ref|commit|integration.…`) and add
each component's drv digest and tree digest. Nothing observed while building is in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reprobuild.core.abi import output_abi
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.flake import Output, Release


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """Where a component's source came from, as pinned."""

    repository: str
    ref: str
    base: str
    tree: str
    strategy: str = ""
    heads: Sequence[tuple[int, str, str, str]] = ()
    """(number, head, disposition, title) in the order applied."""
    patch_sha256: str = ""
    patch_digest: str = ""
    resolutions: Sequence[tuple[str, str, str, str]] = ()
    """(path, blob it became or "removed", author, reason) of each recorded resolution."""


@dataclass(frozen=True, slots=True)
class ComponentFacts:
    """What is known about one component of an image before anything is built."""

    name: str
    version: str
    drv: Digest
    source: SourceFacts | None = None
    paths: Sequence[str] = ()
    cuda: Sequence[str] = ()
    archs: Sequence[str] = ()
    python: Sequence[str] = ()
    extra: Mapping[str, str] = field(default_factory=dict)
    licence: str = ""
    """As the component's file states it: an SPDX expression, or a name."""
    modified: Mapping[str, str] = field(default_factory=dict)
    """Why files that a pattern takes differ from the tracked ones of the same place."""


def compact(version: str) -> str:
    """`13.3` → `133`, `2.13.0` → `213`: how tags and cache names write a version."""
    return "".join(version.split(".")[:2])


def tag_values(release: Release, components: Sequence[ComponentFacts]) -> dict[str, str]:
    """What a tag pattern may name."""
    values = {
        "codename": release.codename,
        "revision": release.revision,
        "date": release.date.isoformat().replace("-", ""),
    }
    for name, version in release.runtime.items():
        values[name] = compact(version)
        values[f"{name}.version"] = version
    for component in components:
        values[f"{component.name}.version"] = component.version
        values[f"{component.name}.drv"] = component.drv.hex
        if component.source is not None:
            values[f"{component.name}.tree"] = component.source.tree
            values[f"{component.name}.commit"] = component.source.base
    return values


def release_labels(
    output: Output, components: Sequence[ComponentFacts], reference: str, dirty: Sequence[str]
) -> dict[str, str]:
    """Every label that is known before the build."""
    return labels_of(statement("", output, components, reference, dirty))


def labels_of(document: Mapping[str, Any]) -> dict[str, str]:
    """The labels that follow from a statement; of one from inside an image, all of them.

    `reprobuild/data/verify.py` says the same inside images, and a test holds the two together.
    """
    release: Mapping[str, Any] = document["release"]
    components: Sequence[Mapping[str, Any]] = document["components"]
    prefix, reference = release["label_prefix"], release["reference"]
    labels = {
        "org.opencontainers.image.created": f"{release['date']}T00:00:00Z",
        "org.opencontainers.image.title": release["title"] or release["codename"],
        "org.opencontainers.image.version": reference.rpartition(":")[2],
        f"{prefix}.release.codename": release["codename"],
        f"{prefix}.release.date": release["date"],
        f"{prefix}.release.revision": release["revision"],
        f"{prefix}.release.components": ",".join(row["name"] for row in components),
        f"{prefix}.isolation.required": release["isolation"],
    }
    if release["model_revision"]:
        labels[f"{prefix}.model.revision"] = release["model_revision"]
    if release["dirty"]:
        labels[f"{prefix}.dirty"] = ",".join(release["dirty"])
    if release["cache_fingerprint"]:
        labels[f"{prefix}.cache.fingerprint"] = release["cache_fingerprint"]
    for name, version in release["runtime"].items():
        labels[f"{prefix}.runtime.{name}"] = version
    for row in components:
        stem = f"{prefix}.{row['name']}"
        labels[f"{stem}.drv"] = row["drv"]
        if "tree" in row:
            labels[f"{stem}.tree"] = row["tree"]
        if row["version"]:
            labels[f"{stem}.version"] = row["version"]
        if row["archs"]:
            labels[f"{stem}.cuda.archs"] = ",".join(row["archs"])
        if "source" in row:
            labels.update(_source_labels(stem, row["source"]))
    labels.update(release["labels"])
    return labels


def _source_labels(stem: str, source: Mapping[str, Any]) -> dict[str, str]:
    labels = {
        f"{stem}.repo": source["repository"],
        f"{stem}.ref": source["ref"],
        f"{stem}.commit": source["base"],
        f"{stem}.integration.tree": source["integration_tree"],
    }
    if source["strategy"]:
        heads: Sequence[Mapping[str, Any]] = source["heads"]
        labels[f"{stem}.integration.strategy"] = source["strategy"]
        labels[f"{stem}.integration.prs"] = ",".join(str(h["number"]) for h in heads)
        labels[f"{stem}.integration.heads"] = ",".join(
            f"{h['number']}@{h['head']}:{h['disposition']}" for h in heads
        )
        if "resolutions" in source:
            labels[f"{stem}.integration.resolutions"] = ",".join(
                f"{r['path']}@{r['result']}" for r in source["resolutions"]
            )
        labels[f"{stem}.patch_sha256"] = source["patch_sha256"]
        labels[f"{stem}.patch_digest"] = source["patch_digest"]
    return labels


def _resolutions(source: SourceFacts) -> dict[str, Value]:
    """Present only where there are any."""
    rows: list[Value] = [
        {"author": author, "path": path, "reason": reason, "result": result}
        for path, result, author, reason in source.resolutions
    ]
    return {"resolutions": rows} if rows else {}


def statement(
    output_name: str,
    output: Output,
    components: Sequence[ComponentFacts],
    reference: str,
    dirty: Sequence[str] = (),
    fingerprint: str = "",
) -> dict[str, Value]:
    """The release document's part that can lie inside its own image; trees are added later."""
    release, abi = output.release, output_abi(output)
    assert release is not None
    rows: list[Value] = []
    for component in components:
        row: dict[str, Value] = {
            "archs": list(component.archs),
            "cuda": [{"archs": list(component.archs), "file": path} for path in component.cuda],
            "drv": str(component.drv),
            "licence": component.licence,
            "modified": dict(component.modified),
            "name": component.name,
            "paths": list(component.paths),
            "python": list(component.python),
            "version": component.version,
        }
        if component.source is not None:
            source = component.source
            row["source"] = {
                "base": source.base,
                "heads": [
                    {"disposition": d, "head": h, "number": n, "title": t}
                    for n, h, d, t in source.heads
                ],
                "integration_tree": source.tree,
                "patch_digest": source.patch_digest,
                "patch_sha256": source.patch_sha256,
                "ref": source.ref,
                "repository": source.repository,
                "strategy": source.strategy,
                **_resolutions(source),
            }
        rows.append(row)
    return {
        "components": rows,
        "format": 0,
        "release": {
            "cache_fingerprint": fingerprint,
            "codename": release.codename,
            "date": release.date.isoformat(),
            "dirty": sorted(dirty),
            "isolation": release.isolation.value,
            "label_prefix": release.label_prefix,
            "labels": {
                **({f"{release.label_prefix}.runtime.abi": str(abi.digest)} if abi else {}),
                **(output.image.labels if output.image else {}),
            },
            "model_revision": release.model_revision,
            "output": output_name,
            "reference": reference,
            "revision": release.revision,
            "runtime": dict(release.runtime),
            "title": release.title,
        },
    }
