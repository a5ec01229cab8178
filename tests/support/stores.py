"""A real store filled with little, looked into, and damaged as a failing disk would."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.derivation import Derivation
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import encode
from reprobuild.core.record import Record
from reprobuild.core.tree import Directory, Entry, File, Tree
from reprobuild.errors import ReprobuildError


def put(store: LocalStore, data: bytes, executable: bool = False) -> File:
    """A blob."""
    return store.add_blob(io.BytesIO(data), executable=executable)


def tree_of(store: LocalStore, *names: str, below: Digest | None = None) -> Digest:
    """A tree of files that hold their own names, with the tree `below` as a directory."""
    entries: dict[bytes, Entry] = {n.encode(): put(store, n.encode()) for n in names}
    if below is not None:
        entries[b"below"] = Directory(below)
    tree = Tree.of(entries)
    store.add_trees({tree.digest: tree})
    return tree.digest


def recorded(store: LocalStore, name: str, tree: Digest, **fields: int) -> Record:
    """`tree` as what the derivation `name` was built to, chosen."""
    drv = Derivation(name=name, builder="builtin:join")
    store.add_derivations({drv.digest: encode(drv.document())})
    action = Digest.of(name.encode())
    record = Record(action, drv.digest, {"out": tree}, name=name, **fields)  # type: ignore[arg-type]
    store.add_record(record)
    store.choose(drv.digest, record)
    return record


def keep(store: LocalStore, root: str, *records: Record) -> None:
    """A root that keeps records, their derivations and their trees."""
    document = {
        "drvs": sorted(r.drv.hex for r in records),
        "records": sorted(f"{r.action.hex}/{r.digest.hex}" for r in records),
        "trees": sorted(t.hex for r in records for t in r.outputs.values()),
    }
    store.set_root(root, encode({"keep": document}))


def blob_path(store: LocalStore, digest: Digest, suffix: str = "") -> Path:
    """The file of a blob."""
    return store.path / "blobs" / digest.hex[:2] / (digest.hex + suffix)


def tree_path(store: LocalStore, digest: Digest) -> Path:
    """The file of a directory node."""
    return store.path / "trees" / digest.hex[:2] / digest.hex


def refused(code: str, call: Callable[[], object]) -> ReprobuildError:
    """The error of a call that must fail with `code`."""
    with pytest.raises(ReprobuildError) as error:
        call()
    assert error.value.code == code, error.value
    return error.value


def overwrite(path: Path, data: bytes) -> None:
    """Changes a file in place, as a failing disk would: mode and mtime stay."""
    before = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()
    path.chmod(stat.S_IMODE(before.st_mode))
    os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))


def flip(path: Path) -> None:
    """Another byte in the middle, with size, mode and times as before."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    overwrite(path, bytes(data))
