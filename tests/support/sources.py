"""The package's source as syntax trees: who imports whom, and where."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import reprobuild

ROOT = Path(reprobuild.__file__).parent
PACKAGE = "reprobuild"


@dataclass(frozen=True)
class Import:
    """One imported module, by its full name; `lazy` inside a function, `typing` for checkers."""

    module: str
    line: int
    lazy: bool
    typing: bool


@cache
def modules() -> dict[str, Path]:
    """Every module of the package, by its full name."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = [PACKAGE, *path.relative_to(ROOT).with_suffix("").parts]
        if parts[-1] == "__init__":
            parts.pop()
        found[".".join(parts)] = path
    return found


@cache
def tree(module: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(modules()[module].read_text(encoding="utf-8"))


@cache
def imports(module: str) -> tuple[Import, ...]:
    """All imports of a module, relative ones resolved; `from a import b` is `a.b` if a module."""
    return tuple(_walk(tree(module), module, lazy=False, typing=False))


def _walk(node: ast.AST, module: str, *, lazy: bool, typing: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, lazy, typing)
        elif isinstance(child, ast.ImportFrom):
            base = _absolute(child, module)
            for alias in child.names:
                full = f"{base}.{alias.name}"
                yield Import(full if full in modules() else base, child.lineno, lazy, typing)
        else:
            inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            checked = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            yield from _walk(child, module, lazy=lazy or inside, typing=typing or checked)


def _absolute(node: ast.ImportFrom, module: str) -> str:
    if not node.level:
        return node.module or ""
    package = module.split(".")
    if modules()[module].name != "__init__.py":
        package.pop()
    package = package[: len(package) - node.level + 1]
    return ".".join([*package, *([node.module] if node.module else [])])


def strings(module: str) -> Iterator[tuple[str, int]]:
    """Every text constant of a module, with its line."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, node.lineno
