"""`kernels`, the coverage contract and the verdict as commands, in a project whose toolkit copies
what it is told to compile: units are objects made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cubins import FLAG_A, ZSTD, K, cubin, fatbin, library, member
from support.demo import FLAKE, Demo, needs_sandbox

pytestmark = needs_sandbox

NVCC = """\
#!/bin/sh
while test $# -gt 0; do
  case $1 in
    -c) source=$2; shift ;;
    -o) out=$2; shift ;;
    -MF) echo "unit.o:" > $2; shift ;;
  esac
  shift
done
cat $source > $out
"""
LINK = """\
#!/bin/sh
object=$1
while test $# -gt 0; do
  case $1 in -o) out=$2; shift ;; esac
  shift
done
cat $object > $out
"""
COMPONENT = """\
version = "1.0"
input = "kernels"
result = "steps.library"

[steps.library]
kind = "cuda-module"
source = "source"
units = ["unit.cu"]
arch = ["sm_120a"]
{more}

[image]
place = [{{ from = "steps.library", to = "opt/lib" }}]
cuda = ["opt/lib/library.so"]
"""
SCALE = K("_ZN4demo5scaleIfEEvPT_i", registers=33, shared=2048)


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def project(locked: Demo) -> Demo:
    """The small project with a CUDA component instead of its own."""
    executable(locked.path / "root/usr/bin/g++", LINK)
    executable(locked.path / "toolkit/bin/nvcc", NVCC)
    head, _, _ = FLAKE.partition("[outputs.demo]")
    locked.write(
        "flake-like.toml",
        head.replace('root = "inputs.box"', 'root = "inputs.box"\ncuda = "inputs.toolkit"')
        + '[inputs.toolkit]\nkind = "path"\npath = "toolkit"\n'
        + '[inputs.kernels]\nkind = "path"\npath = "kernels"\n'
        + '[outputs.demo]\ncomponents = ["kernels", "notes"]\ntoolchain = "box"\n',
    )
    for name in ("header", "program"):
        (locked.path / f"derivations/{name}.toml").unlink()
    return locked


def unit(project: Demo, data: bytes, more: str = "") -> None:
    """Gives the module a unit that compiles to `data`, and locks."""
    project.write("derivations/kernels.toml", COMPONENT.format(more=more))
    path = project.path / "kernels/unit.cu"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    project.run("lock", "--update", "kernels", "--update", "box")


def test_the_kernels_of_an_output(project: Demo) -> None:
    unit(project, library(fatbin(member(cubin(SCALE), flags=FLAG_A | ZSTD))))
    assert project.run("kernels", status=2).err.count("E-NOT-REALIZED") == 1
    project.run("realize")
    found = project.json("kernels")["modules"]
    assert list(found) == ["kernels/library.so"]
    module = found["kernels/library.so"]
    assert module["archs"] == ["sm_120a"]
    assert module["ptx"] == []
    (kernel,) = module["kernels"]
    assert kernel["demangled"] == "void demo::scale<float>(float*, int)"
    assert (kernel["registers"], kernel["shared"], kernel["arch"]) == (33, 2048, "sm_120a")
    assert project.json("kernels", "demo.kernels")["modules"] == found
    assert project.json("kernels", "demo.kernels.library")["modules"] == found  # one step
    assert project.json("kernels", "demo.notes") == {"checks": {}, "modules": {}}
    text = project.run("kernels").out
    assert "kernels/library.so  sm_120a  no PTX  1 kernel\n" in text
    assert "33      0       0    2048    64  void demo::scale<float>(float*, int)" in text


def test_kernels_by_pattern(project: Demo) -> None:
    unit(project, library(fatbin(member(cubin(SCALE, K("_ZN4demo3addEPf"))))))
    project.run("realize")
    one = project.json("kernels", "--name", "demo::add*")["modules"]["kernels/library.so"]
    assert [k["demangled"] for k in one["kernels"]] == ["demo::add(float*)"]
    assert project.json("kernels", "--module", "other*")["modules"] == {}


@pytest.mark.parametrize(
    ("data", "more", "said"),
    [
        (
            library(fatbin(member(cubin(SCALE, arch=90), 90))),
            "",
            "library.so: no machine code for sm_120a (there is code for: sm_90a)",
        ),
        (
            library(fatbin(member(cubin(SCALE)), member(b".version 9.3", kind=1))),
            "",
            "library.so: PTX for sm_120a",
        ),
        (
            library(fatbin(member(cubin(SCALE)))),
            'kernels = ["demo::sale"]',
            "no kernel is called demo::sale (there is demo::scale)",
        ),
        (
            library(fatbin(member(cubin(SCALE)))),
            'require = ["sm_120a", "sm_121a"]',
            "library.so: no machine code for sm_121a (there is code for: sm_120a)",
        ),
    ],
)
def test_what_is_not_covered_fails_the_build(
    data: bytes, more: str, said: str, project: Demo
) -> None:
    unit(project, data, more)
    error = project.run("--json", "realize", status=9).error
    assert error["code"] == "E-KERNEL-COVERAGE"
    assert error["facts"]["problems"] == [said]
    # What was built stays, and is looked into once it is allowed.
    allowed = f'require = ["{"sm_90a" if b"sm_90a" in data else "sm_120a"}"]\nforbid-ptx = false'
    unit(project, data, allowed)
    assert project.json("realize")["counts"]["built"] >= 1


def test_a_covered_module_is_checked_once(project: Demo) -> None:
    unit(project, library(fatbin(member(cubin(SCALE)))), 'kernels = ["demo::scale", "*scale*"]')
    project.run("realize")
    assert project.json("realize")["counts"]["built"] == 0


def test_a_module_that_cannot_be_read_fails(project: Demo) -> None:
    unit(project, library(b"no container at all"))
    error = project.run("--json", "realize", status=3).error
    assert (error["code"], error["facts"]["file"]) == ("E-CUBIN", "library.so")


def test_a_second_build_that_differs_gets_a_verdict(project: Demo) -> None:
    """The compiler writes something new behind the object each time."""
    unit(project, library(fatbin(member(cubin(SCALE)))))
    executable(project.path / "toolkit/bin/nvcc", NVCC + "head -c 16 /dev/urandom >> $out\n")
    project.run("lock", "--update", "toolkit")
    project.run("realize")
    error = project.run("--json", "realize", "--check=closure", status=6).error
    assert error["code"] == "E-NOT-REPRODUCIBLE"
    verdict = error["facts"]["verdict"]
    assert verdict[0] == (
        "out/unit.o: layout (the same parts lie elsewhere in the file); device code identical"
    )
    assert verdict[1].startswith("cure for layout: ")
    first, second = error["facts"]["first"], error["facts"]["second"]
    assert len(first) == len(second) == 2  # the object, and what it included
    pairs = [(a, b) for a in first for b in second if a != b and a not in second and b not in first]
    document = project.json("verdict", *pairs[0])
    assert document["files"][0]["cause"] == "layout"
    assert document["device"] == "identical"


def test_verdict_of_files(project: Demo, tmp_path: Path) -> None:
    one, two = tmp_path / "one.so", tmp_path / "two.so"
    one.write_bytes(library(fatbin(member(cubin(SCALE)))))
    two.write_bytes(library(fatbin(member(cubin(SCALE), flags=FLAG_A | ZSTD))))
    document = project.json("verdict", str(one), str(two))
    assert (document["identical"], document["device"]) == (False, "identical")
    assert [f["cause"] for f in document["files"][0]["findings"]] == ["compression"]
    assert project.run("verdict", str(one), str(one)).out == "identical\n"
    assert "E-USAGE" in project.run("verdict", str(one), "nowhere", status=2).err


PATTERNS = """\
version = "1.0"
input = "kernels"
result = "steps.library"

