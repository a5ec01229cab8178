"""The set-up scripts: what they install, leave alone, and say when they cannot."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support.quickstart import PROJECT

SCRIPT = PROJECT / "scripts" / "debian-packages"


class Machine:
    """A directory of commands that is all a script finds, with an apt-get that only remembers."""

    def __init__(self, base: Path) -> None:
        self.bin = base / "bin"
        self.calls = base / "calls"
        self.lists = base / "lists"
        self.bin.mkdir()
        self.lists.mkdir()
        self.calls.touch()
        for tool in ("cat", "dirname", "env", "id", "mktemp", "rm", "sh"):
            found = shutil.which(tool)
            assert found is not None
            (self.bin / tool).symlink_to(found)

    def command(self, name: str, text: str = "exit 0") -> None:
        """Makes a command."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def apt(self, *, update: int = 0, install: int = 0) -> None:
        """An apt-get with these exit statuses."""
        self.command(
            "apt-get",
            f'echo "$*" >> {self.calls}\ncase "$*" in\n'
            f'  *" update"*) echo "no archive" >&2; exit {update} ;;\n'
            f'  *) echo "E: cannot" >&2; exit {install} ;;\nesac',
        )

    def run(self, *lists: str) -> subprocess.CompletedProcess[str]:
        """Runs the script over lists with these texts."""
        paths = []
        for number, text in enumerate(lists):
            paths.append(self.lists / f"{number}.txt")
            paths[-1].write_text(text)
        # The script adds the directories of administrators' commands; here they stay away.
        text = re.sub(r"(?m)^PATH=.*\n", "", SCRIPT.read_text())
        return subprocess.run(
            [str(self.bin / "sh"), "-c", text, str(SCRIPT), *map(str, paths)],
            env={"PATH": str(self.bin), "TMPDIR": str(self.lists)},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    def installs(self) -> list[list[str]]:
        """The packages of each install that was asked for."""
        rows = [line.split() for line in self.calls.read_text().splitlines()]
        return [row[row.index("install") + 2 :] for row in rows if "install" in row]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_nothing_is_asked_of_apt_where_all_is_there(machine: Machine) -> None:
    machine.apt()
    machine.command("bwrap")
    done = machine.run("# what is needed\n\nbubblewrap bwrap\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert machine.calls.read_text() == ""


def test_only_what_is_missing_is_installed(machine: Machine) -> None:
    machine.apt()
    machine.command("bwrap")
    machine.command("id", "echo 0")
    done = machine.run("bubblewrap bwrap\ngpgv gpgv\n", "docker.io dockerd\nmake\n")
    assert done.returncode == 0, done.stderr
    assert machine.installs() == [["gpgv", "docker.io", "make"]]
    # update comes first, and neither asks questions
    assert [("update" in line) for line in machine.calls.read_text().splitlines()] == [True, False]
    assert all(" -y " in f" {line} " for line in machine.calls.read_text().splitlines())


def test_an_index_that_cannot_be_renewed_is_no_end(machine: Machine) -> None:
    machine.apt(update=100)
    machine.command("id", "echo 0")
    done = machine.run("gpgv gpgv\n")
    assert done.returncode == 0
    assert "no archive" in done.stderr
    assert machine.installs() == [["gpgv"]]


def test_a_failed_install_shows_why(machine: Machine) -> None:
    machine.apt(install=100)
    machine.command("id", "echo 0")
    done = machine.run("gpgv gpgv\n")
    assert done.returncode == 10
    assert "E: cannot" in done.stderr
    assert "could not install gpgv" in done.stderr
    assert list(machine.lists.glob("tmp*")) == []


def test_an_ordinary_user_goes_through_sudo(machine: Machine) -> None:
    machine.apt()
    machine.command("id", "echo 1000")
    machine.command(
        "sudo", f'echo "sudo $*" >> {machine.calls}\n[ "$1" != -n ] || shift\nexec "$@"'
    )
    assert machine.run("gpgv gpgv\n").returncode == 0
    # without a terminal it must not wait for a password
    assert machine.calls.read_text().startswith("sudo -n env ")
    assert machine.installs()[-1] == ["gpgv"]


@pytest.mark.parametrize(
    ("apt", "user", "said"),
    [(True, 1000, "apt-get install gpgv"), (False, 0, "no apt-get"), (False, 1000, "no apt-get")],
)
def test_where_it_cannot_it_says_what_is_missing(
    machine: Machine, apt: bool, user: int, said: str
) -> None:
    if apt:
        machine.apt()
    machine.command("id", f"echo {user}")
    done = machine.run("gpgv gpgv\n")
    assert done.returncode == 10
    assert said in done.stderr
    assert "gpgv" in done.stderr
    assert machine.calls.read_text() == ""


def test_every_requirement_is_pinned_and_hashed() -> None:
    for name in ("run.txt", "dev.txt"):
        text = (PROJECT / "requirements" / name).read_text()
        entries = re.split(r"(?m)^(?=[a-z0-9])", text)
        assert len(entries) > 10
        for entry in filter(str.strip, entries):
            assert re.match(r"[a-z0-9._-]+==\S+", entry), entry[:80]
            assert "--hash=sha256:" in entry, entry[:80]
        assert "://" not in text  # where to fetch from is the user's choice


def test_requirements_hold_what_the_project_declares() -> None:
    import tomllib

    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["dependencies"]
    pinned = set(
        re.findall(r"(?m)^([a-z0-9._-]+)==", (PROJECT / "requirements/run.txt").read_text())
    )
    for row in declared:
        name = re.split(r"[<>=!~ \[]", row)[0].lower()
        assert name in pinned, f"{name}: run `make requirements`"


def test_clean_leaves_the_store_alone(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for kept in ("store/blobs/aa/x", "src/reprobuild/__init__.py"):
        (checkout / kept).parent.mkdir(parents=True, exist_ok=True)
        (checkout / kept).write_text("kept")
    (checkout / "tests/__pycache__").mkdir(parents=True)
    (checkout / ".venv/bin").mkdir(parents=True)
    shutil.copy(PROJECT / "Makefile", checkout)
    subprocess.run(["make", "clean"], cwd=checkout, check=True, stdin=subprocess.DEVNULL)
    left = sorted(str(p.relative_to(checkout)) for p in checkout.rglob("*") if p.is_file())
    assert left == ["Makefile", "src/reprobuild/__init__.py", "store/blobs/aa/x"]
    assert not (checkout / ".venv").exists()


def test_scripts_are_executable_by_everyone() -> None:
    for path in (SCRIPT, PROJECT / "scripts/virtual-environment", PROJECT / ".ci/run"):
        assert path.stat().st_mode & 0o111 == 0o111
