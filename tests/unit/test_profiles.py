"""Serving profiles: what can be set, what follows, what is refused – here, and in a shell."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprobuild.core.profiles.compose import prelude
from reprobuild.core.profiles.model import Profile, Rule, Setting
from reprobuild.core.profiles.resolve import merged, profile_problems, resolve
from reprobuild.errors import ReprobuildError
from support.releases import R21, documents, project

PROFILES = project().flake.outputs[R21].profiles
# The plugin (Compose 2) and the older program read some things in their own ways: both are asked.
COMPOSE = [
    words for words in (["docker", "compose"], ["docker-compose"])
    if shutil.which(words[0])
    and subprocess.run([*words, "version"], capture_output=True, check=False).returncode == 0
]  # fmt: skip
needs_compose = pytest.mark.skipif(not COMPOSE, reason="no docker compose, no docker-compose")


def config(tmp_path: Path, name: str, environment: Mapping[str, str] = {}) -> dict[str, Any]:
    """What Compose makes of the file, as the one service's table."""
    path = tmp_path / "compose.yml"
    path.write_text(documents(R21).compose(name))
    kept = {key: os.environ[key] for key in ("PATH", "DOCKER_CONFIG") if key in os.environ}
    services: list[dict[str, Any]] = []
    for words in COMPOSE:
        done = subprocess.run(
            [*words, "-f", str(path), "config"], env={"HOME": str(tmp_path), **kept, **environment},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        services.append(yaml.safe_load(done.stdout)["services"]["ds4"])
    service = services[0]
    for other in services[1:]:
        for key in ("environment", "entrypoint", "image", "container_name", "ulimits"):
            assert other[key] == service[key], key
    return service


SERVING = {
    "dspark": {
        "MODE": "dspark", "BACKEND": "b12x-a8-dglin", "TP_SIZE": "2", "DCP_SIZE": "1",
        "MAX_NUM_SEQS": "8", "GRAPH": "48", "MAX_MODEL_LEN": "1048576",
        "MAX_NUM_BATCHED_TOKENS": "4096", "GPU_MEMORY_UTILIZATION": "0.975",
        "LOAD_FORMAT": "instanttensor", "INSTANTTENSOR_BACKEND": "BUFFERED",
        "DSPARK_TOKENS": "5", "DSPARK_DEPTH_MODE": "fixed", "ALLREDUCE_MODE": "auto",
        "DRAFT_SAMPLE_METHOD": "probabilistic", "LMCACHE_MODE": "off", "KV_OFFLOADING_SIZE": "",
    },
    "target-only": {
        "MODE": "dspark-mtp0", "BACKEND": "b12x-a8-dglin", "TP_SIZE": "2", "DCP_SIZE": "1",
        "MAX_NUM_SEQS": "32", "GRAPH": "auto", "MAX_MODEL_LEN": "1048576",
        "MAX_NUM_BATCHED_TOKENS": "4096", "GPU_MEMORY_UTILIZATION": "0.975",
        "LOAD_FORMAT": "instanttensor", "INSTANTTENSOR_BACKEND": "BUFFERED",
        "LMCACHE_MODE": "off", "KV_OFFLOADING_SIZE": "",
    },
}  # fmt: skip


@needs_compose
@pytest.mark.parametrize("name", sorted(SERVING))
def test_compose_has_the_settings_of_the_serving_contract(name: str, tmp_path: Path) -> None:
    service = config(tmp_path, name)
    got = {key: str(value) for key, value in service["environment"].items()}
    assert {key: got[key] for key in SERVING[name]} == SERVING[name]
    assert service["image"] == documents(R21).facts.reference
    assert "build" not in service
    assert got["CUDA_VISIBLE_DEVICES"] == "0,1"


@needs_compose
def test_settings_come_from_the_environment(tmp_path: Path) -> None:
    given = {"MAX_NUM_SEQS": "16", "GPUS": "2,3", "NAME": "other", "OFFLINE": "1"}
    service = config(tmp_path, "dspark", given)
    assert str(service["environment"]["MAX_NUM_SEQS"]) == "16"
    assert service["environment"]["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert service["container_name"] == "other"
    assert str(service["environment"]["OFFLINE"]) == "1"


@pytest.mark.parametrize("name", sorted(SERVING))
def test_the_file_is_yaml_with_the_prelude_whole(name: str) -> None:
    service = yaml.safe_load(documents(R21).compose(name))["services"]["ds4"]
    script = service["entrypoint"][2].replace("$$", "$").rstrip("\n")
    assert script == prelude(merged(PROFILES, name))
    launcher = ["/usr/local/bin/lmcache-mp-wrapper.sh", "/usr/local/bin/serve-ds4-flash.sh"]
    assert service["entrypoint"][3:] == ["ds4", *launcher]


def in_shell(name: str, given: Mapping[str, str]) -> tuple[int, dict[str, str], str]:
    """The launcher's environment as the container's shell leaves it."""
    profile = merged(PROFILES, name)
    environment = {}
    for key, setting in profile.settings.items():
        value = resolve(profile, {}).settings[key]
        environment[key] = given.get(key) or ("" if value is None else str(value))
        if setting.derived:
            environment[f"{key}_GIVEN"] = given.get(key, "")
    environment |= {"VLLM_PCIE_ALLREDUCE_BACKEND": "cpp", "VLLM_CPP_AR_1STAGE_NCCL_CUTOFF": "56KB"}
    environment |= {"OFFLINE": given.get("OFFLINE", "0"), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        ["/bin/sh", "-euc", prelude(profile), "ds4", "env"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    left = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    return done.returncode, left, done.stderr


MATRIX = [
    dict(zip(("KV_OFFLOADING_SIZE", "LMCACHE_MODE", "NATIVE_L2_GB"), row, strict=True))
    for row in itertools.product(("", "0", "32"), ("off", "ram", "disk"), ("0", "64"))
]


@pytest.mark.parametrize("given", MATRIX, ids=lambda g: "-".join(v or "unset" for v in g.values()))
@pytest.mark.parametrize("name", sorted(SERVING))
def test_the_matrix_of_combinations(name: str, given: dict[str, str]) -> None:
    offload = given["KV_OFFLOADING_SIZE"] not in ("", "0")
    forbidden = []
    if offload and given["LMCACHE_MODE"] != "off":
        forbidden.append("one-owner-of-kv")
    if given["NATIVE_L2_GB"] != "0" and not offload:
        forbidden.append("native-l2-needs-offload")
    found = resolve(merged(PROFILES, name), given, name)
    assert [rule.name for rule in found.broken] == forbidden
    status, _, said = in_shell(name, given)
    assert (status == 64) == bool(forbidden)
    if forbidden:
        assert f"refused: rule {forbidden[0]}: " in said
        with pytest.raises(ReprobuildError) as caught:
            found.check(name)
        assert caught.value.code == "E-PROFILE"
        assert caught.value.facts["rule"] == forbidden[0]
    else:
        found.check(name)


@pytest.mark.parametrize(
    ("given", "graph"),
    [({}, "48"), ({"MAX_NUM_SEQS": "4"}, "24"), ({"DSPARK_TOKENS": "7"}, "64"),
     ({"MAX_NUM_SEQS": "16", "GRAPH": "48"}, "48"), ({"GRAPH": "100"}, "100")],
)  # fmt: skip
def test_the_graph_cap_is_derived_unless_it_is_set(given: dict[str, str], graph: str) -> None:
    assert str(resolve(merged(PROFILES, "dspark"), given).settings["GRAPH"]) == graph
    status, left, said = in_shell("dspark", given)
    assert (status, left.get("GRAPH")) == (0, graph), said
    assert "GRAPH_GIVEN" not in left


def test_nccl_takes_the_selectors_out_of_the_environment() -> None:
    status, left, _ = in_shell("dspark", {})
    assert (status, left["VLLM_PCIE_ALLREDUCE_BACKEND"]) == (0, "cpp")
    status, left, _ = in_shell("dspark", {"ALLREDUCE_MODE": "nccl"})
    assert status == 0
    assert "VLLM_PCIE_ALLREDUCE_BACKEND" not in left
    assert "VLLM_CPP_AR_1STAGE_NCCL_CUTOFF" not in left
    clears = resolve(merged(PROFILES, "dspark"), {"ALLREDUCE_MODE": "nccl"}).clears
    assert "VLLM_PCIE_ALLREDUCE_BACKEND" in clears


@pytest.mark.parametrize("name", sorted(SERVING))
def test_one_switch_for_a_site_without_a_network(name: str, tmp_path: Path) -> None:
    status, _, said = in_shell(name, {"OFFLINE": "1"})
    assert (status, "MODEL must name a path that exists" in said) == (64, True)
    paths = {"OFFLINE": "1", "MODEL": str(tmp_path), "HF_HOME": str(tmp_path)}
    status, left, said = in_shell(name, paths)
    assert status == 0, said
    assert (left["HF_HUB_OFFLINE"], left["TRANSFORMERS_OFFLINE"]) == ("1", "1")
    status, left, _ = in_shell(name, {})
    assert "HF_HUB_OFFLINE" not in left
    found = resolve(merged(PROFILES, name), paths)
    assert (found.offline, found.paths) == (True, ("MODEL", "HF_HOME"))


@pytest.mark.parametrize(
    ("key", "value"),
    [("MAX_NUM_SEQS", "x"), ("MAX_NUM_SEQS", "0"), ("MAX_NUM_SEQS", "-1"), ("MAX_NUM_SEQS", "010"),
     ("MAX_NUM_SEQS", "1e3"), ("PORT", "65536"), ("MODE", "mtp"), ("LMCACHE_MODE", "on"),
     ("MAX_NUM_SEQS", "$(touch x)"), ("MAX_NUM_SEQS", "8;exit")],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_is_refused_in_both_places(key: str, value: str) -> None:
    with pytest.raises(ReprobuildError) as caught:
        resolve(merged(PROFILES, "dspark"), {key: value}, "dspark")
    assert (caught.value.code, caught.value.facts["setting"]) == ("E-PROFILE", key)
    status, _, said = in_shell("dspark", {key: value})
    assert (status, f"refused: {key}" in said) == (64, True)


def test_an_empty_optional_setting_is_not_handed_on() -> None:
    _, left, _ = in_shell("dspark", {})
    assert "KV_OFFLOADING_SIZE" not in left
    _, left, _ = in_shell("dspark", {"KV_OFFLOADING_SIZE": "32"})
    assert left["KV_OFFLOADING_SIZE"] == "32"


def test_what_is_wrong_in_a_profile_is_said() -> None:
    settings = {"A": Setting(kind="integer", default=5, maximum=3), "B": Setting(derived="A * C"),
                "D": Setting(derived="B + 1")}  # fmt: skip
    rule = Rule(name="r", when="E == 1", reason="no")
    said = profile_problems(Profile(settings=settings, rules=(rule,)))
    assert said == [
        "the default of A is '5'; expected at most 3",
        "B derives from C, which is no setting",
        "D derives from B, which is derived itself",
        "rule r speaks of E, which is no setting",
    ]
    broken = Profile(settings={"A": Setting(default="x")},
                     rules=(Rule(name="never", when="A == 'x'", reason="no"),))  # fmt: skip
    assert profile_problems(broken) == ["its defaults break rule never"]


@pytest.mark.parametrize("extends", ["self", "nowhere"])
def test_a_profile_extends_another_one(extends: str) -> None:
    profiles = {"self": Profile(extends=extends)}
    with pytest.raises(ReprobuildError) as caught:
        merged(profiles, "self")
    assert caught.value.code == "E-FLAKE"
