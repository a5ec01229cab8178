"""CycloneDX 1.6 as JSON, by cyclonedx-python-lib."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.dependency import Dependency
from cyclonedx.output.json import JsonV1Dot6

from reprobuild.adapters.sbom.purl import purl, serial
from reprobuild.core.bill import Bill, Item


def cyclonedx_document(bill: Bill) -> bytes:
    """The document."""
    root = Component(
        name=bill.name,
        version=bill.version,
        type=ComponentType.CONTAINER,
        bom_ref="image",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=bill.config_digest[7:])],
    )
    components = {item.key: _component(item) for item in bill.items}
    dependencies = []
    for item in bill.items:
        if item.kind == "component":
            below = [
                Dependency(components[i.key].bom_ref)
                for i in bill.items
                if i.kind != "component" and i.component == item.name
            ]
            dependencies.append(Dependency(components[item.key].bom_ref, below))
    top = [Dependency(d.ref) for d in dependencies]
    bom = Bom(
        components=components.values(),
        serial_number=serial(bill),
        metadata=BomMetaData(
            component=root, timestamp=datetime.fromisoformat(bill.created.replace("Z", "+00:00"))
        ),
        dependencies=[Dependency(root.bom_ref, top), *dependencies],
    )
    written = json.loads(JsonV1Dot6(bom).output_as_string())
    # The library names itself and its links with their own accidents of version.
    written.get("metadata", {}).pop("tools", None)
    text = json.dumps(written, indent=2, sort_keys=True, ensure_ascii=False)
    return text.encode() + b"\n"


def _component(item: Item) -> Component:
    said = [("drv", item.drv)] if item.drv else []
    said += [("cuda.arch", arch) for arch in item.archs]
    return Component(
        name=item.name,
        version=item.version or None,
        type=ComponentType.APPLICATION if item.kind == "component" else ComponentType.LIBRARY,
        bom_ref=item.key,
        purl=purl(item),
        licenses=_licences(item.licence),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=item.sha256)] if item.sha256 else None,
        properties=[Property(name=f"reprobuild:{name}", value=value) for name, value in said],
    )


def _licences(text: str) -> list[Any]:
    return [LicenseFactory().make_from_string(text)] if text else []
