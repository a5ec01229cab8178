"""The page in a real browser (chromium, headless, without a network): script, themes, a phone,
the keyboard's ways, and what axe says of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reprobuild.adapters.diff.page import render_page
from support.diffkit import full_report

CHROMIUM = shutil.which("chromium")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip


def browse(page: Path, *flags: str) -> str:
    """The document after its scripts ran."""
    assert CHROMIUM is not None
    done = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={page.parent / 'profile'}", *flags,
         "--virtual-time-budget=20000", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip
    return done.stdout


def probe(tmp_path: Path, script: str, *flags: str, before: str = "") -> Any:
    """What a script of ours finds out in the page: it calls `say(value)` once.

    The page's policy forbids foreign scripts, so this copy comes without one.
    """
    text = re.sub(r"<meta http-equiv=[^>]*>", "", render_page(full_report()))
    said = (
        "const say = (value) => { const box = document.createElement('pre'); box.id = 'said';"
        "box.textContent = JSON.stringify(value); document.body.append(box); };"
    )
    own = f"<script>{before}</script><script>{said}{script}</script></body>"
    page = tmp_path / "probe.html"
    page.write_text(text.replace("</body>", own), "utf-8")
    found = re.search(r'<pre id="said">(.*?)</pre>', browse(page, *flags), re.DOTALL)
    assert found is not None
    return json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def test_the_page_as_it_is(tmp_path: Path) -> None:
    """Its own script runs under its own policy; without one, everything is there all the same."""
    page = tmp_path / "page.html"
    page.write_text(render_page(full_report()), "utf-8")
    assert page.stat().st_size < 2_000_000
    dom = browse(page)
    fold = re.search(r'<button id="fold"[^>]*>', dom)
    assert fold is not None
    assert "hidden" not in fold[0]  # the script took it away
    for text in ("Use the other cache", "kernel&lt;7&gt;(int)", "+more", "Not reproducible"):
        assert text in page.read_text("utf-8")


def test_filtering(tmp_path: Path) -> None:
    script = """
    const field = document.getElementById('filter');
    field.value = 'toolchain gcc';
    field.dispatchEvent(new Event('input'));
    setTimeout(() => {
      const rows = [...document.querySelectorAll('[data-row]')];
      const shown = rows.filter((row) => !row.hidden).length;
      document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}));
      say({shown, status: document.getElementById('status').textContent, all: rows.length,
           after: rows.filter((row) => !row.hidden).length, value: field.value});
    }, 500);
    """
    found = probe(tmp_path, script)
    assert 0 < found["shown"] < found["all"]
    assert found["after"] == found["all"]
    assert found["value"] == ""


def test_keys_and_buttons(tmp_path: Path) -> None:
    script = """
    document.dispatchEvent(new KeyboardEvent('keydown', {key: '/'}));
    const focused = document.activeElement.id;
    document.getElementById('fold').click();
    const open = [...document.querySelectorAll('main details')].every((box) => box.open);
    const before = getComputedStyle(document.body).backgroundColor;
    document.getElementById('theme').click();
    const after = getComputedStyle(document.body).backgroundColor;
    document.querySelector('svg a').dispatchEvent(new MouseEvent('click', {bubbles: true}));
    say({focused, open, before, after, filter: document.getElementById('filter').value});
    """
    found = probe(tmp_path, script)
    assert found["focused"] == "filter"
    assert found["open"] is True
    assert found["before"] != found["after"]
    assert found["filter"] != ""


def test_from_row_to_row(tmp_path: Path) -> None:
    """j and k go through what is to be seen; a file of a pull request leads to its hunks."""
    script = """
    const key = (name) => document.dispatchEvent(new KeyboardEvent('keydown', {key: name}));
    const stops = [...document.querySelectorAll('main summary')]
      .filter((stop) => stop.getClientRects().length);
    key('j'); key('j');
    const second = stops.indexOf(document.activeElement);
    key('k');
    const first = stops.indexOf(document.activeElement);
    const field = document.getElementById('filter');
    field.value = 'Use the other cache';
    field.dispatchEvent(new Event('input'));
    const link = [...document.querySelectorAll('main a[href^="#file-"]')][0];
    setTimeout(() => {
      location.hash = link.getAttribute('href');
      setTimeout(() => {
        const target = document.getElementById(location.hash.slice(1));
        const seen = target.querySelector('pre.hunk').getClientRects().length > 0;
        say({first, second, seen, filter: field.value,
             focused: document.activeElement === target.querySelector('summary'),
             cards: [...document.querySelectorAll('.cards a')].every(
               (a) => document.getElementById(a.getAttribute('href').slice(1)))});
      }, 300);
    }, 300);
    """
    found = probe(tmp_path, script)
    assert found == {
        "first": 0, "second": 1, "seen": True, "filter": "", "focused": True, "cards": True,
    }  # fmt: skip


@pytest.mark.parametrize("width", [390, 800, 1400])
def test_nothing_is_wider_than_the_screen(tmp_path: Path, width: int) -> None:
    script = f"""
    for (const box of document.querySelectorAll('details')) box.open = true;
    document.documentElement.style.width = '{width}px';
    const wide = [...document.querySelectorAll('main *, header *')].filter((e) => {{
      if (e.closest('.scroll, pre.hunk') && !e.matches('.scroll, pre.hunk')) return false;
      return e.getBoundingClientRect().right > {width} + 1;
    }});
    say(wide.map((e) => e.tagName + '.' + e.className));
    """
    assert probe(tmp_path, script, f"--window-size={width},900") == []


def axe() -> str:
    """The text of axe-core: where REPROBUILD_AXE says, else from npm."""
    named = os.environ.get("REPROBUILD_AXE")
    if named:
        return Path(named).read_text("utf-8")
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed, and REPROBUILD_AXE names no axe.min.js")
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(
            ["npm", "install", "--silent", "--no-save", "--prefix", place, "axe-core@4"],
            capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        file = Path(place) / "node_modules/axe-core/axe.min.js"
        if done.returncode or not file.exists():
            pytest.skip("axe-core cannot be had from npm here")
        return file.read_text("utf-8")


@pytest.mark.network
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(tmp_path: Path, theme: str) -> None:
    script = f"""
    for (const box of document.querySelectorAll('details')) box.open = true;
    document.documentElement.dataset.theme = '{theme}';
    axe.run(document, {{resultTypes: ['violations']}}).then((found) => say(
      found.violations.map((v) => [v.id, v.help, v.nodes.slice(0, 3).map((n) => n.html)])));
    """
    text = axe().replace("</script", "<\\/script")
    assert probe(tmp_path, script, before=text) == []
