"""A small project with one git source, an included file, profiles and gates."""

from __future__ import annotations

from pathlib import Path

from support.cliin import Said, cli
from support.gitkit import Origin

LINES = "".join(f"line {n}\n" for n in range(1, 10))


def line(number: int, text: str) -> str:
    """LINES with one of them changed."""
    return LINES.replace(f"line {number}\n", f"{text}\n")


FLAKE = """\
format = 0
default = "demo"
include = ["parts/*.toml"]

[inputs.text]
kind = "path"
path = "text"
"""

PART = """\
format = 0

[inputs.app]
kind = "git"
url = "{url}"
ref = "refs/heads/main"

[outputs.demo]
components = ["app"]

[outputs.demo.release]
codename = "demo"
revision = "r1"
date = 2026-09-01
repository = "example/demo"
tag = "{{codename}}-app{{app.tree:7}}-{{revision}}"
title = "Demo r1"

[outputs.demo.image]

[outputs.demo.sources.app]
input = "app"
heads = [
  {{ number = 7, title = "Change the second line", summary = "Does what `APP_SIZE=1` asks for." }},
  {{ number = 8, title = "Change the fifth line" }},
]

[outputs.demo.interface]
app = ["APP_SIZE"]
launcher = ["PORT"]

[outputs.demo.profiles.small]
title = "Small"
file = "small.yml"
container = "demo"
entrypoint = ["/usr/bin/serve"]

[outputs.demo.profiles.small.settings]
APP_SIZE = {{ kind = "integer", default = 1 }}
PORT = {{ kind = "integer", default = 8000 }}

[[outputs.demo.profiles.small.rules]]
name = "no-low-ports"
when = "PORT < 1024"
reason = "a server is no system service"

[outputs.demo.gates.composed]
kind = "release-composition"

[outputs.demo.gates.fast]
command = ["/bin/sh", "-c", "echo 12 steps/s of $REPROBUILD_IMAGE"]

[outputs.demo.gates.large]
gpus = 64
needs = "64 GPUs"
"""

COMPONENT = """\
result = "steps.all"

[steps.all]
kind = "join"
place = [{ from = "source", to = "" }]

[image]
place = [{ from = "steps.all", to = "opt/app" }]
"""


class Demo:
    """A project with one git source and an included file."""

    def __init__(self, top: Path, *, ask: str = "APP_SIZE") -> None:
        self.origin = Origin.make(top / "app.git")
        self.base = self.origin.commit({"a": LINES, "serve": f"env {ask}\n"}, ref="refs/heads/main")
        self.seven = self.origin.pull(
            7, {"a": line(2, "two"), "serve": f"env {ask}\n"}, [self.base]
        )
        self.eight = self.origin.pull(
            8, {"a": line(5, "five"), "serve": f"env {ask}\n"}, [self.base]
        )
        self.path = top / "project"
        (self.path / "derivations").mkdir(parents=True)
        (self.path / "parts").mkdir()
        (self.path / "text").mkdir()
        (self.path / "flake-like.toml").write_text(FLAKE)
        (self.path / "derivations" / "app.toml").write_text(COMPONENT)
        self.part = self.path / "parts" / "demo.toml"
        self.part.write_text(PART.format(url=f"file://{self.origin.path}"))

    def run(self, *words: str) -> Said:
        return cli("-C", str(self.path), "--store", str(self.path / "store"), *words)

    def ok(self, *words: str) -> Said:
        said = self.run(*words)
        assert said.status == 0, said
        return said

    def edit(self, old: str, new: str) -> None:
        text = self.part.read_text()
        assert text.count(old) == 1
        self.part.write_text(text.replace(old, new))
