from __future__ import annotations

import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.builders import builtins
from reprobuild.core.encoding import Value
from reprobuild.errors import ReprobuildError
from support.archives import PACKERS, ar, deb, tar, tar_entry
from support.trees import Given, listing, make

MERGED: dict[str, Given] = {
    "bin": "usr/bin",
    "lib": "usr/lib",
    "lib64": "usr/lib64",
    "sbin": "usr/sbin",
    "usr/bin": None,
    "usr/lib": None,
    "usr/lib64": None,
    "usr/sbin": None,
}
DIR, SYM, LNK = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "store")


def rootfs(store: MemoryStore, *packages: bytes, **params: Value) -> dict[str, Given]:
    inputs = {f"deb-{n}": make(store, {f"p{n}.deb": data}) for n, data in enumerate(packages)}
    return listing(store, builtins()["rootfs"].build(params, inputs, store)["out"])


def without_status(found: Mapping[str, Given]) -> dict[str, Given]:
    return {k: v for k, v in found.items() if not k.startswith("var/lib/dpkg/")}


@pytest.mark.parametrize("packed", sorted(PACKERS))
def test_one_package(store: MemoryStore, packed: str) -> None:
    package = deb(
        "a",
        [
            tar_entry("./", kind=DIR),
            tar_entry("./etc/", kind=DIR),
            tar_entry("./etc/a.conf", b"conf"),
            tar_entry("./usr/bin/a", b"#!", mode=0o4755),
            tar_entry("./usr/bin/b", kind=LNK, link="./usr/bin/a"),
            tar_entry("./usr/bin/c", kind=SYM, link="a"),
        ],
        packed=packed,
    )
    got = rootfs(store, package)
    expected = {k: v for k, v in MERGED.items() if k != "usr/bin"}
    assert without_status(got) == {
        **expected,
        "etc/a.conf": b"conf",
        "usr/bin/a": (b"#!", True),
        "usr/bin/b": (b"#!", True),
        "usr/bin/c": "a",
    }
    status = got["var/lib/dpkg/status.d/a"]
    assert status == (
        b"Package: a\nVersion: 1\nArchitecture: amd64\nStatus: install ok installed\n"
    )


def test_usr_is_merged(store: MemoryStore) -> None:
    old = deb(
        "old",
        [
            tar_entry("./bin/", kind=DIR),
            tar_entry("./bin/sh", b"sh", mode=0o755),
            tar_entry("./lib/x86_64-linux-gnu/libc.so.6", b"c"),
            tar_entry("./lib64/ld.so", kind=SYM, link="../lib/x86_64-linux-gnu/ld.so"),
        ],
    )
    new = deb(
        "new",
        [
            tar_entry("./bin", kind=SYM, link="usr/bin"),
            tar_entry("./usr/lib/x86_64-linux-gnu/libm.so.6", b"m"),
        ],
    )
    got = without_status(rootfs(store, old, new))
    assert got["bin"] == "usr/bin"
    assert got["usr/bin/sh"] == (b"sh", True)
    assert got["usr/lib/x86_64-linux-gnu/libc.so.6"] == b"c"
    assert got["usr/lib/x86_64-linux-gnu/libm.so.6"] == b"m"
    assert got["usr/lib64/ld.so"] == "../lib/x86_64-linux-gnu/ld.so"


def test_a_package_cannot_undo_the_merge(store: MemoryStore) -> None:
    for target in ("/etc", "usr/sbin", "../x"):
        with pytest.raises(ReprobuildError) as error:
            rootfs(store, deb("evil", [tar_entry("./bin", kind=SYM, link=target)]))
        assert error.value.code == "E-ARCHIVE"


def test_links_to_directories_are_followed_as_dpkg_does(store: MemoryStore) -> None:
    base = deb(
        "base", [tar_entry("./run/", kind=DIR), tar_entry("./var/run", kind=SYM, link="/run")]
    )
    more = deb("more", [tar_entry("./var/run/", kind=DIR), tar_entry("./var/run/x", b"x")])
    got = without_status(rootfs(store, base, more))
    assert got["var/run"] == "/run"
    assert got["run/x"] == b"x"


def test_followed_links_stay_inside(store: MemoryStore) -> None:
    base = deb("base", [tar_entry("./a", kind=SYM, link="../../../../outside")])
    got = without_status(rootfs(store, base, deb("more", [tar_entry("./a/x", b"x")])))
    assert got["outside/x"] == b"x"


