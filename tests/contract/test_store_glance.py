"""A glance sees in a store what the store itself says, and nothing where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reprobuild.adapters.store.glance import Glance
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.record import Record
from support.stores import keep, recorded, tree_of, tree_path

NAME = "ünusual/root name.=result"


def filled(place: Path) -> tuple[LocalStore, Record]:
    """A store with one record and one root."""
    store = LocalStore.open(place, create=True)
    with store.lease():
        record = recorded(store, "demo", tree_of(store, "a", "b"))
        store.barrier()
        keep(store, NAME, record)
    return store, record


@pytest.mark.parametrize("readme", [False, True])
def test_sees_what_the_store_says(tmp_path: Path, readme: bool) -> None:
    place = tmp_path / "store"
    if readme:  # a checkout's store/: the data lies below it
        place.mkdir()
        (place / "README.md").touch()
    store, record = filled(place)
    glance = Glance.into(str(place))
    assert glance is not None
    assert glance.root(NAME) == store.root(NAME) is not None
    assert glance.root("other") is None
    assert glance.has_tree(record.outputs["out"].hex)
    assert not glance.has_tree("0" * 64)
    assert glance.has_realized(record.drv.hex)
    assert not glance.has_realized("0" * 64)
    assert glance.holds(str(store.materialise(record.outputs["out"])))
    assert not glance.holds(f"{store.path}-copy/materialised/x")
    store.close()


def lose_tree(store: LocalStore, record: Record) -> None:
    tree_path(store, record.outputs["out"]).unlink()


def lose_record(store: LocalStore, record: Record) -> None:
    shutil.rmtree(store.path / "records" / record.action.hex)


def cut_choice(store: LocalStore, record: Record) -> None:
    path = store.path / "chosen" / record.drv.hex[:2] / record.drv.hex
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:100])


@pytest.mark.parametrize("lose", [lose_tree, lose_record, cut_choice])
def test_what_is_lost_is_not_seen(
    tmp_path: Path, lose: Callable[[LocalStore, Record], None]
) -> None:
    store, record = filled(tmp_path / "store")
    lose(store, record)
    glance = Glance.into(str(store.path))
    assert glance is not None
    seen = glance.has_tree(record.outputs["out"].hex), glance.has_realized(record.drv.hex)
    assert seen == (lose is not lose_tree, lose is lose_tree)
    store.close()


@pytest.mark.parametrize("text", [None, "", "reprobuild store 1\n", "reprobuild store x\n", "no\n"])
def test_no_store_that_is_known(tmp_path: Path, text: str | None) -> None:
    store, _ = filled(tmp_path / "store")
    format_file = store.path / "format"
    format_file.unlink()
    if text is not None:
        format_file.write_text(text)
    assert Glance.into(str(store.path)) is None
    assert Glance.into(str(tmp_path / "absent")) is None
    store.close()
