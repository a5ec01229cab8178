"""How long an image takes to assemble, against umoci, buildah and docker on the same tree.

Two trees: the CUDA toolkit (about 330 MB in 2,200 files; the wheels that flake-like.toml names,
from your pip's index) and one of 50,000 small files. Everybody starts from the tree as each keeps
it: ours in the store, theirs in a directory. umoci and buildah write a layout; docker builds, and
pushes to a registry on this machine, since only then are its layers compressed (its daemon's
processor time is not seen). All take turns with ours. Ours is durable when it ends; so umoci's and
buildah's layouts are synchronised too, file by file, as a part of what they take.

* first – nothing is there but the tree. "Equal compression" is the fastest of our levels whose
  layer is at most two percent larger than that of the tool which it is held against; all sizes are
  printed. Wanted: half the time of the best of them.
* again – one small component beside the tree changed; its layer, config, manifest and index are
  made anew, the large layer is on record. Against our first assembly, both timed inside the process
  (what it takes to start Python is printed beside). Wanted: a twentieth.

    benchmarks/image.py [--quick] [--rounds N] [--tree DIR] [--without TOOL]… [cuda] [small]

Exits 1 when a ratio is not what was wanted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from harness import HEAD, MB, Row, Taken, Way, clear, contest, once, python, scratch

from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.digest import Digest

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT / "tests"))

LEVELS = (1, 2, 3, 4, 6, 7, 8, 9)
ALLOWED = 1.02
"""How much larger our layer may be than theirs to count as equally compressed."""

ASSEMBLE = """\
import json, sys, time
begin = time.perf_counter()
from pathlib import Path
from reprobuild.cli.entry import collect_seldom
collect_seldom()  # as the command does
from reprobuild.adapters.builders import builtins
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.digest import Digest
started = time.perf_counter()
level, components = int(sys.argv[2]), json.loads(sys.argv[3])
with LocalStore.open(Path(sys.argv[1])) as content:
    inputs, made = {}, {}
    for number, (name, row) in enumerate(components.items()):
        if "out" not in row:
            params = {"name": name, "compression": "gzip", "level": level}
            tree = {"tree": Digest.parse(row["tree"])}
            row = {k: str(d) for k, d in builtins()["layer"].build(params, tree, content).items()}
        made[name] = row
        inputs[f"layer-{number}"] = Digest.parse(row["out"])
        inputs[f"tree-{number}"] = Digest.parse(row["tree"])
    params = {"components": list(components), "created": "2026-01-01T00:00:00Z",
              "reference": "example/bench:1"}
    builtins()["image"].build(params, inputs, content)
    content.barrier()
    size = max(json.loads(content.open_blob(content.tree(Digest.parse(r["out"])).get(
        b"layer.json").digest).read())["size"] for r in made.values())
