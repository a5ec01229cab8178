"""What can be done with a finished image: look at it, check it, save it, load it.

An image is named by the path of its layout: a directory (a store's, or any other) or an archive.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from reprobuild.adapters.oci.archive import write_archive, write_directory
from reprobuild.adapters.oci.layout import open_layout, read_layout, verify_blobs
from reprobuild.adapters.oci.statement import check_statement, read_statement
from reprobuild.core.image import ImageFacts
from reprobuild.errors import ReprobuildError


class Images:
    """The uses of a finished image."""

    def inspect(self, layout: Path) -> ImageFacts:
        """What the image says about itself; raises E-IMAGE. Layers are not read."""
        with open_layout(layout) as files:
            return read_layout(files)

    def verify(self, layout: Path) -> tuple[ImageFacts, int]:
        """Reads everything: layers against their digests, labels against the statement inside.

        Returns the image's facts and how many components the statement has. Raises E-IMAGE-VERIFY.
        """
        with open_layout(layout) as files:
            image = read_layout(files)
            verify_blobs(files, image)
            statement = read_statement(files, image)
            return image, check_statement(statement, image)

    def save(
        self, layout: Path, target: Path, *, reference: str = "", directory: bool = False
    ) -> ImageFacts:
        """Writes the image to `target`: an archive that every engine reads, or a layout directory.

        `reference` (repository:tag) is what it is called there; by default its own name. Whole or
        not at all. Raises E-IMAGE…, E-USAGE for a directory that exists,
        E-IMAGE-WRITE for what the disk refuses.
        """
        with open_layout(layout) as files:
            image = read_layout(files)
            name = reference or image.reference
            try:
                if directory:
                    write_directory(files, image, name, target)
                else:
                    write_archive(files, image, name, target)
            except OSError as error:
                raise ReprobuildError(
                    "E-IMAGE-WRITE",
                    f"{target} could not be written: {error.strerror}",
                    file=str(target),
                ) from error
        return image

    def push(
        self, layout: Path, reference: str, *, offline: bool = False, dirty: bool = False
    ) -> Mapping[str, str]:
        """Sends the image to `reference` (registry/repository:tag) with the user's docker login.

        Returns `reference`, `manifest_digest`, `uploaded`, `present`. Raises E-IMAGE-DIRTY for an
        image of overridden inputs unless `dirty`, E-OFFLINE, E-OCI-REFERENCE, E-REGISTRY.
        """
        image = self.inspect(layout)
        marks = sorted(key for key in image.labels if key.endswith(".dirty"))
        if marks and not dirty:
            raise ReprobuildError(
                "E-IMAGE-DIRTY",
                f"the image was made from overridden inputs: {image.labels[marks[0]]}",
                label=marks[0],
            )
        if offline:
            raise ReprobuildError(
                "E-OFFLINE",
                f"pushing to {reference} needs the network",
                hint="leave out --offline, or use `reprobuild image save`",
            )
        from reprobuild.adapters.docker.push import RegistrySink

        return RegistrySink().put(layout, reference)

    def load(
        self, layout: Path, *, reference: str = "", host: str | None = None
    ) -> Mapping[str, str]:
        """Loads the image into the Docker daemon (`DOCKER_HOST`, or `host`) and checks it there.

        Returns `reference`, `image_id`, `config_digest`. Raises E-DOCKER…, E-IMAGE-VERIFY.
        """
        from reprobuild.adapters.docker.sink import DockerSink

        return DockerSink(host).put(layout, reference)
