from __future__ import annotations

import base64
import csv
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.builders import builtins
from reprobuild.core.encoding import Value
from reprobuild.errors import ReprobuildError
from support.archives import zipped
from support.trees import Given, listing, make

NAME = "demo_pkg-1.0-py3-none-any.whl"
INFO = "demo_pkg-1.0.dist-info"
WHEEL = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
METADATA = b"Metadata-Version: 2.1\nName: demo-pkg\nVersion: 1.0\n"


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "store")


def digest_of(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def wheel(files: dict[str, bytes], *, record: bytes | None = None, modes: int = 0o644) -> bytes:
    files = {**files, f"{INFO}/WHEEL": files.get(f"{INFO}/WHEEL", WHEEL)}
    files.setdefault(f"{INFO}/METADATA", METADATA)
    rows = [f"{name},sha256={digest_of(data)},{len(data)}" for name, data in files.items()]
    text = record if record is not None else "\n".join([*rows, f"{INFO}/RECORD,,"]).encode()
    entries = [(name, data, 0o100000 | modes) for name, data in files.items()]
    return zipped([*entries, (f"{INFO}/RECORD", text, 0o100644)])


def install(store: MemoryStore, data: bytes, name: str = NAME, **params: Value) -> dict[str, Given]:
    inputs = {"wheel": make(store, {name: data})}
    return listing(store, builtins()["wheel-install"].build(params, inputs, store)["out"])


FILES = {
    "demo_pkg/__init__.py": b"def main():\n    print('ran')\n",
    "demo_pkg/__pycache__/__init__.cpython-311.pyc": b"pyc",
    "demo_pkg-1.0.data/scripts/tool": b"#!python\nimport demo_pkg\ndemo_pkg.main()\n",
    "demo_pkg-1.0.data/scripts/plain": b"#!/bin/sh\n",
    "demo_pkg-1.0.data/data/share/demo/x": b"data",
    "demo_pkg-1.0.data/platlib/demo_ext.so": b"elf",
    "demo_pkg-1.0.data/headers/demo.h": b"h",
    f"{INFO}/entry_points.txt": b"[console_scripts]\ndemo = demo_pkg:main\n",
}


def test_everything_goes_to_its_place(store: MemoryStore) -> None:
    got = install(store, wheel(FILES))
    site = "usr/lib/python3/dist-packages"
    record = got.pop(f"{site}/{INFO}/RECORD")
    assert got == {
        f"{site}/demo_pkg/__init__.py": FILES["demo_pkg/__init__.py"],
        f"{site}/demo_ext.so": b"elf",
        f"{site}/{INFO}/WHEEL": WHEEL,
        f"{site}/{INFO}/METADATA": METADATA,
        f"{site}/{INFO}/INSTALLER": b"reprobuild\n",
        f"{site}/{INFO}/entry_points.txt": FILES[f"{INFO}/entry_points.txt"],
        "usr/share/demo/x": b"data",
        "usr/include/python3/demo.h": b"h",
        "usr/bin/tool": (b"#!/usr/bin/python3\nimport demo_pkg\ndemo_pkg.main()\n", True),
        "usr/bin/plain": (b"#!/bin/sh\n", True),
        "usr/bin/demo": (
            b"#!/usr/bin/python3\nimport sys\n\nfrom demo_pkg import main\n\n"
            b'if __name__ == "__main__":\n'
            b'    sys.argv[0] = sys.argv[0].removesuffix(".exe")\n    sys.exit(main())\n',
            True,
        ),
    }
    assert isinstance(record, bytes)
    rows = list(csv.reader(record.decode().splitlines()))
    assert rows == sorted(rows)
    assert {os.path.normpath(f"{site}/{path}") for path, _, _ in rows} == {
        *got,
        f"{site}/{INFO}/RECORD",
    }
    for path, digest, size in rows:
        content = got.get(os.path.normpath(f"{site}/{path}"))
        data = content[0] if isinstance(content, tuple) else content
        if isinstance(data, bytes):
            assert (digest, size) == (f"sha256={digest_of(data)}", str(len(data)))


def test_the_command_runs(store: MemoryStore, tmp_path: Path) -> None:
    inputs = {"wheel": make(store, {NAME: wheel(FILES)})}
    params: Value = {"prefix": "lib", "scripts": "bin", "interpreter": sys.executable}
    tree = builtins()["wheel-install"].build(params, inputs, store)["out"]
    place = store.materialise(tree)
    env = {"PYTHONPATH": str(place / "lib"), "PYTHONDONTWRITEBYTECODE": "1"}
    for command in ("demo", "tool"):
        run = subprocess.run(
            [place / "bin" / command], capture_output=True, env=env, check=True, text=True
        )
        assert run.stdout == "ran\n"


def test_executable_files_stay_executable(store: MemoryStore) -> None:
    got = install(store, wheel({"demo_pkg/run": b"#!"}, modes=0o755))
    assert got["usr/lib/python3/dist-packages/demo_pkg/run"] == (b"#!", True)


def test_the_order_inside_the_wheel_moves_nothing(store: MemoryStore) -> None:
    backwards = dict(reversed(FILES.items()))
    assert install(store, wheel(FILES)) == install(store, wheel(backwards))


def test_several_wheels(store: MemoryStore) -> None:
    other = wheel({}).replace(b"demo_pkg", b"demo_two")
    inputs = {
        "wheel-0": make(store, {NAME: wheel({"demo_pkg/a": b""})}),
        "wheel-1": make(store, {NAME.replace("pkg", "two"): other}),
    }
    with pytest.raises(ReprobuildError) as error:  # its RECORD no longer holds
        builtins()["wheel-install"].build(None, inputs, store)
    assert error.value.code in ("E-WHEEL", "E-ARCHIVE")
    inputs["wheel-1"] = make(store, {NAME: wheel({"demo_pkg/a": b"other"})})
    with pytest.raises(ReprobuildError) as error:
        builtins()["wheel-install"].build(None, inputs, store)
    assert error.value.code == "E-TREE-CONFLICT"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (wheel({"a": b"1"}, record=b""), NAME),
        (wheel({"a": b"1"}, record=f"a,sha256={digest_of(b'2')},1\n".encode()), NAME),
        (wheel({"a": b"1"}, record=b"a,md5=x,1\n"), NAME),
        (wheel({f"{INFO}/WHEEL": b"Wheel-Version: 9.0\n"}), NAME),
        (wheel({f"{INFO}/WHEEL": b"nonsense"}), NAME),
        (wheel({"other-2.dist-info/x": b""}), NAME),
        (wheel({"demo_pkg-1.0.data/nowhere/x": b""}), NAME),
        (wheel({}), "another-1.0-py3-none-any.whl"),
        (wheel({}), "not-a-wheel.whl"),
        (wheel({f"{INFO}/entry_points.txt": b"[console_scripts]\n../x = demo_pkg:main\n"}), NAME),
        (wheel({f"{INFO}/entry_points.txt": b"[console_scripts]\nx = os; evil():main\n"}), NAME),
        (wheel({f"{INFO}/entry_points.txt": b"garbage"}), NAME),
        (zipped([]), NAME),
        (zipped([("a", b"", 0)]), NAME),
        (b"no zip", NAME),
    ],
    ids=range(15),
)
def test_wheels_that_are_off(store: MemoryStore, data: bytes, name: str) -> None:
    with pytest.raises(ReprobuildError) as error:
        install(store, data, name)
    assert error.value.code in ("E-WHEEL", "E-ARCHIVE")
    assert name in error.value.message


@pytest.mark.parametrize(
    "path", ["../x", "/x", "demo_pkg-1.0.data/scripts/../../x", "demo_pkg-1.0.data/data/../../../x"]
)
def test_wheels_that_escape(store: MemoryStore, path: str) -> None:
    with pytest.raises(ReprobuildError) as error:
        install(store, wheel({path: b"x"}))
    assert error.value.code == "E-ARCHIVE-ESCAPE"


@pytest.mark.parametrize("params", [{"interpreter": "python"}, {"interpreter": "/a\nb"}, {"x": 1}])
def test_parameters_that_are_off(store: MemoryStore, params: Value) -> None:
    with pytest.raises(ReprobuildError) as error:
        builtins()["wheel-install"].build(params, {"wheel": make(store, {NAME: wheel({})})}, store)
    assert error.value.code == "E-PARAMS"
