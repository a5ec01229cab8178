"""What a change compiles again, on FlashInfer itself.

Nothing for a Python file, a README, or a header that no unit could read; for a header, the units
whose set holds it; for a header that shadows others, at least the units that find it now. What is
made then is compared with a compile that sees the whole trees.

Takes some minutes on two cores. The toolkit comes from the store that REPROBUILD_TEST_STORE names,
else one is made and fetched.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import normpath
from typing import Any

import pytest

from reprobuild.adapters.store.history import SqliteHistory
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.digest import Digest
from reprobuild.core.past import Past
from reprobuild.core.tree import Directory, File
from support.quickstart import Command, copy_quickstart, edit

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
]

UNITS = {
    "silu_and_mul": ("silu_and_mul.cu",),
    "fp4_kv_quant": ("csrc:fp4_kv_quantization.cu",),
    "fp4_kv_dequant": ("csrc:fp4_kv_dequantization.cu",),
    "cascade": ("csrc:cascade.cu", "csrc:flashinfer_cascade_binding.cu"),
    "page": ("csrc:page.cu", "csrc:flashinfer_page_binding.cu"),
}
NAMES = frozenset(f"flashinfer.{module}:{unit}" for module in UNITS for unit in UNITS[module])
SILU = "flashinfer.silu_and_mul:silu_and_mul.cu"
DEQUANT = "flashinfer.fp4_kv_dequant:csrc:fp4_kv_dequantization.cu"
CASCADE = "flashinfer.cascade:csrc:cascade.cu"
DATA = "/inputs/steps/data/"
"""Where a compile finds the tree `steps.data`."""
MARK = """
#ifndef MARK_{name}
#define MARK_{name}
__attribute__((used)) static const char mark_{name}[] = "{name} of {run}";
#endif
"""

# A unit's recipe says that its root is to be cut; without that it is compiled in the whole one.
WHOLE = """
from reprobuild.core.kinds import cuda_module
from reprobuild.engine import realize
from reprobuild.cli.main import entry

cuda_module._narrow = lambda *_: None
realize.remember = lambda *_: None
entry()
"""


@dataclass(frozen=True)
class Built:
    """What one `realize` compiled (derivations by name), what it says of files that changed, and
    the modules that came out."""

    compiled: Mapping[str, Digest]
    reread: Mapping[str, Any]
    trees: Mapping[str, str]
    paths: Mapping[str, Path]

    def holds(self, module: str, text: str) -> bool:
        """Whether a text is in the module's library."""
        return any(text.encode() in file.read_bytes() for file in self.paths[module].glob("*.so"))


