"""Artifacts that refer to an image: the referrers API, and the tag in its place where there is none
(OCI distribution specification 1.1, "Listing Referrers" and "Referrers Tag Schema")."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, BinaryIO, cast

from reprobuild.adapters.docker.repository import Repository
from reprobuild.adapters.docker.upload import Upload
from reprobuild.adapters.fetch.http.errors import TransferError
from reprobuild.core.attachment import EMPTY, Attachment, artifact_manifest
from reprobuild.core.encoding import Value, encode
from reprobuild.core.image import INDEX, MANIFEST, ImageFacts, sha256_of
from reprobuild.errors import ReprobuildError

MAX_DOCUMENT = 64 * 2**20


class _Memory:
    """Two small documents as a layout's files."""

    def __init__(self, blobs: Mapping[str, bytes]) -> None:
        self._blobs = blobs

    def open(self, name: str) -> BinaryIO:
        """See `LayoutFiles`."""
        return io.BytesIO(self._blobs[name])

    def size(self, name: str) -> int:
        """See `LayoutFiles`."""
        return len(self._blobs[name])


def attach(
    repository: Repository,
    upload: Upload,
    image: ImageFacts,
    manifest_size: int,
    attachment: Attachment,
) -> None:
    """Puts a document there as a referrer of the image; raises TransferError."""
    blobs = {str(sha256_of(data)): data for data in (EMPTY, attachment.data)}
    files = _Memory(blobs)
    for digest, data in blobs.items():
        upload.send(files, digest, digest, len(data))
    manifest = artifact_manifest(attachment, image.manifest_digest, manifest_size)
    digest = str(sha256_of(manifest))
    answer = repository.retrying(
        lambda: repository.ask(
            "PUT",
            f"{repository.base}/manifests/{digest}",
            (201,),
            headers={"Content-Type": MANIFEST},
            body=manifest,
        )
    )
    if not answer.headers.get("OCI-Subject"):
        _list(repository, image, attachment, digest, len(manifest))


def _fallback(repository: Repository, image_digest: str) -> str:
    return f"{repository.base}/manifests/{image_digest.replace(':', '-')}"


def _list(
    repository: Repository, image: ImageFacts, attachment: Attachment, digest: str, size: int
) -> None:
    """Adds an artifact to the index under the fallback tag. Two pushes at once may lose one: the
    specification has no way around it, and the next push mends it."""
    url = _fallback(repository, str(image.manifest_digest))
    entries = [e for e in _index(repository, url) if e.get("digest") != digest]
    entries.append(
        {
            "annotations": dict(attachment.annotations),
            "artifactType": attachment.media_type,
            "digest": digest,
            "mediaType": MANIFEST,
            "size": size,
        }
    )
    entries.sort(key=lambda entry: str(entry.get("digest")))
    body = encode({"manifests": cast("Value", entries), "mediaType": INDEX, "schemaVersion": 2})
    repository.retrying(
        lambda: repository.ask("PUT", url, (201,), headers={"Content-Type": INDEX}, body=body)
    )


def _index(repository: Repository, url: str) -> list[dict[str, Any]]:
    """The descriptors of an index; none where there is no such thing."""
    answer = repository.retrying(
        lambda: repository.ask("GET", url, (200, 404), headers={"Accept": INDEX})
    )
    if answer.status_code == 404:
        return []
    try:
        found = json.loads(answer.content)["manifests"]
        return [dict(entry) for entry in found]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TransferError("its list of referrers is no image index") from error


def referrers(repository: Repository, image_digest: str) -> list[Attachment]:
    """Every document attached to an image, checked against its digests, in order of them.

    Raises TransferError, E-IMAGE-VERIFY for a document that is not what it is called.
    """
    answer = repository.retrying(
        lambda: repository.ask(
            "GET",
            f"{repository.base}/referrers/{image_digest}",
            (200, 404),
            headers={"Accept": INDEX},
        )
    )
    if answer.status_code == 200:
        entries = _index(repository, f"{repository.base}/referrers/{image_digest}")
    else:
        entries = _index(repository, _fallback(repository, image_digest))
    found = []
    for entry in sorted(entries, key=lambda e: str(e.get("digest"))):
        manifest = _fetched(repository, "manifests", str(entry.get("digest")))
        try:
            document = json.loads(manifest)
            (layer,) = document["layers"]
            if document["subject"]["digest"] != image_digest:
                continue
            digest, media_type = str(layer["digest"]), str(layer["mediaType"])
            annotations = {str(k): str(v) for k, v in (document.get("annotations") or {}).items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue  # an artifact of another make
        data = _fetched(repository, "blobs", digest)
        found.append(Attachment("", media_type, data, annotations))
    return found


def _fetched(repository: Repository, kind: str, digest: str) -> bytes:
    url = f"{repository.base}/{kind}/{digest}"
    headers = {"Accept": MANIFEST} if kind == "manifests" else {}
    data = repository.retrying(lambda: repository.ask("GET", url, (200,), headers=headers)).content
    if str(sha256_of(data)) != digest or len(data) > MAX_DOCUMENT:
        raise ReprobuildError(
            "E-IMAGE-VERIFY",
            f"the registry gave other content than {digest}",
            expected=digest,
            got=str(sha256_of(data)),
        )
    return data
