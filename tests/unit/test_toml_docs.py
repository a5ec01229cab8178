"""docs/language.md: its example loads, its lock is canonical, and its reference is complete."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

import reprobuild
from reprobuild.adapters.git.fixture import read_fixture
from reprobuild.adapters.toml.load import load_flake, load_lock, load_project
from reprobuild.adapters.toml.render_lock import render_lock
from reprobuild.adapters.toml.shape import keys
from reprobuild.core import component, flake, lock
from reprobuild.errors import ReprobuildError

ROOT = Path(reprobuild.__file__).parents[2]
TEXT = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```toml (?P<file>\S+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> Iterator[tuple[str, str]]:
    for match in BLOCK.finditer(TEXT):
        yield match["file"], match["text"]


@pytest.fixture
def example(tmp_path: Path) -> Path:
    for name, text in blocks():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for overlay in ("base", "seven", "nine"):
        (tmp_path / "fixtures" / "scale" / overlay / "csrc").mkdir(parents=True)
        (tmp_path / "fixtures" / "scale" / overlay / "csrc" / "scale.cu").write_text("")
    return tmp_path


def test_the_example_is_a_sound_project(example: Path) -> None:
    project = load_project(example)
    assert sorted(project.components) == ["build-root", "cuda", "runtime", "scale"]
    assert project.flake.default == "demo"
    assert sorted(project.texts) == sorted(
        name for name, _ in blocks() if not name.startswith("fixtures/")
    )
    assert project.lock is not None


def test_the_examples_lock_is_canonical(example: Path) -> None:
    path = example / "flake-like.lock"
    assert render_lock(load_lock(path)) == path.read_text(encoding="utf-8")


def test_the_examples_fixture_is_one(example: Path) -> None:
    commits = read_fixture(example / "fixtures" / "scale")
    assert [commit.id for commit in commits] == ["base", "seven", "nine"]


def test_the_message_that_is_shown_is_the_message_that_comes(tmp_path: Path) -> None:
    path = tmp_path / "flake-like.toml"
    path.write_text(
        "format = 0\n" + "\n" * 7 + '[inputs.vllm]\nkind = "git"\nurl = "https://h/x"\n'
        'reff = "refs/heads/main"\n'
    )
    with pytest.raises(ReprobuildError) as caught:
        load_flake(path)
    assert f"```\n{caught.value.message}\n```" in TEXT


def section(heading: str) -> str:
    """The text below a heading, down to the next one."""
    parts = re.split(r"^#{2,6} (.+)$", TEXT, flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    return found[heading]


SECTIONS: list[tuple[str, type[BaseModel]]] = [
    ("The flake", flake.Flake),
    ("The flake", flake.Part),
    ("Policy", flake.Policy),
    ("Input kind `git`", flake.GitInput),
    ("Input kind `fixture`", flake.FixtureInput),
    ("Input kind `wheel`", flake.WheelInput),
    ("Input kind `sdist`", flake.SdistInput),
    ("Input kind `deb`", flake.DebInput),
    ("Input kind `url`", flake.UrlInput),
    ("Input kind `oci`", flake.OciInput),
    ("Input kind `path`", flake.PathInput),
    ("Toolchains", flake.Toolchain),
    ("Outputs", flake.Output),
    ("Release", flake.Release),
    ("Image", flake.ImageConfig),
    ("Sources", flake.Source),
    ("Sources", flake.Head),
    ("Sources", flake.SourcePatch),
    ("Sources", flake.Exclusion),
    ("Component files", component.Component),
    ("Step kind `unpack`", component.UnpackStep),
    ("Step kind `rootfs`", component.RootfsStep),
    ("Step kind `join`", component.JoinStep),
    ("Places", component.Place),
    ("Step kind `script`", component.ScriptStep),
    ("Step kind `python-wheel`", component.PythonWheelStep),
    ("Step kind `wheel-install`", component.WheelInstallStep),
    ("Step kind `cuda-module`", component.CudaModuleStep),
    ("Units", component.Unit),
    ("Step kind `template`", component.TemplateStep),
    ("Files of a template step", component.Rendered),
    ("Kernel checks", component.KernelCheck),
    ("The image table", component.Layer),
    ("The image table", component.Owner),
    ("The lock", lock.Lock),
    ("Pin kinds `wheel`, `sdist`, `deb`, `url`", lock.FilesPin),
    ("Pin kinds `wheel`, `sdist`, `deb`, `url`", lock.PinnedFile),
    ("Pin kinds `git`, `fixture`", lock.GitPin),
    ("Pin kind `path`", lock.PathPin),
    ("Pin kind `oci`", lock.OciPin),
    ("Pinned units", lock.PinnedUnits),
    ("Pinned sources", lock.PinnedOutput),
    ("Pinned sources", lock.PinnedSource),
    ("Pinned sources", lock.PinnedHead),
    ("Pinned sources", lock.PinnedResolution),
]


@pytest.mark.parametrize(
    ("heading", "model"), SECTIONS, ids=[model.__name__ for _, model in SECTIONS]
)
def test_every_key_is_described(heading: str, model: type[BaseModel]) -> None:
    text = section(heading)
    assert [key for key in keys(model) if f"`{key}`" not in text] == []


def test_every_model_is_described() -> None:
    """A model that someone adds to the language belongs into the list above."""
    known = {model for _, model in SECTIONS}
    for module in (flake, component, lock):
        for name, value in vars(module).items():
            if (
                isinstance(value, type)
                and issubclass(value, BaseModel)
                and value.__module__ == module.__name__
                and not name.startswith("_")
            ):
                assert value in known, name


def test_links_inside_the_page_lead_somewhere() -> None:
    anchors = {
        re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#{1,6} (.+)$", TEXT, flags=re.MULTILINE)
    }
    assert {a for a in re.findall(r"\]\(#([^)]+)\)", TEXT) if a not in anchors} == set()
