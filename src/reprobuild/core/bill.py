"""What an image is made of, as a bill of materials in no particular format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reprobuild.core.image import ImageFacts


@dataclass(frozen=True, slots=True)
class Item:
    """A package or component. `kind` is pypi, deb, generic, or component (built from a source);
    `sha256` of its file where it is a pinned download; `commit` and `repository` of a source."""

    key: str
    kind: str
    name: str
    version: str
    licence: str
    component: str
    sha256: str = ""
    repository: str = ""
    commit: str = ""
    drv: str = ""


@dataclass(frozen=True, slots=True)
class Bill:
    """All items of one image. `created` is RFC 3339."""

    name: str
    version: str
    created: str
    config_digest: str
    items: tuple[Item, ...]


def bill(facts: ImageFacts, statement: Mapping[str, Any]) -> Bill:
    """The bill of an image, from its own statement."""
    release = statement["release"]
    items: list[Item] = []
    for row in statement["components"]:
        name = row["name"]
        source = row.get("source") or {}
        items.append(
            Item(
                f"component-{name}",
                "component",
                name,
                row.get("version", ""),
                row.get("licence", ""),
                name,
                repository=source.get("repository", ""),
                commit=source.get("base", ""),
                drv=row["drv"],
            )
        )
        pins = {
            str(pin["name"]).lower().replace("_", "-"): str(pin["sha256"])
            for origin in row.get("origins", ())
            for pin in origin["pins"]
        }
        items += [
            Item(
                f"{package['type']}-{name}-{package['name']}",
                package["type"],
                package["name"],
                package["version"],
                package["licence"],
                name,
                sha256=pins.get(str(package["name"]).lower().replace("_", "-"), ""),
            )
            for package in row.get("packages", ())
        ]
    return Bill(
        release["title"] or release["codename"],
        release["reference"].rpartition(":")[2],
        f"{release['date']}T00:00:00Z",
        str(facts.config_digest),
        tuple(items),
    )
