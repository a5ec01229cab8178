"""What every built-in promises, over every store: equal trees for equal questions, nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from fakes.memory_store import MemoryStore
from reprobuild.adapters.builders import builtins
from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.digest import Digest
from reprobuild.core.encoding import Value
from reprobuild.core.tree import Directory
from reprobuild.errors import ReprobuildError
from reprobuild.ports import Builtin, ContentStore
from support.archives import deb, tar, tar_entry, zipped
from support.fatbin import ELF, FLAG_A, container, cubin, library
from support.fatbin import entry as member
from support.images import CREATED, layer, quick_image
from support.trees import Given, make

Question = tuple[Value, Mapping[str, Digest]]


def _wheel() -> bytes:
    info = "demo-1.dist-info"
    wheel = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = (
        f"{info}/WHEEL,sha256=JCVX9z8V-js2aV5qmQR2E3fiCs-Yu3vPO91cCBmO1JM,{len(wheel)}\n"
        f"{info}/RECORD,,\n"
    )
    return zipped([(f"{info}/WHEEL", wheel, 0), (f"{info}/RECORD", record.encode(), 0)])


def _image(store: ContentStore) -> Question:
    one, two = layer(store, {"a": b"1"}), layer(store, {"b": b"2"})
    params: Value = {"created": CREATED, "reference": "a/b:1", "components": ["one", "two"]}
    return params, {
        "layer-0": one["out"],
        "tree-0": one["tree"],
        "layer-1": two["out"],
        "tree-1": two["tree"],
    }


LINKED: dict[str, Given] = {"d/x": b"1", "l": "d"}

QUESTIONS: dict[str, Callable[[ContentStore], Question]] = {
    "unpack": lambda s: (
        {"strip": 1},
        {"archive": make(s, {"a.tar.gz": tar([tar_entry("d/x", b"1")], "gz")})},
    ),
    "rootfs": lambda s: (
        {"links": {"usr/bin/sh": "dash"}},
        {"deb-0": make(s, {"p.deb": deb("p", [tar_entry("./lib/x", b"1")])})},
    ),
    "join": lambda s: (
        {"place": [{"input": "a"}, {"input": "b", "to": "c"}], "files": {"f": "text"}},
        {"a": make(s, {"d/x": b""}), "b": make(s, {"y": b"y"})},
    ),
    "wheel-install": lambda s: ({}, {"wheel": make(s, {"demo-1-py3-none-any.whl": _wheel()})}),
    "layer": lambda s: ({"prefix": "opt"}, {"tree": make(s, LINKED)}),
    "image": _image,
    "statement": lambda s: (
        {"document": {"format": 0, "components": [{"name": "a"}]}, "program": "#"},
        {"tree-a": make(s, {"x": b""})},
    ),
    "oci-rootfs": lambda s: ({}, {"base-0": quick_image(s)}),
    "cuda-check": lambda s: (
        {"require": ["sm_120a"], "forbid-ptx": True},
        {"module": make(s, {"m.so": library(container([member(ELF, 120, FLAG_A, cubin(120))]))})},
    ),
}


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ContentStore]:
    if request.param == "memory":
        yield MemoryStore(tmp_path / "store")
        return
    local = LocalStore.open(tmp_path / "store", create=True)
    yield local
    local.close()


@pytest.fixture(params=sorted(builtins()))
def builtin(request: pytest.FixtureRequest) -> Builtin:
    return builtins()[request.param]


def test_every_builtin_is_asked_here() -> None:
    assert set(QUESTIONS) == set(builtins())


def test_name_and_version(builtin: Builtin) -> None:
    assert builtins()[builtin.name].name == builtin.name
    assert builtin.version >= 1


def test_equal_questions_have_equal_answers(
    builtin: Builtin, store: ContentStore, tmp_path: Path
) -> None:
    params, inputs = QUESTIONS[builtin.name](store)
    first = builtin.build(params, inputs, store)
    assert builtin.build(params, inputs, store) == first
    other = MemoryStore(tmp_path / "other")
    params, inputs = QUESTIONS[builtin.name](other)
    assert builtin.build(params, inputs, other) == first


def test_the_answer_is_complete(builtin: Builtin, store: ContentStore) -> None:
    params, inputs = QUESTIONS[builtin.name](store)
    outputs = builtin.build(params, inputs, store)
    assert set(outputs) == ({"out", "tree"} if builtin.name == "layer" else {"out"})
    for digest in outputs.values():
        assert store.contains(digest)
        assert store.materialise(digest).is_dir()


def test_the_order_of_inputs_in_the_mapping_moves_nothing(
    builtin: Builtin, store: ContentStore
) -> None:
    params, inputs = QUESTIONS[builtin.name](store)
    backwards = dict(reversed(list(inputs.items())))
    assert builtin.build(params, backwards, store) == builtin.build(params, inputs, store)


def test_an_unknown_parameter_is_refused(builtin: Builtin, store: ContentStore) -> None:
    params, inputs = QUESTIONS[builtin.name](store)
    assert isinstance(params, Mapping)
    with pytest.raises(ReprobuildError) as error:
        builtin.build({**params, "unheard-of": 1}, inputs, store)
    assert error.value.code == "E-PARAMS"


@pytest.mark.parametrize("name", sorted({*QUESTIONS} - {"join", "statement"}))
def test_an_unknown_input_is_refused(name: str, store: ContentStore) -> None:
    """Join and statement name their inputs in their parameters; the others know theirs."""
    builtin = builtins()[name]
    params, inputs = QUESTIONS[builtin.name](store)
    with pytest.raises(ReprobuildError) as error:
        builtin.build(params, {**inputs, "unheard-of": make(store, {})}, store)
    assert error.value.code == "E-PARAMS"


def test_nothing_is_left_half_done(builtin: Builtin, tmp_path: Path) -> None:
    """A store that refuses the n-th write, for every n: the error comes out, no tree is whole
    without its parts, and asking again completes."""
    reference = MemoryStore(tmp_path / "reference")
    params, inputs = QUESTIONS[builtin.name](reference)
    expected = builtin.build(params, inputs, reference)
    for refuse_at in range(200):
        store = _Refusing(tmp_path / f"s{refuse_at}")
        params, inputs = QUESTIONS[builtin.name](store)
        store.left = refuse_at
        try:
            assert builtin.build(params, inputs, store) == expected
            break
        except OSError:
            _check_closed(store)
        store.left = 10_000
        assert builtin.build(params, inputs, store) == expected
    else:
        pytest.fail("never completed")
    assert (refuse_at > 0) == (builtin.name != "cuda-check")  # which writes nothing


class _Refusing(MemoryStore):
    left = 10_000

    def _count(self) -> None:
        if self.left <= 0:
            raise OSError(28, "No space left on device")
        self.left -= 1

    def add_blob(self, source, *, executable=False, size=-1):  # type: ignore[no-untyped-def]
        self._count()
        return super().add_blob(source, executable=executable, size=size)

    def add_trees(self, nodes):  # type: ignore[no-untyped-def]
        self._count()
        super().add_trees(nodes)


def _check_closed(store: MemoryStore) -> None:
    for tree in store.trees.values():
        for _, entry in tree:
            if isinstance(entry, Directory):
                assert entry.digest in store.trees


def test_naming_them_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from reprobuild.adapters.builders import builtins\n"
        "assert all(b.version for b in builtins().values())\n"
        "heavy = {'tarfile', 'zipfile', 'installer', 'debian', 'deflate', 'zstandard', 'docker',\n"
        "         'requests', 'lzma', 'concurrent.futures'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
