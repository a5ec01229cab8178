"""The program inside images, and the statement that it reads."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.builders import builtins
from reprobuild.core.encoding import Value
from reprobuild.data import contract, contract_program
from reprobuild.errors import ReprobuildError
from support.fatbin import (
    ELF,
    FLAG_A,
    FLAG_F,
    FLAG_ZSTD,
    PTX,
    container,
    cubin,
    entry,
    library,
)
from support.trees import Given, make

GOOD = library(container([entry(ELF, 120, FLAG_A | FLAG_ZSTD)]))
RELEASE: dict[str, Value] = {"reference": "example/x:1"}


@pytest.mark.parametrize(
    ("section", "code", "ptx"),
    [
        (b"", [], []),
        (bytes(64), [], []),
        (container([]), [], []),
        (container([entry(ELF, 120, FLAG_A)]), ["sm_120a"], []),
        (container([entry(ELF, 120, FLAG_F), entry(ELF, 90)]), ["sm_120f", "sm_90"], []),
        (container([entry(ELF, 120, FLAG_A)]) * 2, ["sm_120a"], []),
        (container([entry(ELF, 120)]) + bytes(8) + container([entry(ELF, 90)]),
         ["sm_120", "sm_90"], []),
        (container([entry(PTX, 120)]), [], ["sm_120"]),
        (container([entry(ELF, 120, FLAG_A, cubin(120)), entry(PTX, 75)]), ["sm_120a"], ["sm_75"]),
        (container([entry(7, 120)]), [], []),
    ],
)  # fmt: skip
def test_architectures(section: bytes, code: list[str], ptx: list[str]) -> None:
    assert contract.cuda_architectures(library(section)) == (code, ptx)


def test_a_library_without_gpu_code() -> None:
    assert contract.cuda_architectures(library(b"x" * 64, b".text")) == ([], [])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no elf",
        GOOD[:100],
        b"\x7fELF\x01\x01" + GOOD[6:],
        library(container([entry(ELF, 120)])[:-8]),
        library(b"garbage!" * 8),
        library(container([entry(ELF, 120)])[:60] + b"\xff" * 8),
        library(container([entry(ELF, 120, 0, cubin(90))])),
        library(container([entry(ELF, 120, 0, cubin(120, machine=62))])),
        library(container([entry(ELF, 120).replace(b"\x70\0\0\0", b"\1\0\0\0", 1)])),
    ],
    ids=range(10),
)
def test_libraries_that_are_off(data: bytes) -> None:
    with pytest.raises(contract.Unreadable):
        contract.cuda_architectures(data)


# -- the statement built-in and the program, together --------------------------------------------


def assemble(tmp_path: Path, library_data: bytes = GOOD, **row: Value) -> Path:
    """A root directory of an image with one component `demo`, and its statement."""
    store = MemoryStore(tmp_path / "store")
    files: dict[str, Given] = {"opt/demo/lib.so": library_data, "opt/demo/link": "nowhere"}
    component = make(store, files)
    document: dict[str, Value] = {
        "format": 0,
        "release": RELEASE,
        "components": [
            {
                "name": "demo",
                "version": "1.2",
                "drv": "blake3:" + "d" * 64,
                "paths": ["opt/demo", "/opt/demo/link"],
                "cuda": [{"file": "opt/demo/lib.so", "archs": ["sm_120a"]}],
                "python": ["click", f"pytest=={version('pytest')}"],
                **row,
            }
        ],
    }
    params: Value = {"document": document, "program": contract_program()}
    stated = builtins()["statement"].build(params, {"tree-demo": component}, store)["out"]
    joined = builtins()["join"].build(
        {"place": [{"input": "a"}, {"input": "b"}]}, {"a": component, "b": stated}, store
    )
    return store.materialise(joined["out"])


def run(root: Path, *words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, root / "usr/share/reprobuild/contract.py", "--root", root, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_contract_that_holds(tmp_path: Path) -> None:
    root = assemble(tmp_path)
    status, out, err = run(root)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "example/x:1"
    assert lines[1].split() == ["component", "version", "tree", "drv", "cuda", "holds"]
    assert lines[2].split()[:2] == ["demo", "1.2"]
    assert lines[2].split()[3:] == ["d" * 12, "sm_120a", "yes"]
    status, out, _ = run(root, "--json")
    document = json.loads(out)
    (row,) = document["components"]
    assert (status, document["holds"], document["release"]) == (0, True, RELEASE)
    assert row["cuda"] == ["sm_120a"]
    assert row["python"] == {"click": version("click"), "pytest": version("pytest")}
    assert row["tree"].startswith("blake3:")


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"paths": ["opt/missing"]}, "opt/missing is not there"),
    ({"python": ["no-such-package"]}, "no-such-package is not installed"),
    ({"python": ["click==0.0.1"]}, "not 0.0.1"),
    ({"cuda": [{"file": "opt/demo/lib.so", "archs": ["sm_90"]}]}, "sm_120a, not sm_90"),
    ({"library_data": library(b"")}, "holds code for no GPU, not sm_120a"),
    (
        {"library_data": library(b""), "cuda": [{"file": "opt/demo/lib.so", "archs": []}]},
        "holds no GPU code",
    ),
    ({"library_data": b"text"}, "cannot be read"),
    ({"library_data": library(container([entry(ELF, 120, FLAG_A), entry(PTX, 120)]))}, "holds PTX"),
]


@pytest.mark.parametrize(("change", "message"), BROKEN)
def test_a_contract_that_does_not_hold(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    root = assemble(tmp_path, **change)
    status, out, err = run(root)
    assert status == 1
    assert message in err
    assert err.startswith("demo: ")
    assert out.splitlines()[2].split()[-1] == "no"
    status, out, _ = run(root, "--json")
    assert (status, json.loads(out)["holds"]) == (1, False)


def test_a_library_that_was_exchanged(tmp_path: Path) -> None:
    root = assemble(tmp_path)
    (root / "opt/demo").chmod(0o755)
    path = root / "opt/demo/lib.so"
    path.unlink()
    path.write_bytes(GOOD + b"\0")
    status, _, err = run(root)
    assert status == 1
    assert "is not the library that was built" in err


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 9, "release": {}, "components": []}'])
def test_what_is_no_statement(tmp_path: Path, text: str) -> None:
    (tmp_path / "statement.json").write_text(text)
    root = assemble(tmp_path)
    status, out, err = run(root, "--statement", str(tmp_path / "statement.json"))
    assert (status, out) == (2, "")
    assert "is no statement" in err


@pytest.mark.parametrize(
    "row",
    [
        {"name": "other"},
        {"cuda": [{"file": "opt/demo/missing.so"}]},
        {"cuda": [{"file": "opt/demo"}]},
        {"cuda": [{"archs": []}]},
        {"cuda": ["opt/demo/lib.so"]},
    ],
    ids=str,
)
def test_statements_that_cannot_be_made(tmp_path: Path, row: dict[str, Any]) -> None:
    with pytest.raises(ReprobuildError) as error:
        assemble(tmp_path, **row)
    assert error.value.code == "E-PARAMS"
