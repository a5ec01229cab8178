"""Labels, tag values and the statement of an image: literal fields of its recipe.

The keys follow the publishers' scheme (`PREFIX.COMPONENT.repo|ref|commit|integration.…`) and add
each component's drv digest and tree digest. Nothing observed while building is in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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


def compact(version: str) -> str:
    """`13.3` → `133`, `2.13.0` → `213`: how tags and cache names write a version."""
    return "".join(version.split(".")[:2])


def tag_values(release: Release, components: Sequence[ComponentFacts]) -> dict[str, str]:
    """What a tag pattern may name."""
    values = {
        "codename": release.codename,
        "revision": release.revision,
        "date": release.date.strftime("%Y%m%d"),
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
    release = output.release
    assert release is not None
    prefix = release.label_prefix
    labels = {
        "org.opencontainers.image.created": f"{release.date.isoformat()}T00:00:00Z",
        "org.opencontainers.image.title": release.title or release.codename,
        "org.opencontainers.image.version": reference.rpartition(":")[2],
        f"{prefix}.release.codename": release.codename,
        f"{prefix}.release.date": release.date.isoformat(),
        f"{prefix}.release.revision": release.revision,
        f"{prefix}.release.components": ",".join(c.name for c in components),
        f"{prefix}.isolation.required": release.isolation.value,
    }
    if release.model_revision:
        labels[f"{prefix}.model.revision"] = release.model_revision
    if dirty:
        labels[f"{prefix}.dirty"] = ",".join(sorted(dirty))
    for name, version in release.runtime.items():
        labels[f"{prefix}.runtime.{name}"] = version
    for component in components:
        stem = f"{prefix}.{component.name}"
        labels[f"{stem}.drv"] = str(component.drv)
        if component.version:
            labels[f"{stem}.version"] = component.version
        if component.archs:
            labels[f"{stem}.cuda.archs"] = ",".join(component.archs)
        if component.source is not None:
            labels.update(_source_labels(stem, component.source))
    labels.update(output.image.labels if output.image else {})
    return labels


def _source_labels(stem: str, source: SourceFacts) -> dict[str, str]:
    labels = {
        f"{stem}.repo": source.repository,
        f"{stem}.ref": source.ref,
        f"{stem}.commit": source.base,
        f"{stem}.integration.tree": source.tree,
    }
    if source.strategy:
        labels[f"{stem}.integration.strategy"] = source.strategy
        labels[f"{stem}.integration.prs"] = ",".join(str(n) for n, _, _, _ in source.heads)
        labels[f"{stem}.integration.heads"] = ",".join(
            f"{n}@{head}:{disposition}" for n, head, disposition, _ in source.heads
        )
        labels[f"{stem}.patch_sha256"] = source.patch_sha256
        labels[f"{stem}.patch_digest"] = source.patch_digest
    return labels


def statement(
    output_name: str, output: Output, components: Sequence[ComponentFacts], reference: str
) -> dict[str, Value]:
    """The release document's part that can lie inside its own image; trees are added later."""
    release = output.release
    assert release is not None
    rows: list[Value] = []
    for component in components:
        row: dict[str, Value] = {
            "cuda": [{"archs": list(component.archs), "file": path} for path in component.cuda],
            "drv": str(component.drv),
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
            }
        rows.append(row)
    return {
        "components": rows,
        "format": 0,
        "release": {
            "codename": release.codename,
            "date": release.date.isoformat(),
            "isolation": release.isolation.value,
            "model_revision": release.model_revision,
            "output": output_name,
            "reference": reference,
            "revision": release.revision,
            "runtime": dict(release.runtime),
            "title": release.title,
        },
    }
