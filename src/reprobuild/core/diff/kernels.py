"""The kernels' level: what happened to the device code of a component's modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reprobuild.core.encoding import Value

ATTRIBUTES = ("registers", "spills", "shared", "code_size")
"""Registers of a thread; spilled, shared and code bytes."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel in one architecture's code; `code` is a digest of its instructions."""

    code: str
    registers: int = 0
    spills: int = 0
    shared: int = 0
    code_size: int = 0


@dataclass(frozen=True, slots=True)
class Module:
    """A library's device code. Kernels by `NAME` or, with several architectures, `NAME@ARCH`."""

    archs: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    kernels: Mapping[str, Kernel] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    """Names for people, by the same keys, where they differ."""


@dataclass(frozen=True, slots=True)
class ModuleDiff:
    """What happened to one module. `changed` gives for each kernel its old and new self."""

    path: str
    archs_lost: tuple[str, ...] = ()
    archs_gained: tuple[str, ...] = ()
    ptx: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: Mapping[str, tuple[Kernel, Kernel]] = field(default_factory=dict)
    kept: int = 0
    whole: str = ""
    """`added` or `removed` where a side lacks the module."""
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def any(self) -> bool:
        """Whether anything happened to the device code."""
        return bool(
            self.archs_lost or self.archs_gained or self.ptx[0] != self.ptx[1] or self.added
            or self.removed or self.changed or self.whole
        )  # fmt: skip

    def document(self) -> dict[str, Value]:
        """The plain form."""
        return {
            "added": [self._name(k) for k in self.added],
            "archs_gained": list(self.archs_gained),
            "archs_lost": list(self.archs_lost),
            "changed": [
                {
                    "kernel": self._name(key),
                    "code": old.code != new.code,
                    **{
                        name: {"old": getattr(old, name), "new": getattr(new, name)}
                        for name in ATTRIBUTES
                        if getattr(old, name) != getattr(new, name)
                    },
                }
                for key, (old, new) in self.changed.items()
            ],
            "kept": self.kept,
            "module": self.whole or ("changed" if self.any else "kept"),
            "ptx": {"old": list(self.ptx[0]), "new": list(self.ptx[1])},
            "removed": [self._name(k) for k in self.removed],
        }

    def _name(self, key: str) -> str:
        return self.names.get(key, key)


def compare_modules(old: Mapping[str, Module], new: Mapping[str, Module]) -> list[ModuleDiff]:
    """Every module of either side, in order of paths; those without change, too."""
    found: list[ModuleDiff] = []
    for path in sorted({*old, *new}):
        one, other = old.get(path), new.get(path)
        before, after = one or Module(), other or Module()
        both = [k for k in before.kernels if k in after.kernels]
        found.append(
            ModuleDiff(
                path,
                _less(before.archs, after.archs),
                _less(after.archs, before.archs),
                (before.ptx, after.ptx),
                tuple(sorted(k for k in after.kernels if k not in before.kernels)),
                tuple(sorted(k for k in before.kernels if k not in after.kernels)),
                {
                    k: (before.kernels[k], after.kernels[k])
                    for k in sorted(both)
                    if before.kernels[k] != after.kernels[k]
                },
                sum(before.kernels[k] == after.kernels[k] for k in both),
                "added" if one is None else "removed" if other is None else "",
                {**before.names, **after.names},
            )
        )
    return found


def _less(one: Sequence[str], other: Sequence[str]) -> tuple[str, ...]:
    return tuple(a for a in one if a not in other)
