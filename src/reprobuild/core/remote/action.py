"""A closed build as content: what another machine needs, and how it went there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reprobuild.core.derivation import Derivation, Hints, InputContent
from reprobuild.core.digest import Digest


@dataclass(frozen=True, slots=True)
class RemoteAction:
    """A fully resolved build that names content, not places of this machine's disk.

    `inputs` are (absolute place, content), the root file system among them at "/". `expected_ms`
    is how long it took the last time, 0 where nobody knows. `fresh` asks for a real run: no
    result that the server remembers will do.
    """

    label: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    inputs: tuple[tuple[str, InputContent], ...]
    outputs: tuple[str, ...]
    hints: Hints = field(default_factory=Hints)
    expected_ms: int = 0
    fresh: bool = False

    @classmethod
    def of(
        cls,
        derivation: Derivation,
        inputs: Mapping[str, InputContent],
        expected_ms: int = 0,
        *,
        fresh: bool = False,
    ) -> RemoteAction:
        """The action of a sandboxed derivation whose inputs came out as `inputs`."""
        return cls(
            label=derivation.name,
            argv=derivation.argv,
            env=dict(derivation.env),
            cwd=derivation.cwd,
            inputs=tuple((i.at or "/", inputs[i.name]) for i in derivation.inputs),
            outputs=derivation.outputs,
            hints=derivation.hints,
            expected_ms=expected_ms,
            fresh=fresh,
        )


@dataclass(frozen=True, slots=True)
class RemoteOutcome:
    """How it went.

    `reason` and `status` as in `ports.BuildOutcome`; `outputs` are trees that are in the store,
    for what was made; `node` says who ran it (empty where a remembered result was given, and
    `cached` is set). Times in milliseconds, sizes in bytes.
    """

    reason: str
    status: int
    outputs: Mapping[str, Digest]
    node: str
    cached: bool = False
    duration_ms: int = 0
    queued_ms: int = 0
    uploaded: int = 0
    downloaded: int = 0
    attempts: int = 1
    notes: tuple[str, ...] = ()
