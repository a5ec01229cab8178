"""Imports point down; core is pure; each library has one home; heavy ones are lazy."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from support.sources import PACKAGE, imports, modules, tree

# What each floor may import, besides itself.
FLOORS: dict[str, set[str]] = {
    "cli": {"app", "engine", "ports", "core", "settings", "errors"},
    "app": {"engine", "adapters", "ports", "core", "settings", "whereabouts", "errors"},
    "engine": {"ports", "core", "settings", "errors"},
    "adapters": {"ports", "core", "settings", "errors"},
    "ports": {"core", "errors"},
    "settings": {"whereabouts", "core", "errors"},
    "whereabouts": {"core"},
    "core": {"errors"},
    "errordocs": {"errors"},
    "errors": set(),
    "__main__": {"cli"},
    "data": set(),
}

# The world: what a pure module has no use for.
IMPURE = {
    *("os", "sys", "io", "subprocess", "socket", "time", "random", "secrets", "logging"),
    *("tempfile", "shutil", "threading", "asyncio", "multiprocessing", "signal", "fcntl", "glob"),
    *("http", "urllib.request", "getpass", "pwd", "platform", "uuid", "locale", "tomllib"),
    *("click", "docker", "git", "requests", "rich", "tomlkit", "debian", "grpc", "deflate"),
}

# Where each third-party library lives: files or folders below the package.
HOMES: dict[str, tuple[str, ...]] = {
    "blake3": ("core.blake", "core.digest", "adapters.store"),
    "buildstream": ("adapters.remote",),
    "click": ("cli",),
    "cryptography": ("adapters.keys",),
    "cyclonedx": ("adapters.sbom",),
    "debian": ("adapters.builders.deb", "adapters.fetch"),
    "deflate": ("adapters.oci.gzipstream",),
    "elftools": ("adapters.elf",),
    "docker": ("adapters.docker", "adapters.fetch.registry"),  # the latter: docker login's keys
    "git": ("adapters.git",),
    "grpc": ("adapters.remote",),
    "installer": ("adapters.builders.wheel",),
    "license_expression": ("adapters.sbom",),
    "lz4": ("adapters.cubin",),
    "networkx": ("core.graph",),
    "packaging": ("adapters.bundle.toolkit", "adapters.fetch"),
    "pydantic": (
        *("core.schema", "core.flake", "core.component", "core.lock"),
        *("core.documents.model", "core.gates", "core.profiles.model"),
        "adapters.toml",
    ),
    "pydantic_core": ("core.schema", "adapters.toml"),
    "pypi_simple": ("adapters.fetch.index", "adapters.fetch.pipconfig"),
    "requests": ("adapters.fetch.http", "adapters.docker", "adapters.git.forge"),
    "rich": ("adapters.report",),
    "packageurl": ("adapters.sbom",),
    "spdx_tools": ("adapters.sbom",),
    "tomlkit": ("adapters.toml",),
    "urllib3": ("adapters.fetch.http", "adapters.docker"),
    "zstandard": (
        "adapters.builders",
        "adapters.remote",
        "adapters.oci.zstdstream",
        "adapters.bundle",
        "adapters.cubin",
    ),
}

# What a run that has nothing to do must not pay for.
HEAVY = {
    *(
        "docker",
        "git",
        "grpc",
        "buildstream",
        "networkx",
        "pydantic",
        "tomlkit",
        "requests",
        "rich",
        "debian",
    ),
    *("packaging", "pypi_simple", "installer", "zipfile", "tarfile", "asyncio", "email", "http"),
}


def floor(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else PACKAGE


def test_imports_point_down() -> None:
    wrong = []
    for module in modules():
        here = floor(module)
        if here == PACKAGE:
            continue
        assert here in FLOORS, f"{module}: which floor is this?"
        for found in imports(module):
            if not found.module.startswith(f"{PACKAGE}."):
                continue
            there = floor(found.module)
            if there != here and there not in FLOORS[here]:
                wrong.append(f"{module}:{found.line} imports {found.module}")
    assert wrong == []


def test_no_import_cycles() -> None:
    graph = {
        module: {f.module for f in imports(module) if f.module in modules() and not f.lazy}
        for module in modules()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(reversed(error.args[1])))


def test_core_is_pure() -> None:
    wrong = [
        f"{module}:{found.line} imports {found.module}"
        for module in modules()
        if floor(module) in ("core", "errors")
        for found in imports(module)
        if _is_or_below(found.module, IMPURE)
    ]
    assert wrong == []


def test_core_opens_no_files() -> None:
    wrong = []
    for module in modules():
        if floor(module) != "core":
            continue
        for node in ast.walk(tree(module)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("open", "print", "input"):
                wrong.append(f"{module}:{node.lineno} calls {ast.unparse(node.func)}")
    assert wrong == []


def test_each_library_has_one_home() -> None:
    wrong = []
    for module in modules():
        for found in imports(module):
            library = found.module.split(".")[0]
            if library in (PACKAGE, "__future__") or library in sys.stdlib_module_names:
                continue
            if found.typing and library.startswith("_"):
                continue  # _typeshed exists for type checkers alone
            homes = HOMES.get(library)
            assert homes is not None, f"{module}:{found.line}: where may {library} be used?"
            if not any(_is_or_below(module, {f"{PACKAGE}.{home}"}) for home in homes):
                wrong.append(f"{module}:{found.line} imports {found.module}")
    assert wrong == []


def test_homes_are_lived_in() -> None:
    used = {f.module.split(".")[0] for module in modules() for f in imports(module)}
    assert set(HOMES) - used == set()


def test_only_the_composition_root_names_adapters() -> None:
    wrong = [
        f"{module}:{found.line} imports {found.module}"
        for module in modules()
        if floor(module) not in ("app", "adapters")
        for found in imports(module)
        if floor(found.module) == "adapters" and found.module.startswith(PACKAGE)
    ]
    assert wrong == []


def test_starting_up_is_light() -> None:
    start = f"{PACKAGE}.cli.main"
    assert start in modules()
    seen: dict[str, str] = {start: ""}
    heavy = []
    queue = [start]
    while queue:
        module = queue.pop()
        for found in imports(module):
            if found.lazy or found.typing:
                continue
            if _is_or_below(found.module, HEAVY):
                heavy.append(f"{module}:{found.line} imports {found.module} (by {seen[module]})")
            # Importing a module imports the packages around it.
            parts = found.module.split(".")
            for end in range(1, len(parts) + 1):
                name = ".".join(parts[:end])
                if name in modules() and name not in seen:
                    seen[name] = module
                    queue.append(name)
    assert heavy == []


def test_a_run_with_nothing_to_do_loads_nothing_heavy(tmp_path: Path) -> None:
    """What is imported by naming the command `realize`, in a process of its own."""
    program = (
        "import sys, reprobuild.cli.main as main;"
        "main.main.get_command(None, 'realize');"
        "import reprobuild.app, reprobuild.settings;"
        "print(' '.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert sorted(set(done.stdout.split()) & HEAVY) == []


def _is_or_below(module: str, names: set[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)
