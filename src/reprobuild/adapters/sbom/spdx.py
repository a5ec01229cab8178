"""SPDX 2.3 as JSON, by spdx-tools."""

from __future__ import annotations

import io
import itertools
import json
import re
from datetime import datetime

from license_expression import ExpressionError, get_spdx_licensing
from spdx_tools.spdx.model import (
    Actor,
    ActorType,
    Checksum,
    ChecksumAlgorithm,
    CreationInfo,
    Document,
    ExternalPackageRef,
    ExternalPackageRefCategory,
    ExtractedLicensingInfo,
    Package,
    PackagePurpose,
    Relationship,
    RelationshipType,
    SpdxNoAssertion,
)
from spdx_tools.spdx.validation.uri_validators import validate_download_location
from spdx_tools.spdx.writer.json.json_writer import write_document_to_stream

from reprobuild.adapters.sbom.purl import purl, serial
from reprobuild.core.bill import Bill, Item

ROOT = "SPDXRef-image"


def spdx_document(bill: Bill) -> bytes:
    """The document, checked by the library."""
    extracted: dict[str, ExtractedLicensingInfo] = {}
    root = Package(
        ROOT,
        bill.name,
        SpdxNoAssertion(),
        version=bill.version,
        files_analyzed=False,
        primary_package_purpose=PackagePurpose.CONTAINER,
        checksums=[Checksum(ChecksumAlgorithm.SHA256, bill.config_digest.removeprefix("sha256:"))],
    )
    packages, relationships = [root], [
        Relationship("SPDXRef-DOCUMENT", RelationshipType.DESCRIBES, ROOT)
    ]  # fmt: skip
    ids = _ids(bill)
    for item in bill.items:
        package = _package(item, ids[item.key], extracted)
        packages.append(package)
        parent = ROOT if item.kind == "component" else ids[f"component-{item.component}"]
        relationships.append(Relationship(parent, RelationshipType.CONTAINS, package.spdx_id))
        if item.kind == "compiled":
            made = Relationship(package.spdx_id, RelationshipType.GENERATED_FROM, parent)
            relationships.append(made)
    document = Document(
        CreationInfo(
            "SPDX-2.3",
            "SPDXRef-DOCUMENT",
            bill.name,
            f"urn:uuid:{serial(bill)}",
            [Actor(ActorType.TOOL, "reprobuild")],
            datetime.fromisoformat(bill.created.replace("Z", "")),
        ),
        packages=packages,
        relationships=relationships,
        extracted_licensing_info=[extracted[key] for key in sorted(extracted)],
    )
    out = io.StringIO()
    write_document_to_stream(document, out)
    text = json.dumps(json.loads(out.getvalue()), indent=2, sort_keys=True, ensure_ascii=False)
    return text.encode() + b"\n"


def _ids(bill: Bill) -> dict[str, str]:
    """SPDX ids by key; keys that differ in characters which an id cannot have are numbered."""
    ids: dict[str, str] = {}
    taken = {ROOT}
    for item in bill.items:
        plain = "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", item.key)
        names = itertools.chain([plain], (f"{plain}-{n}" for n in itertools.count(2)))
        ids[item.key] = next(name for name in names if name not in taken)
        taken.add(ids[item.key])
    return ids


def _package(item: Item, spdx_id: str, extracted: dict[str, ExtractedLicensingInfo]) -> Package:
    return Package(
        spdx_id,
        item.name,
        _location(item),
        version=item.version or None,
        files_analyzed=False,
        checksums=[Checksum(ChecksumAlgorithm.SHA256, item.sha256)] if item.sha256 else [],
        license_declared=_licence(item.licence, extracted),
        external_references=[
            ExternalPackageRef(
                ExternalPackageRefCategory.PACKAGE_MANAGER, "purl", purl(item).to_string()
            )
        ],
        source_info=f"derivation {item.drv}" if item.drv else None,
        comment=f"device code for {', '.join(item.archs)}" if item.archs else None,
    )


def _location(item: Item) -> object:
    """Where the source is, in the form of SPDX 2.3, 7.7; nothing is asserted for what has no such
    form by the library's own rules: a path, a host without a domain or with a port alone."""
    repository = item.repository
    if len(repository) > 2000 or not repository.startswith(
        ("https://", "http://", "ssh://", "git://")
    ):
        return SpdxNoAssertion()
    location = f"git+{repository}@{item.commit}"
    return SpdxNoAssertion() if validate_download_location(location) else location


def _licence(text: str, extracted: dict[str, ExtractedLicensingInfo]) -> object:
    """A licence as an SPDX expression; one of no known name becomes a LicenseRef with its words."""
    if not text:
        return SpdxNoAssertion()
    licensing = get_spdx_licensing()
    try:
        parsed = licensing.parse(text, validate=True)
        if parsed is not None:
            return parsed
    except (ExpressionError, ValueError, TypeError):
        pass
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", text.removeprefix("LicenseRef-")).strip("-")[:80]
    reference = f"LicenseRef-{name or 'unnamed'}"
    extracted[reference] = ExtractedLicensingInfo(reference, text, text[:100])
    return licensing.parse(reference)
