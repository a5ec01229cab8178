"""References to images: `registry/repository:tag@sha256:…`, `oci:PATH[:tag]`, `oci-archive:…`,
`docker-archive:PATH` (as `docker save` writes it), `docker-daemon:IMAGE`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from reprobuild.core.digest import Sha256
from reprobuild.core.redact import redact_reference
from reprobuild.errors import ReprobuildError

DOCKER_HUB = "docker.io"
_LOOPBACK = re.compile(r"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d+)?\Z")

# The grammar of the distribution project (reference.go).
_REPOSITORY = re.compile(
    r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*\Z"
)
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?\Z")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z")


def registry_scheme(host: str) -> str:
    """How a registry at `host[:port]` is spoken to: plainly on loopback alone, as docker does."""
    return "http" if _LOOPBACK.match(host) else "https"


def is_private(url: str, host: str) -> bool:
    """Whether a login for the registry at `host` may be sent to `url`: over TLS; or plainly, where
    both are on this machine."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    # The whole of what stands there is matched: readers of URLs differ over a `\@` in it.
    plain = registry_scheme(parts.netloc) == registry_scheme(host) == "http"
    return parts.scheme == "https" or (parts.scheme == "http" and plain)


@dataclass(frozen=True, slots=True)
class ImageReference:
    """Where an image is: `transport` is "registry", "oci", "oci-archive", "docker-archive", or
    "docker-daemon" (whose name of the image is `repository`).

    `host` and `repository` are a registry's; `path` is a layout's or archive's. `tag` may be
    empty for the latter two (their only image). `digest`, when given, wins over the tag.
    """

    transport: str
    host: str = ""
    repository: str = ""
    path: Path = Path()
    tag: str = ""
    digest: Sha256 | None = None

    @classmethod
    def parse(cls, text: str, base: Path = Path()) -> ImageReference:
        """From its text; relative paths start at `base`. Raises E-OCI-REFERENCE."""
        if text.startswith("docker-daemon:") and len(text) > len("docker-daemon:"):
            return cls("docker-daemon", repository=text.removeprefix("docker-daemon:"))
        for transport in ("oci", "oci-archive", "docker-archive"):
            if text.startswith(f"{transport}:"):
                return cls._local(transport, text.removeprefix(f"{transport}:"), base, text)
        return cls._remote(text.removeprefix("docker://"), text)

    @classmethod
    def _local(cls, transport: str, rest: str, base: Path, text: str) -> ImageReference:
        path, digest = _split_digest(rest, text)
        head, colon, tag = path.rpartition(":")
        if colon and "/" not in tag:
            path = head
        else:
            tag = ""
        if not path:
            raise _bad(text, "it names no path")
        return cls(transport, path=base / path, tag=tag, digest=digest)

    @classmethod
    def _remote(cls, rest: str, text: str) -> ImageReference:
        name, digest = _split_digest(rest, text)
        head, colon, tag = name.rpartition(":")
        if colon and "/" not in tag:
            name = head
            if not _TAG.match(tag):
                raise _bad(text, "the tag is empty or has characters that no tag may have")
        else:
            tag = ""
        host, slash, repository = name.partition("/")
        if not slash or not ("." in host or ":" in host or host == "localhost"):
            host, repository = DOCKER_HUB, name
        if host in ("index.docker.io", "registry-1.docker.io"):
            host = DOCKER_HUB
        if host == DOCKER_HUB and "/" not in repository:
            repository = f"library/{repository}"
        if not _HOST.match(host) or not _REPOSITORY.match(repository) or len(repository) > 255:
            raise _bad(text, "a repository is lower-case words joined by '/'")
        return cls("registry", host, repository, tag=tag or "latest", digest=digest)

    @property
    def wanted(self) -> str:
        """What to ask for: the digest where there is one, else the tag."""
        return str(self.digest) if self.digest is not None else self.tag

    @property
    def url(self) -> str:
        """Where a registry's repository is, with the scheme that is spoken there."""
        return f"{registry_scheme(self.host)}://{self.host}/{self.repository}"

    def __str__(self) -> str:
        if self.transport == "docker-daemon":
            return f"docker-daemon:{self.repository}"
        where = f"{self.host}/{self.repository}" if self.host else f"{self.transport}:{self.path}"
        if self.digest is not None:
            return f"{where}@{self.digest}"
        return f"{where}:{self.tag}" if self.tag else where


def _split_digest(rest: str, text: str) -> tuple[str, Sha256 | None]:
    name, at, digest = rest.rpartition("@")
    if not at or ":" not in digest:
        return rest, None
    try:
        return name, Sha256.parse(digest)
    except ReprobuildError:
        raise _bad(text, "its digest is no sha256:…") from None


def _bad(text: str, why: str) -> ReprobuildError:
    shown = redact_reference(text)[:200]
    if shown != text[:200]:
        why = "a user and password have no place in it; `docker login` keeps them"
    return ReprobuildError(
        "E-OCI-REFERENCE",
        f"{shown!r} is no image reference: {why}",
        hint="write registry/repository@sha256:…, registry/repository:tag, oci:PATH, "
        "oci-archive:PATH, docker-archive:PATH or docker-daemon:IMAGE",
        got=shown,
    )
