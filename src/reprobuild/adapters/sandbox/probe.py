"""Whether bubblewrap can build here, and if not, exactly why and what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from reprobuild.adapters.sandbox import command
from reprobuild.errors import ReprobuildError

_SYSCTLS = {
    "user/max_user_namespaces": (
        "0",
        "user namespaces are switched off",
        "sysctl -w user.max_user_namespaces=15000",
    ),
    "kernel/unprivileged_userns_clone": (
        "0",
        "user namespaces are switched off for ordinary users",
        "sysctl -w kernel.unprivileged_userns_clone=1",
    ),
    "kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "AppArmor withholds user namespaces from programs without a profile",
        "give bwrap a profile (on Ubuntu 24.04: `apt-get install apparmor-profiles` and"
        " `ln -s /usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/`,"
        " then `systemctl reload apparmor`), or `sysctl -w"
        " kernel.apparmor_restrict_unprivileged_userns=0`",
    ),
}
_LESS = "; or ask for less, which the record then says: `--isolation none` builds with no sandbox"


def find_bwrap(wanted: str | None) -> str:
    """The path of bubblewrap; raises E-SANDBOX-UNAVAILABLE when it is not installed."""
    found = shutil.which(wanted or "bwrap")
    if found is None:
        raise ReprobuildError(
            "E-SANDBOX-UNAVAILABLE",
            f"bubblewrap is not installed: no {wanted or 'bwrap'} on PATH",
            hint="install it: `apt-get install bubblewrap` (0.8 or newer)",
        )
    return found


def check(bwrap: str, uid: int | None, proc_sys: Path = Path("/proc/sys")) -> None:
    """Makes a sandbox of the real kind and throws it away.

    `uid` is the user that root gives builds to, None when this process is not root. Raises
    E-SANDBOX-UNAVAILABLE with bubblewrap's own words, the cause and the way out.
    """
    machine = os.uname().machine
    if machine != "x86_64":
        raise ReprobuildError(
            "E-SANDBOX-UNAVAILABLE",
            f"builds are for x86_64-linux, and this machine is {machine}",
            hint="realize on an x86-64 machine, or have one build for you",
        )
    prefix: list[str] = []
    if uid is not None:
        if shutil.which("setpriv") is None:
            raise ReprobuildError(
                "E-SANDBOX-UNAVAILABLE",
                "setpriv is not installed, and builds must not run as root",
                hint="install it: `apt-get install util-linux`",
            )
        prefix = command.as_user(uid)
    trial = [
        *(*prefix, bwrap, *command.CLOSED, "--new-session"),
        *("--ro-bind", "/", "/", "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"),
        *("--dev", "/dev", "--", "true"),
    ]
    try:
        done = subprocess.run(
            trial,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReprobuildError(
            "E-SANDBOX-UNAVAILABLE", f"bubblewrap cannot be run: {error}"
        ) from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise _explain(said, uid, proc_sys)


def _explain(said: str, uid: int | None, proc_sys: Path) -> ReprobuildError:
    """The error for what bubblewrap `said`: looks at the host for the cause."""
    if "Unknown option" in said:
        return ReprobuildError(
            "E-SANDBOX-UNAVAILABLE",
            f"bubblewrap is too old: {said}",
            hint="install bubblewrap 0.8 or newer",
            bubblewrap=said,
        )
    for name, (bad, cause, remedy) in _SYSCTLS.items():
        if _read(proc_sys / name) == bad:
            return ReprobuildError(
                "E-SANDBOX-UNAVAILABLE",
                f"no sandbox can be made here: {cause} ({name.replace('/', '.')} = {bad})",
                hint=f"as root: {remedy}" + _LESS,
                bubblewrap=said,
                sysctl=name.replace("/", "."),
            )
    if said.startswith("setpriv:"):
        return ReprobuildError(
            "E-SANDBOX-UNAVAILABLE",
            f"root here may not become user {uid}, as which builds run: {said}",
            hint="give the container the capabilities SETUID and SETGID, and a user map that"
            f" holds uid {uid}; or run as an ordinary user",
            bubblewrap=said,
        )
    if "mount proc" in said or "/proc" in said:
        return ReprobuildError(
            "E-SANDBOX-UNAVAILABLE",
            f"no sandbox can be made here: a fresh /proc is refused ({said})",
            hint="a container runtime that masks parts of /proc is the usual cause: with Docker,"
            " `--security-opt systempaths=unconfined`" + _LESS,
            bubblewrap=said,
        )
    return ReprobuildError(
        "E-SANDBOX-UNAVAILABLE",
        f"no sandbox can be made here: {said or 'bubblewrap failed and said nothing'}",
        hint="inside a container, its seccomp or AppArmor profile is the usual cause: with"
        " Docker, `--security-opt seccomp=unconfined --security-opt apparmor=unconfined`" + _LESS,
        bubblewrap=said,
    )


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
