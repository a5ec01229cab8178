"""What the call and its surroundings decide."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reprobuild.errors import ReprobuildError
from reprobuild.settings import Settings


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "flake-like.toml").write_text("format = 0\n")
    (tmp_path / "deep/er").mkdir(parents=True)
    return tmp_path


def test_flake_is_found_upwards(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project / "deep/er")
    assert Settings().flake_dir == project


def test_a_directory_that_is_named_is_taken_as_it_is(project: Path) -> None:
    assert Settings(directory=project).flake_dir == project
    with pytest.raises(ReprobuildError) as caught:
        _ = Settings(directory=project / "deep").flake_dir
    assert caught.value.code == "E-NO-FLAKE"
    assert caught.value.facts["directory"] == str(project / "deep")


def test_where_the_store_is(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    named = {"REPROBUILD_STORE": "elsewhere"}
    assert Settings(environment={}).store_path == project / "store"
    assert Settings(environment=named).store_path == project / "elsewhere"
    assert Settings(environment=named, store=Path("mine")).store_path == project / "mine"
    assert Settings(environment={"REPROBUILD_STORE": ""}).store_path == project / "store"


def test_where_the_configuration_is() -> None:
    def place(**environment: str) -> str:
        return str(Settings(environment=environment).config_file)

    assert place(HOME="/h") == "/h/.config/reprobuild/config.toml"
    assert place(HOME="/h", XDG_CONFIG_HOME="/x") == "/x/reprobuild/config.toml"
    assert place(HOME="/h", XDG_CONFIG_HOME="/x", REPROBUILD_CONFIG="/c.toml") == "/c.toml"


def test_configuration(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    settings = {"REPROBUILD_CONFIG": str(path)}
    assert Settings(environment=settings).config == {}
    path.write_text('[mirrors]\n"https://a/" = "file:///b/"\n')
    assert Settings(environment=settings).config == {"mirrors": {"https://a/": "file:///b/"}}


@pytest.mark.parametrize(
    "content",
    [
        b"[mirrors",
        b"\xff\xfe",
        b"[mirrors]\na = 1\na = 2\n",
        b"[mirors]\n",
        b"#" * 2**21,
    ],
)
def test_configuration_that_is_off(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(content)
    with pytest.raises(ReprobuildError) as caught:
        _ = Settings(environment={"REPROBUILD_CONFIG": str(path)}).config
    assert caught.value.code == "E-CONFIG"
    assert caught.value.facts["file"] == str(path)


@pytest.mark.parametrize("what", ["/dev/zero", "fifo"])
def test_configuration_that_is_no_file(tmp_path: Path, what: str) -> None:
    path = tmp_path / "config.toml"
    os.mkfifo(path) if what == "fifo" else path.symlink_to(what)
    with pytest.raises(ReprobuildError, match="no plain file"):
        _ = Settings(environment={"REPROBUILD_CONFIG": str(path)}).config


def test_a_store_whose_path_is_not_utf8_is_refused() -> None:
    for settings in (
        Settings(store=Path("/tmp/\udcff"), environment={}),
        Settings(environment={"REPROBUILD_STORE": "/tmp/\udcff"}),
    ):
        with pytest.raises(ReprobuildError) as caught:
            _ = settings.store_path
        assert caught.value.exit_status == 2
        assert "\\xff" in caught.value.message
