"""Prose with facts, states of sources, and the runbook's table of evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reprobuild.core.documents.markdown import code, paragraphs, table
from reprobuild.core.documents.prose import fill, number_word
from reprobuild.core.documents.state import stated, verified
from reprobuild.core.evidence import Evidence
from reprobuild.engine.documents import ReleaseDocuments
from reprobuild.errors import ReprobuildError
from support.releases import R1, R21, documents, project, section


def test_placeholders_become_facts() -> None:
    values = {"vllm.base": "b5f995e73e6b", "runtime.cuda": "13.3"}
    assert fill("at {vllm.base:7} with {runtime.cuda}, {{so}}", values, "k") == (
        "at b5f995e with 13.3, {so}"
    )


@pytest.mark.parametrize("text", ["{vllm.bass}", "{", "}", "{}", "{ vllm.base }", "{vllm.base:0}"])
def test_a_placeholder_that_names_no_fact_is_an_error(text: str) -> None:
    with pytest.raises(ReprobuildError) as caught:
        fill(text, {"vllm.base": "x"}, "outputs.o.documents.k")
    assert caught.value.code == "E-FLAKE"
    assert caught.value.facts["key"] == "outputs.o.documents.k"


def test_numbers_in_words() -> None:
    assert [number_word(n) for n in (0, 7, 12, 13)] == ["no", "seven", "twelve", "13"]


def test_cells_cannot_break_a_table() -> None:
    assert table(["a", "b"], [["x|y", "1\n2"]])[2] == "| x\\|y | 1 2 |"
    assert code("a`b") == "``a`b``"
    assert paragraphs("one\ntwo\n\n```\n  kept   as is\n```") == [
        "one two", "", "```", "  kept   as is", "```"]  # fmt: skip


def test_states_without_a_look() -> None:
    view = documents(R21).facts.source("lmcache")
    assert stated(view).from_branches.startswith("yes")
    assert stated(view).to_merge == ()
    b12x = stated(documents(R21).facts.source("b12x"))
    assert b12x.to_merge == (243, 246, 247)
    assert b12x.from_pins == "stated; not integrated here"
    assert stated(documents(R1).facts.source("vllm")).from_pins.startswith("open")
    assert stated(documents("quickstart").facts.source("vllm")).from_pins == "yes"


def test_states_after_a_look() -> None:
    view = documents(R21).facts.source("b12x")
    tip = "c" * 40
    assert verified(view, tip, True, (), True).from_branches.startswith("yes: the branch at cccc")
    assert "moved on" in verified(view, tip, True, (), False).from_branches
    assert verified(view, tip, True, (247,), False).to_merge == (247,)
    assert verified(view, tip, False, (), True).from_pins.startswith("NO")


def evidence(gate: str, passed: bool) -> Evidence:
    return Evidence(
        output=R21, gate=gate, kind="command", reference=documents(R21).facts.reference,
        image="sha256:" + "0" * 64, drv="", passed=passed, detail="as it was shown",
        hardware="2 × a GPU", time="2026-09-01T12:00:00Z", tool="reprobuild 0",
    )  # fmt: skip


def test_the_runbooks_table_is_the_evidence_with_its_bounds() -> None:
    made = documents(R21)
    ours = {"peer-push": evidence("peer-push", True), "model-load": evidence("model-load", False)}
    seen = ReleaseDocuments(project(), R21, ours)
    text = section(seen.runbook(), "Qualification")
    assert "| PASS (2026-09-01, on 2 × a GPU): as it was shown – published: Exact" in text
    assert "| FAIL (2026-09-01, on 2 × a GPU): as it was shown" in text
    assert "Run with recorded evidence: Model load; TP2 graph peer-push." in text
    assert "Run with recorded evidence" not in made.runbook()


def test_a_gate_without_evidence_says_so() -> None:
    text = section(documents("quickstart").runbook(), "Qualification")
    assert "| Kernel coverage | not run for this composition |" in text
    assert "Not run for this composition: Runtime contract; Release composition" in " ".join(
        text.split()
    )


def test_an_output_without_a_release_has_no_documents() -> None:
    with pytest.raises(ReprobuildError) as caught:
        ReleaseDocuments(project(), "kernels")
    assert caught.value.code == "E-NO-RELEASE"


def test_an_empty_patch_means_that_every_head_is_in_the_base() -> None:
    view = documents(R21).facts.source("lmcache")
    assert len(view.landed) == 13
    assert replace(view, patch_sha256="").landed == ()
