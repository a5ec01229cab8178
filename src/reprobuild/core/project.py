"""A project as it was read: the flake, its components, its lock, and the texts of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reprobuild.core.component import Component
from reprobuild.core.flake import Flake
from reprobuild.core.lock import Lock


@dataclass(frozen=True, slots=True)
class Project:
    """Everything that a directory says. `lock` is None where nothing was locked yet.

    `texts` are the files' bytes by their path relative to the project (`flake-like.toml`,
    `derivations/NAME.toml`, `flake-like.lock`, included files): what a memo is keyed by.
    `origins` says which file declares something, by (table, name), where it is not the flake.
    """

    flake: Flake
    components: Mapping[str, Component]
    lock: Lock | None = None
    texts: Mapping[str, bytes] = field(default_factory=dict)
    origins: Mapping[tuple[str, str], str] = field(default_factory=dict)
