"""A closed build as an Action of the API: its bytes, and all that has to be on the server."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from reprobuild.adapters.remote.naming import LAUNCHER, Namer, Source
from reprobuild.adapters.remote.platform import platform_of
from reprobuild.core.digest import Digest
from reprobuild.core.remote import wire
from reprobuild.core.remote.action import RemoteAction
from reprobuild.core.remote.function import Function
from reprobuild.core.remote.root import Node, input_root
from reprobuild.core.remote.wire import Blob
from reprobuild.core.sandboxenv import OUTPUT_DIRECTORY, TEMPORARY_DIRECTORY
from reprobuild.errors import ReprobuildError

SEEN = ".seen"
"""The output in which the launcher says what it could not change."""


@cache
def launcher() -> bytes:
    """The program that starts every remote build (data/launch.c)."""
    text = (files("reprobuild.data") / "launch_x86_64.txt").read_text("ascii")
    return base64.b64decode(text)


@dataclass(frozen=True, slots=True)
class Prepared:
    """`offers` are blobs beside those of `trees`, trees of the store; `function` named all."""

    function: Function
    action: Blob
    offers: Mapping[Blob, Source]
    trees: list[Digest]
    document: bytes
    command: Blob
    root: Blob
    timeout: int
    platform: Mapping[str, str]

    def salted(self, salt: bytes) -> Prepared:
        """The same work under another name, so that no server takes it for the first."""
        document = wire.action(self.command, self.root, self.timeout, self.platform, salt=salt)
        blob = self.function.blob(document)
        offers = {b: s for b, s in self.offers.items() if b != self.action}
        return replace(self, action=blob, document=document, offers={**offers, blob: document})


def prepare(action: RemoteAction, namer: Namer, properties: Mapping[str, str]) -> Prepared:
    """Raises E-REMOTE-NAME, E-REMOTE-UNFIT, E-DERIVATION; reads what the wire has no name for
    yet."""
    if action.cwd == TEMPORARY_DIRECTORY or action.cwd.startswith(TEMPORARY_DIRECTORY + "/"):
        raise ReprobuildError(
            "E-REMOTE-UNFIT", f"{action.label} works in {action.cwd}, and workers mount their own"
        )
    root = input_root(action.inputs, action.outputs, action.cwd, namer.tree)
    out = root.own[OUTPUT_DIRECTORY.strip("/").encode()]
    assert isinstance(out, Node)
    out.own[LAUNCHER.encode()] = launcher()
    root_blob, offers, trees = namer.root(root)
    cwd = action.cwd.strip("/")
    up = "/".join([".."] * len([part for part in cwd.split("/") if part]))
    prefix = (f"{up}/" if up else "") + OUTPUT_DIRECTORY.strip("/")
    try:
        command = wire.command(
            (f"{OUTPUT_DIRECTORY}/{LAUNCHER}", action.cwd, *action.argv),
            {**action.env, "PWD": action.cwd},
            cwd,
            [f"{prefix}/{name}" for name in (*action.outputs, SEEN)],
            platform := platform_of(action.hints, properties),
        )
    except UnicodeEncodeError as error:
        raise ReprobuildError(
            "E-REMOTE-NAME",
            f"{action.label}: its command or environment is not UTF-8: {error.object[:200]!r}",
        ) from None
    function = namer.function
    command_blob = function.blob(command)
    timeout = action.hints.timeout
    document = wire.action(command_blob, root_blob, timeout, platform)
    blob = function.blob(document)
    offers[command_blob] = command
    offers[blob] = document
    namer.flush()
    return Prepared(
        function, blob, offers, trees, document, command_blob, root_blob, timeout, platform
    )
