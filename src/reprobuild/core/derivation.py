"""Derivations: closed recipes, and the two digests by which they are known.

*drv digest* – over the recipe with inputs named by *their* drv digests (or, for a fixed-output
derivation, over the content it promises): known before anything is built.
*action digest* – over the same recipe with every input replaced by the tree it really produced,
plus the version of what interprets it: what records are looked up by. A derivation that changed
while its inputs came out the same therefore has an action that is on record already.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from reprobuild.core.digest import Digest, GitOid, Sha256, document_digest, tagged
from reprobuild.core.encoding import Value, encode
from reprobuild.errors import ReprobuildError

DERIVATION_DOMAIN = "reprobuild/derivation/v0"
FIXED_DOMAIN = "reprobuild/fixed-output/v0"
ACTION_DOMAIN = "reprobuild/action/v0"

SYSTEM = "x86_64-linux"
SANDBOX = "sandbox"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,79}\Z")
_STEP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+./:@~-]{0,199}\Z")


def check_component_name(name: str) -> str:
    """`name` itself where it can name an input, component, step or output (no dot)."""
    if not _NAME.match(name):
        raise ReprobuildError("E-NAME", f"{name[:100]!r} is not allowed as a name", got=name[:100])
    return name


class Isolation(StrEnum):
    """How closed a build was, weakest last. A weaker record never serves a stricter wish."""

    FULL = "full"
    REMOTE = "remote"
    """On another machine, by a worker that was asked and agreed in what a build can see; how it
    closes a build off is its own matter (docs/remote.md)."""
    HOST_TOOLCHAIN = "host-toolchain"
    NONE = "none"

    def satisfies(self, wish: Isolation) -> bool:
        """Whether a build of this grade may stand where `wish` is asked for."""
        order = list(Isolation)
        return order.index(self) <= order.index(wish)


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a recipe.

    `drv` and `output` say whose tree; `path` a place inside it (`/`-separated, empty for the
    whole); `at` the absolute path where the sandbox shows it ("/" for the root file system), or
    None for an input that only a built-in reads.
    """

    name: str
    drv: Digest
    output: str = "out"
    path: str = ""
    at: str | None = None


@dataclass(frozen=True, slots=True)
class FixedOutput:
    """The content a fetch promises.

    `kind` is one of
    `file` (`filename`, `sha256`: a tree holding that one file),
    `git-tree` (`oid`: the tree of that git tree object, submodules as empty directories),
    `tree` (`tree`: a store tree, for path inputs),
    `oci-image` (`sha256`: an OCI layout whose manifest has that digest).
    """

    kind: str
    filename: str = ""
    sha256: Sha256 | None = None
    oid: GitOid | None = None
    tree: Digest | None = None

    def document(self) -> dict[str, Value]:
        """The fields that are hashed."""
        out: dict[str, Value] = {"kind": self.kind}
        if self.filename:
            out["filename"] = self.filename
        if self.sha256 is not None:
            out["sha256"] = self.sha256.hex
        if self.oid is not None:
            out["oid"] = self.oid.hex
        if self.tree is not None:
            out["tree"] = self.tree.hex
        return out


@dataclass(frozen=True, slots=True)
class Hints:
    """What the scheduler may use; none of it can change what comes out.

    `memory` in bytes, `cores`, `timeout` and `silence` in seconds, `output_limit` in bytes;
    `platform` is what a remote worker must offer, as (name, value).
    """

    memory: int = 256 * 2**20
    cores: int = 1
    timeout: int = 3600
    silence: int = 1800
    output_limit: int = 32 * 2**30
    platform: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class InputContent:
    """What an input turned out to be: a tree, or one file of it."""

    digest: Digest
    is_file: bool = False
    executable: bool = False

    def document(self) -> dict[str, Value]:
        """The hashed form."""
        if self.is_file:
            return {"blob": self.digest.hex, "executable": self.executable}
        return {"tree": self.digest.hex}


