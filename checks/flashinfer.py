"""Runs kernels of FlashInfer on a GPU, and compares them with references in numpy.

    flashinfer.py FUNCTION

The module is what REPROBUILD_MODULE names (docs/kernels.md). The last line says what was found; the
status is 0 when all of it is within the tolerance that the type allows, 1 when it is not, and 77
where this machine cannot run it.

References work in double precision. A result may differ from the exact one by the rounding of its
type, u·|x| with u = 2⁻¹¹ (float16) or 2⁻⁸ (bfloat16), and half the distance of its smallest
numbers; one hundredth is added for what the GPU's fast functions do in float32.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from gpu import Gpu, Module, cannot_run, module_file, used_file

try:
    import numpy as np
except ImportError:
    cannot_run(f"numpy cannot be imported by {sys.executable}")

ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133}
SLACK = 1.01
ROWS_AND_COLUMNS = ((1, 64), (7, 256), (33, 1024), (128, 2048), (5, 11008), (257, 4096))


class Case:
    """One comparison: the largest difference as a share of what is allowed, and how many equal."""

    def __init__(self, name: str, got: Any, want: Any, allowed: Any) -> None:
        self.name = name
        different = np.abs(got - want)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(different == 0, 0.0, different / allowed)
        self.share = float(np.max(share)) if np.all(np.isfinite(got)) else float("inf")
        self.error = float(np.max(different))
        self.values = int(got.size)


def bits_of(kind: str, values: Any) -> Any:
    """Values as the type's own, rounded to the nearest, ties to even."""
    if kind == "float16":
        return values.astype("<f2")
    bits = values.astype("<f4").view("<u4").astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def values_of(kind: str, array: Any) -> Any:
    """The numbers that an array of the type holds, in double precision."""
    if kind == "bfloat16":
        return (array.astype("<u4") << 16).view("<f4").astype(np.float64)
    return array.astype(np.float64)


def allowed(kind: str, exact: Any) -> Any:
    """How far a result of the type may lie from the exact one."""
    return SLACK * (ROUNDING[kind] * np.abs(exact) + SMALLEST[kind] / 2)


def silu_and_mul(gpu: Gpu, module: Module, random: Any) -> Iterator[Case]:
    """out = silu(x) · y, x and y the halves of each row."""
    for kind in ROUNDING:
        for rows, width in ROWS_AND_COLUMNS:
            given = bits_of(kind, 3 * random.standard_normal((rows, 2 * width)))
            empty = bits_of(kind, np.full((rows, width), np.nan))
            with gpu.tensor(kind, given) as source, gpu.tensor(kind, empty) as out:
                module.call("silu_and_mul", out, source, False)
                gpu.synchronize()
                got = values_of(kind, out.read())
            x, y = np.split(values_of(kind, given), 2, axis=1)
            exact = x / (1 + np.exp(-x)) * y
            yield Case(f"{kind} {rows}×{width}", got, exact, allowed(kind, exact))


E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def e4m3(bits: Any) -> Any:
    """The numbers that float8 e4m3 codes stand for (no NaN among them)."""
    exponent, fraction = (bits >> 3) & 15, bits & 7
    size = np.where(exponent == 0, fraction * 2.0**-9, (1 + fraction / 8) * 2.0 ** (exponent - 7.0))
    return np.where(bits & 128, -size, size)


def nvfp4_kv_dequant(gpu: Gpu, module: Module, random: Any) -> Iterator[Case]:
    """out = e2m1 · block scale · global scale; 16 values have a block scale in e4m3."""
    table = np.array([*E2M1, *(-value for value in E2M1)])
    for kind in ROUNDING:
        for rows, width in ROWS_AND_COLUMNS:
            packed = random.integers(0, 256, (rows, width // 2), dtype=np.uint8)
            scales = random.integers(1, 0x7F, (rows, width // 16), dtype=np.uint8)
            scale = np.array([0.0375], "<f4")
            empty = bits_of(kind, np.full((rows, width), np.nan))
            with (
                gpu.tensor("uint8", packed) as data,
                gpu.tensor("uint8", scales) as blocks,
                gpu.tensor("float32", scale) as whole,
                gpu.tensor(kind, empty) as out,
            ):
                module.call("nvfp4_kv_dequant", data, blocks, whole, out)
                gpu.synchronize()
                got = values_of(kind, out.read())
            codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(rows, width)
            exact = table[codes] * np.repeat(e4m3(scales), 16, axis=1) * float(scale[0])
            yield Case(f"{kind} {rows}×{width}", got, exact, allowed(kind, exact))


def hash_topk(gpu: Gpu, module: Module, random: Any) -> Iterator[Case]:
    """Experts from a table by token; weights √softplus of their logits, as shares of their sum."""
    for tokens, experts, topk, shared in ((1, 8, 2, 0), (64, 256, 8, 1), (1000, 384, 6, 1)):
        vocabulary = 1024
        logits = (4 * random.standard_normal((tokens, experts))).astype("<f4")
        ids = random.integers(0, vocabulary, tokens, dtype=np.int64)
        rows = [random.permutation(experts)[:topk] for _ in range(vocabulary)]
        table = np.array(rows, "<i4")
        weights = np.full((tokens, topk + shared), np.nan, "<f4")
        chosen = np.full((tokens, topk + shared), -1, "<i4")
        with (
            gpu.tensor("float32", logits) as a,
            gpu.tensor("int64", ids) as b,
            gpu.tensor("int32", table) as c,
            gpu.tensor("float32", weights) as d,
            gpu.tensor("int32", chosen) as e,
        ):
            module.call("hash_topk", a, b, c, d, e, 2.5, False)
            gpu.synchronize()
            got, picked = d.read().astype(np.float64), e.read()
        expert = table[ids].astype(np.int64)
        x = np.take_along_axis(logits.astype(np.float64), expert, axis=1)
        score = np.sqrt(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))
        extra = np.full((tokens, shared), 1 / 2.5)
        exact = np.concatenate([score / score.sum(axis=1, keepdims=True), extra], axis=1)
        last = experts + np.arange(shared) + np.zeros((tokens, shared))
        wanted = np.concatenate([expert, last], axis=1)
        name = f"{tokens} tokens, {topk} of {experts}"
        yield Case(
            f"experts of {name}", picked.astype(np.float64), wanted, np.full_like(wanted, 0.5)
        )
        yield Case(f"weights of {name}", got, exact, 1e-5 * np.abs(exact))


CHECKS: dict[str, Callable[[Gpu, Module, Any], Iterator[Case]]] = {
    "silu_and_mul": silu_and_mul,
    "nvfp4_kv_dequant": nvfp4_kv_dequant,
    "hash_topk": hash_topk,
}


def main(function: str) -> int:
    """Prints each case and a summary; the exit status."""
    gpu = Gpu(used_file("cuda-runtime"))
    module = Module(module_file(), used_file("tvm-ffi"))
    cases = []
    for case in CHECKS[function](gpu, module, np.random.default_rng(20260901)):
        print(f"{function}: {case.name}: largest error {case.error:.3g}, "
              f"{case.share:.3f} of what is allowed")  # fmt: skip
        cases.append(case)
    wrong = [case.name for case in cases if not case.share <= 1]
    values = sum(case.values for case in cases)
    worst = max(case.share for case in cases)
    print(
        f"{function} on {gpu.architecture()}: {len(cases)} cases, {values} values, the largest "
        f"error {worst:.3f} of what is allowed" + (f"; too large in {wrong[0]}" if wrong else "")
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
