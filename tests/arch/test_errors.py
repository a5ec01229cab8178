"""The table of error codes and the source agree; so does the page made from it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from reprobuild.errordocs import STATUSES, render
from reprobuild.errors import Exit
from reprobuild.errors.codes import CODES
from support.sources import ROOT, modules, strings, tree

CODE = re.compile(r"E-[A-Z0-9]+(?:-[A-Z0-9]+)*")
TABLE = "reprobuild.errors"


def used() -> dict[str, str]:
    found = {}
    for module in modules():
        if module.startswith(TABLE):
            continue
        for text, line in strings(module):
            if CODE.fullmatch(text):
                found[text] = f"{module}:{line}"
    return found


def test_every_code_that_is_raised_is_in_the_table() -> None:
    assert {code: where for code, where in used().items() if code not in CODES} == {}


def test_every_code_in_the_table_is_raised() -> None:
    assert sorted(set(CODES) - set(used())) == []


def test_no_code_is_in_the_table_twice() -> None:
    keys = [
        key.value
        for module in modules()
        if module.startswith(TABLE)
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    ]
    assert len(keys) >= len(CODES)
    assert sorted({key for key in keys if keys.count(key) > 1}) == []


def test_codes_are_well_formed_and_say_what_to_do() -> None:
    for name, code in CODES.items():
        assert CODE.fullmatch(name), name
        assert code.meaning and not code.meaning.endswith("."), name
        assert code.remedy and not code.remedy.endswith("."), name
        assert isinstance(code.exit, Exit), name
        assert code.exit in STATUSES, name


def test_the_page_is_the_table() -> None:
    page = Path(ROOT).parents[1] / "docs" / "errors.md"
    assert page.read_text(encoding="utf-8") == render(), (
        "run `python -m reprobuild.errordocs > docs/errors.md`"
    )


def test_only_the_top_catches_everything() -> None:
    """`except Exception` exists once, where the command line calls it a bug."""
    wrong = []
    for module in modules():
        for node in ast.walk(tree(module)):
            if not isinstance(node, ast.ExceptHandler):
                continue
            names = ast.unparse(node.type) if node.type else "(bare)"
            catches_all = re.search(r"\b(Exception|BaseException)\b|\(bare\)", names)
            again = any(isinstance(n, ast.Raise) and n.exc is None for n in ast.walk(node))
            if catches_all and not again and module != "reprobuild.cli.main":
                wrong.append(f"{module}:{node.lineno} catches {names}")
    assert wrong == []


def test_only_the_command_line_exits() -> None:
    wrong = []
    for module in modules():
        # data/ holds a program that is put into images and runs there.
        if module.startswith(("reprobuild.cli", "reprobuild.data", "reprobuild.__main__")):
            continue
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "sys.exit",
                "exit",
                "quit",
            ):
                wrong.append(f"{module}:{node.lineno}")
            if isinstance(node, ast.Name) and node.id == "SystemExit":
                wrong.append(f"{module}:{node.lineno}")
    assert wrong == []
