"""What discovery finds and the lock keeps: a file, named so that anyone can fetch it again."""

from __future__ import annotations

from dataclasses import dataclass

from reprobuild.core.digest import Sha256


@dataclass(frozen=True, slots=True)
class FilePin:
    """One file, pinned by content.

    `name` and `version` say what it is (a project, a Debian package; for a URL the file name and
    an empty version); `filename` is the one path component it is kept under; `size` is in bytes.
    `location` is how to come by it: the pool path of a Debian package
    (`pool/main/g/gcc-12/…deb`), the URL of a `url` input, empty for a wheel or sdist, which is
    found through the index again by name and file name.
    """

    name: str
    version: str
    filename: str
    size: int
    sha256: Sha256
    location: str = ""
