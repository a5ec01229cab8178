"""Bills of materials in the formats of others, by their own libraries (extra `sbom`)."""

from __future__ import annotations

from reprobuild.adapters.extras import install_command
from reprobuild.core.attachment import CYCLONEDX, SPDX, Attachment
from reprobuild.core.bill import Bill
from reprobuild.errors import ReprobuildError


def documents(bill: Bill) -> list[Attachment]:
    """The bill as SPDX 2.3 and CycloneDX 1.6, JSON; a function of the bill alone.

    Raises E-TOOL-MISSING when the libraries are not installed.
    """
    try:
        from reprobuild.adapters.sbom.cyclonedx import cyclonedx_document
        from reprobuild.adapters.sbom.spdx import spdx_document
    except ImportError as error:
        raise ReprobuildError(
            "E-TOOL-MISSING",
            f"the library {error.name} is not installed, which writes SBOMs",
            hint=install_command("sbom"),
        ) from error
    return [
        Attachment("spdx.json", SPDX, spdx_document(bill)),
        Attachment("cdx.json", CYCLONEDX, cyclonedx_document(bill)),
    ]
