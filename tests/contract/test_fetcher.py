"""One suite for ports.Fetcher, over every kind of origin that is not a git repository."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.fetch.aptsources import AptConfig, Archive
from reprobuild.adapters.fetch.fetchers import Fetchers, file_fetchers
from reprobuild.adapters.fetch.pipconfig import PipConfig
from reprobuild.adapters.fetch.places import Places
from reprobuild.adapters.fetch.settings import FetchSettings
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.derivation import FixedOutput
from reprobuild.core.digest import Digest, Sha256
from reprobuild.core.encoding import Value, encode
from reprobuild.core.tree import File
from reprobuild.errors import ReprobuildError
from reprobuild.ports import ContentStore
from support.events import Recorder
from support.ociparts import MANIFEST, Image, index_of, write_archive, write_layout
from support.webserver import Fault, WebServer, web_server

BODY = b"the pinned content\n" * 5000
OTHER = b"some other content\n" * 5000


@dataclass
class Case:
    """A pin with the world in which it can be fetched.

    `spoil` makes the world give other content of the same size, `remove` makes it lack it.
    """

    fixed: FixedOutput
    origin: dict[str, Value]
    files: dict[str, bytes]
    spoil: Callable[[], object]
    remove: Callable[[], object]
    network: bool = True
    pip: PipConfig = field(default_factory=lambda: PipConfig(()))
    apt: AptConfig = field(default_factory=AptConfig)


def sha(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def one_file(
    filename: str, **origin: Value
) -> tuple[FixedOutput, dict[str, Value], dict[str, bytes]]:
    fixed = FixedOutput("file", filename=filename, sha256=Sha256(sha(BODY)))
    return fixed, {"input": "thing", "size": len(BODY), **origin}, {filename: BODY}


def writes(path: Path) -> Callable[[], object]:
    return lambda: path.write_bytes(OTHER)


def url(web: WebServer, tmp: Path) -> Case:
    resource = web.put("/thing.bin", BODY)
    return Case(
        *one_file("thing.bin", kind="url", url=f"{web.url}/thing.bin"),
        spoil=lambda: setattr(resource, "body", OTHER),
        remove=web.resources.clear,
    )


def file_url(web: WebServer, tmp: Path) -> Case:
    path = tmp / "thing.bin"
    path.write_bytes(BODY)
    return Case(
        *one_file("thing.bin", kind="url", url=path.as_uri()),
        spoil=writes(path),
        remove=path.unlink,
        network=False,
    )


def wheel(web: WebServer, tmp: Path, *, fragment: str = "", kind: str = "wheel") -> Case:
    name = "thing-1.0-py3-none-any.whl" if kind == "wheel" else "thing-1.0.tar.gz"
    resource = web.put(f"/{name}", BODY)
    page = f'<a href="/{name}{fragment}">{name}</a>'.encode()
    web.put("/simple/thing/", page, content_type="text/html")
    return Case(
        *one_file(name, kind=kind, name="thing", version="1.0"),
        spoil=lambda: setattr(resource, "body", OTHER),
        remove=web.resources.clear,
        pip=PipConfig((f"{web.url}/simple",)),
    )


def wheel_with_hash(web: WebServer, tmp: Path) -> Case:
    case = wheel(web, tmp, fragment=f"#sha256={sha(BODY)}")
    page = web.resources["/simple/thing/"]
    # An index that is honest about its other content is refused without a download.
    other = page.body.replace(sha(BODY).encode(), sha(OTHER).encode())
    case.spoil = lambda: setattr(page, "body", other)
    return case


def sdist(web: WebServer, tmp: Path) -> Case:
    return wheel(web, tmp, kind="sdist")


def wheel_in_directory(web: WebServer, tmp: Path) -> Case:
    links = tmp / "links"
    links.mkdir()
    case = wheel(web, tmp)
    case.pip = PipConfig((), (str(links),))
    path = links / case.fixed.filename
    path.write_bytes(BODY)
    case.spoil = writes(path)
    case.remove = path.unlink
    case.network = False
    return case


def deb(web: WebServer, tmp: Path) -> Case:
    location = "pool/main/t/thing/thing_1.0_amd64.deb"
    resource = web.put(f"/debian/{location}", BODY)
    return Case(
        *one_file(
            "thing_1.0_amd64.deb",
            kind="deb",
            suite="bookworm",
            architecture="amd64",
            location=location,
            name="thing",
            version="1.0",
        ),
        spoil=lambda: setattr(resource, "body", OTHER),
        remove=web.resources.clear,
        apt=AptConfig((Archive(f"{web.url}/debian", "bookworm"),)),
    )


IMAGE = Image([BODY, b"a second layer", BODY])


def layout_files() -> dict[str, bytes]:
    entry: Value = {"digest": IMAGE.digest, "mediaType": MANIFEST, "size": len(IMAGE.manifest)}
    files = {f"blobs/sha256/{d.removeprefix('sha256:')}": b for d, b in IMAGE.blobs.items()}
    files["oci-layout"] = encode({"imageLayoutVersion": "1.0.0"})
    files["index.json"] = encode({"manifests": [entry], "schemaVersion": 2})
    return files


def oci(reference: str) -> tuple[FixedOutput, dict[str, Value], dict[str, bytes]]:
    fixed = FixedOutput("oci-image", sha256=Sha256.parse(IMAGE.digest))
    return fixed, {"input": "thing", "kind": "oci", "reference": reference}, layout_files()


def registry(web: WebServer, tmp: Path) -> Case:
    web.put("/v2/some/image/manifests/1", index_of(Image(architecture="arm64"), IMAGE))
    web.put(f"/v2/some/image/manifests/{IMAGE.digest}", IMAGE.manifest, content_type=MANIFEST)
    for digest, data in IMAGE.blobs.items():
        web.put(f"/v2/some/image/blobs/{digest}", data)
    layer = web.resources[f"/v2/some/image/blobs/sha256:{sha(BODY)}"]
    return Case(
        *oci(f"{web.host}/some/image:1"),
        spoil=lambda: setattr(layer, "body", OTHER),
        remove=web.resources.clear,
    )


def layout(web: WebServer, tmp: Path) -> Case:
    directory = write_layout(tmp / "layout", IMAGE)
    layer = directory / "blobs" / "sha256" / sha(BODY)
    return Case(
        *oci(f"oci:{directory}"),
        spoil=writes(layer),
        remove=layer.unlink,
        network=False,
    )


def archive(web: WebServer, tmp: Path) -> Case:
    case = layout(web, tmp)
    path = write_archive(tmp / "image.tar", tmp / "layout")
    case.origin["reference"] = "oci-archive:image.tar"  # relative to the flake's directory

    def spoil() -> None:
        path.write_bytes(path.read_bytes().replace(BODY, OTHER))

    case.spoil, case.remove = spoil, path.unlink
    return case


def path(web: WebServer, tmp: Path) -> Case:
    directory = tmp / "somewhere"
    (directory / "sub").mkdir(parents=True)
    (directory / "sub" / "thing").write_bytes(BODY)
    probe = MemoryStore(tmp / "probe")
    tree = probe.capture(directory)
    return Case(
        FixedOutput("tree", tree=tree),
        {"input": "thing", "kind": "path", "path": "somewhere"},
        {"sub/thing": BODY},
        spoil=writes(directory / "sub" / "thing"),
        remove=lambda: shutil.move(directory, tmp / "elsewhere"),
        network=False,
    )


CASES = [url, file_url, wheel, wheel_with_hash, sdist, wheel_in_directory, deb]
CASES += [registry, layout, archive, path]


class World:
    """A case, a store and the fetchers for it."""

    def __init__(self, case: Case, content: ContentStore, tmp: Path) -> None:
        self.case = case
        self.content = content
        self.tmp = tmp

    def fetch(self, *, offline: bool = False, **origin: Value) -> Digest:
        settings = FetchSettings(
            self.tmp / "partial", offline=offline, backoff=0.0, attempts=3, read_timeout=10.0
        )

        def places() -> Places:
            return Places(settings, pip=self.case.pip, apt=self.case.apt)

        by_kind = file_fetchers(self.content, settings, base=self.tmp, places=places)
        document = {**self.case.origin, **origin}
        return Fetchers(by_kind).fetch(self.case.fixed, document, Recorder())

    def refused(self, **options: bool) -> ReprobuildError:
        with pytest.raises(ReprobuildError) as caught:
            self.fetch(**options)
        return caught.value

    def listing(self, digest: Digest, prefix: str = "") -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for name, entry in self.content.tree(digest):
            if isinstance(entry, File):
                assert not entry.executable
                with self.content.open_blob(entry.digest) as blob:
                    found[prefix + name.decode()] = blob.read()
            else:
                found |= self.listing(entry.digest, f"{prefix}{name.decode()}/")  # type: ignore[union-attr]
        return found

    def partial(self) -> list[str]:
        directory = self.tmp / "partial"
        return sorted(p.name for p in directory.iterdir()) if directory.exists() else []


@pytest.fixture
def web() -> Iterator[WebServer]:
    with web_server() as server:
        yield server


@pytest.fixture(params=CASES, ids=lambda make: make.__name__)
def case(request: pytest.FixtureRequest, web: WebServer, tmp_path: Path) -> Case:
    made: Case = request.param(web, tmp_path)
    return made


@pytest.fixture(params=["local", "memory"])
def world(request: pytest.FixtureRequest, case: Case, tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        if request.param == "memory":
            content: ContentStore = MemoryStore(tmp_path / "materialised")
        else:
            content = stack.enter_context(LocalStore.open(tmp_path / "store", create=True))
        yield World(case, content, tmp_path)
        if isinstance(content, LocalStore):
            assert content.verify().problems == []


def test_the_content_is_stored_whole(world: World) -> None:
    tree = world.fetch()
    assert world.listing(tree) == world.case.files
    assert world.content.contains(tree)
    assert world.partial() == []


def test_twice_is_the_same_tree(world: World) -> None:
    assert world.fetch() == world.fetch()


def test_other_content_is_a_mismatch_that_stores_no_tree(world: World) -> None:
    world.case.spoil()
    error = world.refused()
    assert error.code == "E-FETCH-MISMATCH"
    assert error.exit_status == 4
    fixed = world.case.fixed
    if fixed.tree is not None:
        expected, got = str(fixed.tree), str(error.facts["got"])
        assert got.startswith("blake3:")
    else:
        expected, got = sha(BODY), sha(OTHER)
    assert expected in error.message
    assert got in error.message
    assert "lock --update thing" in error.hint
    assert error.facts["input"] == "thing"
    assert world.partial() == []
    if isinstance(world.content, MemoryStore) and fixed.tree is None:
        assert world.content.trees == {}
        assert Digest.of(OTHER) not in world.content.blobs


def test_what_is_gone_is_said_so(world: World) -> None:
    world.case.remove()
    error = world.refused()
    assert error.exit_status == 4
    assert error.code in ("E-FETCH", "E-DEB-GONE", "E-PACKAGE-MISSING")
    assert world.partial() == []


@pytest.mark.parametrize("case", [url, wheel, wheel_with_hash, sdist, deb, registry], indirect=True)
def test_a_cut_download_leaves_no_tree_and_is_resumed(world: World, web: WebServer) -> None:
    (resource,) = [r for r in web.resources.values() if r.body == BODY]
    resource.faults[:] = [Fault("cut", 20_000)] * 3
    assert world.refused().code == "E-FETCH"
    assert world.partial() == [sha(BODY)]
    if isinstance(world.content, MemoryStore):
        assert world.content.trees == {}
    web.seen.clear()
    assert world.listing(world.fetch()) == world.case.files
    assert [s.headers["Range"] for s in web.seen if "Range" in s.headers] == ["bytes=60000-"]
    assert world.partial() == []


def test_offline_is_minded(world: World) -> None:
    if world.case.network:
        error = world.refused(offline=True)
        assert error.code == "E-OFFLINE"
        assert error.exit_status == 8
        assert "[mirrors]" in error.hint
    else:
        assert world.listing(world.fetch(offline=True)) == world.case.files


@pytest.mark.parametrize("kind", ["", "ftp", None, 3])
def test_an_unknown_kind_is_the_locks_fault(world: World, kind: Value) -> None:
    with pytest.raises(ReprobuildError) as caught:
        world.fetch(kind=kind)
    assert caught.value.code == "E-LOCK"


def test_a_promise_of_another_kind_is_the_locks_fault(world: World) -> None:
    world.case.fixed = FixedOutput("git-tree")
    assert world.refused().code == "E-LOCK"


def test_an_origin_that_says_nothing_is_the_locks_fault(world: World) -> None:
    kind = world.case.origin["kind"]
    world.case.origin = {"kind": kind}
    assert world.refused().code == "E-LOCK"
