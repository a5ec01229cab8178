"""Reading JSON that others wrote: bounded, strict about types, errors that name the place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from reprobuild.core.digest import GitOid, Sha256
from reprobuild.core.integration.model import MAX_TITLE, check_number, check_ref
from reprobuild.core.wording import json_problem
from reprobuild.errors import ReprobuildError

MAX_BYTES = 8 * 2**20


def load(data: bytes, code: str, name: str) -> object:
    """The value of a JSON text; raises `code` with the line for anything else.

    Objects that say a key twice, NaN and texts over 8 MiB are refused.
    """

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        out = dict(pairs)
        if len(out) != len(pairs):
            keys = [k for k, _ in pairs]
            twice = next(k for k in keys if keys.count(k) > 1)
            raise ReprobuildError(code, f"{name}: the key {twice[:80]!r} is there twice", file=name)
        return out

    def constant(text: str) -> object:
        raise ReprobuildError(code, f"{name}: {text} is no JSON", file=name)

    if len(data) > MAX_BYTES:
        raise ReprobuildError(code, f"{name} is longer than {MAX_BYTES} bytes", file=name)
    try:
        value: object = json.loads(
            data.decode("utf-8"), object_pairs_hook=once, parse_constant=constant
        )
    except json.JSONDecodeError as error:
        raise ReprobuildError(
            code,
            f"cannot read {name}:{error.lineno}:{error.colno}: {error.msg}",
            file=name,
            line=error.lineno,
            column=error.colno,
        ) from error
    except (ValueError, RecursionError) as error:
        raise ReprobuildError(
            code, f"cannot read {name}: {json_problem(error)}", file=name
        ) from error
    return value


@dataclass(frozen=True, slots=True)
class Fields:
    """An object of a document and the path that leads to it."""

    values: Mapping[str, object]
    code: str
    name: str
    path: str = ""

    @classmethod
    def of(cls, value: object, code: str, name: str, path: str = "") -> Fields:
        """The object, or an error."""
        if not isinstance(value, dict):
            where = path or "the document"
            raise ReprobuildError(code, f"{name}: {where} must be an object", file=name, key=path)
        return cls(cast("Mapping[str, object]", value), code, name, path)

    def error(self, key: str, message: str) -> ReprobuildError:
        """An error at one of the keys."""
        where = f"{self.path}.{key}" if self.path else key
        return ReprobuildError(
            self.code, f"{self.name}: {where} {message}", file=self.name, key=where
        )

    def text(self, key: str, default: str | None = None, *, limit: int = MAX_TITLE) -> str:
        """A text of at most `limit` characters without control characters but tab and newline."""
        value = self.values.get(key, default)
        if not isinstance(value, str):
            raise self.error(key, "is missing" if value is None else "must be text")
        if len(value) > limit:
            raise self.error(key, f"is longer than {limit} characters")
        if any(ord(c) < 32 and c not in "\t\n" for c in value):
            raise self.error(key, "holds control characters")
        return value

    def oid(self, key: str) -> GitOid:
        """A full git object name."""
        value = self.text(key)
        try:
            return GitOid.parse(value)
        except ReprobuildError:
            raise self.error(key, f"must be a 40-character SHA, not {value[:80]!r}") from None

    def sha256(self, key: str) -> Sha256:
        """A bare SHA-256."""
        value = self.text(key)
        try:
            return Sha256.parse(value)
        except ReprobuildError:
            raise self.error(key, f"must be a SHA-256 digest, not {value[:80]!r}") from None

    def ref(self, key: str) -> str:
        """A full ref name."""
        value = self.text(key)
        try:
            return check_ref(value)
        except ReprobuildError:
            raise self.error(key, f"must be a full refs/... ref, not {value[:80]!r}") from None

    def number(self, key: str) -> int:
        """A pull request's number."""
        try:
            return check_number(self.values.get(key))
        except ReprobuildError as error:
            raise self.error(key, error.message) from None

    def rows(self, key: str, *, missing_ok: bool = True) -> list[Fields]:
        """A list of objects."""
        value = self.values.get(key)
        if value is None and missing_ok:
            return []
        if not isinstance(value, list):
            raise self.error(key, "must be a list")
        if len(value) > 10_000:
            raise self.error(key, "has more than 10,000 entries")
        where = f"{self.path}.{key}" if self.path else key
        return [
            Fields.of(row, self.code, self.name, f"{where}[{index}]")
            for index, row in enumerate(value)
        ]

    def object(self, key: str) -> Fields:
        """An object below."""
        where = f"{self.path}.{key}" if self.path else key
        return Fields.of(self.values.get(key), self.code, self.name, where)
