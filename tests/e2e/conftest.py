"""Fixtures of the end-to-end tests."""

from __future__ import annotations

from support.containerd import ctr
from support.dockerd import docker_host

__all__ = ["ctr", "docker_host"]
