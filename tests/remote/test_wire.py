"""The messages that are written by hand, against the generated ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprobuild.core.remote import wire
from reprobuild.core.remote.function import SHA256
from reprobuild.core.remote.wire import Blob, WireFile, WireLink

pb = pytest.importorskip(
    "buildstream._protos.build.bazel.remote.execution.v2.remote_execution_pb2",
    reason="the extra `remote` is not installed",
)

text = st.text(st.characters(exclude_categories=["Cs"]))
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1)


def blob_of(digest: Any) -> Blob:
    return Blob(digest.hash, digest.size_bytes)


blobs = st.builds(SHA256.blob, st.binary(max_size=40))


@given(
    st.dictionaries(names, st.tuples(blobs, st.booleans()), max_size=5),
    st.dictionaries(names, blobs, max_size=5),
    st.dictionaries(names, names, max_size=5),
)
def test_a_directory_reads_back_as_what_it_was_made_of(
    files: dict[str, tuple[Blob, bool]], directories: dict[str, Blob], links: dict[str, str]
) -> None:
    data = wire.directory(
        [WireFile(n, b, x) for n, (b, x) in files.items()],
        directories.items(),
        [WireLink(n, t) for n, t in links.items()],
    )
    message = pb.Directory.FromString(data)
    assert message.SerializeToString(deterministic=True) == data
    assert [f.name for f in message.files] == sorted(files, key=str.encode)
    assert {f.name: (blob_of(f.digest), f.is_executable) for f in message.files} == files
    assert {d.name: blob_of(d.digest) for d in message.directories} == directories
    assert {s.name: s.target for s in message.symlinks} == links
    assert all(f.node_properties.mtime.seconds == 1 for f in message.files)
    assert message.node_properties.mtime.seconds == 1


@given(
    st.lists(text, max_size=4),
    st.dictionaries(names, text),
    names,
    st.lists(names, max_size=3),
    st.dictionaries(names, names, max_size=3),
)
def test_a_command_reads_back(
    argv: list[str], env: dict[str, str], cwd: str, outputs: list[str], platform: dict[str, str]
) -> None:
    data = wire.command(argv, env, cwd, outputs, platform)
    message = pb.Command.FromString(data)
    assert message.SerializeToString(deterministic=True) == data
    assert list(message.arguments) == argv
    assert {v.name: v.value for v in message.environment_variables} == env
    assert sorted(message.output_paths) == sorted(outputs)
    assert {p.name: p.value for p in message.platform.properties} == platform
    assert message.working_directory == cwd


def test_an_action_reads_back() -> None:
    command, root = SHA256.blob(b"c"), SHA256.blob(b"r")
    data = wire.action(command, root, 300, {"a": "b"}, do_not_cache=True, salt=b"x")
    message = pb.Action.FromString(data)
    assert message.SerializeToString(deterministic=True) == data
    assert (message.command_digest.hash, message.input_root_digest.hash) == (
        command.hash,
        root.hash,
    )
    assert (message.timeout.seconds, message.do_not_cache, message.salt) == (300, True, b"x")


@given(st.binary(max_size=30), st.lists(st.binary(max_size=30), max_size=4))
def test_a_tree_is_taken_apart_into_the_bytes_it_was_made_of(
    root: bytes, children: list[bytes]
) -> None:
    assert wire.split_tree(wire.tree(root, children)) == (root, children)


def test_a_tree_of_another_writer_is_taken_apart() -> None:
    message = pb.Tree()
    message.root.files.add(name="a", digest=pb.Digest(hash="0" * 64, size_bytes=7))
    message.children.add().directories.add(name="b")
    root, (child,) = wire.split_tree(message.SerializeToString())
    assert pb.Directory.FromString(root) == message.root
    assert pb.Directory.FromString(child) == message.children[0]


@given(st.binary(max_size=60))
def test_what_is_no_tree_is_refused_or_read(data: bytes) -> None:
    try:
        wire.split_tree(data)
    except ValueError:
        return


def test_a_blob_packs() -> None:
    blob = SHA256.blob(b"hello")
    assert Blob.unpack(blob.pack()) == blob
    assert len(blob.pack()) == 40
