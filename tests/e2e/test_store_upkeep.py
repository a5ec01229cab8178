"""Upkeep as a user meets it: two results, collection by policy, repair by rebuilding or a cache."""

from __future__ import annotations

from pathlib import Path

from support.demo import Demo, needs_sandbox

pytestmark = needs_sandbox

DICE = "head -c 16 /dev/urandom > $out/dice"


def rot_all(demo: Demo, content: bytes) -> int:
    """Changes every file of the store that holds `content`."""
    count = 0
    for home in ("blobs", "materialised"):
        for path in (demo.store / home).rglob("*"):
            if path.is_file() and not path.is_symlink() and path.read_bytes() == content:
                path.chmod(0o644)
                path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
                count += 1
    return count


def test_two_results_are_kept_and_neither_is_used(locked: Demo) -> None:
    locked.component("notes", DICE)
    locked.run("realize")
    assert "nothing to do" in locked.run("realize").out
    error = locked.run("--json", "realize", "demo.notes", "--check", status=6).error
    assert error["code"] == "E-NOT-REPRODUCIBLE" and error["facts"]["verdict"]
    for _ in range(2):  # not the remembered answer either
        assert locked.run("--json", "realize", "demo.notes", status=6).error["facts"]["trees"]
    locked.run("store", "gc")
    (action,) = locked.json("store", "quarantine")["actions"]
    assert not action["settled"] and len(action["results"]) == 2 and action["verdict"]
    assert any("dice" in line for line in action["verdict"])
    said = locked.run("store", "quarantine").out
    assert "OPEN: neither is used" in said and "dice" in said

    second = action["results"][1]["record"]
    locked.run("store", "quarantine", "--set-aside", second[:12])
    assert locked.json("realize", "demo.notes")["counts"]["built"] == 0
    locked.run("store", "gc")
    (action,) = locked.json("store", "quarantine")["actions"]
    assert action["settled"] and action["verdict"]  # still there to be looked at
    locked.run("store", "quarantine", "--forget", second)
    assert locked.json("store", "quarantine")["actions"] == []
    locked.verify()


def test_collection_by_policy(realized: Demo) -> None:
    realized.component("notes", "echo other > $out/other")
    realized.run("realize")
    roots = realized.json("store", "roots")["roots"]
    name = next(r for r in roots if r.startswith("demo@") and not r.endswith("=result"))
    young = realized.json("store", "gc", "--dry-run", "--older-than", "1d")
    assert young["records"] == [] and young["asked_bytes"] is None
    plan = realized.json("store", "gc", "--dry-run")
    assert "notes.copy" in {r["name"] for r in plan["records"]}
    said = realized.run("store", "gc", "--dry-run").out
    assert "would go: notes.copy  (took" in said and "making it again takes" in said
    short = realized.json("store", "gc", "--free", "1T")
    assert short["bytes"] == plan["bytes"] and short["asked_bytes"] == 2**40
    assert any(name in line for line in short["short"])
    assert "nothing to do" in realized.run("realize").out
    realized.run("store", "roots", "--remove", name)
    assert {name, f"{name}=result"} & set(realized.json("store", "roots")["roots"]) == set()
    assert realized.json("store", "gc", "--max-size", "0")["records"]
    realized.run("store", "gc", "--older-than", "yesterday", status=2)
    realized.run("store", "roots", "--remove", "nobody", status=2)
    realized.verify()


def test_what_an_out_link_leads_to_is_kept_while_it_does(realized: Demo, tmp_path: Path) -> None:
    link = tmp_path / "result"
    realized.component("notes", "echo first > $out/first")
    realized.run("realize", "demo.notes", "--out-link", str(link))
    realized.component("notes", "echo other > $out/other")
    realized.run("realize")
    realized.run("realize", "demo.notes")
    realized.run("store", "gc")
    assert (link / "first").read_bytes() == b"first\n"
    link.rename(tmp_path / "elsewhere")
    target = (tmp_path / "elsewhere").readlink()
    realized.run("store", "gc", "--dry-run")
    assert target.exists()
    realized.run("store", "gc")
    assert not target.exists()
    assert not any(r.startswith("out-link") for r in realized.json("store", "roots")["roots"])
    realized.verify()


def test_repair_rebuilds_what_this_project_makes(realized: Demo) -> None:
    before = realized.json("realize")
    roots = realized.json("store", "roots")["roots"]
    assert rot_all(realized, b"#!/bin/sh\necho main\n") >= 1
    assert rot_all(realized, b"a note\n") >= 1
    done = realized.json("store", "repair", "--rebuild")
    assert done["lost"] and done["rebuilt"]
    assert set(done["lost"]) <= {*done["rebuilt"], *done["fetched"]}
    realized.verify()
    assert {r for r in roots if not r.endswith("=result")} <= set(
        realized.json("store", "roots")["roots"]
    )
    after = realized.json("realize")
    assert after["counts"]["built"] == 0 and after["image"] == before["image"]


def test_repair_asks_a_cache_and_says_what_stays_lost(realized: Demo, tmp_path: Path) -> None:
    image = realized.json("realize")["image"]
    realized.run("key", "generate")
    cache = tmp_path / "cache"
    realized.run("push", "demo", str(cache))
    program = b"first\nsecond\nthird\nfourth\n#!/bin/sh\necho main\n"
    assert rot_all(realized, program) >= 1
    error = realized.run(
        "--json", "store", "repair", "--substituter", str(tmp_path), status=7
    ).error
    assert error["code"] == "E-STORE-MISSING" and error["facts"]["lost"]
    realized.run("realize", "demo.program")
    assert rot_all(realized, program) >= 1
    done = realized.json("store", "repair", "--substituter", str(cache))
    assert done["fetched"] == done["lost"] != []
    realized.verify()
    again = realized.json("realize")
    assert again["counts"]["built"] == 0 and again["image"] == image


def test_repair_takes_content_of_another_store(realized: Demo, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    image = realized.json("realize", store=elsewhere)["image"]
    assert rot_all(realized, b"a note\n") >= 1
    done = realized.json("store", "repair", "--from", str(elsewhere))
    assert done["restored"] and not done["lost"]
    again = realized.json("realize")
    assert again["counts"]["built"] == 0 and again["image"] == image
    realized.verify()
