"""Writing a runbook: status, how to start, what the artifact is, what it serves with, what it is
composed of, what was shown, and what to look at after start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reprobuild.core.documents.facts import ReleaseFacts, SourceView
from reprobuild.core.documents.markdown import code, paragraphs, table
from reprobuild.core.documents.model import Documents, Statement
from reprobuild.core.documents.prose import fill
from reprobuild.core.evidence import Evidence
from reprobuild.core.gates import Gate
from reprobuild.core.profiles.model import LogChecks, Profile
from reprobuild.core.profiles.resolve import Resolved


@dataclass(frozen=True, slots=True)
class Served:
    """A profile as it is served: merged, and what it comes to without any environment."""

    profile: Profile
    resolved: Resolved


def render_runbook(
    facts: ReleaseFacts,
    served: Mapping[str, Served],
    evidence: Mapping[str, Evidence],
    values: Mapping[str, str],
) -> str:
    """The whole text, in Markdown; raises E-FLAKE for prose that names no fact."""
    return _Writer(facts, served, evidence, values).text()


def profile_values(values: Mapping[str, str], served: Served) -> dict[str, str]:
    """What prose inside a profile may name: the release's facts and `{setting.NAME}`."""
    settings = served.resolved.settings.items()
    return {**values, **{f"setting.{k}": "" if v is None else str(v) for k, v in settings}}


