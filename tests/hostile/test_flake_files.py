"""Flakes, component files and locks made to hang, exhaust, escape or confuse.

All of them end in an error of exit status 3 whose text can be shown on a terminal. A test that
hangs here is a failure: nothing below may take more than moments.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reprobuild.adapters.toml.load import load_components, load_flake, load_lock, load_project
from reprobuild.adapters.toml.read import MAX_BYTES
from reprobuild.errors import ReprobuildError

GOOD = 'format = 0\n[outputs.demo]\ncomponents = ["app"]\n'
APP = 'result = "components.app.s"\n[steps.s]\nkind = "script"\nrun = "true"\nroot = "inputs.r"\n'


def refused(path: Path) -> ReprobuildError:
    with pytest.raises(ReprobuildError) as caught:
        load_flake(path)
    error = caught.value
    assert error.exit_status == 3
    assert error.message.isprintable()
    assert len(error.message) < 2000
    for fact in error.facts.values():
        texts = fact if isinstance(fact, list) else [fact]
        assert all(len(str(text)) < 2000 and str(text).isprintable() for text in texts)
    return error


def flake(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "flake-like.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# -- what stands in the file's place --------------------------------------------------------


def test_a_directory(tmp_path: Path) -> None:
    (tmp_path / "flake-like.toml").mkdir()
    assert "is a directory" in refused(tmp_path / "flake-like.toml").message


def test_a_fifo_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "flake-like.toml")
    assert "no regular file" in refused(tmp_path / "flake-like.toml").message


def test_a_device_is_not_read() -> None:
    assert "no regular file" in refused(Path("/dev/zero")).message


def test_a_loop_of_links(tmp_path: Path) -> None:
    (tmp_path / "flake-like.toml").symlink_to("other")
    (tmp_path / "other").symlink_to("flake-like.toml")
    assert "symbolic links" in refused(tmp_path / "flake-like.toml").message
    with pytest.raises(ReprobuildError) as caught:
        load_project(tmp_path)
    assert caught.value.code == "E-FLAKE"


def test_a_dangling_link_is_no_missing_lock(tmp_path: Path) -> None:
    flake(tmp_path, "format = 0\n")
    (tmp_path / "flake-like.lock").symlink_to("nowhere")
    with pytest.raises(ReprobuildError) as caught:
        load_project(tmp_path)
    assert caught.value.code == "E-LOCK"


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    path = flake(tmp_path, GOOD)
    monkeypatch.setattr(os, "open", denied)
    assert "permission denied" in refused(path).message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "flake-like.toml").message
    with pytest.raises(ReprobuildError) as caught:
        load_project(tmp_path)
    assert caught.value.code == "E-NO-FLAKE"


def test_a_path_with_a_nul() -> None:
    assert "cannot be read" in refused(Path("a\0b")).message


def test_a_file_that_is_too_big(tmp_path: Path) -> None:
    path = tmp_path / "flake-like.toml"
    with path.open("wb") as file:
        file.truncate(50 * MAX_BYTES)
    assert "larger than 4 MiB" in refused(path).message


def test_a_lock_as_large_as_allowed_is_read(tmp_path: Path) -> None:
    path = tmp_path / "flake-like.lock"
    path.write_text("format = 0\n" + "# padding\n" * ((MAX_BYTES - 11) // 10))
    assert load_lock(path).inputs == {}


# -- text -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        "a = " + "[" * 100_000 + "]" * 100_000,
        "a = " + "{ a = " * 50_000,
        "a = " + "{ a = " * 50_000 + "1" + " }" * 50_000,
        "format = 0\n[outputs.q]\ncomponents = " + "[" * 400 + "]" * 400,
    ],
    ids=["open arrays", "arrays", "open tables", "tables", "arrays in a known place"],
)
def test_deep_nesting(tmp_path: Path, text: str) -> None:
    refused(flake(tmp_path, text))


@pytest.mark.parametrize(
    "text",
    [
        ".".join("a" * 1_000_000) + " = 1",
        "[" + ".".join("a" * 1_000_000) + "]",
        "[[" + ".".join("a" * 1_000_000) + "]]",
        "a = { " + ".".join("a" * 1_000_000) + " = 1 }",
        "a = [" + "{ " + ".".join("b" * 100_000) + " = 1 }," * 2 + "]",
    ],
    ids=["key", "header", "array header", "inline", "inline in an array"],
)
def test_keys_of_very_many_parts(tmp_path: Path, text: str) -> None:
    assert "64 parts" in refused(flake(tmp_path, text)).message


@pytest.mark.parametrize(
    "value",
    ["9" * 100_000, "-" + "9" * 30, "1e999999", "nan", "0x" + "f" * 50_000, "9999-99-99"],
    ids=["digits", "negative", "infinite", "nan", "hexadecimal", "date"],
)
def test_impossible_numbers(tmp_path: Path, value: str) -> None:
    refused(flake(tmp_path, f"format = {value}\n"))


@pytest.mark.parametrize("number", [2**31, 2**53, -(2**53), 10**23, 10**400])
def test_numbers_that_are_too_large_say_where(tmp_path: Path, number: int) -> None:
    error = refused(
        flake(
            tmp_path,
            f'format = 0\n[outputs.o]\ncomponents = ["c"]\n[outputs.o.sources.c]\n'
            f'input = "i"\nheads = [\n  {{ number = 7 }},\n  {{ number = {number} }}]\n',
        )
    )
    assert (error.code, error.facts["line"], error.facts["column"]) == ("E-FLAKE", 8, 14)
    assert error.facts["key"] == "outputs.o.sources.c.heads[1].number"
    assert len(error.message) < 300


def test_a_hundred_thousand_wrong_keys_are_counted(tmp_path: Path) -> None:
    keys = "\n".join(f"k{i} = 1" for i in range(100_000))
    error = refused(flake(tmp_path, f"format = 0\n{keys}\n"))
    assert "unknown key `k0`" in error.message
    assert "(and 99999 more problems)" in error.message
    problems = error.facts["problems"]
    assert isinstance(problems, list)
    assert len(problems) == 20


def test_a_key_of_a_megabyte(tmp_path: Path) -> None:
    refused(flake(tmp_path, "format = 0\n" + "k" * 1_000_000 + " = 1\n"))
    refused(flake(tmp_path, 'format = 0\n"' + "k." * 500_000 + '" = 1\n'))


@pytest.mark.parametrize("place", ["default", "inputs.x.kind", "inputs.x.url", "outputs.q.x"])
def test_values_of_a_megabyte(tmp_path: Path, place: str) -> None:
    refused(flake(tmp_path, f'format = 0\n{place} = "{"v" * 1_000_000}"\n'))


def test_terminal_escapes_do_not_reach_the_terminal(tmp_path: Path) -> None:
    escape = r"\u001b]0;owned\u0007\u001b[2J\u202e"
    for text in (
        f'format = 0\n"{escape}" = 1\n',
        f'format = 0\ndefault = "{escape}"\n',
        f'format = 0\n[inputs."{escape}"]\nkind = "path"\npath = "x"\n',
        f'format = 0\n[inputs.x]\nkind = "{escape}"\n',
        f'format = 0\n[inputs.x]\nkind = "git"\nurl = "{escape}"\nref = "{escape}"\n',
        f'format = 0\n[toolchains.x]\nroot = "{escape}"\n',
        f'format = "{escape}"\n',
        f'format = 0\n[inputs.x]\nkind = "path"\npath = "../{escape}"\n',
    ):
        refused(flake(tmp_path, text))


def test_bytes_that_are_not_text(tmp_path: Path) -> None:
    for data in (b"\xff\xfe", b"\x00" * 100, b"a = '\xc3'\n", bytes(range(256)), b"\xed\xa0\x80"):
        refused(flake(tmp_path, data))


def test_quotes_and_comments_that_never_end(tmp_path: Path) -> None:
    for text in ('a = """' + '"' * 0 + "x\\" * 500_000, "a = '''" + "''" * 500_000, "#" * 10**6):
        refused(flake(tmp_path, text))


@pytest.mark.parametrize(
    "tag", ["{" * 10_000, "{a" * 10_000, "{a.b:" + "9" * 10_000 + "}", "x" * 100_000, "{}", ""]
)
def test_tags(tmp_path: Path, tag: str) -> None:
    text = (
        f'{GOOD}[outputs.demo.image]\n[outputs.demo.release]\ncodename = "c"\nrevision = "r"\n'
        f'date = 2026-01-01\nrepository = "r"\ntag = "{tag}"\n'
    )
    flake(tmp_path, text + '[inputs.r]\nkind = "path"\npath = "root"\n')
    (tmp_path / "derivations").mkdir()
    (tmp_path / "derivations" / "app.toml").write_text(APP)
    with pytest.raises(ReprobuildError) as caught:
        load_project(tmp_path)
    assert caught.value.facts["key"] == "outputs.demo.release.tag"
    assert len(caught.value.message) < 1000


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("url", "--upload-pack=touch /tmp/owned"),
        ("url", "ext::sh -c touch% /tmp/owned"),
        ("url", "https://host/a b"),
        ("url", "fd::17"),
        ("url", "https://host/\\u0000"),
        ("ref", "-x"),
        ("ref", "refs/heads/../../x"),
        ("ref", "refs/heads/a..b"),
        ("ref", "refs/heads/x.lock"),
        ("ref", "refs/heads/a\\nb"),
        ("ref", "HEAD"),
        ("ref", "refs/heads/x:refs/heads/y"),
        ("ref", "+refs/heads/x"),
        ("rev", "HEAD"),
        ("rev", "a" * 39),
        ("rev", "A" * 40),
        ("rev", "a" * 40 + "\\n"),
    ],
)
def test_git_inputs_that_are_options_or_worse(tmp_path: Path, key: str, value: str) -> None:
    fields = {"url": "https://host/x", "ref": "refs/heads/main"} | {key: value}
    body = "".join(f'{k} = "{v}"\n' for k, v in fields.items())
    error = refused(flake(tmp_path, f'format = 0\n[inputs.x]\nkind = "git"\n{body}'))
    assert error.facts["key"] == f"inputs.x.{key}"


@pytest.mark.parametrize(
    "path", ["..", "a/../b", "/etc", "", "a//b", "./a", "a/.", "a\\u0000b", "//x", "/"]
)
def test_paths_that_leave_the_project(tmp_path: Path, path: str) -> None:
    error = refused(flake(tmp_path, f'format = 0\n[inputs.x]\nkind = "path"\npath = "{path}"\n'))
    assert error.facts["key"] == "inputs.x.path"


# -- the directory of components ------------------------------------------------------------


def test_a_file_in_the_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "derivations").write_text("")
    with pytest.raises(ReprobuildError) as caught:
        load_components(tmp_path / "derivations")
    assert caught.value.code == "E-COMPONENT"


def test_a_directory_that_is_a_loop(tmp_path: Path) -> None:
    (tmp_path / "derivations").symlink_to("derivations")
    with pytest.raises(ReprobuildError) as caught:
        load_components(tmp_path / "derivations")
    assert caught.value.code == "E-COMPONENT"


@pytest.mark.parametrize(
    "name", [b"a b.toml", b"\xff.toml", b"a\n.toml", b"\x1b[31m.toml", b"-x.toml", b".toml"]
)
def test_file_names_that_are_no_names(tmp_path: Path, name: bytes) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text(APP)
    with pytest.raises(ReprobuildError) as caught:
        load_components(tmp_path)
    assert caught.value.code == "E-COMPONENT"
    assert caught.value.message.isprintable()


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "app.toml").write_text(APP)
    (tmp_path / "README.md").write_bytes(b"\xff")
    (tmp_path / "app.toml~").write_bytes(b"\xff")
    (tmp_path / "scripts").mkdir()
    assert list(load_components(tmp_path)) == ["app"]


def test_a_component_file_that_is_a_fifo(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "app.toml")
    with pytest.raises(ReprobuildError) as caught:
        load_components(tmp_path)
    assert "no regular file" in caught.value.message


def test_a_long_cycle_is_named(tmp_path: Path) -> None:
    count = 2_000
    flake(tmp_path, "format = 0\n")
    steps = "".join(
        f'[steps.s{i}]\nkind = "join"\nplace = [{{ from = "steps.s{(i + 1) % count}", to = "" }}]\n'
        for i in range(count)
    )
    (tmp_path / "derivations").mkdir()
    (tmp_path / "derivations" / "app.toml").write_text(f'result = "steps.s0"\n{steps}')
    with pytest.raises(ReprobuildError) as caught:
        load_project(tmp_path)
    assert "needs itself: components.app.s0 → components.app.s1 →" in caught.value.message
    assert len(caught.value.message) < 2000
