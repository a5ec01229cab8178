"""What the commands around bundles ask of the world."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from reprobuild.adapters.bundle.head import make_boot, make_head
from reprobuild.adapters.bundle.projecttree import capture_project, write_project
from reprobuild.adapters.bundle.reader import BundleReader
from reprobuild.adapters.bundle.writer import Plan, Written, compressor, write_bundle
from reprobuild.core.bundle.format import Entry
from reprobuild.core.bundle.manifest import Manifest
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value

if TYPE_CHECKING:
    from reprobuild.adapters.fetch.settings import FetchSettings
    from reprobuild.adapters.git.sources import GitSources
    from reprobuild.adapters.store.store import LocalStore
    from reprobuild.adapters.substituter.registry import RegistryCache, RegistryWriter
    from reprobuild.adapters.substituter.static import CacheDirectory, StaticCache
    from reprobuild.core.bundle.inventory import Inventory
    from reprobuild.core.bundle.signing import Signature, Signer, Stamp
    from reprobuild.core.derivation import FixedOutput
    from reprobuild.core.record import Record
    from reprobuild.ports import Reporter
    from reprobuild.settings import Settings


class Goods(Protocol):
    """What goes into a bundle (`engine.transfer.Shipment`)."""

    @property
    def manifest(self) -> Manifest:
        """What it says of itself."""
        ...

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The objects in order."""
        ...

    @property
    def open(self) -> Callable[[Entry], BinaryIO]:
        """An object's bytes."""
        ...