@dataclass(frozen=True, slots=True)
class Derivation:
    """A closed recipe.

    `builder` is "sandbox" (run `argv` with exactly `env` in `cwd`), "fetch" (obtain `fixed`) or
    "builtin:NAME" (a built-in of this tool, told what to do by `params`). `narrow`, where given,
    asks for inputs to be cut down to what could be read (engine/narrow.py). `origin` says how a
    fixed output may be come by: provenance, not hashed. `hints` are for the scheduler: not hashed.
    """

    name: str
    builder: str
    inputs: tuple[Input, ...] = ()
    outputs: tuple[str, ...] = ("out",)
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/build"
    params: Value = None
    fixed: FixedOutput | None = None
    system: str = SYSTEM
    narrow: Value = None
    origin: Mapping[str, Value] = field(default_factory=dict)
    hints: Hints = field(default_factory=Hints)
    _digest: Digest | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not _STEP_NAME.match(self.name):
            raise ReprobuildError("E-NAME", f"{self.name[:100]!r} cannot name a derivation")
        names = [i.name for i in self.inputs]
        if len(set(names)) != len(names):
            raise ReprobuildError("E-DERIVATION", f"{self.name} has two inputs of one name")
        if not self.outputs or len(set(self.outputs)) != len(self.outputs):
            raise ReprobuildError("E-DERIVATION", f"{self.name} needs distinct outputs")
        if self.builder == SANDBOX:
            self._check_sandboxed()
        elif (self.builder == "fetch") != (self.fixed is not None):
            raise ReprobuildError("E-DERIVATION", f"{self.name}: a fetch promises fixed content")

    def _check_sandboxed(self) -> None:
        if not self.argv:
            raise ReprobuildError("E-DERIVATION", f"{self.name} has an empty command")
        for text in (*self.argv, *self.env, *self.env.values()):
            if "\0" in text:
                raise ReprobuildError("E-DERIVATION", f"{self.name}: NUL in command or environment")
        places = [i.at for i in self.inputs]
        if None in places or len(set(places)) != len(places):
            raise ReprobuildError("E-DERIVATION", f"{self.name}: inputs need distinct places")

    def _recipe(self) -> dict[str, Value]:
        return {
            "argv": list(self.argv),
            "builder": self.builder,
            "cwd": self.cwd if self.builder == SANDBOX else "",
            "env": dict(self.env),
            "outputs": list(self.outputs),
            "params": self.params,
            "system": self.system,
        }

    def document(self) -> dict[str, Value]:
        """The hashed form; what store files and `why` show."""
        if self.fixed is not None:
            return {"fixed": self.fixed.document()}
        inputs: dict[str, Value] = {
            i.name: {"at": i.at, "drv": i.drv.hex, "output": i.output, "path": i.path}
            for i in self.inputs
        }
        document = {**self._recipe(), "inputs": inputs, "name": self.name}
        if self.narrow is not None:
            document["narrow"] = self.narrow
        return document

    @property
    def digest(self) -> Digest:
        """The drv digest; taken once."""
        return self._digest or self.named()[0]

    def named(self) -> tuple[Digest, bytes]:
        """The drv digest, and the canonical document that it is taken over."""
        text = encode(self.document())
        digest = tagged(FIXED_DOMAIN if self.fixed is not None else DERIVATION_DOMAIN, text)
        object.__setattr__(self, "_digest", digest)
        return digest, text

    def action(self, inputs: Mapping[str, InputContent], interpreter: str) -> Digest:
        """The action digest.

        `inputs` gives for each input name what it turned out to be; `interpreter` names what runs
        the recipe and its version (`sandbox/3`, `unpack/1`). The derivation's own name is left
        out: two names for one recipe are one action.
        """
        if self.fixed is not None:
            return document_digest(ACTION_DOMAIN, self.document())
        recipe = self._recipe()
        recipe["inputs"] = {i.name: {"at": i.at, **inputs[i.name].document()} for i in self.inputs}
        recipe["interpreter"] = interpreter
        return document_digest(ACTION_DOMAIN, recipe)
