"""A contract with any titles and summaries is read back as it was written."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from reprobuild.core.documents.contract import contract_of, render_contract
from reprobuild.core.documents.facts import HeadFacts
from reprobuild.core.documents.state import stated
from reprobuild.core.integration.contract import parse_contract
from support.releases import documents

PARTS = ("fix(ds4):", "Make", "TP2", "`x_y`", "é", "W4A8", "a/b", "peer-push", "(two)", "is",
         "1.5", "vLLM's", "K6/MCG", "[sic]", "**bold**", "A|B")  # fmt: skip
# Both ends of a title are words: what stands around one is punctuation of the list.
WORD = st.text("abcXYZé", min_size=1, max_size=9).filter(lambda w: w not in ("at", "head"))
TITLE = st.builds(
    lambda first, inner, last: " ".join([first, *inner, last]),
    WORD, st.lists(st.sampled_from(PARTS), max_size=6), WORD,
)  # fmt: skip
OID = st.text("0123456789abcdef", min_size=40, max_size=40)
SUMMARY = st.lists(TITLE, max_size=2).map("\n\n".join)
HEAD = st.builds(HeadFacts, st.integers(1, 99999), OID, TITLE, SUMMARY)


@settings(max_examples=60, deadline=None)
@given(st.lists(HEAD, min_size=1, max_size=4, unique_by=lambda h: h.number), OID, OID)
def test_round_trip(heads: list[HeadFacts], base: str, tree: str) -> None:
    made = documents("infernal-invocation-r21")
    view = replace(made.facts.sources[0], heads=tuple(heads), base=base, tree=tree)
    facts = replace(made.facts, sources=(view, *made.facts.sources[1:]))
    text = render_contract(facts, made.values, {v.component: stated(v) for v in facts.sources})
    got = parse_contract(text.encode(), "c.md")
    bare = replace(got, sections=tuple(replace(s, line=0) for s in got.sections), forge="")
    assert bare == contract_of(facts, made.values)
    assert got.unread == ()
