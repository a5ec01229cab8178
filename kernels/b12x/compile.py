"""Compiles a set of B12X's CuTe DSL kernels ahead of time, without a GPU.

    compile.py DESTINATION

B12X makes each kernel when a shape is first used. Here its own functions that do are called with
shapes that serving uses; cubins come out as DESTINATION/NAME.cubin, and index.json says for each
which kernel of B12X it is and by what key B12X would look for it. The environment says for which
architecture (CUTE_DSL_ARCH), and where the DSL leaves cubins (CUTE_DSL_DUMP_DIR).
"""

import json
import os
import shutil
import sys
from pathlib import Path

# In place of torch and triton, before anything imports them.
import standin  # noqa: F401
from b12x._lib import compiler

DUMPED = Path(os.environ["CUTE_DSL_DUMP_DIR"])
ARCH = os.environ["CUTE_DSL_ARCH"]
SM_COUNT = 188
"""Streaming multiprocessors of an RTX PRO 6000, which B12X chooses tactics by."""

specs = []
_compile = compiler.compile


def recorded(function, *arguments, compile_spec=None, **named):
    """B12X's compile, noting by what key."""
    specs.append(compile_spec)
    return _compile(function, *arguments, compile_spec=compile_spec, **named)


compiler.compile = recorded

import cutlass  # noqa: E402
import torch  # noqa: E402
from b12x._lib import dense_gemm  # noqa: E402
from b12x._lib.quant import mxfp8_rows, x4t_scales  # noqa: E402
from b12x.gemm._shared import mxfp8_bmm  # noqa: E402
from b12x.gemm.bf16_gemv import _kernel as bf16_gemv  # noqa: E402
from b12x.moe._shared.kernels.w4a16 import kernel as w4a16  # noqa: E402
from b12x.quantization.mxfp6 import bf16_to_fp6_small_m, fp6_row_gs  # noqa: E402


class Device:
    """The first GPU, as far as a key asks."""

    index = 0


def nvfp4_gemm(m, n, k):
    """A dense NVFP4 product, with the tactics that B12X chooses for it."""
    tile = (128, 128)
    policy = dense_gemm._dense_gemm_policy_for(
        m=m,
        n=n,
        k=k,
        l=1,
        ab_dtype=cutlass.Float4E2M1FN,
        c_dtype=cutlass.BFloat16,
        mma_tiler_mn=tile,
        cluster_shape_mn=(1, 1),
        sm_count=SM_COUNT,
    )
    dense_gemm._get_compiled_dense_gemm(
        n=n,
        k=k,
        l=1,
        c_l=1,
        a_major="k",
        b_major="k",
        c_major="n",
        ab_dtype=cutlass.Float4E2M1FN,
        sf_dtype=cutlass.Float8E4M3FN,
        c_dtype=cutlass.BFloat16,
        alpha_dtype=cutlass.Float32,
        sf_vec_size=16,
        mma_k=64,
        tile_k=128,
        mma_tiler_mn=tile,
        cluster_shape_mn=(1, 1),
        policy=policy,
        sm_count=SM_COUNT,
        sm_version="sm_120",
        load_path="tma",
        swap_ab=False,
        sfb_k_reuse=False,
        b_tile_major=False,
    )


KERNELS = {
    **{f"bf16_gemv_m{m}_n96_k5120": lambda m=m: bf16_gemv.compile_bf16_gemv_small_n(m, 96, 5120)
       for m in (1, 2, 4, 8)},
    "mxfp8_rows_bf16_k4096": lambda: mxfp8_rows._get_compiled_mxfp8_rows_quant(
        4096, torch.bfloat16, 0, 128, "linear"),
    "mxfp8_bmm_g8_m16_n512_k128": lambda: mxfp8_bmm._compile(
        b_major=mxfp8_bmm._BMajor.K, groups=8, m=16, n=512, k=128, device=Device),
    "x4t_base_1536x2048": lambda: x4t_scales._compiled_x4t_base(1536, 2048, False, 0, False, 128),
    "x4t_scatter_1536x2048": lambda: x4t_scales._compiled_x4t_scatter(
        1536, 2048, False, 0, False, 128),
    "fp6_small_m_m4_k4096": lambda: bf16_to_fp6_small_m.compile_bf16_to_fp6_small_m(4, 4096),
    "fp6_row_gs_m128_k4096": lambda: fp6_row_gs.compile_fp6_row_gs(128, 4096),
    "w4a16_activation_silu_2048": lambda: w4a16.compile_w4a16_activation(
        rows=8, intermediate_size=2048, activation="silu"),
    "w4a16_topk_sum_8_of_4096": lambda: w4a16.compile_w4a16_topk_sum(
        m=8, topk=8, hidden_size=4096),
    "hadamard128_4096": lambda: w4a16._compile_trellis_dense_hadamard128(
        width=4096, scale_before=True),
    "nvfp4_gemm_m4096_n4096_k4096": lambda: nvfp4_gemm(4096, 4096, 4096),
}  # fmt: skip


def main(destination):
    """Compiles every kernel of the list, each of which must leave one cubin."""
    destination.mkdir(parents=True, exist_ok=True)
    index = {}
    for name, make in KERNELS.items():
        specs.clear()
        make()
        cubins = sorted(DUMPED.glob(f"**/*.{ARCH}.cubin"))
        if len(cubins) != 1 or len(specs) != 1:
            sys.exit(f"{name}: {len(cubins)} cubins of {len(specs)} compilations; expected one")
        shutil.copyfile(cubins[0], destination / f"{name}.cubin")
        cubins[0].unlink()
        index[name] = {
            "kernel": specs[0].kernel_id,
            "version": specs[0].version,
            "key": json.loads(specs[0].json_key),
        }
        print(name, flush=True)
    text = json.dumps(index, indent=1, sort_keys=True) + "\n"
    (destination / "index.json").write_text(text, encoding="utf-8")


main(Path(sys.argv[1]))
