"""Loading an image into a Docker daemon, and making sure that it is the same image there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound

from reprobuild.adapters.oci.archive import archive_pieces
from reprobuild.adapters.oci.layout import open_layout, read_layout
from reprobuild.adapters.offline.seal import refuse_daemon
from reprobuild.core.image import ImageFacts
from reprobuild.core.redact import redact, redact_inner
from reprobuild.errors import ReprobuildError

TIMEOUT = 3600
"""Seconds without an answer: unpacking many gigabytes of layers is one silent request."""


def reason(error: BaseException) -> str:
    """Why a daemon was not reached, in the system's words where there are any.

    Libraries wrap the system's error in several of their own, and quote those as Python text.
    """
    todo, seen = [error], set[int]()
    while todo:
        one = todo.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, OSError) and one.errno is not None and one.strerror:
            return one.strerror
        inner = (*one.args, getattr(one, "reason", None), one.__cause__, one.__context__)
        todo += [e for e in inner if isinstance(e, BaseException)]
    return str(error)


class DockerSink:
    """An image sink (`ports.ImageSink`) over the daemon that the environment names.

    `host` overrides DOCKER_HOST (`unix:///…`, `tcp://…`).
    """

    def __init__(self, host: str | None = None) -> None:
        self._host = host

    @contextmanager
    def _client(self, timeout: int = TIMEOUT) -> Iterator[Any]:
        client = None
        refuse_daemon(self._host or os.environ.get("DOCKER_HOST", ""))
        try:
            if self._host:
                client = docker.DockerClient(base_url=self._host, timeout=timeout)
            else:
                client = docker.from_env(timeout=timeout)
            client.ping()
        except (DockerException, requests.RequestException, OSError, ValueError) as error:
            if client is not None:
                client.close()
            address = self._host or os.environ.get("DOCKER_HOST", "")
            where = redact(self._host) if self._host else "the default socket or DOCKER_HOST"
            why = redact_inner(reason(error), address)
            raise ReprobuildError(
                "E-DOCKER-UNAVAILABLE", f"no Docker daemon answers at {where}: {why}"
            ) from None
        try:
            yield client
        finally:
            client.close()

    def ask(self) -> str:
        """The daemon's version; raises E-DOCKER-UNAVAILABLE within seconds, E-OFFLINE."""
        with self._client(timeout=3) as client:
            try:
                return str(client.version().get("Version", "")) or "of an unknown version"
            except (APIError, requests.RequestException) as error:
                raise ReprobuildError(
                    "E-DOCKER-UNAVAILABLE", f"the Docker daemon gives no version: {reason(error)}"
                ) from None

    def put(self, layout: Path, reference: str) -> Mapping[str, str]:
        """Loads the layout's image under `reference` and checks it there.

        Returns `reference`, `image_id` (what the daemon calls it: the config digest, or the
        manifest digest in a containerd image store) and `config_digest`. Raises
        E-DOCKER-UNAVAILABLE, E-DOCKER and E-IMAGE-VERIFY.
        """
        with open_layout(layout) as files, self._client() as client:
            image = read_layout(files, reference)
            name = reference or image.reference
            try:
                answer = client.api.load_image(archive_pieces(files, image, name), quiet=True)
                for line in answer or ():
                    if isinstance(line, dict) and line.get("error"):
                        raise ReprobuildError(
                            "E-DOCKER", f"the daemon could not load {name}: {line['error']}"
                        )
            except (APIError, requests.RequestException) as error:
                raise ReprobuildError(
                    "E-DOCKER", f"the daemon broke off while loading {name}: {error}"
                ) from error
            attributes = self._inspect(client, name or str(image.config_digest))
            check_loaded(image, attributes)
        return {
            "reference": name,
            "image_id": str(attributes.get("Id", "")),
            "config_digest": str(image.config_digest),
        }

    def export(self, reference: str, target: Path) -> None:
        """Writes the daemon's image to the file `target`, as `docker save` does.

        Raises E-DOCKER-UNAVAILABLE, E-DOCKER, E-IMAGE (no such image), E-IMAGE-WRITE.
        """
        with self._client() as client:
            self._inspect(client, reference)
            try:
                with target.open("wb") as out:
                    for piece in client.api.get_image(reference):
                        out.write(piece)
            except (APIError, requests.RequestException) as error:
                raise ReprobuildError(
                    "E-DOCKER", f"the daemon broke off while giving {reference}: {error}"
                ) from error
            except OSError as error:
                raise ReprobuildError(
                    "E-IMAGE-WRITE",
                    f"{target} could not be written: {error.strerror}",
                    file=str(target),
                ) from error

    def inspect(self, reference: str) -> Mapping[str, Any]:
        """The daemon's own words about an image: `Id`, `RootFS`, `Config`…; raises E-IMAGE."""
        with self._client() as client:
            return self._inspect(client, reference)

    @staticmethod
    def _inspect(client: Any, reference: str) -> Mapping[str, Any]:
        try:
            return cast("Mapping[str, Any]", client.api.inspect_image(reference))
        except ImageNotFound as error:
            raise ReprobuildError("E-IMAGE", f"the daemon has no image {reference}") from error
        except (APIError, requests.RequestException) as error:
            raise ReprobuildError("E-DOCKER", f"the daemon says: {error}") from error


def check_loaded(image: ImageFacts, attributes: Mapping[str, Any]) -> None:
    """Raises E-IMAGE-VERIFY unless the daemon's image has the promised diffIDs, labels and ID."""
    promised = [str(layer.diff_id) for layer in image.layers]
    got = list((attributes.get("RootFS") or {}).get("Layers") or [])
    if got != promised:
        raise ReprobuildError(
            "E-IMAGE-VERIFY",
            "the daemon's image has other layers than were sent",
            expected=promised,
            got=got,
        )
    labels = (attributes.get("Config") or {}).get("Labels") or {}
    if dict(labels) != dict(image.labels):
        different = sorted(
            k for k in {*labels, *image.labels} if labels.get(k) != image.labels.get(k)
        )
        raise ReprobuildError(
            "E-IMAGE-VERIFY",
            f"the daemon's image has another label {different[0]}",
            labels=different[:20],
        )
    known = {str(image.config_digest), str(image.manifest_digest)}
    if attributes.get("Id") not in known:
        raise ReprobuildError(
            "E-IMAGE-VERIFY",
            f"the daemon calls the image {attributes.get('Id')}, which is neither its config nor "
            "its manifest",
            expected=sorted(known),
            got=str(attributes.get("Id")),
        )
