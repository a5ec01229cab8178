"""This machine: its hardware in words, its clock, commands, Compose and containers."""

from __future__ import annotations

import datetime
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

TIMEOUT = 3600
TAIL = 20_000


class HostBench:
    """The host as `engine.qualify.Bench`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def hardware(self) -> str:
        """`2 × NVIDIA …, 16 × Intel … , 125 GiB`, as the kernel and the driver say."""
        cores = len(os.sched_getaffinity(0))
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        parts = [*self._gpu_names(), f"{cores} × {_processor()}", f"{pages / 2**30:.0f} GiB"]
        return ", ".join(parts)

    def gpus(self) -> int:
        """How many GPUs the driver lists."""
        return len(self._gpu_list())

    def now(self) -> str:
        """The time, in UTC."""
        return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def command(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[int, str]:
        """Runs a command; 127 where there is none, 124 when it took longer than an hour."""
        try:
            done = subprocess.run(
                list(argv),
                env={**self._environment, **env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT,
                check=False,
            )
        except OSError as error:
            return 127, f"{argv[0]}: {error.strerror}"
        except subprocess.TimeoutExpired:
            return 124, f"{argv[0]} took longer than {TIMEOUT} seconds"
        return done.returncode, done.stdout.decode("utf-8", "replace")[-TAIL:]

    def compose_config(self, file: Path) -> tuple[bool | None, str]:
        """Whether Compose takes a file (None: no Compose here), and what it says."""
        for words in (["docker", "compose"], ["docker-compose"]):
            # docker without the plugin takes `compose` for something else.
            if shutil.which(words[0]) is None or self.command([*words, "version"], {})[0] != 0:
                continue
            status, said = self.command([*words, "-f", str(file), "config", "--quiet"], {})
            return status == 0, said.strip()[-500:]
        return None, "neither `docker compose` nor docker-compose is installed"

    def _gpu_list(self) -> list[str]:
        tool = shutil.which("nvidia-smi")
        if tool is None:
            return []
        status, said = self.command([tool, "--query-gpu=name", "--format=csv,noheader"], {})
        return [line.strip() for line in said.splitlines() if line.strip()] if status == 0 else []

    def _gpu_names(self) -> list[str]:
        names = self._gpu_list()
        return [f"{names.count(name)} × {name}" for name in dict.fromkeys(names)]


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        return "unknown processor"
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return " ".join(match[1].split()) if match else "unknown processor"
