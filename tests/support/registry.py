"""A container registry of the tests' own, from Debian's docker-registry."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

# user:geheim
HTPASSWD = "user:$2b$04$p0Q7BaaWkkjegmWNhylGQ.m0/LOltAmG4vtEvDICfDyGw/MORvRqy\n"
LOGIN = b64encode(b"user:geheim").decode()


def free_port() -> int:
    """A port of the loopback interface that nothing listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(home: Path, *, login: bool = False) -> Iterator[str]:
    """`host:port` of a registry that keeps its data in `home`; skips where it is not installed."""
    if shutil.which("docker-registry") is None:
        pytest.skip("docker-registry is not installed (apt-get install docker-registry)")
    host = f"127.0.0.1:{free_port()}"
    config: dict[str, object] = {
        "version": "0.1",
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(home / "data")}},
        "http": {"addr": host},
    }
    if login:
        (home / "htpasswd").write_text(HTPASSWD)
        config["auth"] = {"htpasswd": {"realm": "here", "path": str(home / "htpasswd")}}
    (home / "config.yml").write_text(json.dumps(config))  # JSON is YAML
    # It would take every variable called REGISTRY_… for a part of its configuration.
    env = {"PATH": os.environ["PATH"]}
    process = subprocess.Popen(["docker-registry", "serve", str(home / "config.yml")], env=env)
    try:
        for _ in range(200):
            try:
                requests.get(f"http://{host}/v2/", timeout=5)
                break
            except requests.ConnectionError:
                time.sleep(0.05)
        yield host
    finally:
        process.kill()
        process.wait()
