"""A server's log against the release that it should be of."""

from __future__ import annotations

import pytest

from reprobuild.core.documents.logs import Finding, check_logs
from support.releases import R21, documents

GOOD = """\
INFO vLLM API server version 0.26.1rc0+infernal.invocation.cu133.r21.vllmd6cf36a.b12xf6dc512
DS4 launch: mode=dspark, depth=fixed, backend=b12x-a8-dglin, tp=2, dcp=1, max_seqs=8, graph=48
using /cache/jit/cu133-torch213-vllmd6cf36ae0d-b12xf6dc512eb1-lmcachee045d729bc/vllm, eager off
INFO enforce_eager=False
Captured target FULL CUDA graphs
Captured DSpark FULL CUDA graphs
Captured DFlash context-KV FULL CUDA graphs
INFO GPU KV cache size: 1,249,424 tokens
"""


def check(text: str, profile: str = "dspark") -> list[Finding]:
    made = documents(R21)
    return check_logs(text.splitlines(), made.facts, profile, made.served[profile], made.values)


def wrong(text: str) -> dict[str, str]:
    return {f.check: f.state for f in check(text) if f.state != "ok"}


def test_the_log_of_the_release_holds() -> None:
    found = check(GOOD)
    assert {f.state for f in found} == {"ok"}
    assert ("KV cache", "1,249,424 tokens", 8) in [(f.check, f.said, f.line) for f in found]
    assert {f.check for f in found} >= {
        "launch mode", "launch depth", "launch backend", "launch tp", "launch dcp",
        "launch max_seqs", "launch graph", "version", "graph DSpark", "source labels"}  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "check_name", "state"),
    [
        ("mode=dspark", "mode=dspark-mtp0", "launch mode", "invalidates"),
        ("depth=fixed", "depth=dynamic", "launch depth", "invalidates"),
        ("graph=48", "graph=40", "launch graph", "invalidates"),
        ("tp=2", "tp=4", "launch tp", "invalidates"),
        (", dcp=1", "", "launch dcp", "missing"),
        ("DS4 launch:", "launched", "launch line", "missing"),
        ("vllmd6cf36a.", "vllmf0fa1ce.", "source labels", "invalidates"),
        ("b12xf6dc512eb1-", "b12x75787c7a74-", "JIT cache", "invalidates"),
        ("enforce_eager=False", "enforce_eager=True", "eager decode", "invalidates"),
        ("eager off", "eager decode", "eager decode", "invalidates"),
        ("Captured DSpark", "Skipped DSpark", "graph DSpark", "missing"),
        ("Captured", "Seen", "CUDA graphs", "missing"),
        ("KV cache size", "KV cache", "KV cache", "missing"),
        ("version 0.26.1rc0", "version 0.26.0", "version", "missing"),
    ],
)
def test_each_check_can_fail(old: str, new: str, check_name: str, state: str) -> None:
    assert wrong(GOOD.replace(old, new))[check_name] == state


def test_another_launch_of_the_same_server_spoils_it() -> None:
    assert wrong(GOOD + "DS4 launch: mode=dspark, depth=dynamic\n")["launch line"] == "invalidates"


def test_other_words_for_no_eager_mode_are_no_eager_mode() -> None:
    assert wrong(GOOD + "not in eager mode\nrunning without eager decode\n") == {}


def test_target_only_has_its_own_checks() -> None:
    text = GOOD.replace("mode=dspark", "mode=dspark-mtp0").replace("max_seqs=8", "max_seqs=32")
    assert {f.state for f in check(text, "target-only")} == {"ok"}


@pytest.mark.parametrize("text", ["", "\n" * 1000, "DS4 launch:" + " a=b" * 100_000, "\0" * 100])
def test_hostile_logs_are_read(text: str) -> None:
    assert "KV cache" in wrong(text)
