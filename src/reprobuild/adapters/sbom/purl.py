"""What both formats say: package URLs (github.com/package-url/purl-spec), and a bill's serial."""

from __future__ import annotations

import re
import uuid

from packageurl import PackageURL

from reprobuild.core.bill import Bill, Item

_FORGE = re.compile(r"https?://(?:www\.)?github\.com/([^/]+)/([^/]+?)(?:\.git)?/?\Z")


def purl(item: Item) -> PackageURL:
    """The item's package URL."""
    if item.kind == "component":
        match = _FORGE.match(item.repository)
        if match:
            return PackageURL("github", match[1], match[2], item.commit or item.version or None)
        qualifiers = {"vcs_url": f"git+{item.repository}@{item.commit}"} if item.repository else {}
        return PackageURL("generic", None, item.name, item.version or None, qualifiers)
    if item.kind == "compiled":
        known = {"checksum": f"sha256:{item.sha256}"} if item.sha256 else {"drv": item.drv}
        return PackageURL("generic", item.component, item.name, item.version or None, known)
    if item.kind == "deb":
        return PackageURL("deb", "debian", item.name, item.version or None)
    return PackageURL(item.kind, None, item.name, item.version or None)


def serial(bill: Bill) -> uuid.UUID:
    """A UUID that follows from the image, so that one image has one bill."""
    return uuid.uuid5(uuid.NAMESPACE_OID, bill.config_digest)
