"""What an image is made of, as a bill of materials in no particular format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reprobuild.core.image import ImageFacts


@dataclass(frozen=True, slots=True)
class Item:
    """A package, component or part of one. `kind` is pypi, deb, generic, component (built from a
    source), or compiled: what a build of ours made of it, a library (`sha256` is its file's) or all
    that one derivation made. `sha256` is of its file where it is a pinned download; `commit` and
    `repository` of a source."""

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
    archs: tuple[str, ...] = ()


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
        licence = row.get("licence", "") or _common(row.get("packages", ()))
        items.append(
            Item(
                f"component-{name}",
                "component",
                name,
                row.get("version", ""),
                licence,
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
        items += _compiled(row, licence)
    return Bill(
        release["title"] or release["codename"],
        release["reference"].rpartition(":")[2],
        f"{release['date']}T00:00:00Z",
        str(facts.config_digest),
        tuple(items),
    )


def _common(packages: Sequence[Mapping[str, Any]]) -> str:
    """The licence that all of a component's packages state, where they agree; else empty."""
    stated = {str(package["licence"]) for package in packages}
    return stated.pop() if len(stated) == 1 else ""


def _compiled(row: Mapping[str, Any], licence: str) -> Iterator[Item]:
    """What builds made of a component: under its licence, as far as it is known."""
    name, version = str(row["name"]), str(row.get("version", ""))
    for origin in row.get("origins", ()):
        if origin["kind"] == "derivation":
            yield Item(
                f"made-{name}-{origin['name']}",
                "compiled",
                str(origin["name"]),
                version,
                licence,
                name,
                drv=str(origin["drv"]),
            )
    for module in row.get("cuda", ()):
        yield Item(
            f"library-{name}-{module['file']}",
            "compiled",
            str(module["file"]).rpartition("/")[2],
            version,
            licence,
            name,
            sha256=str(module["sha256"]),
            archs=tuple(str(arch) for arch in module["archs"]),
        )
