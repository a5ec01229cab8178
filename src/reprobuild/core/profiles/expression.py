"""The small language of derived values and rules: `MAX_NUM_SEQS * (1 + DSPARK_TOKENS)`,
`KV_OFFLOADING_SIZE and LMCACHE_MODE != 'off'`.

Names are settings. There are whole numbers and texts in quotes, `+ - *`, comparisons, `and`, `or`,
`not` and parentheses. An unset, empty or zero value is false. The same expression can be worked
out here, or written for a POSIX shell, with equal results.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

Scalar = str | int | float

MAX_LENGTH = 500
_ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
_NUMERIC = {ast.Lt: "-lt", ast.LtE: "-le", ast.Gt: "-gt", ast.GtE: "-ge"}
_NAME = re.compile(r"[A-Z][A-Z0-9_]*\Z")
_TEXT = re.compile(r"[A-Za-z0-9_./:,-]*\Z")


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression."""

    text: str
    tree: ast.expr

    @classmethod
    def parse(cls, text: str) -> Expression:
        """From its text; raises ValueError that says what is not understood."""
        if len(text) > MAX_LENGTH:
            raise ValueError(f"an expression of {len(text)} characters is too long")
        try:
            tree = ast.parse(text.strip(), mode="eval").body
            for node in ast.walk(tree):
                _check(node)
        except (SyntaxError, RecursionError, MemoryError):
            raise ValueError(f"{text[:80]!r} is no expression") from None
        return cls(text.strip(), tree)

    def names(self) -> tuple[str, ...]:
        """The settings it speaks of, each once, in order."""
        found = [n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name)]
        return tuple(dict.fromkeys(found))

    def value(self, settings: Mapping[str, Scalar | None]) -> Scalar:
        """What it gives; raises ValueError where a number is wanted and there is none."""
        return _value(self.tree, settings)

    def holds(self, settings: Mapping[str, Scalar | None]) -> bool:
        """Whether it is true."""
        return _holds(self.tree, settings)

    def shell_condition(self) -> str:
        """The same as a POSIX shell command whose status says whether it holds."""
        return _condition(self.tree)

    def shell_value(self) -> str:
        """The same as a POSIX arithmetic expansion, a whole number."""
        return f"$(({_arithmetic(self.tree)}))"

    def shown(self, settings: Mapping[str, Scalar | None]) -> str:
        """With the names replaced by their values: `8 * (1 + 5)`."""
        return re.sub(r"[A-Z][A-Z0-9_]*", lambda m: str(settings.get(m[0]) or 0), self.text)


def _check(node: ast.AST) -> None:
    if isinstance(node, ast.Name):
        if not _NAME.match(node.id):
            raise ValueError(f"{node.id[:80]!r} is no setting; settings are in capital letters")
    elif isinstance(node, ast.Constant):
        value = node.value
        whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31
        if not whole and not (isinstance(value, str) and _TEXT.match(value)):
            raise ValueError(f"{str(value)[:80]!r} is neither a whole number nor a plain text")
    elif isinstance(node, ast.BinOp):
        if type(node.op) not in _ARITHMETIC:
            raise ValueError("an expression has no operators but + - *")
    elif isinstance(node, ast.Compare):
        known = (*_NUMERIC, ast.Eq, ast.NotEq)
        if len(node.ops) != 1 or not isinstance(node.ops[0], known):
            raise ValueError("a comparison has two sides and one of == != < <= > >=")
    elif isinstance(node, ast.UnaryOp):
        if not isinstance(node.op, ast.Not):
            raise ValueError("an expression has no sign; write 0 - N")
    elif not isinstance(
        node, (ast.BoolOp, ast.And, ast.Or, ast.Not, ast.Load, ast.operator, ast.cmpop)
    ):
        raise ValueError(f"an expression has no {type(node).__name__.lower()}")


def _value(node: ast.expr, settings: Mapping[str, Scalar | None]) -> Scalar:
    if isinstance(node, ast.Name):
        found = settings.get(node.id)
        return "" if found is None else found
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, (str, int))
        return node.value
    if isinstance(node, ast.BinOp):
        left, right = _number(node.left, settings), _number(node.right, settings)
        if isinstance(node.op, ast.Add):
            return left + right
        return left - right if isinstance(node.op, ast.Sub) else left * right
    return int(_holds(node, settings))


def _number(node: ast.expr, settings: Mapping[str, Scalar | None]) -> int:
    value = _value(node, settings)
    if value == "":
        return 0
    try:
        return int(str(value))
    except ValueError:
        raise ValueError(
            f"{ast.unparse(node)} is {value!r}, and a whole number is needed"
        ) from None


def _holds(node: ast.expr, settings: Mapping[str, Scalar | None]) -> bool:
    if isinstance(node, ast.BoolOp):
        parts: Iterator[bool] = (_holds(value, settings) for value in node.values)
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if isinstance(node, ast.UnaryOp):
        return not _holds(node.operand, settings)
    if isinstance(node, ast.Compare):
        operator, right = node.ops[0], node.comparators[0]
        if isinstance(operator, (ast.Eq, ast.NotEq)):
            equal = str(_value(node.left, settings)) == str(_value(right, settings))
            return equal == isinstance(operator, ast.Eq)
        one, other = _number(node.left, settings), _number(right, settings)
        return {
            ast.Lt: one < other,
            ast.LtE: one <= other,
            ast.Gt: one > other,
            ast.GtE: one >= other,
        }[type(operator)]
    return str(_value(node, settings)) not in ("", "0")


def _arithmetic(node: ast.expr) -> str:
    if isinstance(node, ast.BinOp):
        operator = _ARITHMETIC[type(node.op)]
        return f"({_arithmetic(node.left)} {operator} {_arithmetic(node.right)})"
    if isinstance(node, ast.Name):
        return f"${{{node.id}:-0}}"
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return str(node.value)
    raise ValueError(f"{ast.unparse(node)} is no number")


def _word(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return f'"${{{node.id}:-}}"'
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, (str, int))
        return f'"{node.value}"'
    return f'"$(({_arithmetic(node)}))"'


def _condition(node: ast.expr) -> str:
    if isinstance(node, ast.BoolOp):
        joint = " && " if isinstance(node.op, ast.And) else " || "
        return "{ " + joint.join(_condition(value) for value in node.values) + "; }"
    if isinstance(node, ast.UnaryOp):
        return f"{{ ! {_condition(node.operand)}; }}"
    if isinstance(node, ast.Compare):
        operator, right = node.ops[0], node.comparators[0]
        if isinstance(operator, (ast.Eq, ast.NotEq)):
            sign = "=" if isinstance(operator, ast.Eq) else "!="
            return f"[ {_word(node.left)} {sign} {_word(right)} ]"
        sign = _NUMERIC[type(operator)]
        return f'[ "$(({_arithmetic(node.left)}))" {sign} "$(({_arithmetic(right)}))" ]'
    if isinstance(node, ast.Name):
        return f'[ "${{{node.id}:-0}}" != 0 ]'
    if isinstance(node, ast.Constant):
        return "true" if _holds(node, {}) else "false"
    return f"[ {_word(node)} != 0 ]"
