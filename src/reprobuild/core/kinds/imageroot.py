"""An image where a root file system is wanted: its layers, one over the other."""

from __future__ import annotations

from reprobuild.core.derivation import Derivation
from reprobuild.core.graph import Graph
from reprobuild.core.kinds.context import Located


def root_of(name: str, found: Located, graph: Graph) -> Located:
    """The tree to build in: what was found, or for an image the root file system that it stands
    for, so that a release can compile in the base it ships on."""
    fixed = graph.nodes[found.drv].fixed
    if fixed is None or fixed.kind != "oci-image" or found.path:
        return found
    flattened = Derivation(
        name=f"{name}.rootfs",
        builder="builtin:oci-rootfs",
        inputs=(found.input("base-0"),),
        params={"architecture": "amd64"},
    )
    return Located(graph.add(flattened))
