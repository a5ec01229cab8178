"""The models of derivations/NAME.toml: how one component is built, and what goes where."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from reprobuild.core.globs import Selection
from reprobuild.core.schema import (
    Argument,
    EnvName,
    EnvValue,
    InnerPath,
    InnerPathOrTop,
    Model,
    Name,
    Reference,
    RelativePath,
    TreePath,
    problem,
)
from reprobuild.errors import ReprobuildError


def _arch(text: str) -> str:
    if not re.fullmatch(r"sm_[1-9][0-9]{1,2}[af]?", text):
        raise problem("arch", f"{text[:80]!r} is no GPU architecture, such as 'sm_120a'")
    return text


Arch = Annotated[str, AfterValidator(_arch)]


class _Step(Model):
    """Limits that any step may state: memory in MiB, time in seconds."""

    memory: int | None = Field(default=None, gt=0)
    timeout: int | None = Field(default=None, gt=0)


class _SandboxedStep(_Step):
    """What a remote worker must offer, beside its system: `pool`, `gpu`, whatever its scheduler
    knows. No part of the identity."""

    platform: dict[Name, Argument] = Field(default_factory=dict)


class UnpackStep(_Step):
    """Archives (wheels, sdists, zip, tar) as a tree; several are merged."""

    kind: Literal["unpack"]
    archive: Reference
    strip: int = Field(default=0, ge=0)
    prefix: InnerPathOrTop = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class RootfsStep(_Step):
    """A root file system of Debian packages, unpacked without running their scripts."""

    kind: Literal["rootfs"]
    packages: tuple[Reference, ...] = Field(min_length=1)
    exclude: tuple[str, ...] = ()
    links: dict[TreePath, str] = Field(default_factory=dict)
    files: dict[TreePath, str] = Field(default_factory=dict)


class Place(Model):
    """One thing put somewhere: the tree or file `from`, at the path `to`."""

    source: Reference = Field(alias="from")
    to: str
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    replace: bool = False

    @field_validator("to")
    @classmethod
    def _inside(cls, to: str) -> str:
        parts = [p for p in to.split("/") if p not in ("", ".")]
        if ".." in parts:
            raise problem("path", f"{to!r} must stay inside the tree")
        return "/".join(parts)


class JoinStep(_Step):
    """Several trees (or parts) put together."""

    kind: Literal["join"]
    place: tuple[Place, ...] = Field(min_length=1)
    links: dict[TreePath, str] = Field(default_factory=dict)
    files: dict[TreePath, str] = Field(default_factory=dict)
    executables: tuple[str, ...] = ()


class ScriptStep(_SandboxedStep):
    """A command in the sandbox: `run` (by the root's /bin/sh) or `argv`. Outputs go to $out.

    Where `require` or `kernels` are stated, its first output is held to them as a cuda-module is.
    """

    kind: Literal["script"]
    run: Argument | None = None
    argv: tuple[Argument, ...] = ()
    inputs: dict[Name, Reference] = Field(default_factory=dict)
    env: dict[EnvName, EnvValue] = Field(default_factory=dict)
    toolchain: Name | None = None
    root: Reference | None = None
    outputs: tuple[Name, ...] = ("out",)
    require: tuple[Arch, ...] = ()
    forbid_ptx: bool = False
    kernels: tuple[Argument, ...] = ()

    @model_validator(mode="after")
    def _one_form(self) -> ScriptStep:
        if (self.run is None) == (not self.argv):
            raise problem("missing", "a script has either `run` or `argv`")
        return self


class PythonWheelStep(_SandboxedStep):
    """A Python package built by its PEP 517 backend, then installed below `prefix`."""

    kind: Literal["python-wheel"]
    source: Reference
    backend: str = "setuptools.build_meta"
    requires: tuple[Reference, ...] = ()
    version: str | None = None
    env: dict[EnvName, EnvValue] = Field(default_factory=dict)
    toolchain: Name | None = None
    root: Reference | None = None
    prefix: InnerPath = "usr/lib/python3/dist-packages"
    scripts: InnerPath = "usr/bin"


class WheelInstallStep(_Step):
    """A ready wheel, installed below `prefix`."""

    kind: Literal["wheel-install"]
    wheel: Reference
    prefix: InnerPath = "usr/lib/python3/dist-packages"
    scripts: InnerPath = "usr/bin"


def _file_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_+][A-Za-z0-9_.+-]*", text):
        raise problem("name", f"{text[:80]!r} cannot be the name of a library")
    return text


def _mode(text: str) -> str:
    if not re.fullmatch(r"[0-7]{3,4}", text):
        raise problem("mode", f"{text[:80]!r} is no mode; expected octal digits, such as '0755'")
    return text


TemplateValue = str | int | bool


class Unit(Model):
    """One translation unit: a `path` in the module's `source`, or in the tree `from`.

    A text alone stands for its `path`. `flags`, `host_flags` and `defines` come behind the
    module's; `memory` (MiB) is the unit's own. A `path` with `*`, `?` or `[` is a pattern: it
    stands for every file that it matches and no pattern of `exclude` does.
    """

    path: InnerPath
    exclude: tuple[str, ...] = ()
    source: Reference | None = Field(default=None, alias="from")
    defines: tuple[Argument, ...] = ()
    flags: tuple[Argument, ...] = ()
    host_flags: tuple[Argument, ...] = ()
    memory: int | None = Field(default=None, gt=0)

    @property
    def is_pattern(self) -> bool:
        """Whether it stands for what it matches."""
        return any(mark in self.path for mark in "*?[")

    @model_validator(mode="after")
    def _readable(self) -> Unit:
        if self.exclude and not self.is_pattern:
            raise problem("exclude", f"{self.path!r} is no pattern that `exclude` could narrow")
        try:
            Selection.of([self.path], self.exclude)
        except ReprobuildError as error:
            raise problem("pattern", error.message) from None
        return self


def _unit(value: object) -> object:
    return {"path": value} if isinstance(value, str) else value


class CudaModuleStep(_SandboxedStep):
    """A shared library of CUDA kernels: each unit compiled alone, then linked."""

    kind: Literal["cuda-module"]
    source: Reference
    units: tuple[Annotated[Unit, BeforeValidator(_unit)], ...] = Field(min_length=1)
    name: Annotated[str, AfterValidator(_file_name)] | None = None
    arch: tuple[Arch, ...] = Field(min_length=1)
    ptx: bool = False
    relocatable: bool = False
    include: tuple[Reference, ...] = ()
    system_include: tuple[Reference, ...] = ()
    pre_include: tuple[InnerPath, ...] = ()
    defines: tuple[Argument, ...] = ()
    std: Literal["c++17", "c++20"] = "c++17"
    optimize: Literal["O0", "O1", "O2", "O3"] = "O3"
    flags: tuple[Argument, ...] = ()
    host_flags: tuple[Argument, ...] = ()
    objects: tuple[Reference, ...] = ()
    library_path: tuple[Reference, ...] = ()
    link: tuple[Argument, ...] = ("cudart",)
    link_flags: tuple[Argument, ...] = ()
    toolchain: Name | None = None
    require: tuple[Arch, ...] = ()
    forbid_ptx: bool | None = None
    kernels: tuple[Argument, ...] = ()

    @model_validator(mode="after")
    def _units_differ(self) -> CudaModuleStep:
        seen: set[tuple[str, str]] = set()
        for unit in self.units:
            key = (str(unit.source or self.source), unit.path)
            if key in seen:
                raise problem("twice", f"unit {unit.path!r} is given twice")
            seen.add(key)
        if self.ptx and self.forbid_ptx:
            raise problem("ptx", "`ptx` puts PTX in, and `forbid-ptx` forbids it")
        return self


class Rendered(Model):
    """One file of a template step: a `template` with its values, or a `copy` of a file.

    A template is a path in the step's `source`, or `PATH#NAME`: the text that a Python file there
    gives that name. `texts` are values that are such texts.
    """

    template: InnerPath | None = None
    copy_of: InnerPath | None = Field(default=None, alias="copy")
    values: dict[str, TemplateValue] = Field(default_factory=dict)
    texts: dict[str, InnerPath] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_form(self) -> Rendered:
        if (self.template is None) == (self.copy_of is None):
            raise problem("missing", "a file is either made by a `template` or a `copy`")
        return self


class TemplateStep(_Step):
    """Files rendered with Jinja; `values` and `texts` are those of every file."""

    kind: Literal["template"]
    source: Reference
    jinja: Reference
    files: dict[TreePath, Rendered] = Field(min_length=1)
    values: dict[str, TemplateValue] = Field(default_factory=dict)
    texts: dict[str, InnerPath] = Field(default_factory=dict)
    toolchain: Name | None = None
    root: Reference | None = None


Step = Annotated[
    UnpackStep
    | RootfsStep
    | JoinStep
    | ScriptStep
    | PythonWheelStep
    | WheelInstallStep
    | CudaModuleStep
    | TemplateStep,
    Field(discriminator="kind"),
]


class Owner(Model):
    """Attributes that a tree cannot hold, for one path in the image; `mode` as octal text."""

    mode: Annotated[str, AfterValidator(_mode)] | None = None
    uid: int | None = Field(default=None, ge=0)
    gid: int | None = Field(default=None, ge=0)


class Layer(Model):
    """What of the component goes into an image, and what the contract inside checks."""

    place: tuple[Place, ...] = Field(min_length=1)
    links: dict[TreePath, str] = Field(default_factory=dict)
    files: dict[TreePath, str] = Field(default_factory=dict)
    env: dict[EnvName, EnvValue] = Field(default_factory=dict)
    owners: dict[TreePath, Owner] = Field(default_factory=dict)
    replace: tuple[str, ...] = ()
    remove: tuple[TreePath, ...] = ()
    split: dict[Name, Annotated[tuple[str, ...], Field(min_length=1)]] = Field(default_factory=dict)
    modified: dict[str, str] = Field(default_factory=dict)
    cuda: tuple[InnerPath, ...] = ()
    python: tuple[str, ...] = ()


class KernelCheck(Model):
    """A program of this project that runs a module on a GPU and compares it with a reference.

    It is no part of what is built: gates run it (engine/kernelcheck.py, docs/kernels.md).
    """

    module: Reference
    program: RelativePath
    arguments: tuple[Argument, ...] = ()
    uses: dict[Name, Reference] = Field(default_factory=dict)


class Component(Model):
    """The whole file."""

    description: str = ""
    version: str | None = None
    licence: str = ""
    abi: dict[Name, str] = Field(default_factory=dict)
    input: Name | None = None
    defaults: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """By kind of step; merged into `steps` where the file is read (adapters/toml/defaults.py)."""
    steps: dict[Name, Step] = Field(default_factory=dict)
    result: Reference
    image: Layer | None = None
    checks: dict[Name, KernelCheck] = Field(default_factory=dict)

    def for_arch(self, arch: tuple[str, ...]) -> Component:
        """The same recipes for other architectures; empty changes nothing."""
        if not arch:
            return self
        steps = {
            name: step.model_copy(update={"arch": arch, "require": ()})
            if isinstance(step, CudaModuleStep)
            else step
            for name, step in self.steps.items()
        }
        return self.model_copy(update={"steps": steps})
