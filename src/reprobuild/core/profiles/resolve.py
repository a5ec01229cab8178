"""What a profile comes to in an environment: typed values, derived ones, and refused rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reprobuild.core.profiles.expression import Expression
from reprobuild.core.profiles.model import Profile, Rule, Scalar, Setting
from reprobuild.errors import ReprobuildError

CODE = "E-PROFILE"


@dataclass(frozen=True, slots=True)
class Resolved:
    """A profile with its values. `derived` are those that follow from others here; `broken` the
    rules that refuse it; `clears` variables that rules take out of the launcher's environment;
    `paths` variables that must name an existing path."""

    settings: dict[str, Scalar | None]
    derived: dict[str, str] = field(default_factory=dict)
    broken: tuple[Rule, ...] = ()
    clears: tuple[str, ...] = ()
    sets: dict[str, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    offline: bool = False

    def check(self, name: str) -> None:
        """Raises E-PROFILE that names the rule, when one refuses."""
        if self.broken:
            rule = self.broken[0]
            raise ReprobuildError(
                CODE,
                f"profile {name} is refused by rule {rule.name}: {rule.reason}",
                rule=rule.name,
                when=rule.when,
                rules=[r.name for r in self.broken],
            )


def merged(profiles: Mapping[str, Profile], name: str, where: str = "profiles") -> Profile:
    """The profile with all that it extends; raises E-FLAKE for a circle or a name that is none."""
    chain: list[str] = []
    current: str | None = name
    while current is not None:
        if current in chain or current not in profiles:
            what = "extends itself" if current in chain else f"extends {current!r}, which is none"
            raise ReprobuildError(
                "E-FLAKE", f"{where}.{name} {what}", key=f"{where}.{name}.extends", got=current
            )
        chain.append(current)
        current = profiles[current].extends
    out: dict[str, Any] = {}
    for link in reversed(chain):
        profile = profiles[link]
        for key in profile.model_fields_set:
            value = getattr(profile, key)
            if isinstance(value, dict):
                value = {**out.get(key, {}), **value}
            elif key == "rules":
                value = (*out.get(key, ()), *value)
            out[key] = value
    out.pop("extends", None)
    return Profile(**out)


def resolve(profile: Profile, environment: Mapping[str, str], name: str = "") -> Resolved:
    """The values in an environment: what is set there wins, then the default, then what derives.

    Raises E-PROFILE for a value of the wrong kind or outside its bounds; rules that refuse are
    in `broken`, and `Resolved.check` raises them.
    """
    settings: dict[str, Scalar | None] = {}
    derived: dict[str, str] = {}
    for key, setting in profile.settings.items():
        given = environment.get(key, "")
        if given != "":
            settings[key] = _typed(key, setting, given, name)
        elif not setting.derived:
            settings[key] = setting.default
    for key, setting in profile.settings.items():
        if key not in settings:
            expression = Expression.parse(setting.derived)
            settings[key] = expression.value(settings)
            derived[key] = expression.shown(settings)
    broken: list[Rule] = []
    clears: list[str] = []
    for rule in profile.rules:
        if Expression.parse(rule.when).holds(settings):
            if rule.clears:
                clears += rule.clears
            else:
                broken.append(rule)
    switch = profile.offline
    offline = switch is not None and environment.get(switch.variable, "") not in ("", "0")
    return Resolved(
        settings,
        derived,
        tuple(broken),
        tuple(dict.fromkeys(clears)),
        dict(switch.env) if switch and offline else {},
        switch.paths if switch and offline else (),
        offline,
    )


def _typed(key: str, setting: Setting, text: str, name: str) -> Scalar:
    value: Scalar = text
    if setting.kind == "integer":
        # As the shell has it: no sign, and no leading zero, which would mean octal.
        if re.fullmatch(r"0|[1-9][0-9]{0,9}", text) is None:
            raise _wrong(name, key, text, "a whole number")
        value = int(text)
    elif setting.kind == "number":
        if re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", text) is None:
            raise _wrong(name, key, text, "a number")
        value = float(text)
    if setting.choices and str(value) not in [str(c) for c in setting.choices]:
        raise _wrong(name, key, text, "one of " + ", ".join(str(c) for c in setting.choices))
    if not isinstance(value, str):
        if setting.minimum is not None and value < float(setting.minimum):
            raise _wrong(name, key, text, f"at least {setting.minimum}")
        if setting.maximum is not None and value > float(setting.maximum):
            raise _wrong(name, key, text, f"at most {setting.maximum}")
    return value


def _wrong(name: str, key: str, text: str, expected: str) -> ReprobuildError:
    of = f"profile {name}: " if name else ""
    return ReprobuildError(
        CODE, f"{of}{key} is {text[:80]!r}; expected {expected}", setting=key, expected=expected
    )


def profile_problems(profile: Profile) -> list[str]:
    """What is wrong in a whole profile, whatever the environment: names that lead nowhere, derived
    values of derived values, defaults that break a rule or a bound."""
    out: list[str] = []
    known = set(profile.settings)
    for key, setting in profile.settings.items():
        if setting.derived:
            names = Expression.parse(setting.derived).names()
            out += [f"{key} derives from {n}, which is no setting" for n in names if n not in known]
            out += [
                f"{key} derives from {n}, which is derived itself"
                for n in names
                if n in known and profile.settings[n].derived
            ]
        elif setting.default not in (None, ""):
            try:
                _typed(key, setting, str(setting.default), "")
            except ReprobuildError as error:
                out.append(f"the default of {error.message}")
    for rule in profile.rules:
        names = Expression.parse(rule.when).names()
        out += [f"rule {rule.name} speaks of {n}, which is no setting" for n in names
                if n not in known]  # fmt: skip
    if not out:
        out += [f"its defaults break rule {r.name}" for r in resolve(profile, {}).broken]
    return out
