"""The whole table of error codes: one file for each exit status, put together here.

Only what reads the table imports this: a run that goes well never pays for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from reprobuild.errors import (
    build,
    check,
    environment,
    input,
    offline,
    outcome,
    sources,
    store,
    usage,
)
from reprobuild.errors.kinds import Code

TABLES = (usage, input, sources, build, outcome, store, offline, check, environment)

CODES: Mapping[str, Code] = MappingProxyType(
    {name: code for table in TABLES for name, code in table.CODES.items()}
)
