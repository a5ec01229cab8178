"""What a comparison asks of the world, beside stores and projects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from io import SEEK_END
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reprobuild.adapters.regular import open_regular
from reprobuild.core.diff.read import environment, image_of, serving, side_error
from reprobuild.core.diff.side import ComponentSide, ImageSide, LayerSide
from reprobuild.core.digest import Digest, GitOid
from reprobuild.core.encoding import Value
from reprobuild.core.tree import File
from reprobuild.errors import ReprobuildError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from tempfile import TemporaryDirectory

    from reprobuild.adapters.diff.bundlestore import BundleStore
    from reprobuild.adapters.fetch.settings import FetchSettings
    from reprobuild.adapters.git.sources import GitSources
    from reprobuild.adapters.store.scanmemo import SqliteScanMemo
    from reprobuild.adapters.store.store import LocalStore
    from reprobuild.core.cubin.module import Module as CubinModule
    from reprobuild.core.cubin.table import ModuleMemo
    from reprobuild.core.diff.kernels import Module
    from reprobuild.core.image import ImageFacts
    from reprobuild.core.integration.backend import Repository
    from reprobuild.core.integration.model import IntegrationSpec
    from reprobuild.core.mirrors import Mirrors
    from reprobuild.ports import ContentReader, Reporter
    from reprobuild.settings import Settings

    Opener = Callable[[ComponentSide, ComponentSide], AbstractContextManager[Repository]]

MAX_MODULE = 4 * 2**30
MAX_DOCUMENT = 64 * 2**20


def is_bundle(path: Path) -> bool:
    """Whether a file ends as bundles do (docs/format-bundle.md)."""
    try:
        with open_regular(path) as file:
            file.seek(-96, SEEK_END)
            return file.read(16).startswith(b"reprobuild-bdl-")
    except OSError:
        return False


def stored_image(content: ContentReader, tree: Digest) -> tuple[ImageFacts, Mapping[str, Any]]:
    """Facts and `config` object of the image in a layout tree of a store."""
    from reprobuild.adapters.oci.storelayout import load_image

    image = load_image(content, tree)
    run = image.config.get("config")
    return image.facts, run if isinstance(run, Mapping) else {}


def read_document(path: Path, name: str) -> Any:
    """A JSON file; raises E-RELEASE-SIDE when it is none, or too large for one."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_DOCUMENT + 1)
    except OSError as error:
        raise side_error(name, str(error.strerror)) from error
    if len(data) > MAX_DOCUMENT:
        raise side_error(name, f"a document of more than {MAX_DOCUMENT} bytes")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise side_error(name, f"no JSON: {error}") from error


def layout_image(path: Path) -> tuple[ImageSide, Mapping[str, Any] | None]:
    """A layout or archive on the disk, and the statement inside, where there is one.

    Of the layers only the one with the statement is read, from the top. Raises E-IMAGE.
    """
    from reprobuild.adapters.oci.layout import blob_name, open_layout, read_layout
    from reprobuild.adapters.oci.statement import read_statement

    with open_layout(path) as files:
        facts = read_layout(files)
        with files.open(blob_name(facts.config_digest)) as source:
            run = json.loads(source.read()).get("config")
        image = image_of(facts, run if isinstance(run, Mapping) else {})
        top = replace(facts, layers=facts.layers[-1:])
        try:
            statement: Mapping[str, Any] | None = read_statement(files, top).statement
        except ReprobuildError as error:
            if error.code != "E-IMAGE-VERIFY":
                raise
            statement = None
    return image, statement


def daemon_image(reference: str) -> ImageSide:
    """An image in the Docker daemon, by its own words; raises E-DOCKER…, E-IMAGE.

    A daemon knows layers by content alone: their sizes and blobs are not told.
    """
    from reprobuild.adapters.docker.sink import DockerSink

    found = DockerSink().inspect(reference)
    run = found.get("Config") or {}
    ids = (found.get("RootFS") or {}).get("Layers") or []
    labels = run.get("Labels") or {}
    return ImageSide(
        reference=reference,
        config_digest=str(found.get("Id", "")),
        layers=tuple(LayerSide("", str(diff_id)) for diff_id in ids),
        labels={str(k): str(v) for k, v in labels.items()},
        env=environment(run.get("Env")),
        serving=serving(run),
    )


