"""Carrying a release into another store with nothing else at hand: the commands as processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.demo import Demo, needs_sandbox

pytestmark = needs_sandbox


@pytest.fixture
def site(tmp_path: Path) -> Demo:
    """The other side: no project yet, an empty store, keys of its own."""
    home = tmp_path / "site"
    home.mkdir()
    return Demo(home / "project", home / "store", {"HOME": str(home)})


def outside(demo: Demo, *words: str, status: int = 0) -> dict[str, Any]:
    """A `--json` call where there is no project yet."""
    done = subprocess.run(
        [sys.executable, "-c", "from reprobuild.cli.main import entry; entry()", "--offline",
         "--json", "--store", str(demo.store), *words],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        env=demo.environment(), cwd=demo.path.parent,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def bundle_of(demo: Demo, tmp_path: Path, *words: str) -> Path:
    """A bundle of the demo's sources."""
    path = tmp_path / "demo.bundle"
    demo.json("export", "demo", "--sources", "--no-tool", "-o", str(path), *words)
    return path


def test_sources_alone_give_every_digest_again(realized: Demo, site: Demo, tmp_path: Path) -> None:
    before = realized.json("realize")
    bundle = bundle_of(realized, tmp_path)
    shutil.rmtree(realized.path)
    got = outside(site, "import", str(bundle), "--unsigned", "--project", str(site.path))
    assert got["trusted"] is False
    assert got["records_left_out"] == 1
    after = site.json("--offline", "realize", "--from-source")
    assert after["image"] == before["image"]
    assert after["outputs"]["demo"]["tree"] == before["outputs"]["demo"]["tree"]
    assert after["compared"]["different"] == {}
    assert after["compared"]["unknown"] == 0
    assert after["compared"]["equal"] > 15
    assert after["counts"]["built"] > 8
    assert after["counts"]["fetched"] == 1  # the integration, made again
    site.verify()


def test_a_trusted_signature_makes_records_count(
    realized: Demo, site: Demo, tmp_path: Path
) -> None:
    realized.env["HOME"] = str(tmp_path / "maker")
    realized.run("key", "generate")
    bundle = bundle_of(realized, tmp_path)
    public = tmp_path / "maker/.config/reprobuild/keys/default.pub"
    error = outside(site, "import", str(bundle), status=9)["error"]
    assert error["code"] == "E-BUNDLE-UNTRUSTED"
    words = ["import", str(bundle), "--trust", str(public), "--project", str(site.path)]
    got = outside(site, *words)
    assert got["trusted"] is True
    assert got["records_left_out"] == 0
    counts = site.json("--offline", "realize")["counts"]
    assert counts["built"] == counts["fetched"] == 0
    again = outside(site, *words)
    assert again["added"] == {}
    checked = site.json("--offline", "realize", "--check=closure")
    assert checked["compared"]["different"] == {}
    assert checked["compared"]["unknown"] == 0
    assert checked["counts"]["checked"] > 8


def test_an_old_bundle_is_not_taken_after_a_new_one(
    realized: Demo, site: Demo, tmp_path: Path
) -> None:
    realized.env["HOME"] = str(tmp_path / "maker")
    realized.run("key", "generate")
    public = str(tmp_path / "maker/.config/reprobuild/keys/default.pub")
    old = bundle_of(realized, tmp_path).rename(tmp_path / "old")
    again = bundle_of(realized, tmp_path)
    assert again.read_bytes() == old.read_bytes()
    realized.write("fixtures/header/pull-2/header.txt", "# comment\nthe second line\nanother\n")
    realized.run("lock", "--update", "header")
    realized.run("realize")
    new = bundle_of(realized, tmp_path)
    for bundle in (old, old, new):
        outside(site, "import", str(bundle), "--trust", public)
    error = outside(site, "import", str(old), "--trust", public, status=9)["error"]
    assert error["code"] == "E-BUNDLE-OLD"
    outside(site, "import", str(old), "--trust", public, "--older")
    outside(site, "import", str(new), "--trust", public)


def test_a_difference_is_reported(realized: Demo, site: Demo, tmp_path: Path) -> None:
    """Somebody's bundle says something else of a recipe than what comes out here."""
    store = realized.store
    record = next(
        p
        for p in (store / "records").rglob("*")
        if p.is_file() and b'"header.strip"' in p.read_bytes()
    )
    from reprobuild.adapters.store.store import LocalStore
    from reprobuild.core.record import Record

    with LocalStore.open(store) as opened:
        old = Record.decode(record.read_bytes())
        other = next(
            r.outputs["out"]
            for p in (store / "records").rglob("*")
            if p.is_file() and (r := Record.decode(p.read_bytes())).name == "notes.copy"
        )
        lie = Record(old.action, old.drv, {"out": other}, name=old.name)
        record.unlink()  # beside the true one it would be a dispute, which is another story
        opened.add_record(lie)
        opened.choose(old.drv, lie)
    bundle = bundle_of(realized, tmp_path)
    outside(site, "import", str(bundle), "--unsigned", "--project", str(site.path))
    ran = site.run("--offline", "--json", "realize", "--from-source", status=6)
    assert ran.error["code"] == "E-NOT-REPRODUCIBLE"
    assert len(ran.error["facts"]["different"]) == 1
    assert "header.strip" in ran.error["facts"]["different"][0]


