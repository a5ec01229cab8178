"""Images out of `docker save` files, as bases."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.fetch.discovery import Discovery
from reprobuild.adapters.fetch.fetchers import file_fetchers
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.adapters.oci.delivery import Images
from reprobuild.adapters.oci.layout import open_layout
from reprobuild.adapters.oci.storelayout import load_image, read_image
from reprobuild.core.derivation import FixedOutput
from reprobuild.core.digest import Digest, Sha256
from reprobuild.errors import ReprobuildError
from support.events import Recorder
from support.images import image as assemble
from support.images import layer, quick_image


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "store")


def saved(store: MemoryStore, path: Path) -> Path:
    """Our image as an archive of docker's form alone."""
    Images().save(store.materialise(quick_image(store)), path, form="docker-archive")
    return path


def fetched(store: MemoryStore, tmp_path: Path, reference: str) -> tuple[str, Digest]:
    settings = FetchSettings(tmp_path / "partial", attempts=1, backoff=0)
    digest = str(Discovery(settings).oci(reference, tmp_path))
    fixed = FixedOutput("oci-image", sha256=Sha256.parse(digest))
    fetcher = file_fetchers(store, settings, base=tmp_path)["oci"]
    return digest, fetcher.fetch(fixed, {"kind": "oci", "reference": reference}, Recorder())


def test_a_saved_image_is_a_base(store: MemoryStore, tmp_path: Path) -> None:
    saved(store, tmp_path / "x.tar")
    digest, tree = fetched(store, tmp_path, "docker-archive:x.tar")
    given = read_image(store, quick_image(store))
    facts = load_image(store, tree).facts
    assert str(facts.manifest_digest) == digest
    assert facts.config_digest == given.config_digest
    assert [la.diff_id for la in facts.layers] == [la.diff_id for la in given.layers]
    assert [la.digest for la in facts.layers] == [la.digest for la in given.layers]
    own = layer(store, {"lib/own": b"x"}, {"base-0": tree}, name="own")
    whole = read_image(store, assemble(store, {"own": own}, {"base-0": tree}))
    assert [la.digest for la in whole.layers[:2]] == [la.digest for la in given.layers]


def test_it_is_verified_as_what_it_is(store: MemoryStore, tmp_path: Path) -> None:
    facts = Images().inspect(saved(store, tmp_path / "x.tar"))
    assert facts.config_digest == read_image(store, quick_image(store)).config_digest
    assert not facts.manifest_known
    assert facts.document()["manifest_digest"] == ""


@pytest.mark.parametrize("forms", ["archive", "oci-archive", "docker-archive"])
def test_forms_of_archives(store: MemoryStore, tmp_path: Path, forms: str) -> None:
    path = tmp_path / "x.tar"
    Images().save(store.materialise(quick_image(store)), path, form=forms)
    with tarfile.open(path) as archive:
        names = set(archive.getnames())
    assert ("manifest.json" in names) is (forms != "oci-archive")
    assert ("index.json" in names) is (forms != "docker-archive")
    assert ("oci-layout" in names) is (forms != "docker-archive")


def retarred(path: Path, **change: bytes | None) -> None:
    """The archive with single members changed (None: left out)."""
    out = io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=out, mode="w") as new:
        for info in old:
            data = old.extractfile(info).read() if info.isreg() else b""  # type: ignore[union-attr]
            key = info.name.replace(".", "_").replace("/", "_")
            if key in change:
                if change[key] is None:
                    continue
                data = change[key] or b""
            info.size = len(data)
            new.addfile(info, io.BytesIO(data))
    path.write_bytes(out.getvalue())


@pytest.mark.parametrize(
    "manifest", [b"", b"{", b"[]", b"{}", b'[{"Config": "../../etc/passwd", "Layers": []}]',
                 b'[{"Config": "no/such", "Layers": ["x"]}]'], ids=range(6),
)  # fmt: skip
def test_archives_that_are_off(store: MemoryStore, tmp_path: Path, manifest: bytes) -> None:
    retarred(saved(store, tmp_path / "x.tar"), manifest_json=manifest)
    with pytest.raises(ReprobuildError) as error:
        fetched(store, tmp_path, "docker-archive:x.tar")
    assert error.value.code in ("E-FETCH", "E-OCI-REFERENCE")
    with pytest.raises(ReprobuildError) as error:
        Images().verify(tmp_path / "x.tar")
    assert error.value.code in ("E-IMAGE", "E-IMAGE-VERIFY")


def test_links_that_lead_in_circles(store: MemoryStore, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for name, target in (("a", "b"), ("b", "a")):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
        data = json.dumps([{"Config": "a", "Layers": []}]).encode()
        info = tarfile.TarInfo("manifest.json")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    with pytest.raises(ReprobuildError) as error:
        fetched(store, tmp_path, "docker-archive:x.tar")
    assert error.value.code == "E-FETCH"
    with open_layout(tmp_path / "x.tar") as files, pytest.raises(ReprobuildError):
        files.size("a")


@pytest.mark.parametrize("transport", ["docker-archive", "oci-archive"])
@pytest.mark.parametrize("what", ["fifo", "device"])
def test_no_file_is_no_archive(
    store: MemoryStore, tmp_path: Path, transport: str, what: str
) -> None:
    path = tmp_path / "x.tar"
    os.mkfifo(path) if what == "fifo" else path.symlink_to("/dev/zero")
    with pytest.raises(ReprobuildError, match="no regular file"):
        fetched(store, tmp_path, f"{transport}:x.tar")