class _Writer:
    def __init__(
        self,
        facts: ReleaseFacts,
        served: Mapping[str, Served],
        evidence: Mapping[str, Evidence],
        values: Mapping[str, str],
    ) -> None:
        self.facts, self.served, self.evidence, self.values = facts, served, evidence, values
        self.documents = facts.declared.documents or Documents()
        self.prose = self.documents.runbook
        self.where = f"outputs.{facts.output}.documents.runbook"

    def text(self) -> str:
        subject = f"{self.documents.subject} " if self.documents.subject else ""
        lines = [f"# {subject}{self.facts.title}"]
        if self.prose.status:
            lines += ["", *paragraphs("**Status:** " + self._filled("status"))]
        for heading, body in (
            ("TL;DR", self._start()),
            ("Artifact identity", self._identity()),
            ("Serving contract", self._serving()),
            ("Source composition", self._composition()),
            ("Qualification", self._qualification()),
            ("Operational checks", self._operations()),
        ):
            while body and not body[0]:
                body.pop(0)
            if body:
                lines += ["", f"## {heading}", "", *body]
        return "\n".join(lines) + "\n"

    def _filled(self, key: str) -> str:
        return fill(getattr(self.prose, key), self.values, f"{self.where}.{key}")

    # -- how to start ------------------------------------------------------------------------

    def _start(self) -> list[str]:
        lines: list[str] = []
        files = [s.profile for s in self.served.values() if s.profile.file]
        for index, profile in enumerate(files):
            if index == 0:
                gpus = profile.gpu_default.replace(",", " and ")
                lines += paragraphs(
                    "Download the committed Compose profile, pull the prebuilt image, and start "
                    f"the server on GPUs {gpus}:"
                )
            else:
                title = profile.title.removesuffix(" default")
                title = title[:1].lower() + title[1:]
                lines += ["", *paragraphs(f"The {title} profile is a file of its own:")]
            lines += ["", "```", *self._commands(profile.file), "```"]
            if index == 0:
                lines += [
                    "",
                    *paragraphs("The Compose file holds an image reference and no build section."),
                ]
        if self.prose.summary:
            lines += ["", *paragraphs(self._filled("summary"))]
        return lines

    def _commands(self, file: str) -> list[str]:
        url = self.documents.profiles_url
        return [
            *([f"curl -LO {url}{file}"] if url else []),
            f"docker compose -f {file} pull",
            f"docker compose -f {file} up -d",
        ]

    # -- what it is --------------------------------------------------------------------------

    def _identity(self) -> list[str]:
        facts, published = self.facts, self.facts.declared.published
        rows = [("Image", code(facts.reference) or f"open: {facts.missing}")]
        if published is not None:
            if published.registry_digest:
                rows.append(("Registry digest", code(f"sha256:{published.registry_digest}")))
            if published.image_id:
                rows.append(("Image ID", code(f"sha256:{published.image_id}")))
            rows.append(("Docker source", code(published.source)))
            rows.append(("Foundation image", code(published.foundation)))
        rows.append(("Model revision", code(facts.release.model_revision or "")))
        for view in facts.sources:
            open_ = "" if view.base else " (commit open)"
            base = f"{view.branch}@{view.base}" if view.base else view.branch
            rows.append((f"{view.title} base", code(base) + open_))
            rows.append((f"{view.title} integration tree", code(view.tree)))
        runtime = facts.release.runtime
        names = self.documents.runtime or {name: name for name in runtime}
        said = ", ".join(f"{shown} {runtime[n]}" for n, shown in names.items() if n in runtime)
        rows.append(("Runtime", said))
        for served in self.served.values():
            title = served.profile.title.removesuffix(" default")
            rows.append((f"{title} Compose", code(served.profile.file)))
        lines = table(["Item", "Value"], [row for row in rows if row[1]])
        abi = " and the runtime ABI" if facts.declared.abi else ""
        return [
            *lines,
            "",
            *paragraphs(
                "The image's labels record every base commit, pull-request head, integration "
                f"tree, patch digest{' and' if not abi else ','} dependency revision{abi}. Its "
                "packages are compiled artifacts: there is no source mount and no import overlay."
            ),
        ]

    # -- what it serves with -----------------------------------------------------------------

    def _serving(self) -> list[str]:
        lines: list[str] = []
        if self.served:
            columns = list(self.served)
            head = ["Setting", *(self.served[name].profile.title or name for name in columns)]
            lines += table(head, self._settings(columns))
        rules = {rule.name: rule.reason for s in self.served.values() for rule in s.profile.rules}
        if self.prose.serving:
            lines += ["", *paragraphs(self._filled("serving"))]
        if rules:
            lines += ["", "The profiles hold to these rules:", ""]
            lines += [f"- `{name}`: {reason}." for name, reason in rules.items()]
        switch = next((s.profile.offline for s in self.served.values() if s.profile.offline), None)
        if switch is not None:
            paths = " and ".join(code(path) for path in switch.paths)
            lines += [
                "",
                *paragraphs(
                    f"At a site without a network set {code(switch.variable + '=1')}: nothing is "
                    f"looked up on a model hub, and {paths} must be paths that exist."
                ),
            ]
        return lines

    def _settings(self, columns: Sequence[str]) -> list[list[str]]:
        """A row a label; settings that share one share a cell. Facts of profiles come last."""
        labels: dict[str, None] = {}
        for name in columns:
            labels |= {s.label: None for s in self.served[name].profile.settings.values()}
        labels.pop("", None)
        rows = [[label, *(self._cell(name, label) for name in columns)] for label in labels]
        facts: dict[str, None] = {}
        for name in columns:
            facts |= dict.fromkeys(self.served[name].profile.facts)
        return rows + [[label, *(self._fact(name, label) for name in columns)] for label in facts]

    def _cell(self, name: str, label: str) -> str:
        served = self.served[name]
        cells: list[str] = []
        for key, setting in served.profile.settings.items():
            if setting.label != label:
                continue
            value = served.resolved.settings[key]
            if setting.shown:
                cells.append(setting.shown)
            elif key in served.resolved.derived:
                cells.append(f"`{value}` from `{served.resolved.derived[key]}`")
            else:
                cells.append(code("" if value is None else str(value)))
        return " / ".join(cells)

    def _fact(self, name: str, label: str) -> str:
        served = self.served[name]
        where = f"outputs.{self.facts.output}.profiles.{name}.facts"
        text = served.profile.facts.get(label, "")
        return fill(text, profile_values(self.values, served), where) if text else ""

    # -- what it is composed of --------------------------------------------------------------

    def _composition(self) -> list[str]:
        lines: list[str] = []
        for index, statement in enumerate(self.prose.composition):
            lines += (
                ["", *self._statement(index, statement)]
                if lines
                else self._statement(index, statement)
            )
        if not self.prose.composition:
            for view in self.facts.sources:
                heads = "head" if len(view.heads) == 1 else "heads"
                text = (
                    f"{view.title}: {len(view.heads)} pull-request {heads} on {code(view.branch)}."
                )
                lines += [*([""] if lines else []), *paragraphs(text), "", *_list(view)]
        return lines

    def _statement(self, index: int, statement: Statement) -> list[str]:
        state = statement.state[:1].upper() + statement.state[1:]
        where = f"{self.where}.composition[{index}].text"
        lines = paragraphs(f"**{state}:** {fill(statement.text, self.values, where)}")
        if statement.heads is not None:
            lines += ["", *_list(self.facts.source(statement.heads))]
        return lines

    # -- what was shown ----------------------------------------------------------------------

    def _qualification(self) -> list[str]:
        lines: list[str] = []
        if self.prose.qualification:
            lines += paragraphs(self._filled("qualification"))
        gates = self.facts.declared.gates
        if gates:
            rows = [
                [gate.title or name, gate_result(name, gate, self.evidence, self.values)]
                for name, gate in gates.items()
            ]
            lines += ["", *table(["Gate", "Result"], rows)]
            lines += ["", *paragraphs(_bounds(gates, self.evidence))]
        if self.prose.boundaries:
            lines += ["", *paragraphs(self._filled("boundaries"))]
        return lines

    # -- what to look at ---------------------------------------------------------------------

    def _operations(self) -> list[str]:
        name, served = next(iter(self.served.items()), ("", None))
        lines: list[str] = []
        if served is not None and served.profile.log is not None:
            lines += self._log(name, served, served.profile.log)
        if self.prose.operations:
            lines += ["", *paragraphs(self._filled("operations"))]
        return lines

    def _log(self, name: str, served: Served, log: LogChecks) -> list[str]:
        where = f"outputs.{self.facts.output}.profiles.{name}.log"
        version = fill(log.version, self.values, f"{where}.version") if log.version else ""
        wanted = [part for part in (version, log.launch, log.captured, log.kv) if part]
        fields = [f"{k}={served.resolved.settings.get(v)}" for k, v in log.fields.items()]
        said = ", ".join(code(field) for field in fields[:-1]) + f" and {code(fields[-1])}"
        return [
            "Confirm the expected source and graph contracts after startup:",
            "",
            "```",
            f"docker logs {served.profile.container} 2>&1 | \\",
            f"  grep -E '{'|'.join(wanted)}'",
            "```",
            "",
            *paragraphs(
                f"The launch line must identify {said}. "
                f"`reprobuild release check-logs {self.facts.output}` reads a log and checks this."
            ),
        ]