class Bundles:
    """Bundle files over one store, which is opened when it is needed: a file that is no bundle
    must not have made one."""

    def __init__(self, store: Callable[[], LocalStore], settings: Settings) -> None:
        self._open, self._settings = store, settings

    @property
    def _store(self) -> LocalStore:
        return self._open()

    def reader(self, path: Path) -> BundleReader:
        """An opened bundle, its index checked."""
        return BundleReader(path)

    def toolkit(self, wheels: Sequence[Path]) -> tuple[bytes, str]:
        """The tool as a bundle carries it, and what it is, in words."""
        from reprobuild.adapters.bundle.toolkit import make_toolkit

        kit = make_toolkit(wheels)
        pythons = ", ".join(f"3.{v[1:]}" for v in kit.pythons)
        return kit.archive, f"for Python {pythons}; with {', '.join(kit.programs) or 'no programs'}"

    def write(
        self,
        path: Path,
        manifest: Manifest,
        entries: Sequence[Entry],
        open_: Callable[[Entry], BinaryIO],
        *,
        tool: tuple[bytes, str] = (b"", ""),
        sign: Callable[[Digest], list[Value]],
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Written:
        """Writes a bundle file; an interrupted call for the same content is taken up."""
        archive, description = tool
        head, boot = make_head(archive), make_boot(archive)
        whole = replace(
            manifest,
            compressor=compressor(),
            tool=description,
            head=Digest.of(head).hex,
            boot=Digest.of(boot).hex,
        )
        plan = Plan(whole.document(), tuple(entries), open_, head, boot)
        return write_bundle(path, plan, sign, progress)

    def capture_project(self, directory: Path, paths: Iterable[str]) -> Digest:
        """A project's files as a tree."""
        return capture_project(self._store, directory, paths)

    def write_project(self, tree: Digest, directory: Path) -> list[str]:
        """A project's files in a directory; the names that are new."""
        return write_project(self._store, tree, directory)

    def pack_sources(
        self, sources: GitSources, wanted: Iterable[tuple[FixedOutput, Mapping[str, Value]]]
    ) -> dict[str, Digest]:
        """Trees with the git objects that integrations read, by the repository's address."""
        from reprobuild.adapters.bundle.gitpack import pack_sources

        return pack_sources(self._store, sources, wanted)

    def install_sources(self, packs: Mapping[str, Digest]) -> int:
        """Puts packed git objects where integrations look for them."""
        from reprobuild.adapters.bundle.gitpack import install_sources
        from reprobuild.adapters.git.cache import GitCache

        root = self._store.path / "cache" / "git"
        cache = GitCache(root, offline=True, base=self._store.path)
        return install_sources(self._store, cache, packs)

    def next_inventory(self) -> tuple[bytes, int]:
        """(16 bytes that name this store, a number above all before): for an inventory."""
        from reprobuild.adapters.bundle.counters import next_inventory

        return next_inventory(self._store)

    def stamp(self, bundle: Digest) -> Stamp:
        """What says that this store made a bundle after others; the same for the same bundle."""
        from reprobuild.adapters.bundle.counters import stamp

        return stamp(self._store, bundle)

    def check_age(self, signature: Signature, outputs: Iterable[str]) -> None:
        """Refuses a bundle older than one that was imported before.

        Raises E-BUNDLE-OLD.
        """
        from reprobuild.adapters.bundle.counters import check_age

        check_age(self._store, signature, outputs)

    def note_age(self, signature: Signature, outputs: Iterable[str]) -> None:
        """Remembers that a bundle was imported."""
        from reprobuild.adapters.bundle.counters import note_age

        note_age(self._store, signature, outputs)

    def prove(
        self, path: Path, digest: Digest, installables: Sequence[str], isolation: str | None
    ) -> dict[str, Value]:
        """Rebuilds a bundle from itself alone; the certificate's document. Raises E-PROOF."""
        from reprobuild.adapters.bundle.prover import rebuild

        return rebuild(path.absolute(), str(digest), installables, isolation)

    def add_proof(self, path: Path, proof: Value) -> None:
        """Puts a proof into a finished bundle."""
        from reprobuild.adapters.bundle.writer import add_proof

        add_proof(path, proof)

    def cache(
        self, address: str, settings: FetchSettings, report: Reporter
    ) -> StaticCache | RegistryCache:
        """A binary cache to read; raises E-USAGE."""
        if address.startswith("oci://"):
            from reprobuild.adapters.substituter.registry import RegistryCache

            return RegistryCache(address, settings, self._absent, report)
        from reprobuild.adapters.substituter.static import StaticCache

        return StaticCache(address, settings, self._absent, report)

    @property
    def _absent(self) -> Path:
        """Where is remembered what caches do not have."""
        return self._store.path / "cache" / "absent"

    def cache_writer(
        self, address: str, settings: FetchSettings
    ) -> CacheDirectory | RegistryWriter:
        """A binary cache to write, made when it is not there; to be closed.

        Raises E-USAGE, E-WRITE, E-REGISTRY, E-OFFLINE.
        """
        if address.startswith("oci://"):
            from reprobuild.adapters.substituter.registry import RegistryWriter

            scratch = self._store.path / "build"
            scratch.mkdir(exist_ok=True)
            return RegistryWriter(
                address,
                settings,
                memory=self._settings.state_dir / "push",
                absent=self._absent,
                scratch=scratch,
            )
        from reprobuild.adapters.substituter.static import CacheDirectory

        return CacheDirectory(address)

    def put_in_cache(
        self,
        cache: CacheDirectory | RegistryWriter,
        record: Record,
        name: str,
        goods: Goods,
        signer: Signer,
    ) -> None:
        """Writes a record with its trees as a bundle called `name`."""

        def write(path: Path) -> None:
            self.write(path, goods.manifest, goods.entries, goods.open, sign=lambda digest: [])

        cache.put(record, name, write, signer)

    def read_public(self, path: Path) -> bytes:
        """The 32 bytes of a public key file; raises E-KEY."""
        from reprobuild.adapters.keys.keyring import read_public

        return read_public(path)

    def signed_by(self, key: bytes, message: bytes, signature: bytes) -> bool:
        """Whether a public key made a signature."""
        from reprobuild.adapters.keys.keyring import signed_by

        return signed_by(key, message, signature)

    def check_inventory(
        self, found: Inventory, signed_by: Callable[[bytes, bytes, bytes], bool]
    ) -> None:
        """Refuses an inventory older than one of the same store that was used before.

        A store that once signed its inventories has to go on with the same key. Remembered in a
        root that keeps nothing. Raises E-INVENTORY-REPLAY, E-BUNDLE.
        """
        from reprobuild.adapters.bundle.counters import check_inventory

        check_inventory(self._store, found, signed_by)
