"""docs/releases.md describes every key of the tables that releases have."""

from __future__ import annotations

import re

import pytest
from pydantic import BaseModel

from reprobuild.adapters.toml.shape import keys
from reprobuild.cli.release import COMMANDS
from reprobuild.core import gates
from reprobuild.core.abi import FIELDS
from reprobuild.core.documents import model as documents
from reprobuild.core.profiles import model as profiles
from support.releases import ROOT

TEXT = (ROOT / "docs" / "releases.md").read_text(encoding="utf-8")
MODELS = [
    documents.Published, documents.ComponentNote, documents.Statement, documents.ContractText,
    documents.RunbookText, documents.Documents, profiles.Setting, profiles.Rule,
    profiles.LogChecks, profiles.OfflineSwitch, profiles.Profile, gates.Gate,
]  # fmt: skip


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_every_key_is_described(model: type[BaseModel]) -> None:
    prose = re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    code = " ".join(re.findall(r"`([^`]+)`", prose))
    missing = [key for key in keys(model) if not re.search(rf"(?<![\w-]){key}(?![\w-])", code)]
    assert missing == []


def test_every_command_and_kind_is_described() -> None:
    for name in COMMANDS:
        assert f"release {name}" in TEXT
    for kind in gates.KINDS:
        assert f"| `{kind}` |" in TEXT
    for field in FIELDS:
        assert f"`{field}`" in TEXT
