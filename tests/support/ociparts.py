"""OCI images by their parts, as layouts, archives and registry answers."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def sha256(data: bytes) -> str:
    """`sha256:…` of data."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def descriptor(kind: str, data: bytes, **extra: object) -> dict[str, object]:
    """An OCI descriptor."""
    return {"mediaType": kind, "digest": sha256(data), "size": len(data), **extra}


@dataclass
class Image:
    """Config, layers and manifest of one platform."""

    layers: list[bytes] = field(default_factory=lambda: [b"layer one", b"layer two"])
    architecture: str = "amd64"

    @property
    def config(self) -> bytes:
        return json.dumps({"architecture": self.architecture, "os": "linux"}).encode()

    @property
    def manifest(self) -> bytes:
        kind = "application/vnd.oci.image"
        return json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": descriptor(f"{kind}.config.v1+json", self.config),
                "layers": [descriptor(f"{kind}.layer.v1.tar", layer) for layer in self.layers],
            }
        ).encode()

    @property
    def digest(self) -> str:
        return sha256(self.manifest)

    @property
    def blobs(self) -> dict[str, bytes]:
        """Everything by digest, the manifest included."""
        return {sha256(b): b for b in (self.manifest, self.config, *self.layers)}


def index_of(*images: Image) -> bytes:
    """An index over platforms."""
    entries = [
        descriptor(MANIFEST, i.manifest, platform={"os": "linux", "architecture": i.architecture})
        for i in images
    ]
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()


def write_layout(directory: Path, image: Image, tag: str = "") -> Path:
    """An OCI image layout on the disk."""
    blobs = directory / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    for digest, data in image.blobs.items():
        (blobs / digest.removeprefix("sha256:")).write_bytes(data)
    annotations = {"annotations": {"org.opencontainers.image.ref.name": tag}} if tag else {}
    entries = [descriptor(MANIFEST, image.manifest, **annotations)]
    (directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": entries}))
    (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return directory


def write_archive(path: Path, layout: Path) -> Path:
    """A tar file of a layout."""
    with tarfile.open(path, "w") as archive:
        for file in sorted(p for p in layout.rglob("*") if p.is_file()):
            info = tarfile.TarInfo(str(file.relative_to(layout)))
            data = file.read_bytes()
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path
