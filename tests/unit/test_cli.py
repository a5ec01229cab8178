"""The command line in process: parsing, help, and how errors are shown."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import click
import pytest

from reprobuild.cli.main import COMMANDS, error_text, run
from reprobuild.cli.options import parse_memory, parse_size, split_directory
from reprobuild.errors import ReprobuildError


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_is_there_and_explains_itself(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    module, _, attribute = COMMANDS[name].partition(":")
    command = getattr(import_module(f"reprobuild.cli.{module}"), attribute)
    assert isinstance(command, click.Command)
    assert run([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"reprobuild {name}" in out
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts[0]} says nothing"


def test_help_names_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in COMMANDS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("reprobuild ")


@pytest.mark.parametrize(
    "argv",
    [[], ["--nothing"], ["-C"], ["nothing"], ["store"], ["store", "nothing"], ["realize", "--jobs"],
     ["realize", "-j", "x"], ["--quiet", "--verbose", "show"], ["why", "demo"],
     ["realize", "--isolation", "some"]],
)  # fmt: skip
def test_off_words_are_status_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(argv) == 2
    captured = capsys.readouterr()
    assert captured.err
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["--quiet", "--verbose", "key", "show"], "see `reprobuild key show --help`"),
        (["nothing"], "see `reprobuild --help`"),
        (["store", "--nothing"], "see `reprobuild store --help`"),
        (
            ["key", "list"],
            "there are generate, revoke, rotate, show, trust; see `reprobuild key --help`",
        ),
    ],
    ids=" ".join,
)
def test_off_words_are_led_to_the_help(
    argv: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"hint: {hint}"


def test_off_words_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--json", "realize", "--nothing"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "E-USAGE"
    assert set(error) == {"code", "message", "facts", "hint"}


def test_a_bug_says_that_it_is_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from reprobuild.app import App

    def broken(self: Any) -> None:
        raise ZeroDivisionError("deep inside")

    monkeypatch.setattr(App, "project", property(broken))
    assert run(["--json", "show"]) == 70
    captured = capsys.readouterr()
    error = json.loads(captured.out)["error"]
    assert error["code"] == "E-BUG"
    assert "deep inside" in error["message"]
    assert "Traceback" in captured.err


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, click.Abort])
def test_interruption_is_130(
    monkeypatch: pytest.MonkeyPatch, interrupt: type[BaseException]
) -> None:
    from reprobuild.app import App

    def stopped(self: Any) -> None:
        raise interrupt

    monkeypatch.setattr(App, "project", property(stopped))
    assert run(["show"]) == 130


def test_text_of_an_error() -> None:
    error = ReprobuildError(
        "E-BUILD-FAILED",
        "demo.step ended with status 1",
        hint="read it",
        log="/logs/a.log",
        tail=["one", "two"],
        names=["x", "y"],
        nothing=None,
        none=[],
        codes=["E-OFFLINE"],
    )
    assert error_text(error).splitlines() == [
        "error: demo.step ended with status 1  [E-BUILD-FAILED]",
        "  log: /logs/a.log",
        "  names:",
        "    x",
        "    y",
        "  the log ends with:",
        "    | one",
        "    | two",
        "hint: read it",
    ]


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("8G", 8 * 2**30), ("512MiB", 512 * 2**20), ("1.5k", 1536), ("2 TB", 2**41)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1", "1X", "1GG", "1e9", "0x10", "nan"])
def test_sizes_that_are_off(text: str) -> None:
    with pytest.raises(ReprobuildError) as caught:
        parse_size(text)
    assert caught.value.code == "E-USAGE"


@pytest.mark.parametrize("text", ["1", "0", "15M"])
def test_memory_for_no_build(text: str) -> None:
    with pytest.raises(ReprobuildError, match="less than any build takes"):
        parse_memory(text)


def test_directory_before_the_hash() -> None:
    assert split_directory("demo") == (None, "demo")
    assert split_directory("#demo") == ("", "demo")
    assert split_directory("a/b#demo.x") == ("a/b", "demo.x")
    assert split_directory("a#b#demo") == ("a#b", "demo")