def test_a_proof_is_made_and_asked_for(realized: Demo, site: Demo, tmp_path: Path) -> None:
    realized.env["HOME"] = str(tmp_path / "maker")
    realized.run("key", "generate")
    public = str(tmp_path / "maker/.config/reprobuild/keys/default.pub")
    plain = bundle_of(realized, tmp_path)
    words = ["import", str(plain), "--trust", public, "--require-proof"]
    error = outside(site, *words, status=9)["error"]
    assert error["code"] == "E-PROOF"
    assert not (site.store / "roots").exists() or not list((site.store / "roots").iterdir())
    proved = realized.json("export", "demo", "--sources", "--no-tool", "--prove", "-o", str(plain))[
        "proof"
    ]
    assert proved["compared"]["different"] == {}
    assert proved["compared"]["equal"] > 15
    assert proved["isolation"] == ["full"]
    assert proved["network"]
    assert proved["counts"]["built"] > 8
    assert proved["not_needed"]["outputs"] == ["demo"]
    assert proved["needed"]["sources"]
    assert min(proved[part]["objects"] for part in ("needed", "not_needed")) > 3
    outside(site, *words)
    # nobody else's word will do
    realized.env["HOME"] = str(tmp_path / "other")
    realized.run("key", "generate")
    other = str(tmp_path / "other/.config/reprobuild/keys/default.pub")
    words = ["import", str(plain), "--trust", other, "--require-proof"]
    assert outside(site, *words, status=9)["error"]["code"] in ("E-PROOF", "E-BUNDLE-UNTRUSTED")


def test_only_the_difference_goes(realized: Demo, site: Demo, tmp_path: Path) -> None:
    full = bundle_of(realized, tmp_path)
    outside(site, "import", str(full), "--unsigned", "--project", str(site.path))
    stock = tmp_path / "stock"
    listed = outside(site, "inventory", "-o", str(stock))
    assert listed["fits_qr_code"]
    assert stock.stat().st_size < 300
    realized.write("fixtures/header/pull-2/header.txt", "# comment\nthe second line\nanother\n")
    realized.run("lock", "--update", "header")
    newer = realized.json("realize")
    delta = tmp_path / "delta"
    told = realized.json("export", "demo", "--sources", "--have", str(stock), "-o", str(delta))
    assert told["content_bytes"] < told["full_bytes"] / 10
    assert told["tool"] == "", "who has an inventory has the tool"
    assert told["bytes"] < told["full_bytes"] / 5
    assert told["requires"]
    bare = Demo(site.path, tmp_path / "bare", dict(site.env))
    assert outside(bare, "import", str(delta), "--unsigned", status=3)["error"]["code"] == (
        "E-BUNDLE-BASE"
    )
    second = tmp_path / "second"
    outside(site, "import", str(delta), "--unsigned", "--project", str(second))
    after = Demo(second, site.store, dict(site.env)).json("--offline", "realize", "--from-source")
    assert after["image"] == newer["image"]
    assert after["compared"]["different"] == {}


@pytest.mark.slow
@pytest.mark.parametrize("start", ["sh", "python3"])
def test_the_file_starts_itself(realized: Demo, site: Demo, tmp_path: Path, start: str) -> None:
    before = realized.json("realize")
    bundle = tmp_path / "whole.bundle"
    realized.json("export", "demo", "--sources", "-o", str(bundle))
    env = {"PATH": "/usr/bin:/bin", "HOME": str(site.path.parent)}
    shell = [start, str(bundle), "--to", "here", "--unsigned"]
    if start == "python3":
        shell[0] = sys.executable
    else:
        # no python3 at all: the one that it carries is used
        tools = tmp_path / "tools"
        tools.mkdir()
        for name in ("sh", "tail", "head", "gzip", "tar", "mkdir", "rm", "dirname", "cat", "env"):
            (tools / name).symlink_to(shutil.which(name) or f"/bin/{name}")
        env["PATH"] = str(tools)
        shell[0] = "/bin/sh"
    done = subprocess.run(
        shell, env=env, cwd=site.path.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    here = site.path.parent / "here"
    if start == "sh":
        assert "the bundle's own is used" in done.stderr
        env["PATH"] += ":/usr/bin" if os.geteuid() == 0 else ""  # setpriv, for root's builds
    done = subprocess.run(
        [here / "tool/bin/reprobuild", "-C", here / "project", "--offline", "--json", "realize",
         "--from-source"],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    after = json.loads(done.stdout)
    assert after["image"] == before["image"]
    assert after["compared"]["different"] == {}
