"""Running a loaded image once, without a network, to see what it says of itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import docker
import requests
from docker.errors import APIError, DockerException

from reprobuild.adapters.docker.sink import DockerSink, reason
from reprobuild.core.redact import redact_inner
from reprobuild.errors import ReprobuildError

TIMEOUT = 600
TAIL = 20_000


def load_and_run(layout: Path, reference: str, argv: Sequence[str]) -> tuple[int, str]:
    """Loads an OCI layout's image and runs `argv` in it; status and the end of the output.

    The container has no network and a read-only root, and is removed. Raises E-DOCKER-UNAVAILABLE,
    E-DOCKER, E-IMAGE-VERIFY.
    """
    DockerSink().put(layout, reference)
    try:
        client = docker.from_env(timeout=TIMEOUT)
    except (DockerException, ValueError) as error:
        why = redact_inner(reason(error), os.environ.get("DOCKER_HOST", ""))
        raise ReprobuildError("E-DOCKER-UNAVAILABLE", f"no Docker daemon: {why}") from None
    container = None
    try:
        container = client.containers.create(
            reference,
            command=list(argv[1:]),
            entrypoint=list(argv[:1]),
            network_disabled=True,
            network_mode="none",
            read_only=True,
        )
        container.start()
        status = int(container.wait(timeout=TIMEOUT)["StatusCode"])
        said = container.logs(stdout=True, stderr=True).decode("utf-8", "replace")
        return status, said[-TAIL:]
    except (APIError, DockerException, requests.RequestException) as error:
        raise ReprobuildError("E-DOCKER", f"the image could not be run: {error}") from error
    finally:
        if container is not None:
            # Where the daemon went away, nothing is left to clean up through it.
            with suppress(APIError, requests.RequestException):
                container.remove(force=True)
        client.close()
