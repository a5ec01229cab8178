"""Every fact of the two published documents, and where ours must have it.

The tables were written by hand from the publishers' source merge contract of Jovian Judgement r1
and their runbook of Infernal Invocation r21. A fact is looked for in the section that it belongs
to, so that it cannot be found by accident.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from support.releases import R1, R18, R21, ROOT, documents, flat, project, section

TAGS = {
    R1: "voipmonitor/vllm:jovian-judgement-vllm28bc825-b12x8a5b9bf-fi1ac6942-cu133-torch213-"
    "20260903-r1",
    R21: "voipmonitor/vllm:infernal-invocation-vllmd6cf36a-b12xf6dc512-fi1ac6942-cu133-torch213-"
    "20260827-r21",
    R18: "voipmonitor/vllm:infernal-invocation-vllmf0fa1ce-b12x75787c7-fi1ac6942-cu133-torch213-"
    "20260818-r18",
}


@pytest.mark.parametrize("output", sorted(TAGS))
def test_the_flake_alone_gives_the_published_tag(output: str) -> None:
    assert documents(output).facts.reference == TAGS[output]


PULLS = "https://github.com/local-inference-lab/b12x/pull"
CONTRACT_R1 = [
    # (section, fact)
    ("", "# [JJ r1] DeepSeek-V4-Flash source merge contract #94"),
    ("Purpose", "source merge contract for the qualified DeepSeek-V4-Flash-0731 Jovian Judgement"),
    ("Purpose", TAGS[R1]),
    (
        "Purpose",
        "registry digest: sha256:9e8cbbe80423510ad77b35fc7414101e2a5d4529ccf6d8c7ee08ab874483bac7",
    ),
    ("Purpose", "pinned base revisions"),
    (
        "Purpose",
        "https://github.com/local-inference-lab/rtx6kpro/blob/master/models/"
        "ds4dspark-jovian-judgement-r1.md",
    ),
    ("vLLM: dev/jovian-judgement", "Register speculative CUDA graph row counts during B12X warmup"),
    ("vLLM: dev/jovian-judgement", "vllm#628"),
    ("vLLM: dev/jovian-judgement", "cbb66bdff1763c174ebc794a7f968930e956580f"),
    ("vLLM: dev/jovian-judgement", "scheduler-reachable speculative row counts before B12X"),
    ("vLLM: dev/jovian-judgement", "instead of discovering an uncovered contract after startup"),
    (
        "vLLM: dev/jovian-judgement",
        "fix(ds4): clear custom all-reduce selectors in NCCL mode",
    ),
    ("vLLM: dev/jovian-judgement", "vllm#630"),
    ("vLLM: dev/jovian-judgement", "5b6fb80f5c868b62da2c01c3f52861b34c84d8ac"),
    ("vLLM: dev/jovian-judgement", "ALLREDUCE_MODE=nccl remove B12X backend and cutoff selectors"),
    ("vLLM: dev/jovian-judgement", "cannot inherit a custom all-reduce policy"),
    (
        "vLLM: dev/jovian-judgement",
        "Integration tree: `28bc825a1321bb480fc3294179fd34afeb468389`",
    ),
    ("B12X: master", "fix(comm): make TP2 graph peer-push generation-safe"),
    ("B12X: master", "b12x#246"),
    ("B12X: master", "2a2baaf3979c1f47f8fd139aab5c6eeea35003e4"),
    ("B12X: master", "generation-tagged producer/consumer publication"),
    ("B12X: master", "cannot consume a readiness value left by an earlier replay"),
    ("B12X: master", "Use a valid W4A8 MoE profiling oracle"),
    ("B12X: master", "b12x#302"),
    ("B12X: master", "f8a7b9c4070754ed4399c71fc4306d8970711e1c"),
    ("B12X: master", "an oracle that supplies valid MXFP8 scale and route metadata"),
    ("B12X: master", "instead of an invalid synthetic call"),
    ("B12X: master", "Integration tree: `8a5b9bfbf59ad61d87efdc8017b91a269d5a319c`"),
    (
        "LMCache: release/v0.5.2-glm52-dcp-base",
        "fix(vllm): support engine-driven hybrid KV transfers",
    ),
    ("LMCache: release/v0.5.2-glm52-dcp-base", "LMCache#44"),
    ("LMCache: release/v0.5.2-glm52-dcp-base", "97ede799d6605ca1bd5285582df4e74a3d3c7b0d"),
    ("LMCache: release/v0.5.2-glm52-dcp-base", "interleaved 64-head blocks-first KV pages"),
    ("LMCache: release/v0.5.2-glm52-dcp-base", "physical dimension-zero stride"),
    ("LMCache: release/v0.5.2-glm52-dcp-base", "compressed-MLA cache groups"),
    (
        "LMCache: release/v0.5.2-glm52-dcp-base",
        "Integration tree: `eb4c227f68a4e1c45d6b8edf6b4934e18f6d1f8b`",
    ),
    ("LMCache: release/v0.5.2-glm52-dcp-base", "pre-existing mypy failures in files outside"),
    ("LMCache: release/v0.5.2-glm52-dcp-base", "114 tests passing"),
    ("LMCache: release/v0.5.2-glm52-dcp-base", "passed the live store/evict/replay gate"),
    (
        "Reproducibility",
        "| vLLM | open: no base commit is stated | no | #628, #630 |",
    ),
    ("Qualification evidence", "two RTX PRO 6000 Blackwell GPUs connected through one PCIe switch"),
    ("Qualification evidence", "CUDA 13.3, PyTorch 2.13.0, NCCL 2.31.2, TP2/DCP1, B12X W4A8"),
    ("Qualification evidence", "FP8 compressed MLA KV, fixed probabilistic DSpark K5"),
    ("Scope boundary", "Native vLLM filesystem L2 is not part of this release contract"),
    ("Scope boundary", "default to GPU KV storage"),
    ("Scope boundary", "only when `LMCACHE_MODE=ram` or `LMCACHE_MODE=disk` is selected"),
    ("Scope boundary", "vLLM pull request 631 is an independent optional implementation"),
    ("Scope boundary", "not required to reproduce Jovian Judgement r1"),
]

DSPARK = "docker-compose-ds4-dspark-infernal-invocation-cu133-r21.yml"
TARGET = "docker-compose-ds4-infernal-invocation-cu133-r21.yml"
EXAMPLES = (
    "https://raw.githubusercontent.com/local-inference-lab/blackwell-llm-docker/main/examples/"
)

RUNBOOK_R21 = [
    ("", "# DeepSeek-V4-Flash-0731 Infernal Invocation r21"),
    ("", "qualified for TP2/DCP1 fixed probabilistic DSpark K5 serving"),
    ("", "pinned public Git revisions and pull-request heads"),
    ("", "no local source patch or research overlay"),
    ("", "still required before the same tree can be reproduced from branch heads alone"),
    ("TL;DR", f"curl -LO {EXAMPLES}{DSPARK}"),
    ("TL;DR", f"docker compose -f {DSPARK} pull"),
    ("TL;DR", f"docker compose -f {DSPARK} up -d"),
    ("TL;DR", "on GPUs 0 and 1"),
    ("TL;DR", "an image reference and no build section"),
    ("TL;DR", "TP2/DCP1, fixed probabilistic DSpark K5, eight admitted sequences"),
    ("TL;DR", "48-row CUDA-graph envelope"),
    ("TL;DR", "1,048,576-token per-request limit"),
    ("TL;DR", "4,096-token prefill chunks"),
    ("TL;DR", "target-only profile when speculative decoding is not needed"),
    ("TL;DR", f"curl -LO {EXAMPLES}{TARGET}"),
    ("TL;DR", f"docker compose -f {TARGET} up -d"),
    ("Artifact identity", f"| Image | `{TAGS[R21]}` |"),
    (
        "Artifact identity",
        "| Registry digest | "
        "`sha256:ed525dec1a4ac5cf7f19c7cf2fb29661389d71a29ff8de91aade8e6785e10291` |",
    ),
    (
        "Artifact identity",
        "| Image ID | `sha256:24f19364f0c6a991422bcb436a3e07ab52e66e0eb241aba0b9490e95476a8e3f` |",
    ),
    (
        "Artifact identity",
        "| Docker source | "
        "`local-inference-lab/blackwell-llm-docker@cc2ac998e8f7b5f04d4271a79e6647b4debad3db` |",
    ),
    (
        "Artifact identity",
        "| Model revision | "
        "`deepseek-ai/DeepSeek-V4-Flash-0731@9e165c30e2704aec5d9d593cce3eebd58bbef1cb` |",
    ),
    (
        "Artifact identity",
        "| vLLM base | `dev/infernal-invocation@b5f995e73e6b7fe27c9927477e277a151ebcc9e9` |",
    ),
    (
        "Artifact identity",
        "| vLLM integration tree | `d6cf36ae0dc30d48fd656a3c34a353ec62074922` |",
    ),
    ("Artifact identity", "| B12X base | `master@a71c705f1c4710f59129562d26c73e70098e29de` |"),
    (
        "Artifact identity",
        "| B12X integration tree | `f6dc512eb13ac2c09b2bf53656c704081af64361` |",
    ),
    (
        "Artifact identity",
        "| LMCache integration tree | `e045d729bc5c4c63a40e13d032f42923de97812f` |",
    ),
    (
        "Artifact identity",
        "| Runtime | CUDA 13.3, PyTorch 2.13.0, NCCL 2.31.2, FlashInfer 0.6.18, CUTLASS DSL 4.6.2, "
        "XGrammar 0.2.5 |",
    ),
    ("Artifact identity", f"| DSpark K5 Compose | `{DSPARK}` |"),
    ("Artifact identity", f"| Target-only Compose | `{TARGET}` |"),
    ("Artifact identity", "every base commit, pull-request head, integration tree, patch digest"),
    ("Artifact identity", "there is no source mount and no import overlay"),
    ("Serving contract", "| Setting | DSpark K5 default | Target-only default |"),
    ("Serving contract", "| `MODE` | `dspark` | `dspark-mtp0` |"),
    ("Serving contract", "| `BACKEND` | `b12x-a8-dglin` | `b12x-a8-dglin` |"),
    ("Serving contract", "| `TP_SIZE` / `DCP_SIZE` | `2` / `1` | `2` / `1` |"),
    ("Serving contract", "| `MAX_NUM_SEQS` | `8` | `32` |"),
    ("Serving contract", "| CUDA graph cap | `48` from `8 * (1 + 5)` | derived by the launcher |"),
    ("Serving contract", "| `MAX_MODEL_LEN` | `1048576` | `1048576` |"),
    ("Serving contract", "| `MAX_NUM_BATCHED_TOKENS` | `4096` | `4096` |"),
    ("Serving contract", "| `GPU_MEMORY_UTILIZATION` | `0.975` | `0.975` |"),
    ("Serving contract", "| KV format | FP8 compressed MLA | FP8 compressed MLA |"),
    ("Serving contract", "| Weight loader | InstantTensor BUFFERED | InstantTensor BUFFERED |"),
    ("Serving contract", "B12X serves sparse attention, routed experts, and tensor-parallel"),
    ("Serving contract", "DGLIN serves FP8 dense projections"),
    ("Serving contract", "`ALLREDUCE_MODE=auto` delegates graph routing to B12X"),
    ("Serving contract", "rejected external row-by-row startup calibration program"),
    ("Serving contract", "1,249,424 aggregate compressed-MLA KV tokens"),
    ("Serving contract", "limited by `MAX_MODEL_LEN=1048576`"),
    ("Serving contract", "disabled by default because they have independent ownership contracts"),
    ("Serving contract", "KV_OFFLOADING_SIZE=32"),
    ("Serving contract", "32 GiB total across TP ranks"),
    ("Serving contract", "LMCACHE_MODE=disk"),
    ("Serving contract", "do not combine with KV_OFFLOADING_SIZE"),
    ("Serving contract", "did not repeat persistent-cache restart testing"),
    ("Serving contract", "specified in the r19 serving study"),
    ("Source composition", "contains 31 named pull-request heads"),
    (
        "Source composition",
        "Seven of those heads are already merged into `dev/infernal-invocation`",
    ),
    ("Source composition", "the pinned base predates those merges"),
    ("Source composition", "listed in the Infernal Invocation DS4 and GLM source merge contract"),
    ("Source composition", "**Implemented, review pending:**"),
    ("Source composition", "these three pull requests to `b12x/master` in order"),
    (
        "Source composition",
        f"1. [B12X #243]({PULLS}/243) executes FP16/BF16 K6/MCG decode with a native fused",
    ),
    (
        "Source composition",
        f"2. [B12X #246]({PULLS}/246) uses a generation-tagged TP2 peer-push protocol",
    ),
    (
        "Source composition",
        f"3. [B12X #247]({PULLS}/247) bounds native W4A16 route execution by resident tensors",
    ),
    ("Source composition", "all 13 LMCache pull-request heads named by the lock are already"),
    (
        "Source composition",
        "`release/v0.5.2-glm52-dcp-base@a128b2e286ebb3556cb43124149e600ff99fe481`",
    ),
    ("Source composition", "The LMCache integration patch is empty"),
    (
        "Source composition",
        "**Research-only and excluded:** the external communication calibration",
    ),
    ("Source composition", "FP8 dense-GEMM autotuner, deterministic split-K experiments, and PDL"),
    ("Source composition", "did not establish a qualified end-to-end gain"),
    (
        "Qualification",
        "two RTX PRO 6000 Blackwell GPUs connected through the same PCIe switch (PIX)",
    ),
    ("Qualification", "600 W power limit and ran at a 2,692 MHz SM clock"),
    ("Qualification", "`MAX_NUM_SEQS=8`, graph cap 48, `MAX_NUM_BATCHED_TOKENS=4096`"),
    ("Qualification", "default B12X/DGLIN backend"),
    (
        "Qualification",
        "| Runtime contract | PASS: CUDA 13.3, PyTorch 2.13.0, NCCL 2.31.2, vLLM package and all "
        "dependency versions matched image labels |",
    ),
    ("Qualification", "| Model load | InstantTensor BUFFERED completed |"),
    ("Qualification", "Target, DSpark, and DFlash context-KV FULL graphs captured |"),
    ("Qualification", "| Exact response sanity | Returned `r21 validation passed` |"),
    ("Qualification", "| DSpark C1, 30 seconds | 177.66 aggregate tok/s; 68.45 target steps/s |"),
    ("Qualification", "2.595 accepted tokens per verifier step; 31.90% strict accepted/drafted |"),
    ("Qualification", "| Effective KV capacity | 1,249,424 aggregate compressed-MLA tokens |"),
    ("Qualification", "signed-zero, transposed storage-dense view, and generation-wrap coverage"),
    ("Qualification", "passed in 9.61 seconds |"),
    ("Qualification", "vLLM, B12X, LMCache tree, patch, and Compose assertions passed |"),
    ("Qualification", "Target steps per second is the stable backend metric"),
    ("Qualification", "r19 direct-root-port K5 measurement reached 66.1 target steps/s"),
    ("Qualification", "r21 reached 68.45 steps/s on the PCIe-switch workstation"),
    ("Qualification", "not a controlled release delta"),
    ("Qualification", "Only the DSpark C1 E2E gate was repeated for this source composition"),
    ("Qualification", "TP2/TP4, concurrency, prefill, one-million-token, and offload"),
    ("Qualification", "Do not treat those measurements as r21-specific results"),
    ("Operational checks", "docker logs ds4-dspark-infernal-invocation-cu133-r21 2>&1"),
    ("Operational checks", "grep -E 'version 0.26.1rc0|DS4 launch:|Captured|KV cache size'"),
    (
        "Operational checks",
        "`mode=dspark`, `depth=fixed`, `backend=b12x-a8-dglin`, `tp=2`, `dcp=1`",
    ),
    ("Operational checks", "`max_seqs=8` and `graph=48`"),
    ("Operational checks", "Unexpected source tree labels, eager decode dispatch, a different"),
    ("Operational checks", "a reused JIT cache from another image invalidates a performance"),
]


def where(text: str, heading: str) -> str:
    return flat(section(text, heading) if heading else text.split("\n## ", maxsplit=1)[0])


@pytest.mark.parametrize(("heading", "fact"), CONTRACT_R1)
def test_the_contract_of_r1_has_every_fact(heading: str, fact: str) -> None:
    assert fact in where(documents(R1).contract(), heading)


@pytest.mark.parametrize(("heading", "fact"), RUNBOOK_R21)
def test_the_runbook_of_r21_has_every_fact(heading: str, fact: str) -> None:
    assert fact in where(documents(R21).runbook(), heading)


def locks() -> Path:
    """The published locks: beside the checkout, or where REPROBUILD_UPSTREAM says."""
    named = os.environ.get("REPROBUILD_UPSTREAM")
    for place in (Path(named) if named else None, ROOT.parent / "shared" / "upstream",
                  ROOT / "tests" / "data"):  # fmt: skip
        if place is not None and (place / "locks").is_dir():
            return place / "locks"
    pytest.skip("no published locks: set REPROBUILD_UPSTREAM")


@pytest.mark.parametrize("output", [R18, R21])
@pytest.mark.parametrize("component", ["vllm", "b12x", "lmcache"])
def test_the_flake_states_what_the_published_lock_states(output: str, component: str) -> None:
    path = locks() / f"{output}__{component}__integration.lock.json"
    lock = json.loads(path.read_text())
    source = project().flake.outputs[output].sources[component]
    assert source.base == lock["base"]["ref"]
    assert source.base_commit == lock["base"]["commit"]
    assert source.strategy == lock["composition_strategy"]
    assert [(h.number, h.head, h.title) for h in source.heads] == [
        (row["number"], row["head"], row["title"]) for row in lock["pull_requests"]
    ]
    assert source.tree == lock["result"]["tree"]
    assert source.patch_sha256 == lock["result"]["patch_sha256"]
    assert project().flake.inputs[source.input].model_dump()["url"] == lock["base"]["repository"]


def test_every_head_of_r21_is_in_its_contract() -> None:
    text = documents(R21).contract()
    for view in documents(R21).facts.sources:
        for head in view.heads:
            assert f"at `{head.head}`" in text
            assert head.title in text
    assert sum(len(view.heads) for view in documents(R21).facts.sources) == 31 + 3 + 13


def test_flashinfer_is_a_git_input_at_the_named_commit() -> None:
    flashinfer = project().flake.inputs["flashinfer-git"]
    assert flashinfer.model_dump()["rev"] == "1ac6942776b383c6b03c7a5805a22e72a3e3349f"
    assert documents(R21).facts.commits["flashinfer"].startswith("1ac6942")
