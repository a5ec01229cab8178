"""`image verify`: an image against the statement inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.builders import builtins
from reprobuild.adapters.oci.delivery import Images
from reprobuild.core.digest import Digest
from reprobuild.errors import ReprobuildError
from support.images import image, layer, quick_image
from support.trees import Given, make

DRV = "blake3:" + "d" * 64


def assemble(store: MemoryStore, **change: Any) -> Digest:
    files: dict[str, Given] = {"opt/demo": b"x"}
    tree = make(store, files)
    row: dict[str, Any] = {
        "name": "demo",
        "drv": DRV,
        "source": {"base": "b" * 40, "integration_tree": "e" * 40},
        **change.get("row", {}),
    }
    document: dict[str, Any] = {
        "format": 0,
        "release": {"reference": "example/quick:v1"},
        "components": [row],
    }
    stated = builtins()["statement"].build(
        {"document": {**document, **change.get("document", {})}, "program": ""},
        {f"tree-{row['name']}": tree},
        store,
    )["out"]
    statement_layer = builtins()["layer"].build({"name": "statement"}, {"tree": stated}, store)
    labels = {
        "p.demo.drv": DRV,
        "p.demo.commit": "b" * 40,
        "p.demo.integration.tree": "e" * 40,
        "org.opencontainers.image.version": "v1",
        **change.get("labels", {}),
    }
    layers = {"demo": layer(store, files), "statement": statement_layer}
    return image(
        store,
        layers,
        config={"labels": {k: v for k, v in labels.items() if v}},
        tree_labels=change.get("tree_labels", {"p.demo.tree": "tree-0"}),
    )


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path / "store")


def test_an_image_that_is_what_it_says(store: MemoryStore) -> None:
    facts, components = Images().verify(store.materialise(assemble(store)))
    assert (len(facts.layers), components) == (2, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": {"p.demo.drv": "blake3:" + "0" * 64}}, "p.demo.drv"),
        ({"labels": {"p.demo.commit": ""}}, "there is no label ….demo.commit"),
        ({"labels": {"p.demo.integration.tree": "f" * 40}}, "p.demo.integration.tree"),
        ({"tree_labels": {"p.demo.tree": "tree-1"}}, "p.demo.tree"),
        ({"tree_labels": {}}, "there is no label ….demo.tree"),
        ({"labels": {"org.opencontainers.image.version": "v2"}}, "version v2"),
        ({"row": {"name": "other"}}, "no layer of the component other"),
        ({"document": {"format": 1}}, "is off"),
        ({"document": {"release": 1}}, "is off"),
    ],
    ids=str,
)
def test_an_image_that_is_not(store: MemoryStore, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ReprobuildError) as error:
        Images().verify(store.materialise(assemble(store, **change)))
    assert error.value.code == "E-IMAGE-VERIFY"
    assert message in error.value.message


def test_an_image_without_a_statement(store: MemoryStore) -> None:
    with pytest.raises(ReprobuildError) as error:
        Images().verify(store.materialise(quick_image(store)))
    assert error.value.code == "E-IMAGE-VERIFY"
    assert "statement.json" in error.value.message


def test_saving_where_nothing_can_be_written(store: MemoryStore, tmp_path: Path) -> None:
    layout = store.materialise(quick_image(store))
    with pytest.raises(ReprobuildError) as error:
        Images().save(layout, tmp_path / "no/such/place.tar")
    assert error.value.code == "E-IMAGE-WRITE"