def registry_image(settings: FetchSettings, reference: str, report: Reporter) -> ImageSide:
    """An image in a registry: manifest and config are fetched, and no layer."""
    from reprobuild.adapters.fetch.peek import peek
    from reprobuild.adapters.fetch.places import Places

    facts, run = peek(Places(settings).plain, reference, report)
    return image_of(facts, run)


class World:
    """The world of one side: its project's directory, and what lies around it."""

    def __init__(
        self, settings: Settings, mirrors: Callable[[], Mirrors], report: Callable[[], Reporter]
    ) -> None:
        self._settings, self._mirrors, self._report = settings, mirrors, report
        self._scratch: TemporaryDirectory[str] | None = None
        self._bundles: list[BundleStore] = []

    @cached_property
    def store(self) -> LocalStore | None:
        """The store, where there is one; nothing is made."""
        from reprobuild.adapters.store.store import LocalStore

        try:
            return LocalStore.open(self._settings.store_path, create=False)
        except ReprobuildError as error:
            if error.code not in ("E-NO-STORE", "E-NO-FLAKE"):
                raise
            return None

    @property
    def scratch(self) -> Path:
        """A directory that goes when the run ends."""
        if self._scratch is None:
            from tempfile import TemporaryDirectory

            self._scratch = TemporaryDirectory(prefix="reprobuild-diff-")
        return Path(self._scratch.name)

    def close(self) -> None:
        """Removes what was written for this run alone."""
        for bundle in self._bundles:
            bundle.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    @property
    def _home(self) -> Path:
        try:
            return self._settings.flake_dir
        except ReprobuildError as error:
            if error.code != "E-NO-FLAKE":
                raise
            return Path.cwd()

    def export(self, revision: str) -> Path:
        """The project as it was at a revision, in a directory that goes when the run ends."""
        from reprobuild.adapters.git.export import export_revision

        into = self.scratch / f"revision-{len(list(self.scratch.iterdir()))}"
        return export_revision(self._home, revision, into)

    def sources(self) -> Callable[[], GitSources]:
        """Makes what finds the repositories at hand; nothing is asked of the network."""
        return self._sources

    def _sources(self) -> GitSources:
        return self._sources_in(
            (self.store.path / "cache" if self.store is not None else self.scratch) / "git"
        )

    def _sources_in(self, home: Path) -> GitSources:
        from reprobuild.adapters.git.cache import GitCache
        from reprobuild.adapters.git.sources import GitSources

        cache = GitCache(home, rewrite=self._mirrors().candidates, offline=True, base=self._home)
        return GitSources(cache, home / "fixtures", self._home)

    def patches(self) -> Callable[[str], bytes]:
        """Reads the project's patch files, never outside its directory."""
        from reprobuild.adapters.git.files import reader_below

        return reader_below(self._home)

    def write(self, path: Path, text: str) -> None:
        """Gives a file new content, whole or not at all; raises E-WRITE."""
        from reprobuild.adapters.git.files import replace_file

        try:
            replace_file(path, text.encode())
        except OSError as error:
            raise ReprobuildError(
                "E-WRITE", f"cannot write {path}: {error.strerror}", file=str(path)
            ) from error

    def image(self, kind: str, reference: str) -> ImageSide:
        """An image in the daemon (`docker`) or a registry (`registry`).

        Raises E-DOCKER…, E-IMAGE, E-OCI-REFERENCE, E-OFFLINE, E-FETCH.
        """
        if kind == "docker":
            return daemon_image(reference)
        from reprobuild.adapters.fetch.settings import FetchSettings

        settings = FetchSettings(
            partial_dir=self.scratch / "partial",
            offline=self._settings.offline,
            mirrors=self._mirrors(),
        )
        return registry_image(settings, reference, self._report())

    def layout(self, path: Path) -> tuple[ImageSide, Mapping[str, Any] | None]:
        """A layout or archive on the disk, and the statement inside; raises E-IMAGE."""
        return layout_image(path)

    def document(self, path: Path, name: str) -> Any:
        """A JSON file; raises E-RELEASE-SIDE."""
        return read_document(path, name)

    def stored_image(
        self, content: ContentReader, tree: Digest
    ) -> tuple[ImageFacts, Mapping[str, Any]]:
        """Facts and `config` object of the image in a layout tree of a store."""
        return stored_image(content, tree)

    def together(self, old: Callable[[], GitSources], new: Callable[[], GitSources]) -> Opener:
        """Opens the repositories of both sides as one."""
        return Together(old, new)

    def bundle(self, path: Path) -> BundleStore | None:
        """A bundle as a store, over the store of the call; None for a file that is none.

        Raises E-BUNDLE, E-BUNDLE-LIMIT. It is closed when the run ends.
        """
        if not is_bundle(path):
            return None
        from reprobuild.adapters.diff.bundlestore import BundleStore

        found = BundleStore(path, self.store)
        self._bundles.append(found)
        return found

    def project(self, content: ContentReader, tree: Digest) -> Path:
        """A project's tree in a directory that goes when the run ends."""
        from reprobuild.adapters.bundle.projecttree import write_project

        into = self.scratch / f"project-{len(list(self.scratch.iterdir()))}"
        write_project(content, tree, into)
        return into

    def carried(
        self, content: ContentReader, packs: Mapping[str, Digest]
    ) -> Callable[[], GitSources]:
        """Makes what finds repositories among the git objects that `content` carries: packs by
        address. They are unpacked when they are asked for; raises E-BUNDLE."""
        if not packs:
            return self._sources

        def made() -> GitSources:
            from reprobuild.adapters.bundle.gitpack import install_sources

            sources = self._sources_in(self.scratch / "git")
            install_sources(content, sources.cache, packs)
            return sources

        return made

    def kernels(
        self, stores: Sequence[ContentReader]
    ) -> Callable[[str, File], Module | None] | None:
        """Reads device code; None where there is no store to read it from."""
        if not stores:
            return None
        home = self.store.path / "cache" if self.store is not None else self.scratch
        return KernelReader(stores, home)

    def scans(self) -> SqliteScanMemo:
        """What source files were found to include, by blob."""
        from reprobuild.adapters.store.scanmemo import SqliteScanMemo

        home = self.store.path / "cache" if self.store is not None else self.scratch
        return SqliteScanMemo(home / "includes.sqlite")

    def html(self, report: Mapping[str, Any]) -> str:
        """A report as one page that needs nothing else."""
        from reprobuild.adapters.diff.page import render_page

        return render_page(report)

    def graph(
        self,
        form: str,
        title: str,
        groups: Sequence[Mapping[str, Any]],
        rows: Sequence[Mapping[str, Any]],
    ) -> str:
        """A graph of derivations as `svg` or as a page (`html`)."""
        from reprobuild.adapters.diff.graphpage import graph_page, graph_svg

        return graph_svg(title, groups) if form == "svg" else graph_page(title, groups, rows)

    def version_order(self, kind: str, one: str, other: str) -> int | None:
        """Which of two versions is older (adapters/fetch/versions.py)."""
        from reprobuild.adapters.fetch.versions import version_order

        return version_order(kind, one, other)


