"""What a worker has to be: platform properties of an action."""

from __future__ import annotations

from collections.abc import Mapping

from reprobuild.core.derivation import Hints

STANDARD = {"OSFamily": "linux", "ISA": "x86-64"}


def platform_of(hints: Hints, configured: Mapping[str, str]) -> dict[str, str]:
    """The standard properties, those of the configuration, and the recipe's own before them.

    In a configured value `{memory}` stands for the bytes that the recipe expects to need,
    `{memory_mib}` for the same in MiB, rounded up, `{cores}` for its cores. A property configured
    as "" is left out, also a standard one: a scheduler may know no such key.
    """
    words = {
        "{memory}": str(hints.memory),
        "{memory_mib}": str(-(-hints.memory // 2**20)),
        "{cores}": str(hints.cores),
    }
    out = dict(STANDARD)
    for key, pattern in configured.items():
        value = pattern
        for word, meant in words.items():
            value = value.replace(word, meant)
        out[key] = value
    out.update(hints.platform)
    return {key: value for key, value in out.items() if value}
