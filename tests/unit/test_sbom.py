"""Bills of materials: complete, valid for their own libraries, and the same every time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.oci.delivery import Images
from reprobuild.adapters.sbom import documents
from reprobuild.core.bill import bill
from support.released import document, released, row

PIN = {"filename": "nvidia_cuda_runtime.whl", "kind": "wheel", "name": "nvidia-cuda-runtime",
       "sha256": "3" * 64, "version": "13.3.29"}  # fmt: skip


@pytest.fixture
def written(tmp_path: Path) -> list[dict[str, Any]]:
    store = MemoryStore(tmp_path / "store")
    said = document(row(licence="Apache-2.0 OR MIT"))
    layout = store.materialise(released(store, pins=(PIN,), stated=said))
    images = Images()
    made = bill(images.inspect(layout), images.statement(layout))
    first, second = documents(made), documents(made)
    assert [d.data for d in first] == [d.data for d in second]
    return [json.loads(d.data) for d in first]


def test_spdx(written: list[dict[str, Any]], tmp_path: Path) -> None:
    from spdx_tools.spdx.parser.parse_anything import parse_file
    from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

    spdx = written[0]
    path = tmp_path / "x.spdx.json"
    path.write_text(json.dumps(spdx))
    assert validate_full_spdx_document(parse_file(str(path))) == []
    packages = {p["name"]: p for p in spdx["packages"]}
    assert packages["nvidia-cuda-runtime"]["licenseDeclared"] == "LicenseRef-NVIDIA-Proprietary"
    assert packages["nvidia-cuda-runtime"]["checksums"][0]["checksumValue"] == "3" * 64
    purls = {r["referenceLocator"] for p in packages.values() for r in p.get("externalRefs", [])}
    assert "pkg:pypi/nvidia-cuda-runtime@13.3.29" in purls
    assert spdx["creationInfo"]["created"] == "2026-01-31T00:00:00Z"
    (own,) = [p for p in spdx["packages"] if p["SPDXID"] == "SPDXRef-component-demo"]
    assert own["licenseDeclared"] == "Apache-2.0 OR MIT"


def test_cyclonedx(written: list[dict[str, Any]]) -> None:
    cdx = written[1]
    assert (cdx["bomFormat"], cdx["specVersion"]) == ("CycloneDX", "1.6")
    found = {c["bom-ref"]: c for c in cdx["components"]}
    assert found["pypi-demo-nvidia-cuda-runtime"]["purl"] == "pkg:pypi/nvidia-cuda-runtime@13.3.29"
    assert found["pypi-demo-demo"]["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    below = {d["ref"]: d.get("dependsOn", []) for d in cdx["dependencies"]}
    assert below["image"] == ["component-demo"]
    assert sorted(below["component-demo"]) == ["pypi-demo-demo", "pypi-demo-nvidia-cuda-runtime"]


def test_cyclonedx_follows_its_schema(written: list[dict[str, Any]]) -> None:
    from cyclonedx.exception import MissingOptionalDependencyException
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    try:
        problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(written[1]))
    except MissingOptionalDependencyException:
        pytest.skip("jsonschema is not installed (cyclonedx-python-lib[json-validation])")
    assert problem is None
