"""Sides out of documents: statements, labels, published locks, the answers of `realize --json`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reprobuild.core.diff.side import ComponentSide, Head, ImageSide, LayerSide, Side
from reprobuild.core.digest import GitOid
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from reprobuild.core.image import ImageFacts
    from reprobuild.core.integration.model import IntegrationSpec
    from reprobuild.core.integration.upstream import UpstreamLock

_HEAD = re.compile(r"(\d{1,9})@([0-9a-f]{40,64})(?::([a-z_]+))?\Z")
_OUR_LABEL = re.compile(
    r"(?P<prefix>.+?)\.(?P<name>[^.]+)\.(?P<key>drv|tree|version|repo|ref|branch|commit"
    r"|integration\.(?:tree|prs|heads|strategy)|patch_sha256|patch_digest|cuda\.archs)\Z"
)
_NOT_COMPONENTS = frozenset({"release", "model", "runtime", "isolation", "image"})


def side_error(name: str, why: str) -> ReprobuildError:
    """The error for a side that cannot be read."""
    return ReprobuildError("E-RELEASE-SIDE", f"{name}: {why}", side=name)


def spec_of(
    strategy: str, base: str, heads: Sequence[Head], composition: str = ""
) -> IntegrationSpec | None:
    """The integration behind base and heads as facts state them; None where they do not suffice
    (picked commits, or a composed branch, that only a lock names)."""
    if strategy not in ("", "merge") or not base:
        return None
    from reprobuild.core.integration.model import HeadSpec, IntegrationSpec, Strategy

    try:
        return IntegrationSpec(
            Strategy.MERGE,
            GitOid.parse(base),
            tuple(HeadSpec(h.number, GitOid.parse(h.head), h.title) for h in heads),
        )
    except ReprobuildError:
        return None


# -- the statement inside an image ---------------------------------------------------------------


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return value if isinstance(value, str) else ""


def statement_side(name: str, document: Mapping[str, Any], image: ImageSide | None = None) -> Side:
    """From a statement (docs/image.md); raises E-RELEASE-SIDE for one that is off."""
    if document.get("format") != 0:
        raise side_error(name, f"a statement of format {document.get('format')!r:.20}, not 0")
    release, rows = document.get("release"), document.get("components")
    if not isinstance(release, Mapping) or not isinstance(rows, list):
        raise side_error(name, "the statement lacks release or components")
    components: dict[str, ComponentSide] = {}
    for row in rows:
        if not isinstance(row, Mapping) or not _text(row, "name"):
            raise side_error(name, "the statement holds a component without a name")
        component = _stated(name, row)
        components[component.name] = component
    facts = {k: v for k, v in release.items() if isinstance(v, str)}
    runtime = release.get("runtime")
    if isinstance(runtime, Mapping):
        facts |= {f"runtime.{k}": v for k, v in runtime.items() if isinstance(v, str)}
    return Side(
        name,
        "statement",
        release=facts,
        components=components,
        image=image or ImageSide(reference=facts.get("reference", "")),
        roots={n: c.drv for n, c in components.items() if c.drv},
        output_name=facts.get("output", ""),
    )


def _stated(side: str, row: Mapping[str, Any]) -> ComponentSide:
    source = row.get("source")
    source = source if isinstance(source, Mapping) else {}
    rows = source.get("heads")
    heads: list[Head] = []
    for head in rows if isinstance(rows, list) else ():
        number = head.get("number") if isinstance(head, Mapping) else None
        if type(number) is not int:
            raise side_error(side, "the statement holds a head without a number")
        heads.append(Head(number, _text(head, "head"), _text(head, "disposition"),
                          _text(head, "title")))  # fmt: skip
    archs: list[str] = []
    cuda = row.get("cuda")
    for entry in cuda if isinstance(cuda, list) else ():
        if isinstance(entry, Mapping):
            archs += [a for a in entry.get("archs") or () if isinstance(a, str) and a not in archs]
    return ComponentSide(
        name=_text(row, "name"),
        version=_text(row, "version"),
        repository=_text(source, "repository"),
        ref=_text(source, "ref"),
        base=_text(source, "base"),
        strategy=_text(source, "strategy"),
        heads=tuple(heads),
        tree=_text(source, "integration_tree"),
        patch_sha256=_text(source, "patch_sha256"),
        patch_digest=_text(source, "patch_digest"),
        drv=_text(row, "drv").removeprefix("blake3:"),
        output=_text(row, "tree").removeprefix("blake3:"),
        archs=tuple(archs),
        spec=spec_of(_text(source, "strategy"), _text(source, "base"), heads),
        origin=place_of(_text(source, "repository")),
    )


def place_of(repository: str) -> dict[str, Any]:
    """Where a repository is, as the origin of a fetch says it."""
    if repository.startswith("fixture:"):
        return {"kind": "fixture", "path": repository.removeprefix("fixture:")}
    return {"kind": "git", "url": repository} if repository else {}


# -- labels --------------------------------------------------------------------------------------


def image_of(facts: ImageFacts, run: Mapping[str, Any]) -> ImageSide:
    """From what a layout says; `run` is the `config` object of the image's config."""
    return ImageSide(
        facts.reference,
        str(facts.config_digest),
        str(facts.manifest_digest),
        tuple(
            LayerSide(layer.component, str(layer.diff_id), str(layer.digest), layer.size)
            for layer in facts.layers
        ),
        dict(facts.labels),
        environment(run.get("Env")),
        serving(run),
    )


def environment(value: object) -> dict[str, str]:
    """`Env` of an image's config, by name."""
    if not isinstance(value, (list, tuple)):
        return {}
    pairs = (item.partition("=") for item in value if isinstance(item, str))
    return {name: content for name, _, content in pairs}


