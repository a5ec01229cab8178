"""A small real project for tests of the command as a process.

Its root file system is Debian's static busybox and nothing else. Three components make an image:

* `header` – a fixture repository with heads; its step drops comment lines, as a compiler would,
* `program` – a path input, put together with what `header` made,
* `notes` – a path input that nothing else uses.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

BUSYBOX = Path("/bin/busybox")
APPLETS = ("sh", "cat", "cp", "echo", "env", "grep", "head", "ls", "mkdir", "sed", "sleep", "sort",
           "dd", "test", "touch", "tr", "true", "wc", "yes")  # fmt: skip

COMMAND = "from reprobuild.cli.main import entry; entry()"

needs_sandbox = pytest.mark.skipif(
    shutil.which("bwrap") is None or not BUSYBOX.exists(),
    reason="bubblewrap or busybox-static is not installed",
)

FLAKE = """\
format = 0
default = "demo"

[inputs.box]
kind = "path"
path = "root"

[inputs.header]
kind = "fixture"
path = "fixtures/header"

[inputs.program]
kind = "path"
path = "program"

[inputs.notes]
kind = "path"
path = "notes"

[toolchains.box]
root = "inputs.box"

[outputs.demo]
components = ["header", "program", "notes"]
toolchain = "box"

[outputs.demo.release]
codename = "demo"
revision = "r1"
date = 2026-01-02
repository = "example.org/demo"
label-prefix = "org.example"
tag = "{codename}-header{header.tree:7}-{date}-{revision}"

[outputs.demo.image]
entrypoint = ["/opt/program"]

[outputs.demo.sources.header]
input = "header"
heads = [{ number = 1, title = "Taken already" }, { number = 2, title = "One more line" }]
"""

COMPONENTS = {
    "header": """\
version = "1.0"
input = "header"
result = "steps.strip"

[steps.strip]
kind = "script"
inputs = { source = "source" }
run = '''
echo stripping
grep -v '^#' /inputs/source/header.txt > $out/header.txt
'''

[image]
place = [{ from = "steps.strip", to = "opt/include" }]
""",
    "program": """\
version = "2.0"
input = "program"
result = "steps.compile"

[steps.compile]
kind = "script"
inputs = { source = "source", header = "components.header" }
run = '''
cat /inputs/header/header.txt /inputs/source/main.txt > $out/program
echo compiled
'''

[image]
place = [{ from = "steps.compile", to = "opt" }]
""",
    "notes": """\
version = "3.0"
input = "notes"
result = "steps.copy"

[steps.copy]
kind = "script"
inputs = { source = "source" }
run = "cp /inputs/source/*.txt $out/"

[image]
place = [{ from = "steps.copy", to = "usr/share/notes" }]
""",
}

REPOSITORY = """\
format = 0

[[commit]]
id = "start"
refs = ["refs/pull/1/head"]
message = "Start"
date = 2026-01-01T00:00:00Z
files = "start"

[[commit]]
id = "main"
parents = ["start"]
refs = ["refs/heads/main"]
message = "Go on"
date = 2026-01-02T00:00:00Z
files = "main"

[[commit]]
id = "pull-2"
parents = ["start"]
refs = ["refs/pull/2/head"]
message = "One more line"
date = 2026-01-03T00:00:00Z
files = "pull-2"
"""


@dataclass(frozen=True)
class Ran:
    """A finished command."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The JSON document on standard output."""
        loaded = json.loads(self.out)
        assert isinstance(loaded, dict)
        return loaded

    @property
    def error(self) -> dict[str, Any]:
        """The error of a `--json` call."""
        error = self.document["error"]
        assert isinstance(error, dict)
        return error

    @property
    def counts(self) -> dict[str, int]:
        """The counts of a realize."""
        counts = self.document["counts"]
        assert isinstance(counts, dict)
        return counts


