"""References: how one part of a project names another.

    inputs.NAME            what an input fetched (a file, a set of files, a tree)
    source                 the component's integrated source tree
    steps.NAME             another step of the same component
    components.NAME        another component's result
    components.NAME.STEP   one step of another component
    toolchains.NAME.PART   a part (`root`, `cuda`) of a toolchain

each with an optional `/path` behind it that names a place inside the tree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = r"[A-Za-z0-9][A-Za-z0-9_+-]{0,79}"
_REFERENCE = re.compile(
    rf"(?:(?P<scope>inputs|steps|components|toolchains)\.(?P<name>{_NAME})(?:\.(?P<step>{_NAME}))?"
    r"|(?P<source>source))(?:/(?P<path>.*))?\Z"
)

SCOPES = ("inputs", "source", "steps", "components", "toolchains")
FORMS = (
    "inputs.NAME, source, steps.NAME, components.NAME[.STEP] or toolchains.NAME.PART, "
    "with or without a /path behind it"
)


@dataclass(frozen=True, slots=True)
class Ref:
    """A parsed reference; `path` has no leading or trailing slash."""

    scope: str
    name: str = ""
    step: str = ""
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Ref:
        """From its text; raises ValueError saying what was expected (the caller knows where)."""
        match = _REFERENCE.match(text)
        if match is None:
            raise ValueError(f"{text!r} is no reference; expected {FORMS}")
        path = (match["path"] or "").strip("/")
        if any(part in ("", ".", "..") for part in path.split("/")) and path:
            raise ValueError(f"{text!r}: a path inside a tree has no empty, '.' or '..' parts")
        if match["source"]:
            return cls("source", path=path)
        scope, step = match["scope"], match["step"] or ""
        if (scope in ("inputs", "steps")) and step:
            raise ValueError(f"{text!r}: {scope} take one name, since names have no dot")
        if scope == "toolchains" and not step:
            raise ValueError(f"{text!r}: say which part, as in toolchains.{match['name']}.root")
        return cls(scope, match["name"], step, path)

    @property
    def target(self) -> str:
        """The reference without its path."""
        if self.scope == "source":
            return "source"
        return f"{self.scope}.{self.name}" + (f".{self.step}" if self.step else "")

    @property
    def place(self) -> str:
        """Where a sandbox shows it: constant, and independent of which input stands behind it."""
        if self.scope == "source":
            head = "source"
        else:
            head = f"{self.scope}/{self.name}" + (f".{self.step}" if self.step else "")
        return f"/inputs/{head}" + (f"/{self.path}" if self.path else "")

    def __truediv__(self, path: str) -> Ref:
        joined = f"{self.path}/{path}".strip("/")
        return Ref(self.scope, self.name, self.step, joined)

    def __str__(self) -> str:
        return self.target + (f"/{self.path}" if self.path else "")
