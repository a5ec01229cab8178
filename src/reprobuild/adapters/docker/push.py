"""Sending an image to a registry (OCI distribution specification 1.1, "Push").

Blobs first, then the manifest by its digest, what is attached to it, and the tags last: what broke
off has no name there, and the next try sends only what is missing. The manifest is read back.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from reprobuild.adapters.docker.memory import PushMemory
from reprobuild.adapters.docker.referrers import attach, referrers
from reprobuild.adapters.docker.repository import Repository
from reprobuild.adapters.docker.upload import PIECE, Upload
from reprobuild.adapters.fetch.http.errors import TransferError
from reprobuild.adapters.fetch.http.session import Access
from reprobuild.adapters.fetch.ocireference import ImageReference
from reprobuild.adapters.oci.layout import (
    LayoutFiles,
    blob_name,
    blobs_of,
    open_layout,
    read_layout,
)
from reprobuild.core.attachment import Attachment
from reprobuild.core.image import MANIFEST, ImageFacts
from reprobuild.errors import ReprobuildError


class RegistrySink:
    """An image sink (`ports.ImageSink`) over registries, with the logins of `docker login`.

    `backoff` is the first pause between attempts, in seconds; `memory` a directory in which pushes
    remember open uploads and where blobs are; `piece` how many bytes go into one request.
    """

    def __init__(
        self,
        access: Access | None = None,
        *,
        backoff: float = 1.0,
        memory: Path | None = None,
        piece: int = PIECE,
    ) -> None:
        self._access = access or Access()
        self._backoff = backoff
        self._memory = PushMemory(memory)
        self._piece = piece

    def put(
        self,
        layout: Path,
        reference: str,
        *,
        tags: Sequence[str] = (),
        attachments: Sequence[Attachment] = (),
        mount_from: Sequence[str] = (),
    ) -> Mapping[str, str]:
        """Sends the layout's image to `reference` (registry/repository:tag), and under more `tags`.

        `attachments` become referrers of it; blobs are mounted from the repositories `mount_from`
        and those known from earlier pushes. Returns `reference`, `manifest_digest`, and the numbers
        of blobs `uploaded`, `mounted`, `present`, and of bytes `sent`, as text. Raises
        E-OCI-REFERENCE, E-REGISTRY, E-IMAGE…
        """
        target = ImageReference.parse(reference)
        if target.transport != "registry" or target.digest is not None:
            raise ReprobuildError(
                "E-OCI-REFERENCE", f"{reference!r} names no tag of a registry", got=reference
            )
        for tag in tags:
            ImageReference.parse(f"{target.host}/{target.repository}:{tag}")
        with open_layout(layout) as files:
            image = read_layout(files)
            repository = Repository(target, self._access, self._backoff)
            known = self._memory.repositories(target.host)
            repository.sources = [*mount_from, *(k for k in known if k not in mount_from)][:8]
            try:
                return self._run(repository, files, image, (target.tag, *tags), attachments)
            except TransferError as error:
                hint = f"run `docker login {target.host}`" if error.status in (401, 403) else None
                raise ReprobuildError(
                    "E-REGISTRY",
                    f"{target} could not be pushed: {error.reason}",
                    hint=hint,
                    registry=target.host,
                    status=error.status or None,
                ) from error
            finally:
                repository.close()

    def _run(
        self,
        repository: Repository,
        files: LayoutFiles,
        image: ImageFacts,
        tags: Sequence[str],
        attachments: Sequence[Attachment],
    ) -> Mapping[str, str]:
        counts: Counter[str] = Counter()
        sent = 0
        upload = Upload(repository, self._memory, piece=self._piece)
        digests = []
        for name, size in blobs_of(image, files):
            digest = f"sha256:{name.rpartition('/')[2]}"
            if digest == str(image.manifest_digest):
                continue
            done = upload.send(files, name, digest, size)
            counts[done] += 1
            sent += size if done == "uploaded" else 0
            digests.append(digest)
            self._memory.learn(repository.target, [digest])
        with files.open(blob_name(image.manifest_digest)) as source:
            manifest = source.read()
        put_manifest(repository, str(image.manifest_digest), manifest)
        for attachment in attachments:
            attach(repository, upload, image, len(manifest), attachment)
        for tag in dict.fromkeys(tags):
            put_manifest(repository, tag, manifest)
        return {
            "reference": str(repository.target),
            "manifest_digest": str(image.manifest_digest),
            "uploaded": str(counts["uploaded"]),
            "mounted": str(counts["mounted"]),
            "present": str(counts["present"]),
            "sent": str(sent),
        }


def put_manifest(repository: Repository, name: str, manifest: bytes) -> None:
    """Puts a manifest under a tag or its digest, and reads it back; raises TransferError,
    E-IMAGE-VERIFY when another comes back."""
    url = f"{repository.base}/manifests/{name}"
    headers = {"Content-Type": MANIFEST}
    repository.retrying(lambda: repository.ask("PUT", url, (201,), headers=headers, body=manifest))
    back = repository.retrying(
        lambda: repository.ask("GET", url, (200,), headers={"Accept": MANIFEST})
    ).content
    if back != manifest:
        raise ReprobuildError(
            "E-IMAGE-VERIFY",
            f"{repository.target} is another manifest there than the one that was sent",
            expected=f"sha256:{hashlib.sha256(manifest).hexdigest()}",
            got=f"sha256:{hashlib.sha256(back).hexdigest()}",
        )


def attached(reference: str, image: ImageFacts, *, backoff: float = 1.0) -> list[Attachment]:
    """The documents that a registry has attached to its image `reference`.

    Raises E-REGISTRY, and E-IMAGE-VERIFY for one that is not what it is called.
    """
    target = ImageReference.parse(reference)
    repository = Repository(target, Access(), backoff)
    try:
        return referrers(repository, str(image.manifest_digest))
    except TransferError as error:
        raise ReprobuildError(
            "E-REGISTRY",
            f"what is attached to {target} could not be read: {error.reason}",
            registry=target.host,
            status=error.status or None,
        ) from error
    finally:
        repository.close()
