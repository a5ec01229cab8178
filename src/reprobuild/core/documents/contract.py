"""Writing a source merge contract: the form that core.integration.contract reads, losslessly.

The form is the publishers': purpose, image and registry digest; for each component a heading
`NAME: BRANCH`, its heads at their commits with what each does, and the integration tree; then the
state, the evidence and the boundary of the scope.
"""

from __future__ import annotations

from collections.abc import Mapping

from reprobuild.core.digest import GitOid, Sha256
from reprobuild.core.documents.facts import HeadFacts, ReleaseFacts, SourceView
from reprobuild.core.documents.markdown import paragraphs, table
from reprobuild.core.documents.model import ContractText, Documents
from reprobuild.core.documents.prose import fill
from reprobuild.core.documents.state import SourceState
from reprobuild.core.integration.contract import Contract, ContractHead, ContractSection


def contract_title(facts: ReleaseFacts, documents: Documents) -> str:
    """The stated title, else one out of what is served and the release's name."""
    served = f"{documents.subject} " if documents.subject else ""
    return documents.contract.title or f"[{facts.title}] {served}source merge contract"


def render_contract(
    facts: ReleaseFacts, values: Mapping[str, str], state: Mapping[str, SourceState]
) -> str:
    """The whole text, in Markdown.

    `values` are what prose may name (documents.prose); `state` says for each component what of it
    can be reproduced. Raises E-FLAKE for prose that names no fact.
    """
    documents = facts.declared.documents or Documents()
    text = documents.contract
    where = f"outputs.{facts.output}.documents.contract"
    number = f" #{text.number}" if text.number else ""
    lines = [f"# {contract_title(facts, documents)}{number}", "", "## Purpose", ""]
    lines += _purpose(facts, values, text, where)
    if documents.runbook.url:
        lines += ["", f"Runbook: {documents.runbook.url}"]
    for view in facts.sources:
        lines += ["", *_section(facts, view, values)]
    lines += ["", "## Reproducibility", "", *_state(facts, state)]
    for heading, prose, key in (
        ("Qualification evidence", text.evidence, "evidence"),
        ("Scope boundary", text.scope, "scope"),
    ):
        if prose:
            lines += ["", f"## {heading}", "", *paragraphs(fill(prose, values, f"{where}.{key}"))]
    return "\n".join(lines) + "\n"


def _purpose(
    facts: ReleaseFacts, values: Mapping[str, str], text: ContractText, where: str
) -> list[str]:
    lines: list[str] = []
    if text.purpose:
        lines += paragraphs(fill(text.purpose, values, f"{where}.purpose"))
    else:
        documents = facts.declared.documents
        served = f"{documents.subject} " if documents and documents.subject else ""
        lines += paragraphs(
            f"This is the source merge contract for the {served}{facts.title} image:"
        )
    published = facts.declared.published
    lines += ["", "```", facts.reference or f"(open: {facts.missing})"]
    if published is not None and published.registry_digest:
        lines.append(f"registry digest: sha256:{published.registry_digest}")
    lines += ["```", ""]
    lines += paragraphs(
        "The image is built from pinned base revisions and the pull-request heads below, applied "
        "in this order. When those heads are merged, the same source trees follow from the "
        "branches alone."
    )
    return lines


def _section(facts: ReleaseFacts, view: SourceView, values: Mapping[str, str]) -> list[str]:
    lines = [f"## {view.title}: {view.branch}", ""]
    if view.base:
        lines += [f"Base: `{view.base}`", ""]
    if view.strategy != "merge":
        lines += [f"Strategy: `{view.strategy}`", ""]
    where = f"outputs.{facts.output}.sources.{view.component}.heads"
    for head in view.heads:
        lines += _head(view, head, values, where)
    for path, author, reason in view.resolutions:
        lines += [f"Recorded resolution: `{path}`, reviewed by {author}. {reason}", ""]
    if view.tree:
        lines += [f"Integration tree: `{view.tree}`"]
    else:
        lines.pop()
    if view.exclusions:
        lines += ["", "Looked at and left out:", ""]
        for number, disposition, reason in view.exclusions:
            name = view.linked(number, f"{view.name}#{number}")
            lines.append(f"- {name} ({disposition.replace('_', ' ')}): {reason}")
    if view.note:
        where = f"outputs.{facts.output}.documents.components.{view.component}.note"
        lines += ["", *paragraphs(fill(view.note, values, where))]
    return lines


def _head(view: SourceView, head: HeadFacts, values: Mapping[str, str], where: str) -> list[str]:
    at = f" at `{head.head}`" if head.head else " (not pinned yet)"
    name = view.linked(head.number, f"{view.name}#{head.number}")
    lines = [f"- {head.title} {name}{at}".replace("-  ", "- "), ""]
    if head.summary:
        lines += [*paragraphs(fill(head.summary, values, f"{where}[{head.number}]"), "  "), ""]
    return lines


def _state(facts: ReleaseFacts, state: Mapping[str, SourceState]) -> list[str]:
    rows = []
    for view in facts.sources:
        said = state[view.component]
        left = ", ".join(f"#{number}" for number in said.to_merge)
        rows.append([view.title, said.from_pins, said.from_branches, left or said.none_left])
    head = ["Component", "From pins", "From branch heads alone", "Still to be merged"]
    return table(head, rows)


def contract_of(facts: ReleaseFacts, values: Mapping[str, str]) -> Contract:
    """What a reader of `render_contract`'s text gets back, its line numbers apart."""
    documents = facts.declared.documents or Documents()
    published = facts.declared.published
    digest = published.registry_digest if published else None
    sections = []
    for view in facts.sources:
        owner = view.address.partition("/")[0] if view.repository.startswith("https://") else ""
        heads = tuple(
            ContractHead(
                head.number,
                GitOid.parse(head.head),
                head.title,
                view.name,
                owner,
                _flat(fill(head.summary, values, "")) if head.summary else "",
            )
            for head in view.heads
            if head.head
        )
        sections.append(
            ContractSection(
                view.title,
                view.branch,
                heads,
                GitOid.parse(view.tree) if view.tree else None,
                0,
                GitOid.parse(view.base) if view.base else None,
                "" if view.strategy == "merge" else view.strategy,
            )
        )
    return Contract(
        contract_title(facts, documents),
        documents.contract.number,
        facts.reference,
        Sha256.parse(f"sha256:{digest}") if digest else None,
        tuple(sections),
    )


def _flat(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
