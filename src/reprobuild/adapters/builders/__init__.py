"""Built-in builders: deterministic functions from parameters and input trees to output trees.

Naming them is cheap (every run needs names and versions for action digests); what they are made
of is imported when one is first used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.ports import Builtin, ContentStore


@dataclass(slots=True)
class _Lazy:
    """A built-in whose module is imported by its first use.

    `version` moves whenever the same parameters and inputs may give another tree.
    """

    name: str
    version: int
    module: str

    def build(
        self, params: Value, inputs: Mapping[str, Digest], content: ContentStore
    ) -> Mapping[str, Digest]:
        """See `reprobuild.ports.Builtin`."""
        module = import_module(f"{__name__}.{self.module}")
        outputs: Mapping[str, Digest] = module.build(params, inputs, content)
        return outputs


def builtins() -> dict[str, Builtin]:
    """All built-in builders by name."""
    known = (
        _Lazy("unpack", 1, "unpack"),
        _Lazy("rootfs", 1, "rootfs"),
        _Lazy("join", 1, "join"),
        _Lazy("wheel-install", 1, "wheel"),
        _Lazy("statement", 5, "statement"),
        _Lazy("layer", 3, "layer"),
        _Lazy("image", 2, "image"),
        _Lazy("oci-rootfs", 1, "ocirootfs"),
        _Lazy("cuda-check", 1, "cuda_check"),
    )
    return {builtin.name: builtin for builtin in known}