took = time.perf_counter() - started
print(json.dumps({"made": made, "size": size, "seconds": took, "start": started - begin}))
"""


def toolkit(directory: Path, cache: Path, scale: float) -> str:
    """The CUDA toolkit, out of its wheels; what it is called."""
    inputs = tomllib.loads((PROJECT / "flake-like.toml").read_text())["inputs"]
    runtime = inputs["cuda-runtime"]
    wanted = [*inputs["cuda-toolkit"]["packages"], f"{runtime['name']}=={runtime['version']}"]
    call = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    if scale == 1:
        done = subprocess.run([*call, "-d", cache, *wanted], capture_output=True, check=False)
        if done.returncode == 0:
            for wheel in sorted(cache.glob("*.whl")):
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(directory)
            return "CUDA toolkit"
        print("the toolkit's wheels are not to be had here: random bytes and words in their stead")
    source = random.Random(1)
    sizes = [int(s * MB * scale) for s in (110, 70, 40, 30, 20, 15, 10)]
    sizes += [source.randrange(200, 28_000) for _ in range(int(2493 * scale))]
    for number, size in enumerate(sizes):
        path = directory / f"dir{number % 37}" / f"file{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_content(source, size))
    return "like the CUDA toolkit"


def small_files(directory: Path, _: Path, scale: float) -> str:
    """50,000 files of some hundred bytes to a few thousand."""
    source = random.Random(2)
    block = _content(source, 2**20)
    for number in range(int(50_000 * scale)):
        path = directory / f"d{number % 251}" / f"e{number % 13}" / f"file{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        at = source.randrange(len(block) - 4000)
        path.write_bytes(b"# %d\n" % number + block[at : at + source.randrange(100, 4000)])
    return "small files"


def _content(source: random.Random, size: int) -> bytes:
    """Bytes about as compressible as libraries and headers are (two to three times)."""
    words = [b"mov", b"ld.global", b"st.shared", b"template<", b"cudaError_t", b"__device__"]
    out = bytearray()
    while len(out) < size:
        out += source.randbytes(160) + b" ".join(source.choice(words) for _ in range(40))
    return bytes(out[:size])


TREES: dict[str, Callable[[Path, Path, float], str]] = {"cuda": toolkit, "small": small_files}


@dataclass
class Ours:
    """Assembly through the built-ins, each time in a store that has the trees and no layer."""

    home: Path
    level: int = LEVELS[0]

    def __post_init__(self) -> None:
        self.pristine, self.store = self.home / "pristine", self.home / "store"
        module = self.home / "module"
        module.mkdir()
        with LocalStore.open(self.pristine, create=True) as content:
            self.big = content.capture(self.home / "tree")
            self.small: list[Digest] = []
            for version in (1, 2):
                (module / "module.py").write_text(f"VERSION = {version}\n")
                self.small.append(content.capture(module))
            content.barrier()

    def fresh(self) -> None:
        """The store, with links for its files."""
        clear(self.store)
        subprocess.run(["cp", "-al", str(self.pristine), str(self.store)], check=True)

    def words(self, version: int = 0, **big: str) -> list[str]:
        """The process that assembles; `big` is the large layer when it is on record."""
        rows = {"big": {"tree": str(self.big), **big}, "module": {"tree": str(self.small[version])}}
        return python(ASSEMBLE, self.store, self.level, json.dumps(rows))

    def said(self, **more: str) -> dict[str, object]:
        """What one assembly says of itself (the store is as the last one left it)."""
        words = self.words(1, **more) if more else self.words()
        out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        answer: dict[str, object] = json.loads(out)
        return answer

    def size(self, level: int) -> int:
        """Of the large layer, in bytes."""
        self.level = level
        self.fresh()
        return int(str(self.said()["size"]))


@dataclass(frozen=True)
class Tool:
    """A tool that makes an image of `home/tree`: a shell script run in `home`, and where the
    compressed layers lie then."""

    name: str
    script: str
    blobs: str
    env: dict[str, str]
    few: bool = False
    """Whether it takes so long that a third of the rounds must do."""

    def way(self, home: Path) -> Way:
        """It, with what an earlier round left removed."""

        def ready() -> None:
            for place in home.glob(f"{self.name}*"):
                clear(place)

        return Way(["sh", "-ec", self.script], ready, os.environ | self.env, home)

    def size(self, home: Path) -> int:
        """Of its largest layer, after a run."""
        return max(p.stat().st_size for p in home.glob(self.blobs) if p.is_file())


def durable(layout: str) -> str:
    """The shell's line that does for a layout what our barrier does for a store."""
    blobs = f"{layout}/blobs/sha256"
    return f"sync {blobs}/* {blobs} {layout}/index.json {layout}"


UMOCI = Tool(
    "umoci",
    f"""\
umoci init --layout umoci
umoci new --image umoci:1
umoci insert --image umoci:1 tree /
{durable("umoci")}""",
    "umoci/blobs/sha256/*",
    {},
)
BUILDAH = Tool(
    "buildah",
    f"""\
printf 'FROM scratch\\nCOPY . /\\n' > Containerfile
b() {{ buildah --root "$PWD/buildah-root" --runroot "$PWD/buildah-run" --storage-driver vfs "$@"; }}
b bud --isolation chroot -f Containerfile -t bench tree
b push bench oci:buildah:1
{durable("buildah")}""",
    "buildah/blobs/sha256/*",
    {},
    few=True,
)


