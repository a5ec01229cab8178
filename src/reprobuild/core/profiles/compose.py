"""Writing a Compose file out of a profile.

Every setting can be overridden from the environment. What Compose itself cannot do is done by a
short shell prelude before the launcher: derived values, the rules, and the switch of a site without
a network. The source of the format is the Compose specification (compose-spec).
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping

from reprobuild.core.documents.facts import ReleaseFacts
from reprobuild.core.documents.prose import fill
from reprobuild.core.profiles.expression import Expression
from reprobuild.core.profiles.model import Profile, Scalar, Setting
from reprobuild.core.profiles.resolve import resolve

REFUSED = 64
"""The status with which a container ends that a rule refuses (EX_USAGE)."""


def render_compose(
    facts: ReleaseFacts, name: str, profile: Profile, values: Mapping[str, str]
) -> str:
    """The file's text; `profile` is merged, `values` are what prose may name."""
    resolved = resolve(profile, {}, name)
    lines = _comment(facts, name, profile, values)
    lines += ["services:", f"  {profile.service}:"]
    lines.append(f"    image: {_text('${IMAGE:-' + (facts.reference or 'open') + '}')}")
    if profile.container:
        lines.append(f"    container_name: {_text('${NAME:-' + profile.container + '}')}")
    lines += ["    entrypoint:", "      - /bin/sh", "      - -euc", "      - |"]
    lines += [f"        {line}".rstrip() for line in _compose_script(prelude(profile))]
    lines.append(f"      - {profile.service}")
    lines += [f"      - {_text(word)}" for word in profile.entrypoint]
    if profile.command:
        lines.append("    command:")
        lines += [f"      - {_text(word)}" for word in profile.command]
    lines += [
        "    network_mode: host",
        "    ipc: host",
        "    init: true",
        "    restart: unless-stopped",
    ]
    if profile.shm_size:
        lines.append(f"    shm_size: {_text('${SHM_SIZE:-' + profile.shm_size + '}')}")
    lines += _ULIMITS + _GPUS
    lines.append("    environment:")
    gpus = f"${{{profile.gpus}:-{profile.gpu_default}}}"
    lines.append(f"      CUDA_VISIBLE_DEVICES: {_text(gpus)}")
    for key, setting in profile.settings.items():
        value = resolved.settings[key]
        lines.append(f"      {key}: {_text(_variable(key, value))}")
        if setting.derived:
            lines.append(f"      {given(key)}: {_text(_variable(key, None))}")
    if profile.offline is not None:
        lines.append(
            f"      {profile.offline.variable}: {_text(_variable(profile.offline.variable, 0))}"
        )
    if profile.volumes:
        lines.append("    volumes:")
        lines += [f"      - {_text(volume)}" for volume in profile.volumes]
    return "\n".join(lines) + "\n"


_ULIMITS = [
    "    ulimits:",
    "      memlock: -1",
    "      nofile: 1048576",
    "      stack: 67108864",
]
_GPUS = [
    "    deploy:",
    "      resources:",
    "        reservations:",
    "          devices:",
    "            - driver: nvidia",
    "              count: all",
    "              capabilities: [gpu]",
]


def given(key: str) -> str:
    """The variable by which the prelude tells a set value from a derived one."""
    return f"{key}_GIVEN"


def _variable(key: str, value: Scalar | None) -> str:
    return f"${{{key}:-{'' if value is None else value}}}"


def _text(text: str) -> str:
    """A YAML scalar: plain where that is safe, else in double quotes, which JSON's are."""
    return json.dumps(text, ensure_ascii=False)


def _compose_script(script: str) -> list[str]:
    """Compose replaces `$NAME` itself; `$$` is what it leaves to the shell."""
    return script.replace("$", "$$").split("\n")


