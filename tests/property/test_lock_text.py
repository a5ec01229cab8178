"""The lock's text: what is written is read back the same, byte for byte and value for value."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprobuild.adapters.toml.load import load_lock
from reprobuild.adapters.toml.render_lock import render_lock
from reprobuild.core.lock import (
    FilesPin,
    GitPin,
    Lock,
    OciPin,
    PathPin,
    PinnedFile,
    PinnedHead,
    PinnedOutput,
    PinnedResolution,
    PinnedSource,
)

hex64 = st.text("0123456789abcdef", min_size=64, max_size=64)
hex40 = st.text("0123456789abcdef", min_size=40, max_size=40)
oid = hex40 | hex64
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_+-]{0,12}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
sizes = st.integers(0, 2**53)


def table(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(names, values, max_size=3)


def many(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, max_size=3).map(tuple)


files = st.builds(
    PinnedFile, name=texts, version=texts, filename=texts, size=sizes, sha256=hex64, location=texts
)
pins = st.one_of(
    st.builds(
        FilesPin,
        kind=st.sampled_from(["wheel", "sdist", "deb", "url"]),
        spec=hex64,
        files=many(files),
    ),
    st.builds(
        GitPin,
        kind=st.sampled_from(["git", "fixture"]),
        spec=hex64,
        ref=texts,
        rev=oid,
        tree=oid,
        text=st.none() | hex64,
    ),
    st.builds(PathPin, kind=st.just("path"), spec=hex64, tree=hex64),
    st.builds(OciPin, kind=st.just("oci"), spec=hex64, digest=hex64),
)
heads = st.builds(
    PinnedHead.model_construct,
    number=st.integers(1, 10**6),
    head=oid,
    disposition=st.sampled_from(["merged", "cherry_picked", "already_in_base"]),
    squashed_in_base=st.booleans(),
    commits=st.none() | many(oid),
)


resolutions = st.builds(
    PinnedResolution,
    path=texts,
    ancestor=st.none() | oid,
    ours=st.none() | oid,
    theirs=st.none() | oid,
    result=st.none() | oid,
    author=texts,
    reason=texts,
    content=texts,
    executable=st.booleans(),
)


@st.composite
def sources(draw: st.DrawFn) -> PinnedSource:
    return PinnedSource.model_validate(
        {
            "spec": draw(hex64),
            "strategy": draw(st.sampled_from(["merge", "cherry_pick"])),
            "base-ref": draw(texts),
            "base": draw(oid),
            "heads": draw(many(heads)),
            "composition": draw(st.none() | oid),
            "resolutions": draw(many(resolutions)),
            "tree": draw(oid),
            "patch-sha256": draw(hex64),
            "patch-digest": draw(hex64),
        }
    )


outputs = st.builds(PinnedOutput, open=table(texts), sources=table(sources()))
locks = st.builds(
    Lock, format=st.just(0), inputs=table(pins), open=table(texts), outputs=table(outputs)
)


def parse(text: str, directory: Any) -> Lock:
    path = directory / "flake-like.lock"
    path.write_bytes(text.encode())
    return load_lock(path)


@settings(max_examples=100, deadline=None)
@given(lock=locks)
def test_round_trips(lock: Lock, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.getbasetemp()
    text = render_lock(lock)
    again = parse(text, directory)
    assert again == lock
    assert render_lock(again) == text


@settings(max_examples=30, deadline=None)
@given(lock=locks)
def test_order_of_making_does_not_show(lock: Lock) -> None:
    turned = Lock(
        format=0,
        inputs=dict(reversed(lock.inputs.items())),
        open=dict(reversed(lock.open.items())),
        outputs={
            name: PinnedOutput(
                open=dict(reversed(output.open.items())),
                sources=dict(reversed(output.sources.items())),
            )
            for name, output in reversed(lock.outputs.items())
        },
    )
    assert render_lock(turned) == render_lock(lock)


@settings(max_examples=30, deadline=None)
@given(lock=locks)
def test_each_pinned_file_has_a_line_of_its_own(lock: Lock) -> None:
    lines = render_lock(lock).split("\n")
    for pin in lock.inputs.values():
        for file in getattr(pin, "files", ()):
            assert any(file.sha256 in line and line.startswith("  {") for line in lines)
    assert tomllib.loads("\n".join(lines))["format"] == 0