def serving(run: Mapping[str, Any]) -> dict[str, Any]:
    """What of a config says how the image is run, by our own names."""
    names = {"Entrypoint": "entrypoint", "Cmd": "cmd", "WorkingDir": "workdir", "User": "user",
             "ExposedPorts": "ports", "StopSignal": "stop_signal"}  # fmt: skip
    return {ours: run[theirs] for theirs, ours in names.items() if run.get(theirs)}


def labels_side(name: str, kind: str, image: ImageSide) -> Side:
    """From an image's labels alone, by the publishers' scheme (`PREFIX.COMPONENT.repo`…)."""
    rows: dict[str, dict[str, str]] = {}
    facts: dict[str, str] = {}
    for key, value in image.labels.items():
        match = _OUR_LABEL.match(key)
        if (
            match
            and match["name"] not in _NOT_COMPONENTS
            and not match["prefix"].endswith((".release", ".runtime", ".integration"))
        ):
            rows.setdefault(match["name"], {})[match["key"]] = value
        for group in (".release.", ".runtime.", ".isolation."):
            _, found, fact = key.partition(group)
            if found and fact != "components":
                prefix = "runtime." if group == ".runtime." else ""
                facts[prefix + ("isolation" if group == ".isolation." else fact)] = value
    components = {n: _labelled(n, row) for n, row in sorted(rows.items())}
    # under which name it was found is no fact of the release
    notes = () if components else ("the image has no labels of components",)
    return Side(
        name, kind, facts, components, image=image, notes=notes,
        roots={n: c.drv for n, c in components.items() if c.drv},
    )  # fmt: skip


def _labelled(name: str, row: Mapping[str, str]) -> ComponentSide:
    heads: list[Head] = []
    for text in row.get("integration.heads", "").split(","):
        match = _HEAD.match(text.strip())
        if match:
            heads.append(Head(int(match[1]), match[2], match[3] or ""))
    strategy = row.get("integration.strategy", "")
    repository = row.get("repo", "")
    return ComponentSide(
        name=name,
        version=row.get("version", ""),
        repository=repository,
        ref=row.get("ref", row.get("branch", "")),
        base=row.get("commit", ""),
        strategy=strategy,
        heads=tuple(heads),
        tree=row.get("integration.tree", ""),
        patch_sha256=row.get("patch_sha256", ""),
        patch_digest=row.get("patch_digest", ""),
        drv=row.get("drv", "").removeprefix("blake3:"),
        output=row.get("tree", "").removeprefix("blake3:"),
        archs=tuple(filter(None, row.get("cuda.archs", "").split(","))),
        spec=spec_of(strategy, row.get("commit", ""), heads),
        origin=place_of(repository),
    )


# -- published locks -----------------------------------------------------------------------------


def upstream_component(lock: UpstreamLock) -> ComponentSide:
    """From a published integration or source lock."""
    from reprobuild.core.integration.address import repository_name
    from reprobuild.core.integration.imported import component_name

    return ComponentSide(
        name=component_name(repository_name(lock.repository)),
        repository=lock.repository,
        ref=lock.base_ref,
        base=lock.base.hex,
        strategy=lock.strategy.value,
        heads=tuple(
            Head(h.number, h.head.hex, d.value if (d := lock.dispositions.get(h.number)) else "",
                 h.title)
            for h in lock.heads
        ),
        tree=lock.tree.hex,
        patch_sha256=lock.patch_sha256.hex if lock.patch_sha256 is not None else "",
        spec=lock.spec(),
        origin={"kind": "git", "url": lock.composition_repository or lock.repository},
    )  # fmt: skip


def upstream_side(name: str, locks: Iterable[UpstreamLock]) -> Side:
    """One or several published locks as a side: each is a component's source."""
    components: dict[str, ComponentSide] = {}
    for lock in locks:
        component = upstream_component(lock)
        if component.name in components:
            raise side_error(name, f"two locks are of {component.name}")
        components[component.name] = component
    return Side(name, "upstream-lock", components=dict(sorted(components.items())))


# -- answers of realize --------------------------------------------------------------------------


def answer_side(name: str, answer: Mapping[str, Any]) -> Side:
    """From what `realize --json` says, or the root document that it leaves in the store.

    Raises E-RELEASE-SIDE when a row is off.
    """
    image = answer.get("image")
    outputs = answer["outputs"]
    try:
        trees = {str(n): (str(o["drv"]), str(o["tree"]), str(o["isolation"]))
                 for n, o in outputs.items()}  # fmt: skip
        described = _answered(image) if isinstance(image, Mapping) else None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise side_error(name, f"not what realize says: {error!r:.80}") from error
    if described is not None:
        side = labels_side(name, "release", described)
        first = next(iter(trees.values()))
        return Side(
            name, "release", side.release, side.components, image=described, notes=side.notes,
            roots={**side.roots, "image": first[0].removeprefix("blake3:")}, isolation=first[2],
        )  # fmt: skip
    components = {
        n.rpartition(".")[2]: ComponentSide(
            n.rpartition(".")[2], drv=drv.removeprefix("blake3:"),
            output=tree.removeprefix("blake3:"),
        )
        for n, (drv, tree, _) in trees.items()
    }  # fmt: skip
    return Side(name, "release", components=components,
                roots={n: c.drv for n, c in components.items()})  # fmt: skip


def _answered(image: Mapping[str, Any]) -> ImageSide:
    return ImageSide(
        str(image["reference"]),
        str(image["config_digest"]),
        str(image["manifest_digest"]),
        tuple(
            LayerSide(str(la["component"]), str(la["diff_id"]), str(la["digest"]), int(la["size"]))
            for la in image["layers"]
        ),
        {str(k): str(v) for k, v in image["labels"].items()},
    )
