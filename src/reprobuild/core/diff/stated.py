"""The side of an output that is open: what lock and flake state of it, without derivations."""

from __future__ import annotations

from reprobuild.core.diff.read import spec_of
from reprobuild.core.diff.side import ComponentSide, Head, ImageSide, Side
from reprobuild.core.documents.facts import EMPTY_PATCH, ReleaseFacts, SourceView


def stated_side(name: str, facts: ReleaseFacts, why: str) -> Side:
    """From the facts of a release; `why` says what is open, and becomes a note."""
    release = facts.release
    said = {
        "codename": release.codename,
        "revision": release.revision,
        "date": release.date.isoformat(),
        "title": release.title,
        "reference": facts.reference,
        "model_revision": release.model_revision or "",
        "cache_fingerprint": facts.fingerprint,
        **{f"runtime.{key}": version for key, version in release.runtime.items()},
    }
    components = {view.component: _component(view) for view in facts.sources}
    for component, commit in facts.commits.items():
        if component not in components:
            components[component] = ComponentSide(
                component, version=facts.versions.get(component, ""), base=commit
            )
    for component, version in facts.versions.items():
        components.setdefault(component, ComponentSide(component, version=version))
    return Side(
        name,
        "stated",
        release={key: value for key, value in said.items() if value},
        components=components,
        image=ImageSide(reference=facts.reference),
        output_name=facts.output,
        notes=(f"what is stated is compared, since {_short(why)}",),
    )


def _short(why: str) -> str:
    return why if len(why) <= 160 else f"{why[:160]}…"


def _component(view: SourceView) -> ComponentSide:
    landed = "already_in_base" if view.patch_sha256 == EMPTY_PATCH else ""
    heads = tuple(Head(h.number, h.head, h.disposition or landed, h.title) for h in view.heads)
    return ComponentSide(
        name=view.component,
        version=view.version,
        repository=view.repository,
        ref=f"refs/heads/{view.branch}",
        base=view.base,
        strategy=view.strategy,
        heads=heads,
        tree=view.tree,
        patch_sha256=view.patch_sha256,
        spec=spec_of(view.strategy, view.base, heads),
    )