[steps.tree]
kind = "join"
place = [{ from = "source", to = "", exclude = ["more"] }]

[steps.library]
kind = "cuda-module"
source = "steps.tree"
units = [
  "*.cu",
  { path = "sub/**/*.cu", exclude = ["sub/skipped.cu"] },
  { path = "b.cu", memory = 64 },
]
arch = ["sm_120a"]
"""


def units_of(project: Demo) -> list[str]:
    nodes = project.json("graph", "--format", "json")["nodes"].values()
    names = (node["name"] for node in nodes)
    return sorted(
        n.partition(":")[2] for n in names if n.startswith("kernels.library:") if ".cu" in n
    )


def test_patterns_of_units_are_listed_by_the_lock(project: Demo) -> None:
    data = library(fatbin(member(cubin(SCALE), flags=FLAG_A | ZSTD)))
    unit(project, data)
    for name in ("a.cu", "b.cu", "sub/deep/d.cu", "sub/skipped.cu", "more/e.cu", "notes.txt"):
        path = project.path / "kernels" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    project.write("derivations/kernels.toml", PATTERNS)
    project.run("lock", "--update", "kernels")
    wanted = ["a.cu", "b.cu", "sub:deep:d.cu", "unit.cu"]
    assert units_of(project) == wanted
    text = (project.path / "flake-like.lock").read_text()
    assert 'pattern = "*.cu"' in text
    assert 'files = ["a.cu", "b.cu", "unit.cu"]' in text
    project.run("lock")
    assert (project.path / "flake-like.lock").read_text() == text
    project.run("lock", "--check")
    project.run("realize")

    # one more file: nothing but it and the links
    (project.path / "kernels/c.cu").write_bytes(data)
    assert "E-LOCK-STALE" in project.run("realize", status=4).err
    pinned = project.run("lock").out
    assert "outputs.demo.units.kernels.library *.cu" in pinned
    assert units_of(project) == ["a.cu", "b.cu", "c.cu", "sub:deep:d.cu", "unit.cu"]
    done = project.run("realize")
    made = {line.split()[2] for line in done.err.splitlines() if " built " in line}
    assert {name for name in made if ".cu" in name} == {"kernels.library:c.cu"}

    # a list of another tree does not count
    project.write("derivations/kernels.toml", PATTERNS.replace('["more"]', '["more", "a.cu"]'))
    error = project.run("realize", status=4).err
    assert "E-LOCK-STALE" in error
    assert "which units of kernels.library match '*.cu' is not listed for the tree" in error
    project.run("lock")
    assert "a.cu" not in units_of(project)

    # nothing matches
    project.write("derivations/kernels.toml", PATTERNS.replace('"*.cu"', '"*.cpp"'))
    assert "no file matches the unit '*.cpp'" in project.run("lock", status=3).err


def test_patterns_look_into_a_tree_that_is_tried(project: Demo, tmp_path: Path) -> None:
    data = library(fatbin(member(cubin(SCALE), flags=FLAG_A | ZSTD)))
    unit(project, data)
    head, _, _ = PATTERNS.partition("[steps.tree]")
    step = '[steps.library]\nkind = "cuda-module"\nsource = "source"\nunits = ["*.cu"]\n'
    text = head + step + 'arch = ["sm_120a"]\n'
    project.write("derivations/kernels.toml", text)
    project.run("lock")
    assert units_of(project) == ["unit.cu"]
    tried = tmp_path / "tried"
    tried.mkdir()
    for name in ("unit.cu", "another.cu"):
        (tried / name).write_bytes(data)
    project.run("realize")
    done = project.run("realize", "--override", f"kernels=path:{tried}")
    assert "kernels.library:another.cu" in done.err