def test_loops_of_links_end(store: MemoryStore) -> None:
    base = deb("base", [tar_entry("./a", kind=SYM, link="b"), tar_entry("./b", kind=SYM, link="a")])
    with pytest.raises(ReprobuildError) as error:
        rootfs(store, base, deb("more", [tar_entry("./a/x", b"x")]))
    assert error.value.code == "E-TREE-CONFLICT"


def test_two_packages_with_one_file(store: MemoryStore) -> None:
    one = deb("one", [tar_entry("./etc/x", b"1"), tar_entry("./etc/same", b"s")])
    two = deb("two", [tar_entry("./etc/x", b"2"), tar_entry("./etc/same", b"s")])
    with pytest.raises(ReprobuildError) as error:
        rootfs(store, one, two)
    assert error.value.code == "E-TREE-CONFLICT"
    assert error.value.facts == {"path": "etc/x", "first": "p0.deb", "second": "p1.deb"}
    assert rootfs(store, one, two, exclude=["etc/x"])["etc/same"] == b"s"


def test_links_files_and_exclude(store: MemoryStore) -> None:
    package = deb(
        "gcc",
        [
            tar_entry("./usr/bin/gcc-12", b"gcc", mode=0o755),
            tar_entry("./usr/share/doc/gcc/copyright", b"text"),
            tar_entry("./etc/passwd", b"old"),
        ],
    )
    got = rootfs(
        store,
        package,
        exclude=["usr/share/doc/**", "var/lib/dpkg"],
        links={"bin/gcc": "gcc-12"},
        files={"etc/passwd": "root:x:0:0::/root:/bin/sh\n", "init": "#!"},
        executables=["init"],
    )
    assert got["usr/bin/gcc"] == "gcc-12"  # through the merged /usr
    assert got["etc/passwd"] == b"root:x:0:0::/root:/bin/sh\n"
    assert got["init"] == (b"#!", True)
    assert not [path for path in got if "doc" in path or "dpkg" in path]


def test_the_order_of_inputs_is_by_number(store: MemoryStore) -> None:
    packages = [deb(f"p{n}", [tar_entry(f"./f{n}", b"")]) for n in range(11)]
    packages.append(deb("last", [tar_entry("./f0/x", b"")]))
    with pytest.raises(ReprobuildError) as error:
        rootfs(store, *packages)
    assert error.value.facts["second"] == "p11.deb"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"!<arch>\n",
        ar([("debian-binary", b"3.0\n")]),
        ar([("debian-binary", b"2.0\n"), ("data.tar", tar([]))]),
        ar([("debian-binary", b"2.0\n"), ("control.tar", tar([])), ("data.tar", tar([]))]),
        deb("a", [])[:-600],
        deb("x", [], control="Package: ../../etc\n"),
        deb("x", [], control="no field"),
        deb("a", []).replace(b"`\n", b"``", 1),
        ar([("debian-binary", b"2.0\n")])
        + ar([("data.tar", b"")])[8:].replace(b"0         `", b"-60       `"),
        ar([("debian-binary", b"2.0\n")] * 2),
    ],
    ids=range(11),
)
def test_what_is_no_package(store: MemoryStore, data: bytes) -> None:
    with pytest.raises(ReprobuildError) as error:
        rootfs(store, data)
    assert error.value.code == "E-ARCHIVE"
    assert "p0.deb" in error.value.message


@pytest.mark.parametrize("name", ["../x", "/x"])
def test_packages_that_escape(store: MemoryStore, name: str) -> None:
    with pytest.raises(ReprobuildError) as error:
        rootfs(store, deb("evil", [tar_entry(name, b"x")]))
    assert error.value.code == "E-ARCHIVE-ESCAPE"


@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="dpkg-deb is not installed")
def test_as_dpkg_unpacks_it(store: MemoryStore, tmp_path: Path) -> None:
    package = deb(
        "real",
        [
            tar_entry("./", kind=DIR),
            tar_entry("./usr/", kind=DIR),
            tar_entry("./usr/share/a", b"x" * 1000),
            tar_entry("./usr/share/" + "long/" * 40 + "name", b"y"),
            tar_entry("./usr/share/ä", kind=SYM, link="a"),
        ],
    )
    path = tmp_path / "real.deb"
    path.write_bytes(package)
    subprocess.run(["dpkg-deb", "-x", str(path), str(tmp_path / "out")], check=True)
    theirs = listing(store, store.capture(tmp_path / "out"))
    ours = {k: v for k, v in without_status(rootfs(store, package)).items() if k not in MERGED}
    assert ours == theirs