def _comment(
    facts: ReleaseFacts, name: str, profile: Profile, values: Mapping[str, str]
) -> list[str]:
    documents = facts.declared.documents
    served = f"{documents.subject} " if documents and documents.subject else ""
    title = profile.title or name
    text = f"{served}{facts.title}: {title}."
    if profile.note:
        where = f"outputs.{facts.output}.profiles.{name}.note"
        text += "\n\n" + fill(profile.note, values, where)
    lines = []
    for paragraph in text.split("\n\n"):
        lines += [f"# {line}" for line in textwrap.wrap(" ".join(paragraph.split()), 96)] + ["#"]
    lines.pop()
    for key, setting in profile.settings.items():
        if setting.derived:
            lines.append(f"# {key} is {setting.derived} unless it is set.")
    for rule in profile.rules:
        lines += [f"# {line}" for line in textwrap.wrap(f"{rule.name}: {rule.reason}", 96)]
    if profile.offline is not None:
        switch = profile.offline
        said = f"{switch.variable}=1: no look-up on the network"
        said += f"; {', '.join(switch.paths)} must then be local paths." if switch.paths else "."
        lines += [f"# {line}" for line in textwrap.wrap(said, 96)]
    return lines


def prelude(profile: Profile) -> str:
    """The POSIX shell script that runs before the launcher, which it then becomes."""
    lines = [f'refuse() {{ echo "refused: $1" >&2; exit {REFUSED}; }}']
    whole = [key for key, setting in profile.settings.items() if setting.kind == "integer"]
    if whole:
        # A number that is none would turn rules and derived values into nonsense.
        names = textwrap.wrap(f"for name in {' '.join(whole)}", 90, subsequent_indent="    ")
        lines += [" \\\n".join(names), "do"]
        lines += [
            '  eval "value=\\${$name:-0}"',
            '  case "$value" in *[!0-9]*|0?*) refuse "$name must be a whole number" ;; esac',
            "done",
        ]
    for key, setting in profile.settings.items():
        lines += _bounds(key, setting)
    for key, setting in profile.settings.items():
        if setting.derived:
            value = Expression.parse(setting.derived).shell_value()
            lines.append(f'[ -n "${{{given(key)}:-}}" ] || export {key}={value}')
            lines.append(f"unset {given(key)}")
    for rule in profile.rules:
        condition = Expression.parse(rule.when).shell_condition()
        if rule.clears:
            lines += [f"if {condition}; then", f"  unset {' '.join(rule.clears)}", "fi"]
        else:
            message = _quoted(f"rule {rule.name}: {rule.reason}")
            lines += [f"if {condition}; then", f"  refuse {message}", "fi"]
    # A launcher takes an empty variable for a set one.
    for key, setting in profile.settings.items():
        if setting.default in (None, "") and not setting.derived:
            lines.append(f'[ -n "${{{key}:-}}" ] || unset {key}')
    switch = profile.offline
    if switch is not None:
        lines.append(f'if [ "${{{switch.variable}:-0}}" != 0 ]; then')
        lines += [f"  export {key}={_quoted(value)}" for key, value in switch.env.items()]
        for path in switch.paths:
            message = _quoted(f"{switch.variable} is set, so {path} must name a path that exists")
            lines.append(f'  [ -e "${{{path}:-}}" ] || refuse {message}')
        lines.append("fi")
    lines.append('exec "$@"')
    return "\n".join(lines)


def _bounds(key: str, setting: Setting) -> list[str]:
    lines: list[str] = []
    if setting.kind == "integer":
        for bound, sign, word in (
            (setting.minimum, "-lt", "at least"),
            (setting.maximum, "-gt", "at most"),
        ):
            if bound is not None:
                value = f'"${{{key}:-{bound}}}"'
                message = _quoted(f"{key} must be {word} {bound}")
                lines.append(f"if [ {value} {sign} {bound} ]; then refuse {message}; fi")
    if setting.choices:
        choices = "|".join(_quoted(str(choice)) for choice in setting.choices)
        message = _quoted(f"{key} must be one of {', '.join(str(c) for c in setting.choices)}")
        lines.append(f'case "${{{key}:-}}" in ""|{choices}) ;; *) refuse {message} ;; esac')
    return lines


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
