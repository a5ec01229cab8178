"""Documents that belong to an image and lie beside it: provenance, SBOMs, gates.

In a registry each is an artifact that refers to the image (OCI image specification 1.1, "artifacts
usage"); beside a file it is a file of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from reprobuild.core.digest import Sha256
from reprobuild.core.encoding import Value, encode
from reprobuild.core.image import MANIFEST, sha256_of

DSSE = "application/vnd.dsse.envelope.v1+json"
SPDX = "application/spdx+json"
CYCLONEDX = "application/vnd.cyclonedx+json"
EVIDENCE = "application/vnd.reprobuild.evidence.v0+json"
ROTATION = "application/vnd.reprobuild.key-rotation.v0+json"
EMPTY = b"{}"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"


@dataclass(frozen=True, slots=True)
class Attachment:
    """One document: `media_type` is of its bytes and of the artifact, `name` a file's end."""

    name: str
    media_type: str
    data: bytes
    annotations: Mapping[str, str] = field(default_factory=dict)


def artifact_manifest(attachment: Attachment, subject: Sha256, subject_size: int) -> bytes:
    """The manifest of an artifact that refers to the image manifest `subject` (size in bytes)."""
    layer: dict[str, Value] = {
        "digest": str(sha256_of(attachment.data)),
        "mediaType": attachment.media_type,
        "size": len(attachment.data),
    }
    return encode(
        {
            "annotations": dict(attachment.annotations),
            "artifactType": attachment.media_type,
            "config": {
                "digest": str(sha256_of(EMPTY)),
                "mediaType": EMPTY_TYPE,
                "size": len(EMPTY),
            },
            "layers": [layer],
            "mediaType": MANIFEST,
            "schemaVersion": 2,
            "subject": {"digest": str(subject), "mediaType": MANIFEST, "size": subject_size},
        }
    )
