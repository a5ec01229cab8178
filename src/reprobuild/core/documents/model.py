"""The tables of an output that only its documents need: facts of the published image, and prose.

Prose names facts by placeholders (`{vllm.base}`, core.documents.prose), so that no fact stands
twice. docs/releases.md is the reference.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from reprobuild.core.schema import Model, Name, Sha256Text


class Published(Model):
    """What is known of an image that somebody published: facts, never derived, never built."""

    registry_digest: Sha256Text | None = None
    image_id: Sha256Text | None = None
    source: str = ""
    foundation: str = ""


class ComponentNote(Model):
    """How documents call a component, and what they say behind its facts.

    `merged` is how many of its heads the branch took after the pinned base.
    """

    title: str = ""
    note: str = ""
    merged: int = Field(default=0, ge=0)


class Statement(Model):
    """One paragraph of the source composition, under its state."""

    state: Literal["implemented", "implemented, review pending", "research-only and excluded"]
    text: str
    heads: Name | None = None


class Row(Model):
    """A row of a table: what, and its value."""

    item: str
    value: str


class ContractText(Model):
    """The prose of the source merge contract."""

    number: int | None = Field(default=None, gt=0)
    title: str = ""
    purpose: str = ""
    evidence: str = ""
    scope: str = ""


class RunbookText(Model):
    """The prose of the runbook."""

    file: str = ""
    url: str = ""
    status: str = ""
    summary: str = ""
    serving: str = ""
    composition: tuple[Statement, ...] = ()
    qualification: str = ""
    boundaries: str = ""
    operations: str = ""


class Documents(Model):
    """Everything above, for one output.

    `subject` is what is served, such as a model's name; `profiles_url` is where the Compose files
    will be found, with a trailing slash.
    """

    subject: str = ""
    profiles_url: str = ""
    runtime: dict[Name, str] = Field(default_factory=dict)
    components: dict[Name, ComponentNote] = Field(default_factory=dict)
    # Defaults are made when they are wanted: an instance here would have its model built.
    contract: ContractText = Field(default_factory=ContractText)
    runbook: RunbookText = Field(default_factory=RunbookText)
