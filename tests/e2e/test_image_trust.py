"""Licences, keys, attestations and policy, by the command, against a registry."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from reprobuild.adapters.store.store import LocalStore
from reprobuild.core.derivation import Isolation
from reprobuild.core.digest import Digest
from support.demo import Demo, needs_sandbox
from support.registry import running

pytestmark = needs_sandbox


def add_policy(demo: Demo, text: str) -> None:
    path = demo.path / "flake-like.toml"
    path.write_text(path.read_text() + f"\n[policy]\n{text}\n")


def test_from_key_to_registry_and_back(realized: Demo, tmp_path: Path) -> None:
    made = realized.json("key", "generate")
    with running(tmp_path) as host:
        pushed = realized.json("image", "push", "--to", f"{host}/demo:1", "--tag", "2", "--attest")
        assert pushed["tags"] == ["2"]
        public = ["--key", made["file"]]
        for tag in ("1", "2"):
            seen = realized.json("image", "verify", f"registry:{host}/demo:{tag}", *public)
            assert [c["signer"] for c in seen["attestations"]] == [made["key_id"]]
            assert seen["manifest_digest"] == pushed["manifest_digest"]
        again = realized.json("image", "push", "--to", f"{host}/demo:1", "--attest")
        assert again["sent"] == 0


def test_files_offline(realized: Demo, tmp_path: Path) -> None:
    made = realized.json("key", "generate")
    target = tmp_path / "image.tar"
    realized.run("image", "save", "-o", str(target))
    with_key = ["--offline", "image", "verify", f"file:{target}", "--key", made["file"]]
    missing = realized.run("--json", *with_key, status=9)
    assert missing.error["code"] == "E-SIGNATURE"
    written = realized.json("image", "attest", f"file:{target}", "-o", str(target))
    assert sorted(Path(p).name for p in written["paths"]) == [
        "image.tar.cdx.json", "image.tar.provenance.dsse.json", "image.tar.spdx.json",
    ]  # fmt: skip
    realized.run(*with_key)
    path = tmp_path / "image.tar.provenance.dsse.json"
    named = ["image", "verify", f"file:{target}", "--attestation", str(path)]
    assert len(realized.json(*named)["attestations"]) == 1  # by the user's own key
    document = json.loads(path.read_text())
    document["payload"] = document["payload"][:-8] + "AAAAAA=="
    path.write_text(json.dumps(document))
    assert realized.run("--json", *with_key, status=9).error["code"] == "E-SIGNATURE"
    assert realized.run("--json", *named, status=9).error["code"] == "E-SIGNATURE"
    path.unlink()
    assert realized.run("--json", *named, status=3).error["code"] == "E-KEY"


def test_no_key_no_attestation(realized: Demo, tmp_path: Path) -> None:
    done = realized.run("--json", "image", "attest", "-o", str(tmp_path / "x"), status=3)
    assert done.error["code"] == "E-KEY"


def test_keys_are_nowhere_in_project_or_store(realized: Demo) -> None:
    realized.run("key", "generate")
    for root in (realized.path, realized.store):
        for file in root.rglob("*"):
            if file.is_file() and not file.is_symlink():
                assert b"PRIVATE KEY" not in file.read_bytes(), file


def licensed(demo: Demo) -> None:
    path = demo.path / "derivations/notes.toml"
    path.write_text('licence = "LicenseRef-NVIDIA-Proprietary"\n' + path.read_text())
    demo.run("realize")


def test_closed_licences_are_asked_for_once(realized: Demo, tmp_path: Path) -> None:
    licensed(realized)
    with running(tmp_path) as host:
        push = ["image", "push", "--to", f"{host}/demo:1"]
        done = realized.run("--json", *push, status=9)
        assert done.error["code"] == "E-LICENCE"
        assert "notes" in done.error["message"]
        name = done.error["facts"]["licence"]
        assert f"--accept-licence '{name}'" in done.error["hint"]
        realized.run(*push, "--accept-licence", name)
        realized.run(*push)  # remembered
    with running(tmp_path) as other:  # of another registry, nothing is known
        realized.run("image", "push", "--to", f"{other}/demo:1", status=9)


def test_policy_stops_what_was_realized(realized: Demo) -> None:
    licensed(realized)
    add_policy(realized, 'licences = ["MIT"]')
    for words in (["realize"], ["image", "verify"], ["image", "push", "--to", "127.0.0.1:1/x:1"]):
        done = realized.run("--json", *words, status=9)
        assert done.error["code"] == "E-POLICY", words


def test_policy_stops_a_build_of_weak_isolation(locked: Demo) -> None:
    add_policy(locked, 'isolation = "full"')
    done = locked.run("--json", "realize", "--isolation", "none", status=9)
    assert done.error["code"] == "E-POLICY"
    assert not list((locked.store / "records").glob("*/*"))


@pytest.mark.parametrize(
    "grade", [["--isolation", "none"], ["--remote", "grpc://127.0.0.1:1"]], ids=lambda g: g[0]
)
def test_a_release_stops_a_build_of_less_isolation(locked: Demo, grade: list[str]) -> None:
    done = locked.run("--json", "realize", *grade, status=9)
    assert done.error["code"] == "E-POLICY"
    assert (done.error["facts"]["expected"], done.error["facts"]["got"]) in {
        ("full", "none"), ("full", "remote"),
    }  # fmt: skip
    assert "[outputs.demo.release]" in done.error["hint"]
    assert not list((locked.store / "records").glob("*/*"))


def test_components_alone_are_built_with_less(locked: Demo) -> None:
    done = locked.json("realize", "demo.notes", "--isolation", "host-toolchain")
    assert done["outputs"]["demo.notes"]["isolation"] == "host-toolchain"
    assert locked.json("realize")["outputs"]["demo"]["isolation"] == "full"
    locked.run("image", "verify")


def test_an_image_on_record_with_less_than_its_label_says(realized: Demo, tmp_path: Path) -> None:
    """A store of an earlier version may hold such a record."""
    made = realized.json("key", "generate")
    drv = Digest.parse(realized.json("realize")["outputs"]["demo"]["drv"])
    with LocalStore.open(realized.store) as store:
        record = store.realized(drv)
        assert record is not None
        weak = replace(record, isolation=Isolation.NONE)
        store.add_record(weak)
        store.choose(drv, weak)
    assert realized.run("--json", "image", "verify", status=9).error["code"] == "E-POLICY"
    target = tmp_path / "image.tar"
    realized.run("image", "save", "-o", str(target))
    realized.run("image", "attest", "-o", str(target))
    words = ["image", "verify", f"file:{target}", "--key", made["file"]]
    assert realized.run("--json", *words, status=9).error["code"] == "E-POLICY"


def test_policy_of_signers(realized: Demo, tmp_path: Path) -> None:
    made = realized.json("key", "generate")
    add_policy(realized, f'signers = ["{made["key_id"]}"]')
    realized.run("realize")
    with running(tmp_path) as host:
        push = ["image", "push", "--to", f"{host}/demo:1"]
        assert realized.run("--json", *push, status=9).error["code"] == "E-POLICY"
        realized.run(*push, "--attest")
        realized.run("image", "verify", f"registry:{host}/demo:1")
        realized.run("key", "revoke", "default")
        done = realized.run("--json", "image", "verify", f"registry:{host}/demo:1", status=9)
        assert done.error["code"] == "E-POLICY"


@pytest.mark.parametrize("words", [["rotate"], ["revoke", "default"], ["show", "default"]], ids=str)
def test_key_commands_without_a_key(realized: Demo, words: list[str]) -> None:
    assert realized.run("--json", "key", *words, status=3).error["code"] == "E-KEY"


def test_rotation_and_trust(realized: Demo, tmp_path: Path) -> None:
    first = realized.json("key", "generate")
    rotated = realized.json("key", "rotate")
    assert rotated["old"]["key_id"] == first["key_id"] != rotated["new"]["key_id"]
    shown = {k["key_id"]: k for k in realized.json("key", "show")["keys"]}
    assert set(shown) == {first["key_id"], rotated["new"]["key_id"]}
    pem = realized.run("key", "show", "default").out
    (tmp_path / "friend.pub").write_text(pem[pem.index("-----BEGIN") :])
    trusted = realized.json("key", "trust", str(tmp_path / "friend.pub"))
    assert (trusted["key_id"], trusted["own"]) == (rotated["new"]["key_id"], False)


def test_who_trusts_the_old_key_trusts_what_the_new_one_signs(
    realized: Demo, tmp_path: Path
) -> None:
    """In attestations as files, in a registry, for a policy's signers; until it is revoked."""
    first = realized.json("key", "generate")
    old = tmp_path / "old.pub"
    old.write_bytes(Path(first["file"]).read_bytes())
    add_policy(realized, f'signers = ["{first["key_id"]}"]')
    realized.run("realize")
    new = realized.json("key", "rotate")["new"]["key_id"]
    target = tmp_path / "image.tar"
    realized.run("image", "save", "-o", str(target))
    realized.run("image", "attest", "-o", str(target))
    assert (tmp_path / "image.tar.key.rotated.json").exists()
    seen = realized.json("image", "verify", f"file:{target}", "--key", str(old))
    assert seen["attestations"][0]["signer"] == new
    with running(tmp_path) as host:
        realized.run("image", "push", "--to", f"{host}/demo:1", "--attest")
        verify = ["image", "verify", f"registry:{host}/demo:1"]
        assert realized.json(*verify, "--key", str(old))["attestations"][0]["signer"] == new
        realized.run("key", "revoke", first["key_id"])
        assert realized.run("--json", *verify, status=9).error["code"] == "E-POLICY"
    # Without the old key's word, the new one is a stranger's.
    (tmp_path / "image.tar.key.rotated.json").unlink()
    config = realized.path.parent / ".config/reprobuild"
    config.rename(tmp_path / "elsewhere")
    done = realized.run("--json", "image", "verify", f"file:{target}", "--key", str(old), status=9)
    assert done.error["code"] == "E-SIGNATURE"
