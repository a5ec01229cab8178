"""The input root is the sandbox's `/`; the same recipe is refused in both for the same reasons."""

from __future__ import annotations

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.core.derivation import InputContent
from reprobuild.core.digest import Digest
from reprobuild.core.remote.root import Node, entries, input_root
from reprobuild.core.sandboxenv import ETC
from reprobuild.core.tree import Directory, Entry, File, Symlink, Tree
from reprobuild.errors import ReprobuildError
from support.remote import store_tree


def listing(store: MemoryStore, node: Node, where: str = "") -> dict[str, str]:
    """Every path of a root, and what stands there."""
    out: dict[str, str] = {}
    for raw, entry in entries(node, store.tree).items():
        path = f"{where}/{raw.decode()}"
        if isinstance(entry, Node):
            out[path] = "directory"
            out.update(listing(store, entry, path))
        elif isinstance(entry, bytes):
            out[path] = entry.decode()
        else:
            out.update(_stored(store, entry, path))
    return out


def _stored(store: MemoryStore, entry: Entry, path: str) -> dict[str, str]:
    if isinstance(entry, File):
        return {path: store.blobs[entry.digest].decode()}
    if isinstance(entry, Symlink):
        return {path: "-> " + entry.target.decode()}
    out = {path: "directory"}
    for name, child in store.tree(entry.digest):
        out.update(_stored(store, child, f"{path}/{name.decode()}"))
    return out


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def tree(store: MemoryStore, **files: str) -> InputContent:
    names = {name.replace("__", "/"): text.encode() for name, text in files.items()}
    return InputContent(store_tree(store, names))


def root_of(
    store: MemoryStore, *inputs: tuple[str, InputContent], cwd: str = "/build"
) -> dict[str, str]:
    return listing(store, input_root(inputs, ("out", "dev"), cwd, store.tree))


def test_constants_stand_where_the_sandbox_has_them(store: MemoryStore) -> None:
    found = root_of(store)
    assert {p: t for p, t in found.items() if p.startswith("/etc/")} == {
        f"/etc/{name}": text.decode() for name, text in ETC.items()
    }
    writable = {"/build", "/out", "/out/out", "/out/dev", "/tmp", "/proc", "/dev", "/etc"}
    assert {p for p, t in found.items() if t == "directory"} == writable


def test_the_root_file_system_without_what_is_ours(store: MemoryStore) -> None:
    box = tree(
        store, bin__sh="sh", home__me="x", root__x="x", tmp__x="x", sys__x="x", build__x="x",
        etc__passwd="theirs", etc__machine_id="1", etc__profile="kept", run__x="x", dev__x="x",
    )  # fmt: skip
    found = root_of(store, ("/", box))
    assert found["/bin/sh"] == "sh"
    assert found["/etc/profile"] == "kept"
    assert found["/etc/passwd"] == ETC["passwd"].decode()
    assert not {"/home", "/root", "/sys", "/run", "/tmp/x", "/build/x", "/dev/x"} & set(found)


def test_hidden_files_of_etc_are_hidden(store: MemoryStore) -> None:
    root = InputContent(store_tree(store, {"etc/machine-id": b"1", "etc/a": b"a"}))
    found = root_of(store, ("/", root))
    assert "/etc/machine-id" not in found
    assert found["/etc/a"] == "a"


def test_inputs_stand_in_one_another_and_in_the_root(store: MemoryStore) -> None:
    box = tree(store, usr__bin__cc="cc", usr__share__doc="doc")
    found = root_of(
        store,
        ("/", box),
        ("/usr/share/more", tree(store, b="b")),
        ("/in", tree(store, a="a")),
        ("/in/deep/er", tree(store, c="c")),
        ("/build/src", tree(store, d="d")),
    )
    assert found["/usr/bin/cc"] == "cc"
    assert found["/usr/share/doc"] == "doc"
    assert found["/usr/share/more/b"] == "b"
    assert (found["/in/a"], found["/in/deep/er/c"], found["/build/src/d"]) == ("a", "c", "d")


def test_a_file_as_an_input(store: MemoryStore) -> None:
    holder = store_tree(store, {"x": b"text"})
    ((_, entry),) = store.tree(holder)
    assert isinstance(entry, File)
    found = root_of(store, ("/opt/file", InputContent(entry.digest, is_file=True)))
    assert found["/opt/file"] == "text"


def test_the_working_directory_is_made(store: MemoryStore) -> None:
    assert root_of(store, cwd="/build/a/b")["/build/a/b"] == "directory"


@pytest.mark.parametrize(
    ("at", "code"),
    [
        ("/etc", "E-DERIVATION"),
        ("/etc/passwd", "E-DERIVATION"),
        ("/proc/x", "E-DERIVATION"),
        ("/dev/x", "E-DERIVATION"),
        ("/out/x", "E-DERIVATION"),
        ("/build", "E-DERIVATION"),
        ("relative", "E-DERIVATION"),
        ("/a/../b", "E-DERIVATION"),
        ("/tmp/x", "E-REMOTE-UNFIT"),
    ],
)
def test_places_that_are_refused(store: MemoryStore, at: str, code: str) -> None:
    with pytest.raises(ReprobuildError) as caught:
        root_of(store, (at, tree(store, a="a")))
    assert caught.value.code == code


def test_nothing_stands_behind_a_link(store: MemoryStore) -> None:
    link = Tree.of({b"lib": Symlink(b"usr/lib")})
    store.add_trees({link.digest: link})
    with pytest.raises(ReprobuildError) as caught:
        root_of(store, ("/", InputContent(link.digest)), ("/lib/x", tree(store, a="a")))
    assert caught.value.code == "E-DERIVATION"
    assert "symbolic link" in caught.value.message


def test_directories_of_the_store_stay_whole(store: MemoryStore) -> None:
    """What nothing stands inside of keeps its digest: it is named once, for all builds."""
    box = tree(store, usr__bin__cc="cc")
    usr = store.tree(box.digest).get(b"usr")
    root = input_root([("/", box)], ("out",), "/build", store.tree)
    assert isinstance(usr, Directory)
    assert root.own[b"usr"] == usr
    assert isinstance(root.own[b"usr"], Directory)
    assert isinstance(usr.digest, Digest)
