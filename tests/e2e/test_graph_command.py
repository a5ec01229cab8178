"""graph in all its forms, over a small flake."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from support.cliin import cli

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    (tmp_path / "flake-like.toml").write_text(
        'format = 0\ndefault = "demo"\n[inputs.text]\nkind = "path"\npath = "text"\n'
        '[outputs.demo]\ncomponents = ["app"]\n'
    )
    (tmp_path / "derivations").mkdir()
    (tmp_path / "derivations" / "app.toml").write_text(
        'result = "steps.all"\n[steps.all]\nkind = "join"\n'
        'place = [{ from = "inputs.text", to = "" }]\n'
    )
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "file").write_text("hello\n")
    assert cli("-C", str(tmp_path), "lock").status == 0
    return tmp_path


def graph(demo: Path, *words: str) -> str:
    said = cli("-C", str(demo), "graph", *words)
    assert said.status == 0, said.err
    return said.out


def test_every_form_names_every_derivation(demo: Path) -> None:
    order = cli("-C", str(demo), "--json", "graph").document
    names = {node["name"] for node in order["nodes"].values()}
    assert len(order["order"]) == len(order["nodes"]) >= 2
    for form in ("text", "dot", "html"):
        text = graph(demo, "--format", form)
        assert [n for n in names if n not in text] == [], form


def test_svg_is_one_document_with_a_box_for_each_group(demo: Path) -> None:
    root = ElementTree.fromstring(graph(demo, "--format", "svg"))
    assert root.tag == f"{SVG}svg"
    boxes = [a.get("data-name") for a in root.iter(f"{SVG}a")]
    assert len(boxes) == len(set(boxes)) >= 2
    assert "unchanged" not in ElementTree.tostring(root, encoding="unicode")
    assert root.findall(f"{SVG}path"), "what needs another is joined to it"


def test_html_asks_nothing_of_the_network(demo: Path) -> None:
    out = demo / "graph.html"
    assert graph(demo, "--format", "html", "-o", str(out)) == f"{out}\n"
    text = out.read_text("utf-8")
    assert "Content-Security-Policy" in text
    assert not re.search(r"""(src|href)=["'](?!#)""", text)
