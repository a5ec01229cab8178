"""The model of a serving profile: what can be set, what follows, and what excludes each other.

docs/releases.md is the reference.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from reprobuild.core.profiles.expression import Expression
from reprobuild.core.schema import EnvName, EnvValue, Model, Name, problem

Scalar = str | int | float


def _expression(text: str) -> str:
    try:
        Expression.parse(text)
    except ValueError as error:
        raise problem("expression", str(error)) from None
    return text


class Setting(Model):
    """One variable of the launcher. `default` is its value where the environment says nothing.

    A `derived` setting follows from others unless it is set. `choices` list all values; `minimum`
    and `maximum` bound a number. `shown` is how documents write the value, `label` what they call
    it; a setting without a label is not in the serving contract's table.
    """

    kind: Literal["text", "integer", "number"] = "text"
    default: Scalar | None = None
    derived: str = ""
    choices: tuple[Scalar, ...] = ()
    minimum: Scalar | None = None
    maximum: Scalar | None = None
    label: str = ""
    shown: str = ""

    @field_validator("derived")
    @classmethod
    def _derived(cls, text: str) -> str:
        return _expression(text) if text else text


class Rule(Model):
    """What must not be: where `when` holds, the profile is refused for `reason`; or, with
    `clears`, those variables are taken out of the launcher's environment."""

    name: Name
    when: str
    reason: str
    clears: tuple[EnvName, ...] = ()

    @field_validator("when")
    @classmethod
    def _when(cls, text: str) -> str:
        return _expression(text)


class OfflineSwitch(Model):
    """The one switch of a site without a network: what it sets, and which paths it then needs."""

    variable: EnvName = "OFFLINE"
    env: dict[EnvName, EnvValue] = Field(default_factory=dict)
    paths: tuple[EnvName, ...] = ()


class LogChecks(Model):
    """What a server's log must say: the launch line by its prefix, with `fields` that repeat
    settings; lines that must be there at least once, by name; and the version's line."""

    launch: str = ""
    fields: dict[Name, EnvName] = Field(default_factory=dict)
    version: str = ""
    captured: str = ""
    graphs: tuple[str, ...] = ()
    kv: str = ""


class Profile(Model):
    """One way to serve a release.

    `extends` names a profile of the same output whose tables this one adds to and overrides.
    `file` is the Compose file's name, `container` the container's. `volumes` are `SOURCE:TARGET`
    lines in which `${NAME:-DEFAULT}` is left to Compose.
    """

    title: str = ""
    note: str = ""
    extends: Name | None = None
    file: str = ""
    container: str = ""
    service: Name = "server"
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    settings: dict[EnvName, Setting] = Field(default_factory=dict)
    volumes: tuple[str, ...] = ()
    shm_size: str = ""
    gpus: EnvName = "GPUS"
    gpu_default: str = "0,1"
    rules: tuple[Rule, ...] = ()
    offline: OfflineSwitch | None = None
    facts: dict[str, str] = Field(default_factory=dict)
    log: LogChecks | None = None

    @field_validator("file")
    @classmethod
    def _file(cls, name: str) -> str:
        if name and (not name.endswith((".yml", ".yaml")) or "/" in name):
            raise problem("file", f"{name[:80]!r} is no name of a Compose file, such as a.yml")
        return name

    @model_validator(mode="after")
    def _once(self) -> Profile:
        names = [rule.name for rule in self.rules]
        for name in names:
            if names.count(name) > 1:
                raise problem("duplicate", f"rule {name!r} is given twice")
        return self
