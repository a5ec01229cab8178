"""Files stay small enough to be read at once."""

from __future__ import annotations

from support.sources import modules

LIMIT = 450


def test_files_are_small() -> None:
    sizes = {name: len(path.read_text().splitlines()) for name, path in modules().items()}
    del sizes["reprobuild.errors"]  # a table, which is looked things up in
    assert {name: size for name, size in sizes.items() if size > LIMIT} == {}
