"""`[mirrors]`: prefixes, their order, and what is refused."""

from __future__ import annotations

import pytest

from reprobuild.core.mirrors import NO_MIRRORS, parse_mirrors
from reprobuild.errors import ReprobuildError


def test_replacements_come_in_order_and_the_origin_last() -> None:
    mirrors = parse_mirrors({"https://github.com/": ["file:///srv/one/", "https://two.example/gh"]})
    assert mirrors.candidates("https://github.com/a/b.git") == (
        "file:///srv/one/a/b.git",
        "https://two.example/gh/a/b.git",
        "https://github.com/a/b.git",
    )


def test_the_longest_prefix_is_tried_first() -> None:
    mirrors = parse_mirrors({"https://h/": "https://general/", "https://h/a/": "https://special/"})
    assert mirrors.candidates("https://h/a/x") == (
        "https://special/x",
        "https://general/a/x",
        "https://h/a/x",
    )


@pytest.mark.parametrize(
    "url", ["https://h.evil/x", "https://host/x", "https://hx", "http://h/x", "https://H/x"]
)
def test_a_prefix_ends_at_a_boundary(url: str) -> None:
    assert parse_mirrors({"https://h": "https://mirror"}).candidates(url) == (url,)


def test_a_prefix_without_a_slash_stands_for_the_whole_host() -> None:
    mirrors = parse_mirrors({"https://h": "https://mirror/"})
    assert mirrors.candidates("https://h/x/y")[0] == "https://mirror/x/y"


@pytest.mark.parametrize("path", ["a/../../etc/passwd", "%2e%2e/x", "a/..", "a/%2E./b"])
def test_a_url_that_climbs_never_leaves_for_a_mirror(path: str) -> None:
    mirrors = parse_mirrors({"https://h/": "file:///srv/mirror/"})
    assert mirrors.candidates(f"https://h/{path}") == (f"https://h/{path}",)


def test_plain_paths_become_file_urls() -> None:
    mirrors = parse_mirrors(
        {"https://h/": "/srv/a b", "debian": "/srv/debian", "wheels": ["/w", "https://w/"]}
    )
    assert mirrors.candidates("https://h/x")[0] == "file:///srv/a%20b/x"
    assert mirrors.debian == ("file:///srv/debian",)
    assert mirrors.wheels == ("file:///w", "https://w/")


def test_an_empty_table_changes_nothing() -> None:
    assert parse_mirrors({}) == NO_MIRRORS
    assert NO_MIRRORS.candidates("https://h/x") == ("https://h/x",)


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"github": "https://x/"}, "mirrors.github"),
        ({"https://h/": ""}, "mirrors.https://h/"),
        ({"https://h/": []}, "mirrors.https://h/"),
        ({"https://h/": 3}, "mirrors.https://h/"),
        ({"https://h/": ["https://x/", 3]}, "mirrors.https://h/"),
        ({"https://h/": "relative/path"}, "mirrors.https://h/"),
        ({"debian-keyring": "https://keys/"}, "mirrors.debian-keyring"),
    ],
)
def test_nonsense_is_refused_with_its_key(table: dict[str, object], key: str) -> None:
    with pytest.raises(ReprobuildError) as caught:
        parse_mirrors(table)
    assert caught.value.code == "E-CONFIG"
    assert caught.value.facts["key"] == key
