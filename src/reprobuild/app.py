"""The composition root: the only file that names adapters. Everything heavy is made on demand."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from reprobuild.core.files import LOCK_FILE
from reprobuild.errors import ReprobuildError
from reprobuild.settings import Settings

if TYPE_CHECKING:
    from reprobuild.adapters.bundle.service import Bundles
    from reprobuild.adapters.diff.world import World
    from reprobuild.adapters.fetch.settings import FetchSettings
    from reprobuild.adapters.git.fetcher import GitSources
    from reprobuild.adapters.git.resolutions import Resolutions
    from reprobuild.adapters.git.service import Resolver
    from reprobuild.adapters.keys.keyring import Keyring
    from reprobuild.adapters.oci.delivery import Images
    from reprobuild.adapters.qualify.service import Qualification
    from reprobuild.adapters.store.glance import Glance
    from reprobuild.adapters.store.history import SqliteHistory
    from reprobuild.adapters.store.store import LocalStore
    from reprobuild.core.attachment import Attachment
    from reprobuild.core.bill import Bill
    from reprobuild.core.cubin.module import Module
    from reprobuild.core.cubin.table import ModuleMemo
    from reprobuild.core.derivation import Isolation
    from reprobuild.core.digest import Digest
    from reprobuild.core.graph import Graph
    from reprobuild.core.image import ImageFacts
    from reprobuild.core.lock import Lock
    from reprobuild.core.mirrors import Mirrors
    from reprobuild.core.project import Project
    from reprobuild.engine.build import Builder
    from reprobuild.engine.narrow import Narrower
    from reprobuild.engine.pinning import Pinner
    from reprobuild.engine.plan import Plan
    from reprobuild.engine.realize import Realizer
    from reprobuild.engine.verdict import Verdict
    from reprobuild.ports import Fetcher, Reporter

MINIMUM_SPACE = 512 * 2**20
"""Bytes that must be free before anything is built."""


@dataclass
class App:
    """One run of the tool: settings, and the parts that it asks for."""

    settings: Settings
    cancel: threading.Event = field(default_factory=threading.Event)
    _closers: list[Callable[[], None]] = field(default_factory=list)
    _quieters: list[Callable[[], None]] = field(default_factory=list)

    @property
    def json(self) -> bool:
        """Whether standard output is one JSON document."""
        return self.settings.json

    @property
    def offline(self) -> bool:
        """Whether the network is off."""
        return self.settings.offline

    def seal(self) -> None:
        """Closes the network for this process and its children (E-OFFLINE, E-OFFLINE-SEAL)."""
        from reprobuild.adapters.offline.seal import seal

        seal()

    @property
    def flake_dir(self) -> Path:
        """The flake's directory."""
        return self.settings.flake_dir

    @property
    def store_path(self) -> Path:
        """The store's place, whether it is there or not."""
        return self.settings.store_path

    @cached_property
    def store(self) -> LocalStore:
        """The store, made when it is not there."""
        from reprobuild.adapters.store.store import LocalStore

        store = LocalStore.open(self.settings.store_path, create=True)
        self._closers.append(store.close)
        return store

    def glance(self) -> Glance | None:
        """A cheap look into the store; None when there is none yet."""
        from reprobuild.adapters.store.glance import Glance

        try:
            return Glance(self.settings.store_path)
        except ReprobuildError as error:
            if error.code != "E-NO-STORE":
                raise
            return None

    @cached_property
    def project(self) -> Project:
        """Flake, components and lock, read and checked."""
        from reprobuild.adapters.toml.load import load_project

        return load_project(self.flake_dir)

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

    def capture_checkout(self, directory: Path) -> Digest:
        """Stores a user's local checkout, for `--override`."""
        from reprobuild.adapters.git.checkout import capture_checkout

        return capture_checkout(directory, self.store, self.store.path / "build")

    @cached_property
    def reporter(self) -> Reporter:
        """Live view, plain lines or nothing, and the event file where one is asked for."""
        reporters: list[Reporter] = []
        if self.settings.events is not None:
            from reprobuild.adapters.report.jsonlines import JsonLines

            reporters.append(JsonLines(self.settings.events))
        if not self.settings.quiet:
            reporters.append(self._terminal_reporter())
        if not reporters:
            from reprobuild.ports import NullReporter

            return NullReporter()
        from reprobuild.adapters.report.fanout import Fanout

        return Fanout(reporters)

    def _terminal_reporter(self) -> Reporter:
        if self.settings.colour and sys.stderr.isatty():
            from reprobuild.adapters.report.live import LiveReporter

            live = LiveReporter()
            self._quieters.append(live.close)
            return live
        from reprobuild.adapters.report.plain import PlainReporter

        return PlainReporter(verbose=self.settings.verbose)

    @cached_property
    def resolver(self) -> Resolver:
        """What integrating, composing, auditing and starting a project need."""
        from reprobuild.adapters.git.service import Resolver

        return Resolver(
            lambda: self.settings.cache_dir,
            self.mirrors.candidates,
            self.offline,
            self.settings.environment,
        )

    @property
    def resolutions(self) -> Resolutions:
        """The project's recorded resolutions."""
        from reprobuild.adapters.git.resolutions import Resolutions

        return Resolutions(self.flake_dir)

    def builder(self, isolation: Isolation, *, keep_failed: bool = False) -> Builder:
        """What makes single derivations, over the real world."""
        from reprobuild.adapters.builders import builtins
        from reprobuild.adapters.sandbox.executor import BubblewrapExecutor
        from reprobuild.engine.build import Builder

        return Builder(
            content=self.store,
            executor=BubblewrapExecutor(isolation, self.settings.runtime_dir),
            fetcher=self.fetchers,
            builtins=builtins(),
            reporter=self.reporter,
            logs=self.store.logs,
            work=self.store.path / "build",
            cancel=self.cancel,
            keep_failed=keep_failed,
        )

    def realizer(self, isolation: Isolation, *, keep_failed: bool = False) -> Realizer:
        """The realize use case, over the real world."""
        from reprobuild.adapters.sandbox.memory import available_memory
        from reprobuild.engine.realize import Realizer

        return Realizer(
            content=self.store,
            catalog=self.store,
            builder=self.builder(isolation, keep_failed=keep_failed),
            narrower=self.narrower,
            reporter=self.reporter,
            cancel=self.cancel,
            history=self.history,
            available=available_memory,
            judge=lambda first, second: self.verdict(first.outputs, second.outputs).lines(),
        )

    @cached_property
    def git_sources(self) -> GitSources:
        """Git repositories and fixtures, with their object cache."""
        from reprobuild.adapters.git.cache import GitCache
        from reprobuild.adapters.git.fetcher import GitSources

        home = self.store.path / "cache" / "git"
        cache = GitCache(
            home, rewrite=self.mirrors.candidates, offline=self.offline, base=self.flake_dir
        )
        return GitSources(cache, fixtures=home / "fixtures", flake_dir=self.flake_dir)

    @cached_property
    def mirrors(self) -> Mirrors:
        """The `[mirrors]` table of the user's configuration."""
        from reprobuild.core.mirrors import parse_mirrors

        table = self.settings.config.get("mirrors", {})
        if not isinstance(table, dict):
            raise ReprobuildError("E-CONFIG", "[mirrors] must be a table", key="mirrors")
        return parse_mirrors(table)

    @cached_property
    def fetch_settings(self) -> FetchSettings:
        """How files are downloaded."""
        from reprobuild.adapters.fetch.settings import FetchSettings

        return FetchSettings(
            partial_dir=self.store.path / "cache" / "partial",
            offline=self.offline,
            mirrors=self.mirrors,
            cancel=self.cancel,
        )

    @cached_property
    def fetchers(self) -> Fetcher:
        """What obtains pinned content, by kind of origin."""
        from reprobuild.adapters.fetch.fetchers import Fetchers, file_fetchers
        from reprobuild.adapters.git.fetcher import GitFetcher

        git = GitFetcher(self.git_sources, self.store)
        files = file_fetchers(self.store, self.fetch_settings, base=self.flake_dir)
        return Fetchers({**files, "git": git, "fixture": git})

    def pinner(self) -> Pinner:
        """What makes pins, over the real world."""
        from reprobuild.adapters.fetch.discovery import Discovery
        from reprobuild.adapters.fetch.project import ProjectDiscovery
        from reprobuild.adapters.git.discovery import GitDiscovery
        from reprobuild.adapters.git.fetcher import GitPinner
        from reprobuild.core.integration.flakerefs import refs_of
        from reprobuild.engine.pinning import Pinner

        self.git_sources.cache.expect(refs_of(self.project.flake))
        files = Discovery(self.fetch_settings, report=self.reporter)
        return Pinner(
            files=ProjectDiscovery(files, self.store, self.flake_dir),
            git=GitDiscovery(GitPinner(self.git_sources), self.flake_dir),
        )

    @cached_property
    def narrower(self) -> Narrower:
        """What cuts inputs down to what could be read."""
        from reprobuild.adapters.store.scanmemo import SqliteScanMemo
        from reprobuild.engine.narrow import Narrower

        memo = SqliteScanMemo(self.store.path / "cache" / "includes.sqlite")
        self._closers.append(memo.close)
        return Narrower(self.store, memo)

    @cached_property
    def kernel_memo(self) -> ModuleMemo:
        """Descriptions of modules, by blob."""
        from reprobuild.adapters.store.scanmemo import SqliteScanMemo
        from reprobuild.core.cubin.table import VERSION

        memo = SqliteScanMemo(self.store.path / "cache" / f"kernels-v{VERSION}.sqlite")
        self._closers.append(memo.close)
        return memo

    def kernel_table(self, tree: Digest) -> dict[str, Module]:
        """What device code lies in a tree, by path."""
        from reprobuild.adapters.cubin.inflate import inflate
        from reprobuild.core.cubin.table import kernel_table

        return kernel_table(self.store, tree, inflate, self.kernel_memo)

    def verdict(self, first: Mapping[str, Digest], second: Mapping[str, Digest]) -> Verdict:
        """What the trees (by output) of two builds of one recipe differ in, and why."""
        from reprobuild.adapters.cubin.inflate import inflate
        from reprobuild.engine.verdict import judge_outputs

        found = judge_outputs(self.store, first, second, inflate)
        return found.renamed(self.demangle(found.names()))

    def demangle(self, names: Iterable[str]) -> Mapping[str, str]:
        """C++ names for people."""
        from reprobuild.adapters.cubin.demangle import demangle

        return demangle(names)

    @cached_property
    def history(self) -> SqliteHistory:
        """What earlier builds took and read."""
        from reprobuild.adapters.store.history import SqliteHistory

        history = SqliteHistory(self.store.path / "cache" / "history.sqlite")
        self._closers.append(history.close)
        return history

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

        world = World(self.settings, self.mirrors, self.reporter)
        self._closers.append(world.close)
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
            mirrors=lambda: self.mirrors,
            cancel=self.cancel,
            memory=self.settings.state_dir / "push",
        )

    @cached_property
    def bundles(self) -> Bundles:
        """Bundles: their files, what they carry besides objects, proofs."""
        from reprobuild.adapters.bundle.service import Bundles

        return Bundles(self.store, self.settings)

    @property
    def qualification(self) -> Qualification:
        """Evidence, and this machine as a test bench."""
        from reprobuild.adapters.qualify.service import Qualification

        return Qualification(self.flake_dir, self.settings.environment)

    def check_inputs(self, names: Iterable[str], output: str | None = None) -> None:
        """Raises E-LOCK-STALE when one of these inputs moved after it was pinned."""
        from reprobuild.adapters.current import check_inputs

        check_inputs(self.project, self.flake_dir, names, output)

    def check_before(self, plan: Plan, graph: Graph, isolation: Isolation) -> None:
        """Before anything is begun: the sandbox can be had, and the disk has room.

        Raises E-SANDBOX…, E-DISK-SPACE.
        """
        from reprobuild.core.derivation import SANDBOX
        from reprobuild.engine.plan import Deed

        fetches, builds = plan.of(Deed.FETCH), plan.of(Deed.BUILD)
        if not fetches and not builds:
            return
        if any(graph.nodes[step.drv].builder == SANDBOX for step in builds):
            self.builder(isolation).executor.probe()
        sizes = [graph.nodes[step.drv].origin.get("size") for step in fetches]
        download = sum(size for size in sizes if isinstance(size, int))
        # A download is stored, and unpacked to about three times its size.
        self.store.require_space(MINIMUM_SPACE + 4 * download)

    def quiet(self) -> None:
        """Ends the live view, before results are printed."""
        while self._quieters:
            self._quieters.pop()()

    def close(self) -> None:
        """Puts the terminal and the store back in order."""
        self.quiet()
        while self._closers:
            self._closers.pop()()
