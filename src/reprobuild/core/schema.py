"""What the strict models of flake, components and lock have in common."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainValidator
from pydantic_core import PydanticCustomError

from reprobuild.core.problem import shown
from reprobuild.core.reference import Ref

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,79}\Z")
FORMAT = 0

_REF = re.compile(r"refs/(?:heads|tags|pull)/[A-Za-z0-9._/+@-]+\Z")


def _problem(kind: str, message: str) -> PydanticCustomError:
    # PydanticCustomError formats {…}; the texts here are finished already. The prefix keeps these
    # kinds apart from pydantic's own, whose texts are not used.
    return PydanticCustomError(f"finding_{kind}", "{text}", {"text": message})


def is_name(text: str) -> bool:
    """Whether `text` can name an input, component, toolchain, output or step."""
    return _NAME.match(text) is not None


def _name(text: str) -> str:
    if not is_name(text):
        raise _problem(
            "name", f"{text[:80]!r} cannot be a name; use letters, digits, '-', '_', '+', no dot"
        )
    return text


def _reference(value: object) -> Ref:
    if isinstance(value, Ref):
        return value
    if not isinstance(value, str):
        raise _problem("string_type", "expected a reference, which is a string")
    try:
        return Ref.parse(value)
    except ValueError as error:
        raise _problem("reference", str(error)) from error


def _format(value: object) -> object:
    if type(value) is not int or value != FORMAT:
        raise _problem(
            "format", f"this version of reprobuild reads format {FORMAT}, not {shown(value)}"
        )
    return value


def _hex(length: tuple[int, ...], what: str, text: str) -> str:
    if len(text) not in length or not re.fullmatch(r"[0-9a-f]+", text):
        raise _problem("digest", f"{text[:80]!r} is no {what}")
    return text


def _git_ref(text: str) -> str:
    if not _REF.match(text) or ".." in text or text.endswith((".lock", "/")) or "//" in text:
        raise _problem(
            "git_ref", f"{text[:80]!r} is no full ref, such as refs/heads/main or refs/pull/7/head"
        )
    return text


def _inner_path(text: str) -> str:
    parts = text.strip("/").split("/")
    if "\0" in text or any(part in ("", ".", "..") for part in parts):
        raise _problem("path", f"{text[:120]!r} must stay inside: no empty, '.' or '..' parts")
    return "/".join(parts)


def _tree_path(text: str) -> str:
    # As a key: two spellings of one path must not both be accepted.
    if _inner_path(text) != text:
        raise _problem("path", f"{text[:120]!r} has no '/' at its beginning or end")
    return text


def _relative_path(text: str) -> str:
    if text.startswith("/"):
        raise _problem("path", f"{text[:120]!r} must be relative to the flake's directory")
    return _inner_path(text)


def _env_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise _problem("env", f"{text[:80]!r} cannot be the name of an environment variable")
    return text


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise _problem("nul", f"{text[:80]!r} holds a NUL character")
    return text


@dataclass(frozen=True, slots=True)
class Algorithm:
    """Marks a field that holds a digest's hex digits: whose they are."""

    name: str


Format = Annotated[Literal[0], BeforeValidator(_format)]
Name = Annotated[str, AfterValidator(_name)]
Reference = Annotated[Ref, PlainValidator(_reference)]
Sha256Text = Annotated[
    str,
    Algorithm("sha256"),
    BeforeValidator(lambda v: v.removeprefix("sha256:") if isinstance(v, str) else v),
    AfterValidator(lambda v: _hex((64,), "SHA-256 digest (64 hex digits)", v)),
]
Blake3Text = Annotated[
    str,
    Algorithm("blake3"),
    BeforeValidator(lambda v: v.removeprefix("blake3:") if isinstance(v, str) else v),
    AfterValidator(lambda v: _hex((64,), "BLAKE3 digest (64 hex digits)", v)),
]
EnvName = Annotated[str, AfterValidator(_env_name)]
EnvValue = Annotated[str, AfterValidator(_no_nul)]
Argument = EnvValue
Commit = Annotated[
    str, AfterValidator(lambda v: _hex((40, 64), "full commit or tree (40 or 64 hex digits)", v))
]
GitRef = Annotated[str, AfterValidator(_git_ref)]
InnerPath = Annotated[str, AfterValidator(_inner_path)]
InnerPathOrTop = Annotated[str, AfterValidator(lambda v: _inner_path(v) if v else v)]
TreePath = Annotated[str, AfterValidator(_tree_path)]
RelativePath = Annotated[str, AfterValidator(_relative_path)]


def _alias(name: str) -> str:
    return name.replace("_", "-")


class Model(BaseModel):
    """A strict, frozen table: unknown keys and wrong types are errors; keys are kebab-case."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        validate_by_alias=True,
        validate_by_name=True,  # in code; files are read with by_name=False
        alias_generator=_alias,
        arbitrary_types_allowed=True,
        # Each model would be built once for itself and once in every model that holds it.
        defer_build=True,
    )


problem = _problem
