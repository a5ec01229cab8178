"""Reading a built-in's parameters strictly: every key known, every value of its type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from reprobuild.core.encoding import Value
from reprobuild.errors import ReprobuildError


class Params:
    """The parameters of one call of a built-in.

    `where` names the built-in (or the place inside its parameters) in errors; `known` are the keys
    that are allowed. Whatever is off raises E-PARAMS.
    """

    def __init__(self, where: str, value: Value, known: Iterable[str]) -> None:
        self.where = where
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            self._fail("", "a table", value)
        self.values: Mapping[str, Value] = value
        names = sorted(known)
        for key in value:
            if key not in names:
                from difflib import get_close_matches

                near = get_close_matches(key, names, 1)
                hint = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(names)}"
                raise ReprobuildError(
                    "E-PARAMS", f"{where} knows no parameter `{key[:80]}`", hint=hint, key=key[:80]
                )

    def _fail(self, key: str, expected: str, got: object) -> NoReturn:
        place = f"parameter `{key}` of {self.where}" if key else f"what {self.where} was given"
        raise ReprobuildError(
            "E-PARAMS",
            f"{place} must be {expected}, not {got!r:.80}",
            key=key,
            expected=expected,
            got=repr(got)[:80],
        )

    def has(self, key: str) -> bool:
        """Whether the key was given."""
        return key in self.values

    def text(self, key: str, default: str | None = None, *, choices: Sequence[str] = ()) -> str:
        """A string; without a default it is required."""
        value = self.values.get(key, default)
        if not isinstance(value, str):
            self._fail(key, "text", value)
        if choices and value not in choices:
            self._fail(key, "one of " + ", ".join(choices), value)
        return value

    def integer(self, key: str, default: int | None = None, *, least: int = 0, most: int) -> int:
        """An integer from `least` to `most`."""
        value = self.values.get(key, default)
        if type(value) is not int or not least <= value <= most:
            self._fail(key, f"an integer from {least} to {most}", value)
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """A truth value."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            self._fail(key, "true or false", value)
        return value

    def texts(self, key: str) -> list[str]:
        """A list of strings, empty when not given."""
        value = self.values.get(key, [])
        if not isinstance(value, (list, tuple)):
            self._fail(key, "a list of texts", value)
        texts = [item for item in value if isinstance(item, str)]
        if len(texts) != len(value):
            self._fail(key, "a list of texts", value)
        return texts

    def table(self, key: str) -> dict[str, str]:
        """A table from text to text, empty when not given."""
        value = self.values.get(key, {})
        if not isinstance(value, Mapping):
            self._fail(key, "a table of texts", value)
        texts = {name: item for name, item in value.items() if isinstance(item, str)}
        if len(texts) != len(value):
            self._fail(key, "a table of texts", value)
        return texts

    def tables(self, key: str, known: Iterable[str]) -> list[Params]:
        """A list of tables, each with the keys `known`."""
        value = self.values.get(key, [])
        if not isinstance(value, (list, tuple)):
            self._fail(key, "a list of tables", value)
        names = list(known)
        return [
            Params(f"{self.where}.{key}[{index}]", item, names) for index, item in enumerate(value)
        ]

    def table_of_tables(self, key: str, known: Iterable[str]) -> dict[str, Params]:
        """A table whose values are tables, each with the keys `known`."""
        value = self.values.get(key, {})
        if not isinstance(value, Mapping):
            self._fail(key, "a table of tables", value)
        names = list(known)
        return {
            name: Params(f"{self.where}.{key}.{name}", item, names) for name, item in value.items()
        }


def numbered(inputs: Iterable[str], prefix: str) -> list[str]:
    """The inputs called `<prefix>-<number>`, in the order of their numbers."""
    found: list[tuple[int, str]] = []
    for name in inputs:
        head, dash, number = name.rpartition("-")
        if head == prefix and dash and number.isascii() and number.isdigit():
            found.append((int(number), name))
    return [name for _, name in sorted(found)]