@dataclass(frozen=True)
class FlashInfer:
    """A project whose FlashInfer has other files put over its own."""

    command: Command
    run: str
    past: dict[str, Past] = field(default_factory=dict)
    first: list[Built] = field(default_factory=list)

    @property
    def edits(self) -> Path:
        return self.command.project / "edits"

    @property
    def store(self) -> LocalStore:
        return LocalStore.open(self.command.store)

    def write(self, path: str, text: str) -> None:
        """Puts a file over FlashInfer's own, or among them."""
        file = self.edits / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def mark(self, name: str) -> str:
        """A line that leaves a text of this run in a library."""
        return MARK.format(name=name, run=self.run)

    def build(self, modules: Iterable[str] = UNITS, *, whole: bool = False) -> Built:
        """Realizes modules; with `whole` each unit sees all of FlashInfer."""
        project = self.command.project
        self.command.run("lock", "--update", "edits")
        events = project.parent / "events"
        events.unlink(missing_ok=True)
        words = ["--events", str(events), "--json", "realize", "-j", "2"]
        words += [f"kernels.flashinfer.{module}" for module in modules]
        text = self.whole(words) if whole else self.command.run(*words)
        document = json.loads(text)
        rows = (
            [json.loads(line) for line in events.read_text().splitlines()]
            if events.exists()
            else []
        )
        outputs = {name.rpartition(".")[2]: out for name, out in document["outputs"].items()}
        return Built(
            compiled={
                row["name"]: Digest.parse(row["drv"])
                for row in rows
                if row["event"] == "finished" and row["how"] == "built" and row["name"] in NAMES
            },
            reread=document.get("reread", {}),
            trees={module: out["tree"] for module, out in outputs.items()},
            paths={module: Path(out["path"]) for module, out in outputs.items()},
        )

    def whole(self, words: list[str]) -> str:
        """The command without narrowing, in a copy of the project: so that no answer that is
        remembered of the one stands for the other."""
        copy = self.command.project.parent / "whole"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.command.project, copy)
        options = ["-C", str(copy), "--store", str(self.command.store)]
        done = subprocess.run(
            [sys.executable, "-c", WHOLE, *options, *words],
            capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def history(self) -> SqliteHistory:
        return SqliteHistory(self.command.store / "cache" / "history.sqlite")

    def could(self, name: str) -> set[str]:
        """The files of FlashInfer that were in the cut root of a unit's first compile."""
        found: set[str] = set()
        for place, tree in self.past[name].trees.items():
            step, _, below = place.partition("/")
            if step == "steps.data":
                found.update(files(self.store, tree, below and below + "/"))
        return found

    def did(self, name: str, includes: Digest | None = None) -> set[str]:
        """Those that the compiler said it included, in its first compile or another."""
        store = self.store
        digest = includes or self.past[name].includes
        assert digest is not None
        (entry,) = (entry for _, entry in store.tree(digest))
        assert isinstance(entry, File)
        with store.open_blob(entry.digest) as file:
            words = file.read().decode().replace("\\\n", " ").split()
        paths = {normpath(word) for word in words}
        return {path.removeprefix(DATA) for path in paths if path.startswith(DATA)}

    def now_includes(self, built: Built, path: str) -> set[str]:
        """The units of a build whose compiler said that it included a file."""
        found = set()
        for name, drv in built.compiled.items():
            record = self.store.realized(drv)
            assert record is not None
            if path in self.did(name, record.outputs["includes"]):
                found.add(name)
        return found


def files(store: LocalStore, tree: Digest, prefix: str = "") -> Iterator[str]:
    """The paths of a tree's files."""
    for name, entry in store.tree(tree):
        path = prefix + name.decode()
        if isinstance(entry, Directory):
            yield from files(store, entry.digest, path + "/")
        else:
            yield path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> FlashInfer:
    """The modules, built once. A store that is used again knows what earlier runs compiled, so each
    run has a macro of its own that no source asks for."""
    home = tmp_path_factory.mktemp("flashinfer")
    project = copy_quickstart(home / "project")
    given = os.environ.get("REPROBUILD_TEST_STORE")
    run = secrets.token_hex(8)
    edit(project / "flake-like.toml", "[inputs.cuda-runtime]",
         '[inputs.edits]\nkind = "path"\npath = "edits"\n\n[inputs.cuda-runtime]')  # fmt: skip
    component = project / "derivations/flashinfer-sm120.toml"
    edit(component, "[steps.data]\n", '[steps.data]\nkind = "join"\nplace = [\n'
         '  { from = "steps.as-it-came", to = "" },\n'
         '  { from = "inputs.edits", to = "", replace = true },\n'
         "]\n\n[steps.as-it-came]\n")  # fmt: skip
    edit(component, '  "Py_LIMITED_API=0x03090000",\n',
         f'  "Py_LIMITED_API=0x03090000",\n  "RUN_{run}",\n')  # fmt: skip
    flashinfer = FlashInfer(Command(project, Path(given) if given else home / "store"), run)
    rewind(flashinfer)
    first = flashinfer.build()
    assert set(first.compiled) == NAMES
    flashinfer.first.append(first)
    history = flashinfer.history()
    for name in NAMES:
        past = history.get(name)
        assert past is not None
        flashinfer.past[name] = past
    history.close()
    return flashinfer


def rewind(flashinfer: FlashInfer) -> None:
    """FlashInfer as it came, and of each unit its first compile remembered as the last."""
    shutil.rmtree(flashinfer.edits, ignore_errors=True)
    flashinfer.write("EDITS.md", "Files that are put over FlashInfer's own.\n")
    history = flashinfer.history()
    for name, past in flashinfer.past.items():
        history.put(name, past)
    history.close()


@pytest.fixture
def flashinfer(built: FlashInfer) -> FlashInfer:
    rewind(built)
    return built


def test_what_no_unit_reads_compiles_nothing(flashinfer: FlashInfer) -> None:
    (first,) = flashinfer.first
    source = original(flashinfer)
    known = {path for name in NAMES for path in flashinfer.could(name)}
    headers = [p.relative_to(source).as_posix() for p in source.glob("include/flashinfer/**/*.cuh")]
    unrelated = sorted(set(headers) - known)
    assert unrelated
    flashinfer.write("README.md", "Changed.\n")
    flashinfer.write("include/flashinfer/tool.py", "print(1)\n")
    flashinfer.write("include/flashinfer/nobody_asks_for.cuh", "#error read\n")
    for path in unrelated:
        flashinfer.write(path, "#error read\n" + (source / path).read_text())
    again = flashinfer.build()
    assert again.compiled == {}
    assert again.trees == first.trees


def test_another_wheel_with_the_same_sources_compiles_nothing(flashinfer: FlashInfer) -> None:
    (first,) = flashinfer.first
    project = flashinfer.command.project
    source, templates = original(flashinfer), original(flashinfer, "templates")
    wheel = project / "wheel" / "flashinfer_python-0.6.18-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w", strict_timestamps=False) as archive:
        for top, tree in (("flashinfer/data/", source), ("flashinfer/", templates)):
            for file in sorted(tree.rglob("*")):
                name = top + file.relative_to(tree).as_posix()
                if file.is_file() and name not in archive.NameToInfo:
                    archive.write(file, name)
        archive.writestr("flashinfer/__init__.py", "changed = True\n")
        archive.writestr("flashinfer/README.md", "Changed.\n")
        archive.writestr("flashinfer_python-0.6.18.dist-info/METADATA", "Changed\n")
    flake, component = project / "flake-like.toml", project / "derivations/flashinfer-sm120.toml"
    before = flake.read_text(), component.read_text()
    edit(flake, "[inputs.edits]\n",
         '[inputs.changed-wheel]\nkind = "path"\npath = "wheel"\n\n[inputs.edits]\n')  # fmt: skip
    text = before[1].replace('"inputs.flashinfer"', f'"steps.changed-wheel/{wheel.name}"')
    component.write_text(
        text + '\n[steps.changed-wheel]\nkind = "join"\n'
        'place = [{ from = "inputs.changed-wheel", to = "" }]\n'
    )
    try:
        flashinfer.command.run("lock", "--update", "changed-wheel")
        again = flashinfer.build()
    finally:
        flake.write_text(before[0])
        component.write_text(before[1])
        flashinfer.command.run("lock")
    assert again.compiled == {}
    assert again.trees == first.trees


