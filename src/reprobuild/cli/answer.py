"""What `realize` prints. A run with nothing to do needs this and no more, so it stands alone."""

from __future__ import annotations

import json

from reprobuild.core.wording import plural, size

TYPE_CHECKING = False  # `typing` takes longer to import than this file
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any


_OF_A_RUN = ("substituted", "remote", "remote_cache")
"""What says how results were come by, not what they are."""


def remembered(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An earlier answer, as one of a run that made nothing."""
    counts = dict.fromkeys(answer["counts"], 0)
    counts["reused"] = len(answer["outputs"])
    kept = {key: value for key, value in answer.items() if key not in _OF_A_RUN}
    return {**kept, "counts": counts}


def text(document: Mapping[str, Any], *, as_json: bool) -> str:
    """The whole of standard output, its last newline left out."""
    if as_json:
        return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False)
    return "\n".join(_plan(document) if "plan" in document else _made(document))


def _plan(document: Mapping[str, Any]) -> Iterator[str]:
    for step in document["plan"]:
        yield f"{step['deed']:<6} {step['name']}  – {step['reason']}"
    deeds = [step["deed"] for step in document["plan"]]
    build, fetch, reuse = (deeds.count(deed) for deed in ("build", "fetch", "reuse"))
    if not build and not fetch:
        yield "nothing to do"
        return
    here = f", {reuse} on record" if reuse else ""
    yield f"to do: {build} to build, {fetch} to fetch{here}"
    if reuse and build:
        yield "a build whose inputs come out as they did before is not run again (cut off)"


def _made(document: Mapping[str, Any]) -> Iterator[str]:
    for name, entry in document["outputs"].items():
        dirty = f"  dirty: {', '.join(entry['dirty'])}" if entry["dirty"] else ""
        yield f"{name}  {entry['tree']}{dirty}"
        yield f"  path       {entry['path']}"
        if entry["isolation"] != "full":
            yield f"  isolation  {entry['isolation']}"
    image = document.get("image")
    if image:
        yield f"image {image['reference']}"
        yield f"  config     {image['config_digest']}"
        yield f"  manifest   {image['manifest_digest']}"
        for layer in image["layers"]:
            length = size(layer["size"])
            yield f"  layer      {layer['digest']}  {length:>10}  {layer['component']}"
    compared = document.get("compared")
    if compared:
        alone = f", {compared['unknown']} with nothing to compare" if compared["unknown"] else ""
        yield f"{plural(compared['equal'], 'output')} equal to what is known of them{alone}"
    reread = document.get("reread")
    if reread:
        really = sum(found["included"] for found in reread.values())
        changed = sorted({path for found in reread.values() for path in found["changed"]})
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        yield (
            f"{plural(len(reread), 'unit')} could read what changed, {really} of them included it: "
            f"{', '.join(changed[:3])}{more}"
        )
    yield _summary(document["counts"], _givers(document))


def _givers(document: Mapping[str, Any]) -> list[str]:
    """The caches that gave something, as they are named to people."""
    places = (document.get("substituted", {}), document.get("remote_cache", {}))
    return [name for place in places for name, count in place.get("from", {}).items() if count]


def _summary(counts: Mapping[str, int], caches: Sequence[str]) -> str:
    words = (
        ("built", "built"),
        ("fetched", "fetched"),
        ("cut_off", "cut off"),
        ("checked", "checked and equal"),
        ("reused", "reused"),
    )
    busy = any(counts.get(k) for k in ("taken", "built", "fetched", "cut_off", "checked"))
    if not busy:
        return "nothing to do"
    parts = [f"{word} {counts[key]}" for key, word in words if counts.get(key)]
    if counts.get("taken"):
        parts.insert(0, f"taken {counts['taken']} from {' and '.join(caches)}")
    return ", ".join(parts)
