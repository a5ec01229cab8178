"""The tool as a bundle carries it: nothing that it imports stays at home."""

from __future__ import annotations

import pytest

from reprobuild.adapters.bundle import toolkit
from reprobuild.errors import ReprobuildError


@pytest.fixture(scope="module")
def installed() -> toolkit.Files:
    """What is packed for this interpreter."""
    return toolkit._installed()


def test_everything_that_is_imported_is_packed(installed: toolkit.Files) -> None:
    toolkit._check_imports(installed)
    names = {name.partition("/")[0] for name in installed}
    assert {"reprobuild", "click", "blake3", "elftools", "zstandard"} <= names
    assert not any(name.startswith(("grpc/", "spdx_tools/", "pytest/")) for name in installed)


@pytest.mark.parametrize("module", ["elftools", "click", "tomlkit"])
def test_what_was_forgotten_is_named(installed: toolkit.Files, module: str) -> None:
    rest = {n: m for n, m in installed.items() if not n.startswith(f"{module}/")}
    with pytest.raises(ReprobuildError, match=f"imports {module}") as caught:
        toolkit._check_imports(rest)
    assert caught.value.code == "E-TOOLKIT"


def test_imports_are_found_wherever_they_stand() -> None:
    text = b"import os.path\ndef f():\n    from click.core import x\n    import yaml as y\n"
    members = {
        "reprobuild/a.py": toolkit.Member(text),
        "reprobuild/b.py": toolkit.Member(b"from . import c\n"),
        "other/d.py": toolkit.Member(b"import numpy\n"),
    }
    assert toolkit._imported(members) == {"os", "click", "yaml"}
