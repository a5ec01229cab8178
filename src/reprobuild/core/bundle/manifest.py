"""The manifest: what a bundle says of itself, checked when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reprobuild.core.bundle.closure import Closure
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.errors import ReprobuildError

FORMAT = 0
RUNTIME, SOURCES = "runtime", "sources"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an installable came out as: its recipe, the record that stands for it, its tree."""

    drv: Digest
    record: str
    tree: Digest
    output: str = "out"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a recipe came out as where the bundle was made: something to compare with."""

    name: str
    outputs: Mapping[str, Digest]


@dataclass(frozen=True, slots=True)
class Requires:
    """What a delta builds on: closures and trees that must be in the store already."""

    closures: tuple[Digest, ...] = ()
    trees: tuple[Digest, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """`keep` is what the import keeps; `chosen` maps drvs to `action/record`; `git` names, for
    the address of each repository, a tree with a pack of the objects that its integrations read;
    `project` is a tree with flake, lock, component files, fixtures and local inputs."""

    kind: str
    keep: Closure
    outputs: Mapping[str, Wanted]
    project: Digest | None = None
    chosen: Mapping[Digest, str] = field(default_factory=dict)
    expected: Mapping[Digest, Expected] = field(default_factory=dict)
    git: Mapping[str, Digest] = field(default_factory=dict)
    requires: Requires = field(default_factory=Requires)
    compressor: str = ""
    tool: str = ""
    head: str = ""
    boot: str = ""

    def document(self) -> dict[str, Value]:
        """The JSON object in the index."""
        return {
            "boot": self.boot,
            "chosen": {drv.hex: name for drv, name in self.chosen.items()},
            "compressor": self.compressor,
            "expected": {
                drv.hex: {
                    "name": e.name,
                    "outputs": {name: tree.hex for name, tree in e.outputs.items()},
                }
                for drv, e in self.expected.items()
            },
            "format": FORMAT,
            "git": {url: tree.hex for url, tree in self.git.items()},
            "head": self.head,
            "keep": self.keep.document(),
            "kind": self.kind,
            "outputs": {
                name: {
                    "drv": w.drv.hex,
                    "output": w.output,
                    "record": w.record,
                    "tree": w.tree.hex,
                }
                for name, w in self.outputs.items()
            },
            "project": self.project.hex if self.project is not None else None,
            "requires": {
                "closures": [d.hex for d in self.requires.closures],
                "trees": [d.hex for d in self.requires.trees],
            },
            "tool": self.tool,
        }


def parse_manifest(value: Mapping[str, Value]) -> Manifest:
    """The manifest of a decoded index; raises E-BUNDLE naming what is off."""
    try:
        return _parse(value)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ReprobuildError(
            "E-BUNDLE", f"the manifest lacks something or has it in the wrong form: {error!r}"
        ) from error
    except ReprobuildError as error:
        raise ReprobuildError("E-BUNDLE", f"the manifest is off: {error.message}") from error


def _parse(value: Mapping[str, Value]) -> Manifest:
    if value["format"] != FORMAT:
        raise ValueError(f"format {value['format']!r}")
    if value["kind"] not in (RUNTIME, SOURCES):
        raise ValueError(f"kind {value['kind']!r}")
    requires = _table(value["requires"])
    project = value["project"]
    return Manifest(
        kind=_text(value["kind"]),
        keep=Closure.parse(value["keep"]),
        outputs={name: _wanted(_table(row)) for name, row in _table(value["outputs"]).items()},
        project=None if project is None else _digest(project),
        chosen={
            Digest.parse(drv): _reference(text) for drv, text in _table(value["chosen"]).items()
        },
        expected={
            Digest.parse(drv): Expected(
                _text(_table(row)["name"]), _digests(_table(row)["outputs"])
            )
            for drv, row in _table(value["expected"]).items()
        },
        git=_digests(value["git"]),
        requires=Requires(
            tuple(_digest(d) for d in _list(requires["closures"])),
            tuple(_digest(d) for d in _list(requires["trees"])),
        ),
        compressor=_text(value["compressor"]),
        tool=_text(value["tool"]),
        head=_text(value["head"]),
        boot=_text(value["boot"]),
    )


def _wanted(row: Mapping[str, Value]) -> Wanted:
    return Wanted(
        _digest(row["drv"]), _reference(row["record"]), _digest(row["tree"]), _text(row["output"])
    )


def _text(value: Value) -> str:
    if not isinstance(value, str):
        raise TypeError("a text was expected")
    return value


def _table(value: Value) -> Mapping[str, Value]:
    if not isinstance(value, Mapping):
        raise TypeError("an object was expected")
    return value


def _list(value: Value) -> list[Value]:
    if not isinstance(value, list):
        raise TypeError("a list was expected")
    return value


def _digest(value: Value) -> Digest:
    return Digest.parse(_text(value))


def _digests(value: Value) -> dict[str, Digest]:
    return {name: _digest(text) for name, text in _table(value).items()}


def _reference(value: Value) -> str:
    action, slash, record = _text(value).partition("/")
    if not slash:
        raise ValueError("a record is named by action/record")
    return f"{Digest.parse(action).hex}/{Digest.parse(record).hex}"
