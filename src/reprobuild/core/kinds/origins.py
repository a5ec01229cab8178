"""Where the files of a component's layer come from: read off the graph, nothing is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reprobuild.core.derivation import Derivation
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.graph import Graph
from reprobuild.core.kinds.context import Located

SOURCE, DERIVATION, PACKAGE, ADDITION = "source", "derivation", "package", "addition"
_UNPACKING = ("builtin:unpack", "builtin:wheel-install", "builtin:rootfs", "builtin:oci-rootfs")


@dataclass(frozen=True, slots=True)
class Origin:
    """One of the things that a layer's files come from.

    `kind` is `source` (a git tree: integrated, or at its ref), `package` (a pinned download,
    unpacked), `derivation` (what a build made) or `addition` (a directory of the project, or texts
    in its component files). `located` is its tree (None for texts); `pins` the pinned files behind
    a package; `texts` and `links` what a recipe holds literally, by digest or target.
    """

    kind: str
    name: str
    located: Located | None
    pins: tuple[Mapping[str, Value], ...] = ()
    texts: tuple[str, ...] = ()
    links: tuple[str, ...] = ()

    def document(self) -> dict[str, Value]:
        """What the recipe of the statement says of it."""
        return {
            "drv": str(self.located.drv) if self.located is not None else "",
            "kind": self.kind,
            "links": list(self.links),
            "name": self.name,
            "pins": [dict(pin) for pin in self.pins],
            "texts": list(self.texts),
        }


def origins(graph: Graph, located: Located) -> list[Origin]:
    """The origins of a tree, joins looked through, in a fixed order and each once."""
    found: dict[tuple[str, str], Origin] = {}
    texts: dict[str, None] = {}
    links: dict[str, None] = {}
    stack = [located]
    seen: set[tuple[Digest, str]] = set()
    while stack:
        place = stack.pop()
        if (place.drv, place.output) in seen:
            continue
        seen.add((place.drv, place.output))
        node = graph.nodes[place.drv]
        if node.builder in ("builtin:join", "builtin:rootfs"):
            _literals(node, texts, links)
        if node.builder == "builtin:join":
            stack += [Located(i.drv, i.output) for i in reversed(node.inputs)]
            continue
        origin = _leaf(graph, node, Located(place.drv, place.output))
        found[place.drv.hex, place.output] = origin
    out = list(found.values())
    if texts or links:
        out.append(Origin(ADDITION, "the recipe", None, (), tuple(texts), tuple(links)))
    return out


def _literals(node: Derivation, texts: dict[str, None], links: dict[str, None]) -> None:
    params = node.params if isinstance(node.params, Mapping) else {}
    for table, into in (("files", texts), ("links", links)):
        given = params.get(table)
        for value in given.values() if isinstance(given, Mapping) else ():
            if isinstance(value, str):
                into[Digest.of(value.encode()).hex if table == "files" else value] = None


def _leaf(graph: Graph, node: Derivation, located: Located) -> Origin:
    if node.fixed is not None:
        kind = {"git-tree": SOURCE, "tree": ADDITION}.get(node.fixed.kind, PACKAGE)
        pins = (_pin(node),) if kind == PACKAGE else ()
        return Origin(kind, node.name, located, pins)
    if node.builder in _UNPACKING:
        inner = [graph.nodes[i.drv] for i in node.inputs]
        if all(n.fixed is not None and n.fixed.kind in ("file", "oci-image") for n in inner):
            return Origin(PACKAGE, node.name, located, tuple(_pin(n) for n in inner))
    return Origin(DERIVATION, node.name, located)


def _pin(node: Derivation) -> Mapping[str, Value]:
    fixed, origin = node.fixed, node.origin
    assert fixed is not None
    sha256 = fixed.sha256.hex if fixed.sha256 is not None else ""
    pin: dict[str, Value] = {"filename": fixed.filename, "sha256": sha256}
    for key in ("kind", "name", "version"):
        value = origin.get(key)
        pin[key] = value if isinstance(value, str) else ""
    return pin
