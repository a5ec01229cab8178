"""Sending an image to a registry (OCI distribution specification 1.1, "Push").

Blobs first, the manifest last: what broke off has no name there, and the next try sends only what
is missing. Blobs are hashed while they are sent, and the manifest is read back.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode, urljoin, urlsplit

import requests

from reprobuild.adapters.fetch.http.errors import TransferError, explain, status_error
from reprobuild.adapters.fetch.http.session import Access, Authorization, Session
from reprobuild.adapters.fetch.ocireference import DOCKER_HUB, ImageReference
from reprobuild.adapters.fetch.registry import docker_login
from reprobuild.adapters.oci.layout import (
    LayoutFiles,
    blob_name,
    blobs_of,
    open_layout,
    read_layout,
)
from reprobuild.core.image import MANIFEST, ImageFacts
from reprobuild.errors import ReprobuildError

T = TypeVar("T")

CHUNK = 2**20
TIMEOUT = (30, 300)
ATTEMPTS = 4
LONGEST_PAUSE = 60.0
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
_LOOPBACK = re.compile(r"(?:localhost|127(?:\.\d+){3}|\[::1\])(?::\d+)?\Z")


class RegistrySink:
    """An image sink (`ports.ImageSink`) over registries, with the logins of `docker login`.

    `backoff` is the first pause between attempts, in seconds.
    """

    def __init__(self, access: Access | None = None, *, backoff: float = 1.0) -> None:
        self._access = access or Access()
        self._backoff = backoff

    def put(self, layout: Path, reference: str) -> Mapping[str, str]:
        """Sends the layout's image to `reference` (registry/repository:tag).

        Returns `reference`, `manifest_digest`, `uploaded` and `present` (numbers of blobs, as
        text). Raises E-OCI-REFERENCE, E-REGISTRY, E-IMAGE…
        """
        target = ImageReference.parse(reference)
        if target.transport != "registry" or target.digest is not None:
            raise ReprobuildError(
                "E-OCI-REFERENCE", f"{reference!r} names no tag of a registry", got=reference
            )
        with open_layout(layout) as files:
            image = read_layout(files)
            push = _Push(target, Session(self._access), self._backoff)
            try:
                return push.run(files, image)
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
                push.session.close()


class _Push:
    def __init__(self, target: ImageReference, session: Session, backoff: float) -> None:
        self.target = target
        self.session = session
        self.backoff = backoff
        self.authorization = ""
        host = "registry-1.docker.io" if target.host == DOCKER_HUB else target.host
        self.scheme = "http" if _LOOPBACK.match(host) else "https"  # as docker: loopback is plain
        self.base = f"{self.scheme}://{host}/v2/{target.repository}"

    def run(self, files: LayoutFiles, image: ImageFacts) -> Mapping[str, str]:
        uploaded = present = 0
        for name, size in blobs_of(image, files):
            digest = f"sha256:{name.rpartition('/')[2]}"
            if digest == str(image.manifest_digest):
                continue
            if self._retrying(lambda d=digest: self._has(d)):  # type: ignore[misc]
                present += 1
                continue
            self._retrying(lambda n=name, d=digest, s=size: self._upload(files, n, d, s))  # type: ignore[misc]
            uploaded += 1
        with files.open(blob_name(image.manifest_digest)) as source:
            manifest = source.read()
        self._retrying(lambda: self._tag(manifest, image))
        return {
            "reference": str(self.target),
            "manifest_digest": str(image.manifest_digest),
            "uploaded": str(uploaded),
            "present": str(present),
        }

    def _retrying(self, once: Callable[[], T]) -> T:
        for attempt in range(ATTEMPTS):
            try:
                return once()
            except TransferError as error:
                if not error.transient or attempt == ATTEMPTS - 1:
                    raise
                time.sleep(min(max(self.backoff * 2**attempt, error.pause), LONGEST_PAUSE))
        raise AssertionError("there is a last attempt")

    def _ask(
        self,
        method: str,
        url: str,
        wanted: tuple[int, ...],
        *,
        headers: Mapping[str, str] | None = None,
        body: Callable[[], _Blob | bytes] | None = None,
    ) -> requests.Response:
        """One request; a challenge is answered once. Other answers than `wanted` raise."""
        response = self._send(method, url, headers or {}, body)
        if response.status_code == 401:
            challenge = response.headers.get("WWW-Authenticate", "")
            self.authorization = self._answer(challenge)
            response = self._send(method, url, headers or {}, body)
        if response.status_code not in wanted:
            raise status_error(response)
        return response

    def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: Callable[[], _Blob | bytes] | None,
    ) -> requests.Response:
        # A place to upload to may be on another host; only the registry is shown the token.
        own = urlsplit(url).netloc == urlsplit(self.base).netloc
        auth = Authorization(self.authorization) if own and self.authorization else None
        try:
            return self.session.request(
                method,
                url,
                headers=dict(headers),
                auth=auth,
                data=body() if body is not None else None,
                timeout=TIMEOUT,
                allow_redirects=method in ("GET", "HEAD"),
            )
        except (requests.RequestException, OSError) as error:
            raise explain(error) from None

    def _has(self, digest: str) -> bool:
        return self._ask("HEAD", f"{self.base}/blobs/{digest}", (200, 404)).status_code == 200

    def _upload(self, files: LayoutFiles, name: str, digest: str, size: int) -> None:
        begun = self._ask("POST", f"{self.base}/blobs/uploads/", (202,))
        place = urljoin(f"{self.base}/blobs/uploads/", begun.headers.get("Location", ""))
        if urlsplit(place).scheme not in ("https", self.scheme):
            raise TransferError("the registry wants the upload at an address that is not https")
        query = urlencode({"digest": digest})
        headers = {"Content-Type": "application/octet-stream"}
        self._ask(
            "PUT",
            f"{place}{'&' if urlsplit(place).query else '?'}{query}",
            (201,),
            headers=headers,
            body=lambda: _Blob(files, name, digest, size) if size else b"",
        )

    def _tag(self, manifest: bytes, image: ImageFacts) -> None:
        url = f"{self.base}/manifests/{self.target.tag}"
        self._ask("PUT", url, (201,), headers={"Content-Type": MANIFEST}, body=lambda: manifest)
        back = self._ask("GET", url, (200,), headers={"Accept": MANIFEST}).content
        if hashlib.sha256(back).hexdigest() != image.manifest_digest.hex:
            raise ReprobuildError(
                "E-IMAGE-VERIFY",
                f"{self.target} is another manifest there than the one that was sent",
                expected=str(image.manifest_digest),
                got=f"sha256:{hashlib.sha256(back).hexdigest()}",
            )

    def _answer(self, challenge: str) -> str:
        """The Authorization header that a challenge asks for (docker's "token" page)."""
        scheme, _, rest = challenge.partition(" ")
        login = docker_login(self.target.host)
        pair = (login.username, login.password) if login.username else None
        if scheme.lower() == "basic" and pair:
            return "Basic " + b64encode(":".join(pair).encode()).decode()
        if scheme.lower() != "bearer":
            raise TransferError("it wants a login", status=401)
        parameters = dict(_PARAMETER.findall(rest))
        realm = parameters.get("realm", "")
        if urlsplit(realm).scheme not in ("https", self.scheme):
            raise TransferError("it sends logins to an address that is not https", status=401)
        query = {"scope": f"repository:{self.target.repository}:pull,push"}
        if "service" in parameters:
            query["service"] = parameters["service"]
        try:
            if login.identity_token:
                form = {
                    **query,
                    "grant_type": "refresh_token",
                    "client_id": "reprobuild",
                    "refresh_token": login.identity_token,
                }
                response = self.session.post(realm, data=form, timeout=TIMEOUT)
            else:
                response = self.session.get(realm, params=query, auth=pair, timeout=TIMEOUT)
        except (requests.RequestException, OSError) as error:
            raise explain(error) from None
        if response.status_code != 200:
            raise status_error(response)
        try:
            document = json.loads(response.content)
            token = document.get("token") or document.get("access_token")
        except (ValueError, AttributeError, RecursionError):
            token = None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise TransferError("its token server gave no token", status=401)
        return f"Bearer {token}"


class _Blob:
    """A blob as a request's body: `len` makes it one of known length, not chunked."""

    def __init__(self, files: LayoutFiles, name: str, digest: str, size: int) -> None:
        self.len = size
        self._pieces = self._verified(files, name, digest)

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces

    def read(self, _: int = -1) -> bytes:
        """The next piece, whatever size was asked for."""
        return next(self._pieces, b"")

    @staticmethod
    def _verified(files: LayoutFiles, name: str, digest: str) -> Iterator[bytes]:
        hasher = hashlib.sha256()
        with files.open(name) as source:
            while chunk := source.read(CHUNK):
                hasher.update(chunk)
                yield chunk
        if f"sha256:{hasher.hexdigest()}" != digest:
            raise ReprobuildError("E-IMAGE-VERIFY", f"the blob {digest} of the image is damaged")