def test_sets_hold_what_is_included_and_little_more(flashinfer: FlashInfer) -> None:
    could = {name: flashinfer.could(name) for name in NAMES}
    did = {name: flashinfer.did(name) for name in NAMES}
    for name in NAMES:
        assert did[name] <= could[name], name
    really = sorted({path for paths in did.values() for path in paths if not path.endswith(".cu")})
    chosen = random.Random(flashinfer.run).sample(really, 100)
    compiled = sum(path in could[name] for path in chosen for name in NAMES)
    included = sum(path in did[name] for path in chosen for name in NAMES)
    print(f"100 of {len(really)} headers: {compiled} compiles, {included} of them include it")
    # cascade.cu could read CUTLASS, behind a condition: one unit too many for most headers
    assert compiled <= included + 100
    for name in NAMES - {CASCADE}:
        assert len(could[name]) <= 1.1 * len(did[name]) + 2, name


def test_a_header_compiles_the_units_whose_set_holds_it(flashinfer: FlashInfer) -> None:
    (first,) = flashinfer.first
    source = original(flashinfer)

    # behind a condition that does not hold: in the set, and not included
    path = min(
        path
        for path in flashinfer.could(CASCADE) - flashinfer.did(CASCADE)
        if not any(path in flashinfer.could(name) for name in NAMES - {CASCADE})
    )
    flashinfer.write(path, (source / path).read_text() + "\n// changed\n")
    built = flashinfer.build()
    assert set(built.compiled) == {CASCADE}
    assert built.reread == {CASCADE: {"changed": [DATA + path], "included": False}}
    assert built.trees == first.trees

    # included by some of the units, and changes what they are made to
    rewind(flashinfer)
    path = "include/flashinfer/math.cuh"
    flashinfer.write(path, (source / path).read_text() + flashinfer.mark("changed"))
    built = flashinfer.build()
    assert set(built.compiled) == {name for name in NAMES if path in flashinfer.could(name)}
    including = {name for name in NAMES if path in flashinfer.did(name)}
    assert including == {SILU, CASCADE}
    assert {name for name, row in built.reread.items() if row["included"]} == including
    assert all(row["changed"] == [DATA + path] for row in built.reread.values())
    assert built.holds("silu_and_mul", f"changed of {flashinfer.run}")
    assert built.holds("cascade", f"changed of {flashinfer.run}")
    assert built.trees["page"] == first.trees["page"]
    whole = flashinfer.build(["silu_and_mul", "cascade"], whole=True)
    assert set(whole.compiled) >= including
    assert {name: built.trees[name] for name in whole.trees} == whole.trees