def _list(view: SourceView) -> list[str]:
    """The heads in order, with what each does."""
    lines: list[str] = []
    for index, head in enumerate(view.heads, 1):
        does = head.summary or head.title
        does = does[:1].lower() + does[1:] if head.summary else f"– {does}"
        name = view.linked(head.number, f"{view.title} #{head.number}")
        wrapped = paragraphs(f"{name} {does}", "   ")
        lines += [f"{index}. {wrapped[0].strip()}", *wrapped[1:]]
    return lines


def gate_result(
    name: str, gate: Gate, evidence: Mapping[str, Evidence], values: Mapping[str, str]
) -> str:
    """A gate's cell: evidence of ours, else the published result, else that it was not run."""
    found = evidence.get(name)
    parts: list[str] = []
    if found is not None:
        verdict = "PASS" if found.passed else "FAIL"
        on = f", on {found.hardware}" if found.hardware else ""
        parts.append(f"{verdict} ({found.time[:10]}{on}): {found.detail}")
    if gate.published:
        parts.append(fill(gate.published, values, f"gates.{name}.published"))
    if not parts:
        needs = f"; needs {gate.needs}" if gate.needs else ""
        return f"not run for this composition{needs}"
    return " – published: ".join(parts) if len(parts) == 2 else parts[0]


def _bounds(gates: Mapping[str, Gate], evidence: Mapping[str, Evidence]) -> str:
    """Which gates were run for this composition, which are as published, which were not run."""
    ours = [gate.title or name for name, gate in gates.items() if name in evidence]
    published = [
        gate.title or name
        for name, gate in gates.items()
        if name not in evidence and gate.published
    ]
    rest = [
        gate.title or name
        for name, gate in gates.items()
        if name not in evidence and not gate.published
    ]
    said = [
        f"{what}: {'; '.join(names)}."
        for what, names in (
            ("Run with recorded evidence", ours),
            ("As published, without evidence of ours", published),
            ("Not run for this composition", rest),
        )
        if names
    ]
    return " ".join(said)
