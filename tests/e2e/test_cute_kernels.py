"""B12X's CuTe DSL kernels, compiled ahead of time in the sandbox, twice."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from support.quickstart import Command, copy_quickstart

MIRRORS = os.environ.get("REPROBUILD_MIRRORS", "")
MIRROR = Path(MIRRORS) / "local-inference-lab+b12x" / "repo"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
    pytest.mark.skipif(not MIRRORS or not MIRROR.is_dir(), reason="no mirror of b12x here"),
]


def test_a_set_is_compiled_to_the_same_cubins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "config" / "reprobuild" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'[mirrors]\n"https://github.com/local-inference-lab/b12x" = "{MIRROR}"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    given = os.environ.get("REPROBUILD_TEST_STORE")
    store = Path(given) if given else tmp_path / "store"
    command = Command(copy_quickstart(tmp_path / "project"), store)
    made = command.json("realize", "kernels.b12x.cute")["outputs"]["kernels.b12x.cute"]
    command.run("realize", "--check", "kernels.b12x.cute")  # built again: the same bytes

    index = json.loads((Path(made["path"]) / "index.json").read_text())
    modules = command.json("kernels", "kernels.b12x.cute")["modules"]
    assert sorted(modules) == [f"b12x/{name}.cubin" for name in sorted(index)]
    assert len(modules) >= 14
    for name, module in modules.items():
        assert (module["archs"], module["ptx"]) == (["sm_120a"], []), name
        (kernel,) = module["kernels"]
        assert kernel["code_size"] > 0
    gemm = index["nvfp4_gemm_m4096_n4096_k4096"]
    assert gemm["kernel"] == "gemm.dense"
