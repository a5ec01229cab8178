"""A recorded resolution is said in the statement, in the labels and in what the image checks."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import reprobuild
from reprobuild.core.kinds.labels import SourceFacts, _resolutions, _source_labels

RESOLVED = [
    ("a.py", "1" * 40, "Ann", "Both lines are wanted."),
    ("gone", "removed", "Bo", "Unused."),
]


def _source(resolutions: list[tuple[str, str, str, str]]) -> dict[str, Any]:
    facts = SourceFacts("r", "refs/heads/m", "b", "t", "merge", [], "p", "d", resolutions)
    return {
        "repository": "r",
        "ref": "refs/heads/m",
        "base": "b",
        "integration_tree": "t",
        "strategy": "merge",
        "heads": [],
        "patch_sha256": "p",
        "patch_digest": "d",
        **_resolutions(facts),
    }


def test_labels_name_each_resolution_by_path_and_blob() -> None:
    labels = _source_labels("x.lib", _source(RESOLVED))
    assert labels["x.lib.integration.resolutions"] == f"a.py@{'1' * 40},gone@removed"
    assert "x.lib.integration.resolutions" not in _source_labels("x.lib", _source([]))


@pytest.mark.parametrize("resolutions", [RESOLVED, []])
def test_the_images_own_check_derives_the_same_labels(
    resolutions: list[tuple[str, str, str, str]],
) -> None:
    place = Path(reprobuild.__file__).parent / "data" / "verify.py"
    spec = importlib.util.spec_from_file_location("verify_in_image", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    source = _source(resolutions)
    said = Path(place).read_text()
    assert '".resolutions"' in said
    row = {"name": "lib", "drv": "d", "tree": "t", "version": "", "archs": [], "source": source}
    release: dict[str, Any] = {
        "title": "", "reference": "r:t", "codename": "c", "date": "d", "revision": "1",
        "isolation": "full", "label_prefix": "x", "labels": {}, "runtime": {},
        "model_revision": None, "dirty": [], "cache_fingerprint": "",
    }  # fmt: skip
    labels = module.labels_of({"components": [row], "release": release, "format": 0})
    expected = _source_labels("x.lib", source)
    assert {k: v for k, v in labels.items() if k in expected} == expected
