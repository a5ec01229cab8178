"""Prose with facts in it: `{vllm.base}` in a text of the flake stands for the fact itself.

    {codename} {revision} {date} {title} {reference} {model-revision} {subject}
    {runtime.NAME}                     a version of release.runtime
    {COMPONENT.FIELD[:N]}              base, branch, tree, repository, version, heads (how many),
                                       merged (how many since), open (the others);
                                       {COMPONENT.heads.word} in words, `.Word` at a beginning
    {profile.NAME.SETTING}             a setting's value, derived ones too
    {published.registry-digest} …      the published image

`{{` and `}}` are braces. A name that leads nowhere is an error, so prose cannot outlive its facts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from reprobuild.core.documents.facts import ReleaseFacts
from reprobuild.core.problem import nearest_of
from reprobuild.errors import ReprobuildError

_PLACEHOLDER = re.compile(
    r"\{\{|\}\}|\{(?P<name>[A-Za-z0-9][A-Za-z0-9_+.-]*)(?::(?P<length>[1-9][0-9]?))?\}|[{}]"
)
_NUMBERS = (
    *("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("ten", "eleven", "twelve"),
)


def fact_values(
    facts: ReleaseFacts, profiles: Mapping[str, Mapping[str, object]]
) -> dict[str, str]:
    """What placeholders may name, with what they stand for; what is unknown is not in it.

    `profiles` are the settings of each profile as they come out.
    """
    release, documents, published = (
        facts.release,
        facts.declared.documents,
        facts.declared.published,
    )
    values = {
        "codename": release.codename,
        "revision": release.revision,
        "date": release.date.isoformat(),
        "title": facts.title,
        "reference": facts.reference,
        "model-revision": release.model_revision or "",
        "subject": documents.subject if documents else "",
        "contract.title": documents.contract.title if documents else "",
    }
    values |= {f"runtime.{name}": version for name, version in release.runtime.items()}
    values |= {f"{name}.version": version for name, version in facts.versions.items()}
    values |= {f"{name}.commit": commit for name, commit in facts.commits.items()}
    for view in facts.sources:
        rows = {
            "base": view.base,
            "branch": view.branch,
            "tree": view.tree,
            "repository": view.address,
            "heads": str(len(view.heads)),
            "merged": str(view.merged),
            "open": str(len(view.heads) - len(view.landed) - view.merged),
        }
        values |= {f"{view.component}.{field}": value for field, value in rows.items()}
        for field in ("heads", "merged", "open"):
            word = number_word(int(rows[field]))
            values[f"{view.component}.{field}.word"] = word
            values[f"{view.component}.{field}.Word"] = word[:1].upper() + word[1:]
    for name, settings in profiles.items():
        values |= {f"profile.{name}.{key}": str(value) for key, value in settings.items()}
    for name, profile in facts.declared.profiles.items():
        values[f"profile.{name}.file"] = profile.file
        values[f"profile.{name}.container"] = profile.container
    if published is not None:
        values["published.source"] = published.source
        values["published.foundation"] = published.foundation
        if published.registry_digest:
            values["published.registry-digest"] = f"sha256:{published.registry_digest}"
        if published.image_id:
            values["published.image-id"] = f"sha256:{published.image_id}"
    return {name: value for name, value in values.items() if value != ""}


def number_word(number: int) -> str:
    """A number as prose writes it: in words up to twelve."""
    return _NUMBERS[number] if 0 <= number < len(_NUMBERS) else str(number)


def fill(text: str, values: Mapping[str, str], where: str) -> str:
    """The text with its facts; raises E-FLAKE for a placeholder that names none.

    `where` is the key path of the text in the flake.
    """

    def one(match: re.Match[str]) -> str:
        whole = match[0]
        if whole in ("{{", "}}"):
            return whole[0]
        name = match["name"]
        if name is None:
            raise ReprobuildError(
                "E-FLAKE",
                f"{where}: a single {whole!r} begins or ends no placeholder; write {whole * 2!r}",
                key=where,
            )
        if name not in values:
            near, _, message = nearest_of("there is no fact", name, values)
            raise ReprobuildError(
                "E-FLAKE", f"{where}: {message[:600]}", key=where, got=name, nearest=near or None
            )
        return values[name][: int(match["length"])] if match["length"] else values[name]

    return _PLACEHOLDER.sub(one, text).strip()
