"""One run of the tool as a whole: what the parts stand on. Everything heavy is made on demand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from reprobuild.app.run import Run
from reprobuild.core.files import LOCK_FILE

if TYPE_CHECKING:
    from datetime import date as Date
    from pathlib import Path

    from reprobuild.adapters.bundle.service import Bundles
    from reprobuild.adapters.diff.world import World
    from reprobuild.adapters.git.resolutions import Resolutions
    from reprobuild.adapters.git.service import Resolver
    from reprobuild.adapters.keys.keyring import Keyring
    from reprobuild.adapters.oci.delivery import Images
    from reprobuild.adapters.qualify.service import Qualification
    from reprobuild.adapters.toml.new_release import NewRelease
    from reprobuild.app.building import Building
    from reprobuild.app.kernels import Kernels
    from reprobuild.app.remote import Remoting
    from reprobuild.app.sources import Sources
    from reprobuild.app.upkeep import Upkeep
    from reprobuild.core.attachment import Attachment
    from reprobuild.core.bill import Bill
    from reprobuild.core.digest import Digest
    from reprobuild.core.image import ImageFacts
    from reprobuild.core.lock import Lock


@dataclass
class App(Run):
    """One run of the tool: settings, and the parts that it asks for."""

    def lock_text(self, lock: Lock) -> bytes:
        """The canonical text of a lock."""
        from reprobuild.adapters.toml.render_lock import render_lock

        return render_lock(lock).encode()

    def write_lock(self, lock: Lock) -> None:
        """Writes the flake's lock in one step."""
        from reprobuild.adapters.toml.render_lock import write_lock

        write_lock(self.flake_dir / LOCK_FILE, lock)

    def edit_heads(self, heads: Mapping[tuple[str, str, int], str]) -> None:
        """Writes accepted heads into the flake."""
        from reprobuild.adapters.toml.edit_flake import edit_heads

        edit_heads(self.flake_dir, heads, self.project.origins)

    def check_file(self, path: Path, option: str) -> None:
        """Raises E-USAGE where a file to be written would replace what is no plain file."""
        from reprobuild.adapters.places import check_replaceable

        check_replaceable(path, option)

    def check_text(self, path: Path, option: str) -> None:
        """Raises E-USAGE where a text cannot be written; a device or FIFO may take it."""
        from reprobuild.adapters.places import check_text_place

        check_text_place(path, option)

    def check_directory(self, path: Path, option: str) -> None:
        """Raises E-USAGE where files cannot be put below `path`."""
        from reprobuild.adapters.places import check_directory

        check_directory(path, option)

    def check_link(self, path: Path, option: str) -> None:
        """Raises E-USAGE where a link to be made would replace what is no link."""
        from reprobuild.adapters.places import check_linkable

        check_linkable(path, option)

    def output_names(self) -> list[str]:
        """What an installable may be, for a shell's completion; raises E-NO-FLAKE."""
        from reprobuild.adapters.toml.names import output_names

        return output_names(self.flake_dir)

    def new_release(self, old: str, revision: str | None, date: Date) -> NewRelease:
        """Begins a release from another output."""
        from reprobuild.adapters.toml.new_release import new_release

        return new_release(self.flake_dir, self.project, old, revision, date)

    @cached_property
    def sources(self) -> Sources:
        """Where pinned content comes from: repositories, mirrors, files, and who pins them."""
        from reprobuild.app.sources import Sources

        return Sources(self)

    @cached_property
    def kernels(self) -> Kernels:
        """What device code lies in a tree, and what two builds of it differ in."""
        from reprobuild.app.kernels import Kernels

        return Kernels(self)

    @cached_property
    def building(self) -> Building:
        """Making derivations: the executor, the engine over it, what it remembers."""
        from reprobuild.app.building import Building

        return Building(self, self.sources, self.kernels)

    @cached_property
    def remoting(self) -> Remoting:
        """Other machines: where builds may run, and where results are shared."""
        from reprobuild.app.remote import Remoting

        return Remoting(self)

    @cached_property
    def upkeep(self) -> Upkeep:
        """Upkeep of the store, with what lies outside it."""
        from reprobuild.app.upkeep import Upkeep

        return Upkeep(self)

    @cached_property
    def resolver(self) -> Resolver:
        """What integrating, composing, auditing and starting a project need."""
        from reprobuild.adapters.git.service import Resolver

        return Resolver(
            lambda: self.settings.cache_dir,
            self.sources.mirrors.candidates,
            self.offline,
            self.settings.environment,
        )

    @property
    def resolutions(self) -> Resolutions:
        """The project's recorded resolutions."""
        from reprobuild.adapters.git.resolutions import Resolutions

        return Resolutions(self.flake_dir)

    @cached_property
    def contract_program(self) -> str:
        """The text of the program that prints an image's runtime contract."""
        from importlib.resources import files

        return (files("reprobuild.data") / "contract.py").read_text("utf-8")

    @cached_property
    def verify_program(self) -> str:
        """The text of the program that checks an image from inside."""
        from importlib.resources import files

        return (files("reprobuild.data") / "verify.py").read_text("utf-8")

    @cached_property
    def world(self) -> World:
        """What a comparison asks beside store and project."""
        from reprobuild.adapters.diff.world import World

        world = World(self.settings, lambda: self.sources.mirrors, lambda: self.reporter)
        self.closers.append(world.close)
        return world

    def image_facts(self, tree: Digest) -> ImageFacts:
        """What the image in an OCI layout tree says about itself."""
        from reprobuild.adapters.oci.storelayout import read_image

        return read_image(self.store, tree)

    @cached_property
    def keyring(self) -> Keyring:
        """The user's keys, beside the configuration file."""
        from reprobuild.adapters.keys.keyring import Keyring

        return Keyring(self.settings.config_file.parent)

    def sboms(self, bill: Bill) -> list[Attachment]:
        """Bills of materials in the formats of others; raises E-TOOL-MISSING."""
        from reprobuild.adapters.sbom import documents

        return documents(bill)

    @property
    def images(self) -> Images:
        """What can be done with a finished image."""
        from reprobuild.adapters.oci.delivery import Images

        return Images(
            offline=self.offline,
            mirrors=lambda: self.sources.mirrors,
            cancel=self.cancel,
            memory=self.settings.state_dir / "push",
        )

    @cached_property
    def bundles(self) -> Bundles:
        """Bundles: their files, what they carry besides objects, proofs."""
        from reprobuild.adapters.bundle.service import Bundles

        return Bundles(lambda: self.store, self.settings)

    @property
    def qualification(self) -> Qualification:
        """Evidence, and this machine as a test bench."""
        from reprobuild.adapters.qualify.service import Qualification

        return Qualification(self.flake_dir, self.settings.environment)

    def check_inputs(self, names: Iterable[str], output: str | None = None) -> None:
        """Raises E-LOCK-STALE when one of these inputs moved after it was pinned."""
        from reprobuild.adapters.current import check_inputs

        check_inputs(self.project, self.flake_dir, names, output)
