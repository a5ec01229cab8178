"""Kernels and layers, with known answers."""

from __future__ import annotations

from dataclasses import replace

from reprobuild.core.diff.kernels import Kernel, Module, compare_modules
from reprobuild.core.diff.layers import compare_layers
from reprobuild.core.diff.side import LayerSide


def module(count: int = 50, archs: tuple[str, ...] = ("sm_120a",)) -> Module:
    kernels = {f"k{n}": Kernel(f"code{n}", 32 + n, 0, 1024, 512) for n in range(count)}
    return Module(archs, (), kernels, {f"k{n}": f"kernel_{n}(int)" for n in range(count)})


def test_one_of_fifty() -> None:
    old = module()
    changed = replace(old.kernels["k7"], code="other", registers=48, spills=4)
    new = replace(old, kernels={**old.kernels, "k7": changed})
    (found,) = compare_modules({"lib.so": old}, {"lib.so": new})
    assert list(found.changed) == ["k7"]
    assert found.kept == 49
    assert found.document()["changed"] == [
        {
            "code": True,
            "kernel": "kernel_7(int)",
            "registers": {"old": 39, "new": 48},
            "spills": {"old": 0, "new": 4},
        }
    ]


def test_equal_modules_say_nothing() -> None:
    (found,) = compare_modules({"lib.so": module()}, {"lib.so": module()})
    assert not found.any
    assert found.kept == 50


def test_a_kernel_that_went_and_one_that_came() -> None:
    old, new = module(3), module(3)
    new = replace(new, kernels={k: v for k, v in new.kernels.items() if k != "k1"})
    new = replace(new, kernels={**new.kernels, "fresh": Kernel("f")})
    (found,) = compare_modules({"lib.so": old}, {"lib.so": new})
    assert (found.removed, found.added, found.kept) == (("k1",), ("fresh",), 2)


def test_a_lost_architecture_and_a_fall_back_to_ptx() -> None:
    old, new = module(2), replace(module(2, ("sm_90a",)), ptx=("sm_120",))
    (found,) = compare_modules({"lib.so": old}, {"lib.so": new})
    assert found.archs_lost == ("sm_120a",)
    assert found.archs_gained == ("sm_90a",)
    assert found.ptx == ((), ("sm_120",))


def test_whole_modules() -> None:
    found = compare_modules({"a.so": module(2)}, {"b.so": module(3)})
    assert [(m.path, m.whole) for m in found] == [("a.so", "removed"), ("b.so", "added")]
    assert len(found[0].removed) == 2
    assert len(found[1].added) == 3


def layer(name: str, size: int | None = 10, unpacked: int | None = 30) -> LayerSide:
    return LayerSide(name, f"sha256:{name}", f"sha256:blob-{name}", size, unpacked)


def test_layers_to_pull() -> None:
    found = compare_layers(
        [layer("a"), layer("b"), layer("c")], [layer("a"), layer("d", 7, 9), layer("c")]
    )
    assert [la.component for la in found.kept] == ["a", "c"]
    assert [la.component for la in found.changed] == ["d"]
    assert [la.component for la in found.dropped] == ["b"]
    assert (found.to_pull, found.unpacked) == (7, 9)


def test_a_blob_that_is_there_twice_is_pulled_once() -> None:
    assert compare_layers([], [layer("a"), layer("a")]).to_pull == 10


def test_sizes_that_are_not_known_are_not_guessed() -> None:
    found = compare_layers([], [layer("a"), layer("b", None, None)])
    assert (found.to_pull, found.unpacked) == (None, None)


def test_a_daemon_knows_layers_by_content_alone() -> None:
    plain = LayerSide("", "sha256:a")
    found = compare_layers([plain], [layer("a"), layer("b", 5)])
    assert [la.component for la in found.kept] == ["a"]
    assert found.to_pull == 5


def test_one_content_in_another_blob_is_pulled_again() -> None:
    packed = replace(layer("a"), digest="sha256:packed-otherwise")
    assert compare_layers([layer("a")], [packed]).to_pull == 10
