"""An image over a base with links and special directories, and what must lie there unpacked."""

from __future__ import annotations

import hashlib
import os
import tarfile
from pathlib import Path

from reprobuild.adapters.oci.layout import open_layout, read_layout
from reprobuild.adapters.oci.statement import read_statement
from reprobuild.core import filelist
from reprobuild.core.digest import Digest
from reprobuild.ports import ContentStore
from support.archives import tar_entry
from support.images import foreign_image
from support.released import INSTALLED, released


def base(store: ContentStore) -> Digest:
    """A merged /usr, a 0700 /root, a sticky /tmp."""
    return foreign_image(
        store,
        [[
            tar_entry("lib", kind=tarfile.SYMTYPE, link="usr/lib"),
            tar_entry("usr/lib/libc.so", b"c"),
            tar_entry("root", kind=tarfile.DIRTYPE, mode=0o700),
            tar_entry("tmp", kind=tarfile.DIRTYPE, mode=0o1777),
        ]],
    )  # fmt: skip


def over_base(store: ContentStore) -> Digest:
    files = {**INSTALLED, "lib/demo.so": b"so", "root/.profile": b"x", "opt/secret": b"s",
             "tmp/kept": b"t"}  # fmt: skip
    owners = {"opt/secret": {"mode": "4750", "uid": 12, "gid": 34}}
    return released(store, installed=files, base=base(store), owners=owners)


def check_unpacked(layout: Path, root: Path) -> None:
    """Every listed entry lies there with its content, mode and owner; and what is beneath too."""
    with open_layout(layout) as files:
        inside = read_statement(files, read_layout(files))
    seen = 0
    for listing in inside.files.values():
        for entry in filelist.parse(listing):
            path = root / entry.path.decode()
            found = path.lstat()
            if entry.kind == filelist.LINK:
                assert os.fsencode(path.readlink()) == entry.target
                continue
            assert found.st_mode & 0o7777 == entry.mode, entry
            if os.geteuid() == 0:
                assert (found.st_uid, found.st_gid) == (entry.uid, entry.gid), entry
            if entry.kind != filelist.DIRECTORY:
                seen += 1
                assert hashlib.sha256(path.read_bytes()).hexdigest() == entry.content
    assert seen == len(INSTALLED) + 4 - 1  # one of them is a link
    assert (root / "lib").is_symlink()
    assert (root / "usr/lib/demo.so").read_bytes() == b"so"
    assert (root / "usr/lib/libc.so").read_bytes() == b"c"
    assert (root / "root").stat().st_mode & 0o7777 == 0o700
    assert (root / "tmp").stat().st_mode & 0o7777 == 0o1777
    if os.geteuid() == 0:
        assert (root / "opt/secret").stat().st_mode & 0o7777 == 0o4750
