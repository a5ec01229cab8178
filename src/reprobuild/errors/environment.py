"""Exit status 10: the environment lacks something."""

from __future__ import annotations

from reprobuild.errors.kinds import Code, Exit

CODES = {
    "E-CLUSTER": Code(
        Exit.ENVIRONMENT,
        "the trial cluster cannot be started, found or stopped",
        "read the server's log; `reprobuild cluster down` clears what is left",
    ),
    "E-COMPRESSOR": Code(
        Exit.ENVIRONMENT,
        "the compression library does not give the promised bytes",
        "install the exact version of `deflate` that this release pins",
    ),
    "E-DISK-FULL": Code(
        Exit.ENVIRONMENT, "the disk is full", "free some space; nothing was left half-written"
    ),
    "E-DISK-SPACE": Code(
        Exit.ENVIRONMENT,
        "there is not enough free space",
        "free some with `reprobuild store gc`, or put the store on a larger disk",
    ),
    "E-DOCKER": Code(
        Exit.ENVIRONMENT,
        "the Docker daemon refused or broke off",
        "look at the daemon's own log",
    ),
    "E-DOCKER-UNAVAILABLE": Code(
        Exit.ENVIRONMENT,
        "no Docker daemon can be reached",
        "start dockerd, set DOCKER_HOST, or use `reprobuild image save` and load that there",
    ),
    "E-ENVIRONMENT": Code(
        Exit.ENVIRONMENT,
        "this machine lacks something that is needed",
        "install what is named; `make setup` in a checkout does it on Debian",
    ),
    "E-GIT": Code(
        Exit.ENVIRONMENT,
        "git is missing, too old or failed",
        "install git 2.39 or newer; the message holds what git said",
    ),
    "E-IMAGE-WRITE": Code(
        Exit.ENVIRONMENT,
        "an image could not be written to a file",
        "make room, or name another place; nothing was left half-written",
    ),
    "E-LOCK-WRITE": Code(
        Exit.ENVIRONMENT,
        "flake-like.lock cannot be written",
        "make room, or let the user who runs reprobuild write to the project's directory",
    ),
    "E-OFFLINE-SEAL": Code(
        Exit.ENVIRONMENT,
        "the kernel cannot close the network for a process",
        "use a kernel with seccomp filters (CONFIG_SECCOMP_FILTER), or run without --offline",
    ),
    "E-REGISTRY": Code(
        Exit.ENVIRONMENT,
        "a container registry cannot be reached or refuses",
        "check its name, the network and `docker login`; what was sent already is kept there",
    ),
    "E-REMOTE": Code(
        Exit.ENVIRONMENT,
        "a remote-execution server refused, or failed at, what it was asked",
        "read what it says; docs/remote.md lists what servers need",
    ),
    "E-REMOTE-ACCESS": Code(
        Exit.ENVIRONMENT,
        "a remote-execution server was not let in by, or did not let in, these credentials",
        "check certificates and token of `[remote]` in the configuration",
    ),
    "E-REMOTE-LOST": Code(
        Exit.ENVIRONMENT,
        "no remote-execution server answers any more",
        "run the same again: what was made is on record; or allow builds here, without --no-local",
    ),
    "E-REMOTE-UNFIT": Code(
        Exit.ENVIRONMENT,
        "a build cannot be run on other machines",
        "build it here, without --no-local",
    ),
    "E-REMOTE-WORKER": Code(
        Exit.ENVIRONMENT,
        "a remote worker shows builds something else than the sandbox does",
        "have it run actions in their input root as `/`, without a network; see docs/remote.md",
    ),
    "E-SANDBOX-SETUP": Code(
        Exit.ENVIRONMENT,
        "a build's sandbox could not be made, or not be cleaned up",
        "see what bubblewrap says; `reprobuild doctor` checks the machine",
    ),
    "E-SANDBOX-UNAVAILABLE": Code(
        Exit.ENVIRONMENT,
        "the isolation that was asked for cannot be had on this machine",
        "do what the message says, or ask for less with `--isolation`",
    ),
    "E-STDOUT": Code(
        Exit.ENVIRONMENT,
        "standard output cannot be written",
        "free some space where it goes, or let it go elsewhere",
    ),
    "E-STORE-BUSY": Code(
        Exit.ENVIRONMENT,
        "the store is in use and cannot be collected now",
        "wait until the running builds are done, then run the same again",
    ),
    "E-STORE-LOCKS": Code(
        Exit.ENVIRONMENT,
        "locks do not hold on the file system where the store lies",
        "put the store on a local disk",
    ),
    "E-STORE-WRITE": Code(
        Exit.ENVIRONMENT,
        "the disk refused a write to the store; nothing half-written is named",
        "free space (`reprobuild store gc`) or mend permissions, then run the same again",
    ),
    "E-TOOL-MISSING": Code(
        Exit.ENVIRONMENT, "a program that is needed is not installed", "install what is named"
    ),
    "E-TOOLKIT": Code(
        Exit.ENVIRONMENT,
        "the tool cannot be packed into a bundle",
        "install what is named, or export with --no-tool",
    ),
    "E-WRITE": Code(
        Exit.ENVIRONMENT,
        "a file could not be written",
        "check that the place exists, may be written to and has room",
    ),
}
