"""A remote-execution server that really runs what it is asked to, in bubblewrap.

It is there for digest functions that no server offers which could be had for tests. The input
root is written out, is the sandbox's `/`, and is looked at afterwards.
"""

from __future__ import annotations

import os
import posixpath
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from buildstream._protos.build.bazel.remote.execution.v2 import (
    remote_execution_pb2 as re,
)

from fakes.reapi import NAMES, Server


@dataclass
class WorkingServer(Server):
    """`Server`, with builds in place of joined files."""

    def run(self, key: str, function: str) -> Any:
        """The result of an action."""
        action = re.Action.FromString(self.blobs[key])
        command = re.Command.FromString(self.blobs[action.command_digest.hash])
        with self._lock:
            self.ran.append(command.arguments[-1])
        with tempfile.TemporaryDirectory(prefix="reprobuild-worker-") as home:
            root = Path(home) / "root"
            variables = command.environment_variables
            self._stage(action.input_root_digest.hash, root)
            done = subprocess.run(
                [
                    "bwrap", "--bind", root, "/", "--dev", "/dev", "--proc", "/proc",
                    "--tmpfs", "/tmp", "--unshare-all", "--uid", "0", "--gid", "0", "--clearenv",
                    *(word for v in variables for word in ("--setenv", v.name, v.value)),
                    "--chdir", "/" + command.working_directory, "--", *command.arguments,
                ],
                capture_output=True, stdin=subprocess.DEVNULL, check=False,
            )  # fmt: skip
            result = re.ActionResult(
                exit_code=done.returncode, stdout_raw=done.stdout, stderr_raw=done.stderr
            )
            result.execution_metadata.worker = f"worker-{self.port}"
            for path in command.output_paths:
                place = posixpath.normpath(posixpath.join("/", command.working_directory, path))
                self._collect(result, path, Path(f"{root}{place}"), function)
        return result

    def _stage(self, key: str, place: Path) -> None:
        place.mkdir()
        directory = re.Directory.FromString(self.blobs[key])
        for file in directory.files:
            data = self.blobs[file.digest.hash]
            assert len(data) == file.digest.size_bytes
            made = place / file.name
            made.write_bytes(data)
            made.chmod(0o555 if file.is_executable else 0o444)
            os.utime(made, (1, file.node_properties.mtime.seconds))
        for link in directory.symlinks:
            (place / link.name).symlink_to(link.target)
        for child in directory.directories:
            self._stage(child.digest.hash, place / child.name)
        os.utime(place, (1, directory.node_properties.mtime.seconds))

    def _collect(self, result: Any, path: str, place: Path, function: str) -> None:
        if place.is_dir():
            tree = re.Tree()
            tree.root.CopyFrom(self._directory(place, function, tree))
            result.output_directories.add(
                path=path, tree_digest=self.put(tree.SerializeToString(), function)
            )
        elif place.is_file():
            digest = self.put(place.read_bytes(), function)
            result.output_files.add(path=path, digest=digest)

    def _directory(self, place: Path, function: str, tree: Any) -> Any:
        out = re.Directory()
        for entry in sorted(place.iterdir()):
            if entry.is_symlink():
                out.symlinks.add(name=entry.name, target=str(entry.readlink()))
            elif entry.is_dir():
                child = self._directory(entry, function, tree)
                tree.children.append(child)
                data = child.SerializeToString(deterministic=True)
                out.directories.add(name=entry.name).digest.CopyFrom(
                    re.Digest(hash=NAMES[function](data), size_bytes=len(data))
                )
            else:
                digest = self.put(entry.read_bytes(), function)
                executable = bool(entry.stat().st_mode & 0o100)
                out.files.add(name=entry.name, digest=digest, is_executable=executable)
        return out
