"""The runtime ABI: what compiled components must agree in to be put together, as one digest.

It is declared (`abi` of an output, and of the components that are built for one), and read from the
files that were built: what they need, and which versions of symbols.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reprobuild.core.component import Component
from reprobuild.core.digest import Digest, document_digest
from reprobuild.core.encoding import Value
from reprobuild.core.flake import Output
from reprobuild.errors import ReprobuildError

DOMAIN = "reprobuild/abi/v0"
FIELDS = (
    "interpreter",
    "cuda",
    "torch",
    "nccl",
    "cxx11-abi",
    "glibc",
    "glibcxx",
    "architectures",
)
"""The facts of an ABI: `cp311`, `13.3`, `2.13.0`, `2.31.2`, `1`, `2.36`, `3.4.30`, `sm_120a`."""

_PYTHON = re.compile(r"\.cpython-(\d{2,3})[-.]|^(?:.*/)?[^/]*-cp(\d{2,3})-")
_TAG = re.compile(r"^Tag: (?P<python>[a-z0-9.]+)-(?P<abi>[a-z0-9_.]+)-", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Abi:
    """Facts by name; those that are not stated are not there, and agree with anything."""

    facts: Mapping[str, str]

    @property
    def digest(self) -> Digest:
        """What labels say and what joins compare."""
        facts: dict[str, Value] = {key: value for key, value in self.facts.items() if value}
        return document_digest(DOMAIN, facts)

    def __str__(self) -> str:
        said = ", ".join(f"{key} {value}" for key, value in sorted(self.facts.items()))
        return f"{self.digest.short} ({said or 'nothing stated'})"

    def differs(self, other: Abi) -> list[str]:
        """The facts in which two ABIs that both state them do not agree."""
        both = self.facts.keys() & other.facts.keys()
        return sorted(key for key in both if self.facts[key] != other.facts[key])


def output_abi(output: Output) -> Abi | None:
    """The ABI that an output states; versions that its release states need not stand there again.

    None where it states none.
    """
    if not output.abi:
        return None
    runtime = output.release.runtime if output.release else {}
    facts = {key: runtime[key] for key in FIELDS if key in runtime}
    return Abi({**facts, **output.abi})


def output_parts(output: Output, components: Mapping[str, Component]) -> list[tuple[str, Abi]]:
    """The ABIs that are put together in an output: its own, and those of its components."""
    own = output_abi(output)
    parts = [("the output", own)] if own is not None else []
    for name in output.components:
        stated = components[output.described_by(name)].abi
        if stated:
            parts.append((f"component {name}", Abi(stated)))
    return parts


def join(parts: Iterable[tuple[str, Abi]]) -> Abi:
    """The ABI of components put together.

    Raises E-ABI, naming both components with their ABIs, where two do not agree.
    """
    facts: dict[str, str] = {}
    owners: dict[str, tuple[str, Abi]] = {}
    for name, abi in parts:
        for key, value in abi.facts.items():
            if key in facts and facts[key] != value:
                other, theirs = owners[key]
                raise ReprobuildError(
                    "E-ABI",
                    f"{name} is of ABI {abi}, and {other} of ABI {theirs}: they differ in "
                    + ", ".join(abi.differs(theirs)),
                    components=[other, name],
                    fields=abi.differs(theirs),
                )
            facts.setdefault(key, value)
            owners.setdefault(key, (name, abi))
    return Abi(facts)


@dataclass(frozen=True, slots=True)
class ElfFacts:
    """What one ELF file needs: libraries, the newest version of each family of symbols
    (`GLIBC` → `2.34`), and whether it uses the C++11 ABI of libstdc++ (None: no C++)."""

    path: str
    needed: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    cxx11: bool | None = None


@dataclass(frozen=True, slots=True)
class BuiltFacts:
    """What the files of a component say, with the file that says it, for messages."""

    facts: Mapping[str, tuple[str, str]]
    """Name of the fact → (value, path)."""
    files: int = 0
    minimum: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Versions of the system that are needed at least."""


def newest(versions: Iterable[str]) -> str:
    """The greatest of versions such as `2.34`; empty for none."""
    return max(versions, key=lambda v: tuple(int(p) for p in v.split(".")), default="")


def built_facts(
    elves: Iterable[ElfFacts],
    paths: Iterable[str],
    wheels: Mapping[str, str],
    archs: Mapping[str, str],
) -> BuiltFacts:
    """Out of what was read.

    `paths` are all files' (their names carry the interpreter), `wheels` the texts of WHEEL files by
    path, `archs` architectures with the file that holds machine code for them.
    """
    facts: dict[str, tuple[str, str]] = {}
    minimum: dict[str, tuple[str, str]] = {}
    count = 0
    for path in paths:
        match = _PYTHON.search(path)
        if match is not None:
            facts.setdefault("interpreter", (f"cp{match[1] or match[2]}", path))
    for path, text in wheels.items():
        for tag in _TAG.finditer(text):
            if tag["abi"].startswith("cp") and tag["abi"] != "cp":
                facts.setdefault("interpreter", (tag["abi"], path))
    for elf in elves:
        count += 1
        for library in elf.needed:
            cuda = re.match(r"libcudart\.so\.(\d+)", library)
            if cuda is not None:
                facts.setdefault("cuda-major", (cuda[1], elf.path))
            nccl = re.match(r"libnccl\.so\.(\d+)", library)
            if nccl is not None:
                facts.setdefault("nccl-major", (nccl[1], elf.path))
        if elf.cxx11:
            facts.setdefault("cxx11-abi", ("1", elf.path))
        for family, key in (("GLIBC", "glibc"), ("GLIBCXX", "glibcxx")):
            version = elf.versions.get(family, "")
            if version and newest((version, minimum.get(key, ("0", ""))[0])) == version:
                minimum[key] = (version, elf.path)
    if archs:
        names = sorted(archs)
        facts["architectures"] = (",".join(names), archs[names[0]])
    return BuiltFacts(facts, count, minimum)


def contradictions(declared: Abi, built: BuiltFacts) -> list[str]:
    """Where built files are of another ABI than is declared, one line each."""
    out: list[str] = []
    said = declared.facts
    for key, (value, path) in built.facts.items():
        name = key.removesuffix("-major")
        wanted = said.get(name, "")
        if not wanted:
            continue
        if key == "architectures":
            extra = sorted(set(value.split(",")) - set(wanted.split(",")))
            if extra:
                out.append(f"{path} holds code for {', '.join(extra)}; the ABI has {wanted}")
        elif key.endswith("-major"):
            if wanted.split(".")[0] != value:
                out.append(f"{path} needs {name} {value}; the ABI has {wanted}")
        elif value != wanted:
            out.append(f"{path} is for {name} {value}; the ABI has {wanted}")
    for key, (value, path) in built.minimum.items():
        wanted = said.get(key, "")
        if wanted and newest((value, wanted)) != wanted:
            out.append(f"{path} needs {key} {value}; the ABI has {wanted}")
    return out