@dataclass
class Demo:
    """The project at `path` with a store of its own; `env` is what commands see."""

    path: Path
    store: Path
    env: dict[str, str] = field(default_factory=dict)

    def argv(self, *words: str, store: Path | None = None) -> list[str]:
        """The command line of a call in this project."""
        place = ["-C", str(self.path), "--store", str(store or self.store)]
        return [sys.executable, "-c", COMMAND, *place, *words]

    def run(
        self,
        *words: str,
        store: Path | None = None,
        env: Mapping[str, str] | None = None,
        status: int | None = 0,
        timeout: float = 120,
        **options: Any,
    ) -> Ran:
        """Runs a command to its end; `status` is the exit status that must come (None: any)."""
        done = subprocess.run(
            self.argv(*words, store=store),
            capture_output=True,
            text=True,
            env={**self.environment(), **(env or {})},
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
            **options,
        )
        ran = Ran(done.returncode, done.stdout, done.stderr)
        if status is not None:
            assert ran.status == status, f"{words}: {ran}"
        return ran

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Starts a command in a process group of its own."""
        return subprocess.Popen(
            self.argv(*words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env=self.environment(),
            process_group=0,
            preexec_fn=_default_signals,  # noqa: PLW1509 - one call, no lock
        )

    def environment(self) -> dict[str, str]:
        """What commands see: nothing of the user's own configuration."""
        return {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": str(self.path.parent),
            "LANG": "C.UTF-8",
            **{k: os.environ[k] for k in ("PYTHONPATH",) if k in os.environ},
            **self.env,
        }

    def json(self, *words: str, **options: Any) -> dict[str, Any]:
        """The document of a `--json` call that must succeed."""
        return self.run("--json", *words, **options).document

    def write(self, name: str, text: str) -> None:
        """A file of the project."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def component(self, name: str, run: str, extra: str = "", limits: str = "") -> None:
        """Replaces a component by one script over the path input `notes`."""
        step = f'[steps.copy]\nkind = "script"\n{limits}\ninputs = {{ source = "source" }}\n'
        head = 'version = "3.0"\ninput = "notes"\nresult = "steps.copy"\n\n'
        image = f'\n[image]\nplace = [{{ from = "steps.copy", to = "opt/{name}" }}]\n'
        self.write(f"derivations/{name}.toml", f"{head}{step}run = '''\n{run}\n'''\n{image}{extra}")

    def clone(self, path: Path, store: Path) -> Demo:
        """The project as a fresh checkout elsewhere: names and bytes, other times."""
        shutil.copytree(self.path, path, symlinks=True, copy_function=_check_out)
        return Demo(path, store, dict(self.env))

    def verify(self) -> None:
        """The store is sound."""
        assert "sound" in self.run("store", "verify").out


def _check_out(source: str, target: str) -> None:
    """As git writes a file: its bytes, and whether it is executable."""
    executable = Path(source).stat().st_mode & 0o100
    shutil.copyfile(source, target)
    if executable:
        Path(target).chmod(0o755)


def _default_signals() -> None:
    # a background job of a shell starts with SIGINT ignored, and Python keeps it so
    signal.signal(signal.SIGINT, signal.default_int_handler)


def make_root(path: Path, applets: Sequence[str] = APPLETS) -> None:
    """A root file system of busybox alone."""
    (path / "bin").mkdir(parents=True)
    shutil.copyfile(BUSYBOX, path / "bin/busybox")
    (path / "bin/busybox").chmod(0o755)
    for name in applets:
        (path / "bin" / name).symlink_to("busybox")


def make_demo(path: Path, store: Path) -> Demo:
    """Writes the project and pins its inputs."""
    demo = Demo(path, store)
    path.mkdir(parents=True)
    demo.write("flake-like.toml", FLAKE)
    for name, text in COMPONENTS.items():
        demo.write(f"derivations/{name}.toml", text)
    demo.write("fixtures/header/repository.toml", REPOSITORY)
    demo.write("fixtures/header/start/header.txt", "# the header\nfirst\nsecond\nthird\n")
    demo.write("fixtures/header/main/other.txt", "beside it\n")
    demo.write("fixtures/header/pull-2/header.txt", "# the header\nfirst\nsecond\nthird\nfourth\n")
    demo.write("program/main.txt", "#!/bin/sh\necho main\n")
    demo.write("notes/notes.txt", "a note\n")
    make_root(path / "root")
    demo.run("lock")
    return demo