@dataclass(frozen=True, slots=True)
class Together:
    """Opens the repositories of both sides as one, offline."""

    old: Callable[[], GitSources]
    new: Callable[[], GitSources]

    @contextmanager
    def __call__(self, old: ComponentSide, new: ComponentSide) -> Iterator[Repository]:
        """See engine.diff_sources.Opener."""
        from reprobuild.adapters.git.together import open_together

        wanted = [
            (sources(), dict[str, Value](side.origin), _spec(side))
            for sources, side in ((self.old, old), (self.new, new))
            if side.origin
        ]
        if len(wanted) < 2:
            raise ReprobuildError("E-OFFLINE", "a side does not say where its source is")
        with open_together(wanted) as repository:
            yield repository


def _spec(side: ComponentSide) -> IntegrationSpec:
    if side.spec is not None:
        return side.spec
    if not side.base:
        raise ReprobuildError("E-OFFLINE", "a side does not say which commit its base is")
    from reprobuild.core.integration.model import IntegrationSpec, Strategy

    return IntegrationSpec(Strategy.MERGE, GitOid.parse(side.base))


_MAGIC = (b"\x7fELF", b"\x50\xed\x55\xba")
"""What a file with device code begins with: an ELF file or a fat binary."""


class KernelReader:
    """Reads the device code of single files, remembered by blob below `home`."""

    def __init__(self, stores: Sequence[ContentReader], home: Path) -> None:
        self._stores, self._home = stores, home
        self._memo: ModuleMemo | None = None

    def __call__(self, path: str, file: File) -> Module | None:
        """None for a file without any; raises E-CUBIN for one that is off."""
        if not 64 <= file.size <= MAX_MODULE:
            return None
        with _open(self._stores, file.digest) as blob:
            head = blob.read(64)
            if not head.startswith(_MAGIC):
                return None
            from reprobuild.adapters.cubin.demangle import demangle
            from reprobuild.adapters.cubin.inflate import inflate
            from reprobuild.core.cubin.module import may_be_module, read_module
            from reprobuild.core.cubin.table import decode, encode

            memo = self._remembered()
            known = memo.get(file.digest)
            if known is not None:
                module = decode(known)
                return _module(module, demangle) if module is not None else None
            if not may_be_module(head):
                return None
            data = head + blob.read()
        try:
            found = read_module(data, inflate)
        except ReprobuildError as error:
            raise ReprobuildError("E-CUBIN", f"{path}: {error.message}", file=path) from error
        memo.put({file.digest: encode(found)})
        return _module(found, demangle) if found is not None else None

    def _remembered(self) -> ModuleMemo:
        if self._memo is None:
            from reprobuild.adapters.store.scanmemo import SqliteScanMemo
            from reprobuild.core.cubin.table import VERSION

            self._memo = SqliteScanMemo(self._home / f"kernels-v{VERSION}.sqlite")
        return self._memo


