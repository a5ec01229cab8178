"""What can be done with a finished image: look at it, check it, save it, load it.

An image is named by the path of its layout: a directory (a store's, or any other) or an archive.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprobuild.adapters.oci.archive import write_archive, write_directory
from reprobuild.adapters.oci.dockerarchive import is_saved, read_saved
from reprobuild.adapters.oci.layout import LayoutFiles, open_layout, read_layout
from reprobuild.core.image import ImageFacts
from reprobuild.core.mirrors import NO_MIRRORS, Mirrors
from reprobuild.core.redact import redact_reference
from reprobuild.errors import ReprobuildError
from reprobuild.ports import NullReporter

FORMS = {
    "archive": ("oci", "docker"),
    "docker-archive": ("docker",),
    "oci-archive": ("oci",),
}

if TYPE_CHECKING:
    from reprobuild.adapters.oci.verify import Verification
    from reprobuild.core.attachment import Attachment


@contextmanager
def open_image(path: Path, reference: str = "") -> Iterator[tuple[LayoutFiles, ImageFacts]]:
    """The image at `path`: a layout or an archive of one, else an archive of `docker save`.

    With a `reference`, it is the archive that a daemon gave, and read as such. Raises E-IMAGE.
    """
    with open_layout(path) as files:
        if is_saved(files) and (reference or not _has(files, "index.json")):
            yield read_saved(files, reference)
        else:
            yield files, read_layout(files)


def _has(files: LayoutFiles, name: str) -> bool:
    try:
        files.size(name)
    except ReprobuildError:
        return False
    return True


@dataclass(frozen=True)
class Images:
    """The uses of a finished image.

    `mirrors` are the user's, for registries; `memory` is where pushes remember what they began.
    """

    offline: bool = False
    mirrors: Callable[[], Mirrors] = lambda: NO_MIRRORS
    cancel: threading.Event = field(default_factory=threading.Event)
    memory: Path | None = None

    @contextmanager
    def from_daemon(self, reference: str) -> Iterator[Path]:
        """The daemon's image as an archive, for the `with` block; raises E-DOCKER…, E-IMAGE."""
        from reprobuild.adapters.docker.sink import DockerSink

        with tempfile.TemporaryDirectory(prefix="reprobuild-") as folder:
            DockerSink().export(reference, Path(folder) / "image.tar")
            yield Path(folder) / "image.tar"

    @contextmanager
    def from_registry(self, reference: str) -> Iterator[Path]:
        """A registry's image as a layout, for the `with` block; raises as fetching does."""
        from reprobuild.adapters.fetch.pull import pull_layout
        from reprobuild.adapters.fetch.settings import FetchSettings

        with tempfile.TemporaryDirectory(prefix="reprobuild-") as folder:
            settings = FetchSettings(
                partial_dir=Path(folder) / "partial",
                offline=self.offline,
                mirrors=self.mirrors(),
                cancel=self.cancel,
            )
            pull_layout(reference, Path(folder) / "image", settings, NullReporter())
            yield Path(folder) / "image"

    def inspect(self, layout: Path) -> ImageFacts:
        """What the image says about itself; raises E-IMAGE. Layers are not read."""
        with open_image(layout) as (_, image):
            return image

    def verify(self, layout: Path, *, reference: str = "") -> Verification:
        """Reads everything: layers against digests, trees and lists, labels and sources against the
        statement inside.

        `layout` is a layout, an archive of one, or one of `docker save`. Raises E-IMAGE-VERIFY,
        whose fact `problems` names everything that differs.
        """
        from reprobuild.adapters.oci.statement import read_statement
        from reprobuild.adapters.oci.verify import MOST_SHOWN, verify_image

        with open_image(layout, reference) as (files, image):
            result = verify_image(files, image, read_statement(files, image))
        if result.problems:
            more = len(result.problems) - 1
            raise ReprobuildError(
                "E-IMAGE-VERIFY",
                f"the image is not what it says: {result.problems[0]}"
                + (f" (and {more} more)" if more else ""),
                problems=result.problems[:MOST_SHOWN],
            )
        return result

    def statement(self, layout: Path, *, reference: str = "") -> Mapping[str, Any]:
        """The statement inside; raises E-IMAGE, E-IMAGE-VERIFY. Layers are not checked."""
        from reprobuild.adapters.oci.statement import read_statement

        with open_image(layout, reference) as (files, image):
            return read_statement(files, image).statement

    def save(
        self, layout: Path, target: Path, *, reference: str = "", form: str = "archive"
    ) -> ImageFacts:
        """Writes the image to `target`.

        `form` is "archive" (one file that every engine reads), "oci-archive", "docker-archive", or
        "oci-dir" (a layout directory).
        `reference` (repository:tag) is what it is called there; by default its own name. Whole or
        not at all. Raises E-IMAGE…, E-USAGE for a directory that exists,
        E-IMAGE-WRITE for what the disk refuses.
        """
        with open_layout(layout) as files:
            image = read_layout(files)
            name = reference or image.reference
            try:
                if form == "oci-dir":
                    write_directory(files, image, name, target)
                else:
                    write_archive(files, image, name, target, FORMS[form])
            except OSError as error:
                raise ReprobuildError(
                    "E-IMAGE-WRITE",
                    f"{target} could not be written: {error.strerror}",
                    file=str(target),
                ) from error
        return image

    def push(
        self,
        layout: Path,
        reference: str,
        *,
        dirty: bool = False,
        tags: Sequence[str] = (),
        attachments: Sequence[Attachment] = (),
        mount_from: Sequence[str] = (),
    ) -> Mapping[str, str]:
        """Sends the image to `reference` (registry/repository:tag) with the user's docker login.

        Returns what `RegistrySink.put` returns. Raises E-IMAGE-DIRTY for an image of overridden
        inputs unless `dirty`, E-OFFLINE, E-OCI-REFERENCE, E-REGISTRY.
        """
        image = self.inspect(layout)
        marks = sorted(key for key in image.labels if key.endswith(".dirty"))
        if marks and not dirty:
            raise ReprobuildError(
                "E-IMAGE-DIRTY",
                f"the image was made from overridden inputs: {image.labels[marks[0]]}",
                label=marks[0],
            )
        if self.offline:
            raise ReprobuildError(
                "E-OFFLINE",
                f"pushing to {redact_reference(reference)} needs the network",
                hint="leave out --offline, or use `reprobuild image save`",
            )
        from reprobuild.adapters.docker.push import RegistrySink

        return RegistrySink(memory=self.memory).put(
            layout, reference, tags=tags, attachments=attachments, mount_from=mount_from
        )

    def write(self, path: Path, data: bytes) -> None:
        """A small file beside images, whole or not at all; raises E-IMAGE-WRITE."""
        from reprobuild.adapters.git.files import replace_file

        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, data)
        except OSError as error:
            raise ReprobuildError(
                "E-IMAGE-WRITE", f"{path} could not be written: {error.strerror}", file=str(path)
            ) from error

    def attachments(self, reference: str, facts: ImageFacts) -> list[Attachment]:
        """What a registry has attached to its image; raises E-REGISTRY, E-IMAGE-VERIFY."""
        from reprobuild.adapters.docker.push import attached

        return attached(reference, facts)

    def daemon(self) -> str:
        """The version of the Docker daemon; raises E-DOCKER-UNAVAILABLE soon, E-OFFLINE."""
        from reprobuild.adapters.docker.sink import DockerSink

        return DockerSink().ask()

    def load(
        self, layout: Path, *, reference: str = "", host: str | None = None
    ) -> Mapping[str, str]:
        """Loads the image into the Docker daemon (`DOCKER_HOST`, or `host`) and checks it there.

        Returns `reference`, `image_id`, `config_digest`. Raises E-DOCKER…, E-IMAGE-VERIFY.
        """
        from reprobuild.adapters.docker.sink import DockerSink

        return DockerSink(host).put(layout, reference)
