"""Labels, tag values and the statement: literal functions of what is known before a build."""

from __future__ import annotations

import datetime
from dataclasses import replace
from typing import Any

import pytest

from reprobuild.core.digest import Digest
from reprobuild.core.encoding import encode
from reprobuild.core.flake import Flake, Output
from reprobuild.core.kinds.labels import (
    ComponentFacts,
    SourceFacts,
    compact,
    release_labels,
    statement,
    tag_values,
)

DRV = Digest("11" * 32)
SOURCE = SourceFacts(
    repository="https://git.example.org/app",
    ref="refs/heads/main",
    base="a" * 40,
    tree="b" * 40,
    strategy="merge",
    heads=[(9, "c" * 40, "merged", "Second, first"), (7, "d" * 40, "already_in_base", "First")],
    patch_sha256="e" * 64,
    patch_digest="f" * 64,
)
APP = ComponentFacts("app", "1.0", DRV, SOURCE, paths=["opt/app"], archs=["sm_120a"])
PLAIN = ComponentFacts("tool", "", DRV)


def output(**release: Any) -> Output:
    facts = {
        "codename": "demo",
        "revision": "r1",
        "date": datetime.date(2026, 7, 29),
        "repository": "registry.example.org/demo",
        "label-prefix": "org.example",
        "tag": "{codename}",
        "runtime": {"cuda": "13.3"},
        **release,
    }
    flake = Flake.model_validate(
        {
            "format": 0,
            "outputs": {
                "demo": {
                    "components": ("app", "tool"),
                    "release": facts,
                    "image": {"labels": {"com.example.team": "serving"}},
                }
            },
        },
        by_name=False,
    )
    return flake.outputs["demo"]


def labels(
    *components: ComponentFacts, dirty: tuple[str, ...] = (), **release: Any
) -> dict[str, str]:
    reference = "registry.example.org/demo:demo-x"
    return release_labels(output(**release), components, reference, dirty)


def test_heads_are_in_the_order_applied_with_what_happened() -> None:
    found = labels(APP)
    assert found["org.example.app.integration.prs"] == "9,7"
    assert found["org.example.app.integration.heads"] == (
        f"9@{'c' * 40}:merged,7@{'d' * 40}:already_in_base"
    )


def test_every_component_has_base_tree_and_drv() -> None:
    found = labels(APP, PLAIN)
    assert found["org.example.app.commit"] == "a" * 40
    assert found["org.example.app.integration.tree"] == "b" * 40
    assert found["org.example.app.drv"] == found["org.example.tool.drv"] == str(DRV)
    assert found["org.example.release.components"] == "app,tool"
    assert "org.example.tool.version" not in found
    assert "org.example.tool.commit" not in found


@pytest.mark.parametrize(
    "change",
    [
        {"repository": "x"}, {"ref": "x"}, {"base": "x"}, {"tree": "x"}, {"strategy": "x"},
        {"heads": ()}, {"patch_sha256": "x"}, {"patch_digest": "x"},
    ],
)  # fmt: skip
def test_any_fact_of_a_source_is_in_labels_and_statement(change: dict[str, Any]) -> None:
    other = replace(APP, source=replace(SOURCE, **change))
    assert labels(other) != labels(APP)
    documents = [statement("demo", output(), [facts], "r") for facts in (APP, other)]
    assert encode(documents[0]) != encode(documents[1])


def test_required_isolation_and_own_labels() -> None:
    assert labels()["org.example.isolation.required"] == "full"
    assert labels(isolation="none")["org.example.isolation.required"] == "none"
    assert labels()["com.example.team"] == "serving"


def test_dirty_is_said_only_when_it_is() -> None:
    assert "org.example.dirty" not in labels(APP)
    assert labels(APP, dirty=("b", "a"))["org.example.dirty"] == "a,b"


def test_created_is_the_releases_date() -> None:
    found = labels(date=datetime.date(2026, 1, 2))
    assert found["org.opencontainers.image.created"] == "2026-01-02T00:00:00Z"
    assert found["org.opencontainers.image.version"] == "demo-x"


def test_tag_values() -> None:
    release = output().release
    assert release is not None
    values = tag_values(release, [APP, PLAIN])
    assert values["date"] == "20260729"
    early = release.model_copy(update={"date": datetime.date(1, 1, 1)})
    assert tag_values(early, [])["date"] == "00010101"
    assert (values["cuda"], values["cuda.version"]) == ("133", "13.3")
    assert values["app.tree"] == "b" * 40
    assert "tool.tree" not in values


@pytest.mark.parametrize(("version", "short"), [("13.3", "133"), ("2.13.0", "213"), ("7", "7")])
def test_compact(version: str, short: str) -> None:
    assert compact(version) == short