def _open(stores: Sequence[ContentReader], digest: Digest) -> Any:
    for store in stores[:-1]:
        try:
            return store.open_blob(digest)
        except ReprobuildError as error:
            if error.code not in ("E-STORE-MISSING", "E-BUNDLE-INCOMPLETE"):
                raise
    return stores[-1].open_blob(digest)


def _module(found: CubinModule, demangle: Callable[[Iterable[str]], Mapping[str, str]]) -> Module:
    from reprobuild.core.diff.kernels import Kernel, Module

    several = len(found.archs) > 1
    kernels: dict[str, Kernel] = {}
    names: dict[str, str] = {}
    known = demangle([k.name for k in found.kernels])
    for kernel in found.kernels:
        end = f" [{kernel.arch}]" if several else ""
        key, count = kernel.name + end, 1
        while key in kernels:  # one name, several codes: static kernels of different units
            count += 1
            key = f"{kernel.name}{end} ({count})"
        kernels[key] = Kernel(
            kernel.code.hex,
            kernel.registers,
            kernel.local_stores + kernel.local_loads,
            kernel.shared,
            kernel.code_size,
        )
        names[key] = known.get(kernel.name, kernel.name) + key[len(kernel.name) :]
    return Module(found.archs, found.ptx, kernels, names)
