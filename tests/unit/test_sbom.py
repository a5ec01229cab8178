"""Bills of materials: complete, valid for their own libraries, and the same every time."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.oci.delivery import Images
from reprobuild.adapters.sbom import documents
from reprobuild.core.bill import Bill, Item, bill
from support.released import INSTALLED, document, released, row

LIBRARY, BINARY = "opt/demo/kernels.so", b"not really a library"

PIN = {"filename": "nvidia_cuda_runtime.whl", "kind": "wheel", "name": "nvidia-cuda-runtime",
       "sha256": "3" * 64, "version": "13.3.29"}  # fmt: skip


@pytest.fixture
def written(tmp_path: Path) -> list[dict[str, Any]]:
    store = MemoryStore(tmp_path / "store")
    cuda = [{"archs": ["sm_120a"], "file": LIBRARY}]
    said = document(row(licence="Apache-2.0 OR MIT", cuda=cuda))
    files = {**INSTALLED, LIBRARY: BINARY}
    layout = store.materialise(released(store, pins=(PIN,), stated=said, installed=files))
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
    library = packages["kernels.so"]
    sha256 = hashlib.sha256(BINARY).hexdigest()
    assert library["checksums"] == [{"algorithm": "SHA256", "checksumValue": sha256}]
    assert library["licenseDeclared"] == "Apache-2.0 OR MIT"
    assert library["comment"] == "device code for sm_120a"
    assert f"pkg:generic/demo/kernels.so@1.0?checksum=sha256:{sha256}" in purls
    related = {(r["spdxElementId"], r["relationshipType"], r["relatedSpdxElement"])
               for r in spdx["relationships"]}  # fmt: skip
    assert (library["SPDXID"], "GENERATED_FROM", own["SPDXID"]) in related


@pytest.mark.parametrize(
    ("repository", "location"),
    [
        ("https://example.org/x.git", f"git+https://example.org/x.git@{'c' * 40}"),
        ("ssh://git@example.org:22/x.git", f"git+ssh://git@example.org:22/x.git@{'c' * 40}"),
        ("git://example.org/x.git", f"git+git://example.org/x.git@{'c' * 40}"),
        ("https://forge/x.git", "NOASSERTION"),
        ("https://forge.internal/x.git", "NOASSERTION"),
        ("http://127.0.0.1:8080/x.git", "NOASSERTION"),
        ("https://[::1]/x.git", "NOASSERTION"),
        ("https://example.org:port/x.git", "NOASSERTION"),
        ("https://", "NOASSERTION"),
        ("git@example.org:owner/x.git", "NOASSERTION"),
        ("file:///srv/x.git", "NOASSERTION"),
        ("/srv/git/x y.git", "NOASSERTION"),
        ("fixture:repo", "NOASSERTION"),
        ("https://" + "a." * 5000, "NOASSERTION"),
    ],
)
def test_any_repository_has_an_spdx_document(repository: str, location: str) -> None:
    item = Item("component-x", "component", "x", "1", "MIT", "x", repository=repository,
                commit="c" * 40, drv="d" * 64)  # fmt: skip
    made = Bill("image", "1", "2026-01-31T00:00:00Z", f"sha256:{'a' * 64}", (item,))
    spdx, cyclonedx = (json.loads(d.data) for d in documents(made))
    (package,) = [p for p in spdx["packages"] if p["name"] == "x"]
    assert package["downloadLocation"] == location
    assert cyclonedx["components"]


def test_names_that_an_spdx_id_cannot_tell_apart() -> None:
    items = tuple(
        Item(f"component-{n}", "component", n, "1", "MIT", n, drv="d" * 64)
        for n in ("a-b", "a_b", "a+b")
    )
    made = Bill("image", "1", "2026-01-31T00:00:00Z", f"sha256:{'a' * 64}", items)
    spdx = json.loads(documents(made)[0].data)
    ids = {p["name"]: p["SPDXID"] for p in spdx["packages"]}
    assert ids["a-b"] == "SPDXRef-component-a-b"
    assert len(set(ids.values())) == 4


def test_cyclonedx(written: list[dict[str, Any]]) -> None:
    cdx = written[1]
    assert (cdx["bomFormat"], cdx["specVersion"]) == ("CycloneDX", "1.6")
    found = {c["bom-ref"]: c for c in cdx["components"]}
    assert found["pypi-demo-nvidia-cuda-runtime"]["purl"] == "pkg:pypi/nvidia-cuda-runtime@13.3.29"
    assert found["pypi-demo-demo"]["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    below = {d["ref"]: d.get("dependsOn", []) for d in cdx["dependencies"]}
    assert below["image"] == ["component-demo"]
    assert {"pypi-demo-demo", "pypi-demo-nvidia-cuda-runtime", f"library-demo-{LIBRARY}"} <= set(
        below["component-demo"]
    )
    library = found[f"library-demo-{LIBRARY}"]
    assert library["licenses"] == [{"expression": "Apache-2.0 OR MIT"}]
    assert library["properties"] == [{"name": "reprobuild:cuda.arch", "value": "sm_120a"}]
    made = [c for ref, c in found.items() if ref.startswith("made-demo-")]
    assert all(c["purl"].startswith("pkg:generic/demo/") and c["licenses"] for c in made)
    assert made


def test_cyclonedx_follows_its_schema(written: list[dict[str, Any]]) -> None:
    from cyclonedx.exception import MissingOptionalDependencyException
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    try:
        problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(written[1]))
    except MissingOptionalDependencyException:
        pytest.skip("jsonschema is not installed (cyclonedx-python-lib[json-validation])")
    assert problem is None
