"""Against the package index and the Debian archive that this machine is configured for."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.fetch.discovery import Discovery
from reprobuild.adapters.fetch.fetchers import Fetchers, file_fetchers
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.core.derivation import FixedOutput
from reprobuild.core.encoding import Value
from reprobuild.core.pins import FilePin
from reprobuild.core.tree import File
from reprobuild.errors import ReprobuildError
from support.events import Recorder

pytestmark = pytest.mark.network


@pytest.fixture
def settings(tmp_path: Path) -> FetchSettings:
    return FetchSettings(tmp_path / "partial", attempts=3)


def fetched(settings: FetchSettings, tmp_path: Path, pin: FilePin, **origin: Value) -> File:
    store = MemoryStore(tmp_path / "materialised")
    fetchers = Fetchers(file_fetchers(store, settings, base=tmp_path))
    tree = fetchers.fetch(
        FixedOutput("file", filename=pin.filename, sha256=pin.sha256),
        {"name": pin.name, "version": pin.version, "size": pin.size, **origin},
        Recorder(),
    )
    entry = store.tree(tree).get(pin.filename.encode())
    assert isinstance(entry, File)
    return entry


def test_a_wheel_and_an_sdist(settings: FetchSettings, tmp_path: Path) -> None:
    discovery = Discovery(settings)
    wheel = discovery.wheel("six", "1.16.0")
    assert wheel.filename == "six-1.16.0-py2.py3-none-any.whl"
    assert wheel.sha256.hex == "8abb2f1d86890a2dfb989f9a77cfcfd3e47c2a354b01111771326f8aa26e0254"
    assert fetched(settings, tmp_path, wheel, kind="wheel").size == wheel.size == 11053
    sdist = discovery.sdist("six", "1.16.0")
    assert sdist.sha256.hex == "1e61c37477a1626458e36f7b1d82aa5c9b094fa4802892072e49de9c60c4c926"
    assert fetched(settings, tmp_path, sdist, kind="sdist").size == sdist.size


def test_a_debian_package(settings: FetchSettings, tmp_path: Path) -> None:
    try:
        pins = Discovery(settings).debs("bookworm", "amd64", ["main"], ["hostname", "tzdata"])
    except ReprobuildError as error:
        if "no Debian archive is configured" in error.message:
            pytest.skip(f"this machine has no such archive: {error.message}")
        raise
    assert [pin.name for pin in pins] == ["hostname", "tzdata"]
    origin: dict[str, Value] = {"suite": "bookworm", "architecture": "amd64"}
    entry = fetched(settings, tmp_path, pins[0], kind="deb", location=pins[0].location, **origin)
    assert entry.size == pins[0].size