def test_a_header_that_shadows_others(flashinfer: FlashInfer) -> None:
    (first,) = flashinfer.first
    shadows = {
        "searched": "cccl/cub/flashinfer/activation.cuh",
        "beside": "csrc/flashinfer/utils.cuh",
        "behind": "cutlass/include/flashinfer/attention/cascade.cuh",
    }
    for name, path in shadows.items():
        operand = path[path.index("flashinfer/") :]
        flashinfer.write(path, f"#pragma once\n#include_next <{operand}>{flashinfer.mark(name)}")
    built = flashinfer.build()
    whole = flashinfer.build(whole=True)
    assert set(whole.compiled) == NAMES
    found = {name: flashinfer.now_includes(whole, path) for name, path in shadows.items()}
    assert found["searched"] == {SILU}
    assert DEQUANT in found["beside"]
    assert found["behind"] == set()
    assert set(built.compiled) >= found["searched"] | found["beside"] | {CASCADE}
    assert "flashinfer.fp4_kv_quant:csrc:fp4_kv_quantization.cu" not in built.compiled
    for name, path in shadows.items():
        assert flashinfer.now_includes(built, path) == found[name]
    assert built.trees == whole.trees
    assert built.trees["silu_and_mul"] != first.trees["silu_and_mul"]
    assert built.trees["cascade"] == first.trees["cascade"]
    assert built.holds("silu_and_mul", f"searched of {flashinfer.run}")
    assert built.holds("fp4_kv_dequant", f"beside of {flashinfer.run}")

    rewind(flashinfer)  # they are deleted
    built = flashinfer.build()
    assert built.compiled == {}
    assert built.trees == first.trees


def test_a_shadow_that_only_another_pass_reads(flashinfer: FlashInfer) -> None:
    flashinfer.write(
        "cccl/cub/crt/host_runtime.h",
        f"#include_next <crt/host_runtime.h>{flashinfer.mark('shadow')}",
    )
    built = flashinfer.build(["silu_and_mul"])
    assert set(built.compiled) == {SILU}
    assert built.reread[SILU]["included"] is False  # no dependency file told of it
    assert built.holds("silu_and_mul", f"shadow of {flashinfer.run}")
    whole = flashinfer.build(["silu_and_mul"], whole=True)
    assert set(whole.compiled) == {SILU}
    assert built.trees == whole.trees


def original(flashinfer: FlashInfer, step: str = "as-it-came") -> Path:
    """The tree of a step, as FlashInfer's wheel has it."""
    flashinfer.command.run("lock", "--update", "edits")
    name = f"kernels.flashinfer.{step}"
    return Path(flashinfer.command.json("realize", name)["outputs"][name]["path"])
