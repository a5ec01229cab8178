"""A base image as a root file system; and whiteouts in layers over it."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.builders import builtins
from reprobuild.core.digest import Digest
from reprobuild.errors import ReprobuildError
from support.archives import tar_entry
from support.images import foreign_image, image, layer
from support.trees import listing

DIR, LINK, HARD = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "store")


def rootfs(store: MemoryStore, layout: Digest) -> dict[str, object]:
    out = builtins()["oci-rootfs"].build({}, {"base-0": layout}, store)["out"]
    return dict(listing(store, out))


def base(store: MemoryStore) -> Digest:
    """Two layers over a merged /usr, with whiteouts, links and what cannot be kept."""
    return foreign_image(
        store,
        [
            [
                tar_entry("usr/", kind=DIR),
                tar_entry("usr/lib/libc.so", b"c"),
                tar_entry("usr/bin/tool", b"t", mode=0o755),
                tar_entry("lib", kind=LINK, link="usr/lib"),
                tar_entry("gone", b"x"),
                tar_entry("old/a", b"a"),
                tar_entry("old/b", b"b"),
                tar_entry("dev/null", kind=tarfile.CHRTYPE),
            ],
            [
                tar_entry(".wh.gone"),
                tar_entry("old/.wh..wh..opq"),
                tar_entry("old/c", b"c"),
                tar_entry("lib/more.so", b"m"),
                tar_entry("usr/bin/twin", kind=HARD, link="usr/bin/tool"),
            ],
        ],
    )


def test_layers_one_over_the_other(store: MemoryStore) -> None:
    assert rootfs(store, base(store)) == {
        "lib": "usr/lib",
        "old/c": b"c",
        "usr/bin/tool": (b"t", True),
        "usr/bin/twin": (b"t", True),
        "usr/lib/libc.so": b"c",
        "usr/lib/more.so": b"m",
    }


def test_a_layer_that_is_off(store: MemoryStore) -> None:
    for entries in ([tar_entry("../x", b"")], [tar_entry("a", kind=HARD, link="missing")]):
        layout = foreign_image(store, [entries])
        with pytest.raises(ReprobuildError) as error:
            rootfs(store, layout)
        assert error.value.code.startswith("E-ARCHIVE")


def test_links_never_leave_the_root(store: MemoryStore) -> None:
    layout = foreign_image(
        store,
        [[tar_entry("up", kind=LINK, link="../../../etc"), tar_entry("up/passwd", b"x"),
          tar_entry("loop", kind=LINK, link="loop")]],
    )  # fmt: skip
    found = rootfs(store, layout)
    assert found["etc/passwd"] == b"x"
    bad = foreign_image(
        store, [[tar_entry("loop", kind=LINK, link="loop"), tar_entry("loop/x", b"")]]
    )
    with pytest.raises(ReprobuildError) as error:
        rootfs(store, bad)
    assert "loop" in error.value.message


# -- whiteouts of ours ----------------------------------------------------------------------------


def test_what_is_removed_is_gone(store: MemoryStore) -> None:
    lower = base(store)
    own = layer(
        store,
        {"usr/lib/new.so": b"n", "old/c": b"other"},
        {"base-0": lower},
        name="own",
        remove=["lib/libc.so", "old"],
    )
    found = listing(store, own["tree"])
    assert found["usr/lib/.wh.libc.so"] == b""
    assert found["old/.wh..wh..opq"] == b""
    whole = rootfs(store, image(store, {"own": own}, {"base-0": lower}))
    assert "usr/lib/libc.so" not in whole
    assert {k: v for k, v in whole.items() if k.startswith("old")} == {"old/c": b"other"}
    assert whole["usr/lib/new.so"] == b"n"


def test_removing_makes_room_for_another_kind(store: MemoryStore) -> None:
    lower = base(store)
    with pytest.raises(ReprobuildError) as error:
        layer(store, {"old": b"a file"}, {"base-0": lower}, name="own")
    assert error.value.code == "E-IMAGE-OVERLAP"
    own = layer(store, {"old": b"a file"}, {"base-0": lower}, name="own", remove=["old"])
    whole = rootfs(store, image(store, {"own": own}, {"base-0": lower}))
    assert whole["old"] == b"a file"


def test_nothing_to_remove(store: MemoryStore) -> None:
    with pytest.raises(ReprobuildError) as error:
        layer(store, {"x": b""}, {"base-0": base(store)}, name="own", remove=["no/such"])
    assert error.value.code == "E-PARAMS"
    assert "no/such" in error.value.message