def docker(stack: ExitStack, home: Path) -> Tool | None:
    """docker with a daemon and a registry of its own; None, with a word, where none start."""
    from support import dockerd, registry  # noqa: PLC0415 - found by the path above

    reason = dockerd.why_not() or ("" if shutil.which("docker-registry") else "no docker-registry")
    for driver in () if reason else ("overlay2", "vfs"):
        daemon = ExitStack()
        host = daemon.enter_context(dockerd.running(driver))
        if host is None:
            daemon.close()
            continue
        stack.push(daemon)
        data = home / "registry"
        data.mkdir()
        at = stack.enter_context(registry.running(data))
        name = f"{at.replace('127.0.0.1', 'localhost')}/bench:1"
        script = f"""\
rm -rf registry/data
printf 'FROM scratch\\nCOPY . /\\n' > Dockerfile
docker build -q --no-cache -f Dockerfile -t {name} tree
docker push -q {name}
docker image rm {name}"""
        env = {"DOCKER_HOST": host, "DOCKER_BUILDKIT": "0"}
        return Tool("docker", script, "registry/data/**/data", env, few=True)
    print(f"docker: left out ({reason or 'its daemon does not start here'})")
    return None


def first(home: Path, ours: Ours, what: str, tool: Tool, rounds: int) -> Row:
    """The race at equal compression; says the sizes, and the other side of the border."""
    way = tool.way(home)
    once(way)  # for its layer's size, and to warm the page cache
    theirs = tool.size(home)
    sizes: list[tuple[int, int]] = []
    for level in LEVELS:
        sizes.append((level, ours.size(level)))
        if sizes[-1][1] <= theirs * ALLOWED:
            break
    said = ", ".join(f"level {level} {size / MB:.1f} MB" for level, size in sizes)
    print(f"  {tool.name} {theirs / MB:.1f} MB; reprobuild {said}")
    turns = max(1, rounds // 3) if tool.few else rounds
    mine = Way(ours.words(), ours.fresh)
    size = f"{sizes[-1][1] / theirs:.3f} of it"
    return contest(
        f"image of {what}", size, tool.name, mine, way, wanted=0.5, rounds=turns, warm=False
    )


def again(ours: Ours, what: str, rounds: int) -> Row:
    """One component of two changed, against the first assembly."""
    firsts: list[Taken] = []
    agains: list[Taken] = []
    starts: list[float] = []
    for _ in range(rounds):
        ours.fresh()
        done = ours.said()
        firsts.append(Taken(float(str(done["seconds"])), 1.0, 0.0))
        made = done["made"]
        assert isinstance(made, dict)
        done = ours.said(**made["big"])
        agains.append(Taken(float(str(done["seconds"])), 1.0, 0.0))
        starts.append(float(str(done["start"])))
    row = Row(f"again: {what}, one changed", "", "our first", agains, firsts, 0.05)
    print(row.line())
    print(f"  (starting Python and importing: {statistics.median(starts) * 1000:.0f} ms)")
    return row


def measure(name: str, options: argparse.Namespace) -> Iterator[Row]:
    """One tree against every tool that is here."""
    with scratch() as home, ExitStack() as stack:
        tree, cache = home / "tree", home / "cache"
        if options.tree is not None:
            shutil.copytree(options.tree, tree, symlinks=True)
            what = options.tree.name
        else:
            tree.mkdir()
            cache.mkdir()
            what = TREES[name](tree, cache, 0.1 if options.quick else 1.0)
            clear(cache)
        files = [p for p in tree.rglob("*") if p.is_file() and not p.is_symlink()]
        size = sum(p.stat().st_size for p in files)
        print(f"{what}: {len(files):,} files, {size / MB:.0f} MB, {os.cpu_count()} cores")
        ours = Ours(home)
        tools = [t for t in (UMOCI, BUILDAH) if t.name not in options.without]
        for tool in tools:
            if shutil.which(tool.name) is None:
                print(f"{tool.name}: left out (not installed)")
        tools = [t for t in tools if shutil.which(t.name)]
        if "docker" not in options.without and (found := docker(stack, home)) is not None:
            tools.append(found)
        for tool in tools:
            yield first(home, ours, what, tool, options.rounds)
        yield again(ours, what, options.rounds)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the trees")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tree", type=Path, help="measure this tree instead")
    parser.add_argument("--without", action="append", default=[], metavar="TOOL")
    parser.add_argument("names", nargs="*", choices=[[], *TREES])
    options = parser.parse_args()
    print(HEAD)
    names = ["tree"] if options.tree is not None else options.names or list(TREES)
    done = [row for name in names for row in measure(name, options)]
    print(f"\n{HEAD}")
    for row in done:
        print(row.line())
    return 0 if all(row.good() for row in done) else 1


if __name__ == "__main__":
    sys.exit(main())
