"""The one kind of error that crosses a function boundary, and the table of its codes.

An error is data: a code out of `CODES`, what happened, the facts (file, line, pull request,
digest…) and what to do next. Nothing below the command line prints or exits; `cli.main` turns
an error into text or JSON and an exit status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

Fact = str | int | bool | None | list[str] | list[int]


class Exit(IntEnum):
    """Exit statuses of the command line (a contract: scripts are written against them)."""

    USAGE = 2
    INPUT = 3
    SOURCES = 4
    BUILD = 5
    NOT_REPRODUCIBLE = 6
    STORE = 7
    OFFLINE = 8
    CHECK = 9
    ENVIRONMENT = 10
    BUG = 70
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Code:
    """One row of docs/errors.md: what the code means and what a user usually does about it."""

    exit: Exit
    meaning: str
    remedy: str


class ReprobuildError(Exception):
    """An expected failure.

    `code` is a key of `CODES`; `message` is one sentence that says what happened; `facts` hold
    what a program would want to read (`file`, `line`, `column`, `key`, `expected`, `got`…);
    `hint` overrides the code's general remedy where something more exact can be said.
    """

    def __init__(self, code: str, message: str, *, hint: str | None = None, **facts: Fact) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.facts: dict[str, Fact] = {k: v for k, v in facts.items() if v is not None}
        self.hint = hint if hint is not None else CODES[code].remedy

    @property
    def exit_status(self) -> int:
        """The status the process ends with when this error reaches the top."""
        return int(CODES[self.code].exit)

    def as_document(self) -> dict[str, object]:
        """The `--json` form: `{"error": {"code", "message", "facts", "hint"}}`."""
        return {
            "error": {
                "code": self.code,
                "message": self.message,
                "facts": dict(sorted(self.facts.items())),
                "hint": self.hint,
            }
        }


CODES: Mapping[str, Code] = MappingProxyType(
    {
        # -- 2: the words of the call ------------------------------------------------------
        "E-USAGE": Code(Exit.USAGE, "the words of the call are off", "see --help"),
        "E-NO-FLAKE": Code(
            Exit.USAGE,
            "no flake-like.toml here or in any parent directory",
            "change into a project or name one with -C DIR; `reprobuild init` starts one",
        ),
        "E-NOT-REALIZED": Code(
            Exit.USAGE,
            "what is named has not been made here yet",
            "run `reprobuild realize` first",
        ),
        "E-UNKNOWN-INSTALLABLE": Code(
            Exit.USAGE,
            "the flake has no such output or component",
            "`reprobuild show` lists what there is",
        ),
        # -- 3: a file that a person or a machine wrote ------------------------------------
        "E-RELEASE-SIDE": Code(
            Exit.INPUT,
            "a release side that cannot be read",
            "say an installable, git:REV:INSTALLABLE, file:PATH, docker:REF or registry:REF",
        ),
        "E-FLAKE": Code(
            Exit.INPUT, "flake-like.toml is off", "mend the file at the place that is named"
        ),
        "E-COMPONENT": Code(
            Exit.INPUT,
            "a file under derivations/ is off",
            "mend the file at the place that is named",
        ),
        "E-FIXTURE": Code(
            Exit.INPUT,
            "the text of a fixture repository is off",
            "mend the file at the place that is named",
        ),
        "E-LOCK": Code(
            Exit.INPUT,
            "flake-like.lock is off",
            "restore it from version control, or remove it and run `reprobuild lock`",
        ),
        "E-ENCODING": Code(
            Exit.INPUT, "bytes that are not in canonical form", "obtain the document again"
        ),
        "E-BUNDLE": Code(
            Exit.INPUT,
            "a bundle or inventory was changed, cut short or never was one",
            "copy it again and compare its digest with the one that export printed",
        ),
        "E-BUNDLE-LIMIT": Code(
            Exit.INPUT,
            "a bundle says sizes that no honest one has",
            "do not use it; ask for it again from whom it came",
        ),
        "E-BUNDLE-INCOMPLETE": Code(
            Exit.INPUT,
            "a bundle lacks an object that it needs",
            "export it again; for a delta, import the bundle that it builds on first",
        ),
        "E-BUNDLE-BASE": Code(
            Exit.INPUT,
            "a delta builds on something that this store does not have",
            "import the base first, or export again with `--have` an inventory of this store",
        ),
        "E-TOOLKIT": Code(
            Exit.ENVIRONMENT,
            "the tool cannot be packed into a bundle",
            "install what is named, or export with --no-tool",
        ),
        "E-DIGEST": Code(Exit.INPUT, "text that is no digest", "check the digest for typing slips"),
        "E-NAME": Code(
            Exit.INPUT, "a name that is not allowed", "use letters, digits, '-', '_' and '+'"
        ),
        "E-TREE": Code(
            Exit.INPUT, "a directory node that breaks the format", "obtain the object again"
        ),
        "E-DERIVATION": Code(
            Exit.INPUT,
            "a recipe that is not closed or breaks the format",
            "mend the component file",
        ),
        "E-CONFIG": Code(
            Exit.INPUT, "the user's configuration is off", "mend the named key of config.toml"
        ),
        "E-REF": Code(
            Exit.INPUT,
            "text that is no full git ref name",
            "write it as refs/heads/NAME or refs/pull/N/head",
        ),
        "E-GIT-URL": Code(
            Exit.INPUT,
            "a repository address that is not allowed",
            "use https://, ssh://, git://, file:// or a path",
        ),
        "E-INTEGRATION": Code(
            Exit.INPUT,
            "heads, patches or exclusions that contradict themselves or break the format",
            "mend the entry that is named",
        ),
        "E-MANIFEST": Code(
            Exit.INPUT, "a composition manifest is off", "mend the file at the place that is named"
        ),
        "E-RESOLUTION": Code(
            Exit.INPUT,
            "a recorded resolution is off",
            "restore it from version control, or record it anew with `integrate --resolve`",
        ),
        "E-PULLS": Code(
            Exit.INPUT,
            "a saved list of open pull requests is off",
            "save the forge's answer again (GET /repos/OWNER/NAME/pulls?state=open)",
        ),
        "E-UPSTREAM-LOCK": Code(
            Exit.INPUT,
            "a published integration or source lock is off",
            "obtain the file again, or mend the place that is named",
        ),
        "E-CONTRACT": Code(
            Exit.INPUT,
            "a source merge contract cannot be read",
            "mend the text at the line that is named",
        ),
        "E-PARAMS": Code(
            Exit.INPUT,
            "a built-in builder's parameters or inputs are off",
            "mend the component file that asks for it",
        ),
        "E-ARCHIVE": Code(
            Exit.INPUT,
            "an archive is damaged or holds what a tree cannot",
            "obtain the archive again; when its digest is the pinned one, report it to its maker",
        ),
        "E-ARCHIVE-ESCAPE": Code(
            Exit.INPUT,
            "an archive's entry points outside the place it is unpacked to",
            "do not use this archive: it is broken or hostile",
        ),
        "E-ARCHIVE-LIMIT": Code(
            Exit.INPUT,
            "an archive unpacks to more than is allowed",
            "if the archive is to be trusted, raise `limit` of the unpack step",
        ),
        "E-TREE-CONFLICT": Code(
            Exit.INPUT,
            "two sources put different content in one place",
            "exclude the path from one of them, or place them apart",
        ),
        "E-WHEEL": Code(
            Exit.INPUT, "a wheel breaks its own format", "obtain the wheel again or pin another"
        ),
        "E-IMAGE": Code(
            Exit.INPUT, "not a well-formed OCI image", "obtain or assemble the image again"
        ),
        "E-KEY": Code(
            Exit.INPUT,
            "a key, trust file or attestation that cannot be read",
            "make a key with `reprobuild key generate`",
        ),
        "E-IMAGE-OVERLAP": Code(
            Exit.INPUT,
            "two layers put different content in one place",
            "place the components apart, or exclude the path from one of them",
        ),
        "E-CUBIN": Code(
            Exit.INPUT,
            "device code (a fat binary, a cubin) that cannot be read",
            "make the file again; when it comes from a package, obtain that again",
        ),
        "E-CUDA-FLAG": Code(
            Exit.INPUT,
            "a compiler flag that would make kernels differ from build to build",
            "drop the flag from the component file",
        ),
        "E-EVIDENCE": Code(
            Exit.INPUT,
            "a record of a gate that was run is damaged, or of something else",
            "run `reprobuild qualify` again, or obtain the evidence anew",
        ),
        "E-NO-RELEASE": Code(
            Exit.INPUT,
            "an output is no image, so there is nothing to say of a release",
            "give the output the tables `release` and `image`",
        ),
        # -- 4: sources --------------------------------------------------------------------
        "E-LOCK-MISSING": Code(
            Exit.SOURCES, "an input is not pinned in flake-like.lock", "run `reprobuild lock`"
        ),
        "E-LOCK-STALE": Code(
            Exit.SOURCES,
            "an input's declaration changed after it was pinned",
            "run `reprobuild lock` to pin it again",
        ),
        "E-OUTPUT-OPEN": Code(
            Exit.SOURCES,
            "the output holds something that could not be pinned yet",
            "run `reprobuild lock` where the named source can be reached",
        ),
        "E-FETCH": Code(
            Exit.SOURCES,
            "a pinned source could not be fetched from any of its places",
            "check the network, proxy and credentials, or name a mirror under [mirrors]",
        ),
        "E-FETCH-MISMATCH": Code(
            Exit.SOURCES,
            "a source was fetched, but its content is not what was pinned",
            "find out why it changed; `reprobuild lock --update INPUT` accepts the new content",
        ),
        "E-PACKAGE-MISSING": Code(
            Exit.SOURCES,
            "no configured index or directory offers the wheel or sdist",
            "name a version that is offered, or configure pip's index or `wheels` under [mirrors]",
        ),
        "E-DEB-GONE": Code(
            Exit.SOURCES,
            "the Debian archive does not have the package or version",
            "`reprobuild lock --update INPUT` pins what the archive has now",
        ),
        "E-DEB-UNTRUSTED": Code(
            Exit.SOURCES,
            "the index of a Debian archive is not signed by a key that is trusted for it",
            "install debian-archive-keyring, or name the keys as `debian-keyring` under [mirrors]",
        ),
        "E-OCI-REFERENCE": Code(
            Exit.SOURCES,
            "an image reference leads to no usable image",
            "check the name, the tag and that the image has a linux/amd64 variant",
        ),
        "E-CONFLICT": Code(
            Exit.SOURCES,
            "a head does not merge onto the stack before it",
            "`reprobuild integrate --analyze` says which heads collide; update, reorder or drop "
            "one, or record a reviewed resolution",
        ),
        "E-TREE-MISMATCH": Code(
            Exit.SOURCES,
            "the integration came out as another tree than the one that is pinned",
            "check base, heads and their order against the lock; `reprobuild lock` pins anew",
        ),
        "E-HEAD-MOVED": Code(
            Exit.SOURCES,
            "a pull request's head is not the pinned commit any more",
            "review what changed, then accept it with `reprobuild lock --update INPUT.pulls.N`",
        ),
        "E-REF-MISSING": Code(
            Exit.SOURCES, "a repository lacks a ref", "check the name, and whether it was deleted"
        ),
        "E-GIT-MISSING-OBJECT": Code(
            Exit.SOURCES,
            "a git object that is needed is not in any repository at hand",
            "fetch it, or name a repository that has it in [mirrors]",
        ),
        "E-GIT-OBJECT": Code(
            Exit.SOURCES,
            "a git object is damaged or is not what its name promises",
            "run `git fsck` in that repository and obtain it again",
        ),
        "E-GIT-FETCH": Code(
            Exit.SOURCES,
            "a repository could not be reached or refused",
            "check the address, the network and your credentials; or give a mirror in the "
            'user\'s configuration: [mirrors] "URL" = "/path/to/mirror.git"',
        ),
        "E-ANCESTRY": Code(
            Exit.SOURCES,
            "commits are not related as the composition says",
            "check base, composition and heads against the published branch",
        ),
        "E-PATCH": Code(
            Exit.SOURCES,
            "a source patch is missing, changed or does not apply",
            "restore the patch, or pin the new one by its sha256 after review",
        ),
        "E-WHITESPACE": Code(
            Exit.SOURCES,
            "the result holds conflict markers or white-space errors that git diff --check reports",
            "mend the head that brings them",
        ),
        # -- 8: offline -------------------------------------------------------------------
        "E-OFFLINE": Code(
            Exit.OFFLINE,
            "the network is off and something needed is not here",
            "run once without --offline, import a bundle, or name a file:// mirror under [mirrors]",
        ),
        "E-OFFLINE-SEAL": Code(
            Exit.ENVIRONMENT,
            "the kernel cannot close the network for a process",
            "use a kernel with seccomp filters (CONFIG_SECCOMP_FILTER), or run without --offline",
        ),
        # -- 9: trust ----------------------------------------------------------------------
        "E-BUNDLE-UNTRUSTED": Code(
            Exit.CHECK,
            "no key that is trusted here signed the bundle",
            "name the signer's public key with --trust, or import with --unsigned: then content "
            "counts, but no record of a build does",
        ),
        "E-INVENTORY-REPLAY": Code(
            Exit.CHECK,
            "an inventory is older than one that was used before",
            "make a new one with `reprobuild inventory`",
        ),
        "E-PROOF": Code(
            Exit.CHECK,
            "a bundle does not prove that it can be rebuilt",
            "export it with --prove, or import without --require-proof",
        ),
        # -- 10: environment --------------------------------------------------------------
        "E-LOCK-WRITE": Code(
            Exit.ENVIRONMENT,
            "flake-like.lock cannot be written",
            "make room, or let the user who runs reprobuild write to the project's directory",
        ),
        "E-SANDBOX-UNAVAILABLE": Code(
            Exit.ENVIRONMENT,
            "the isolation that was asked for cannot be had on this machine",
            "do what the message says, or ask for less with `--isolation`",
        ),
        "E-SANDBOX-SETUP": Code(
            Exit.ENVIRONMENT,
            "a build's sandbox could not be made, or not be cleaned up",
            "see what bubblewrap says; `reprobuild doctor` checks the machine",
        ),
        "E-WRITE": Code(
            Exit.ENVIRONMENT,
            "a file could not be written",
            "check that the place exists, may be written to and has room",
        ),
        "E-STDOUT": Code(
            Exit.ENVIRONMENT,
            "standard output cannot be written",
            "free some space where it goes, or let it go elsewhere",
        ),
        "E-GIT": Code(
            Exit.ENVIRONMENT,
            "git is missing, too old or failed",
            "install git 2.39 or newer; the message holds what git said",
        ),
        "E-TOOL-MISSING": Code(
            Exit.ENVIRONMENT, "a program that is needed is not installed", "install what is named"
        ),
        "E-DISK-FULL": Code(
            Exit.ENVIRONMENT, "the disk is full", "free some space; nothing was left half-written"
        ),
        # -- 9: a check that did not hold (diff) --------------------------------------------
        "E-DIFF-CHECK": Code(
            Exit.CHECK,
            "what --fail-on asks for happened between two releases",
            "look at the report; leave out --fail-on where the change is wanted",
        ),
        # -- 9: a check that did not hold (releases) ----------------------------------------
        "E-ABI": Code(
            Exit.CHECK,
            "components are built for different runtime ABIs, or files for another than is stated",
            "build them for one interpreter, CUDA, PyTorch, NCCL, C++ ABI, glibc and architecture",
        ),
        "E-GATE": Code(
            Exit.CHECK,
            "a qualification gate was run and failed",
            "see what it showed; the evidence is kept",
        ),
        "E-EVIDENCE-TRUST": Code(
            Exit.CHECK,
            "evidence from elsewhere is not signed by a key that is trusted here",
            "ask for signed evidence, and trust the key: `reprobuild key` does",
        ),
        "E-RELEASE-CHECK": Code(
            Exit.CHECK,
            "a document of a release says something that does not hold",
            "change the flake's text or profile, or the declared interface, to what is there",
        ),
        "E-LOG-CHECK": Code(
            Exit.CHECK,
            "a server's log is not that of the release, or lacks something",
            "start the release's own image with the release's profile, on an empty JIT cache",
        ),
        "E-PROFILE": Code(
            Exit.CHECK,
            "the settings of a serving profile break one of its rules, or are none",
            "change the settings as the rule says",
        ),
        # -- 9: a check that did not hold (images) ------------------------------------------
        "E-BISECT": Code(
            Exit.CHECK,
            "the command does not tell the base from the whole stack",
            "give a command that passes on the base and fails with all heads",
        ),
        "E-AUDIT": Code(
            Exit.CHECK,
            "open pull requests are neither included nor excluded, or have moved",
            "include each or exclude it with a reason; `audit --write` drafts the entries",
        ),
        "E-ATTRIBUTION": Code(
            Exit.CHECK,
            "a file of an image comes from nothing that is declared, or stands in for a tracked "
            "source file without a head or patch that says so",
            "make the change a head or a patch of the source, or name the file with a reason in "
            "[image.modified] of the component",
        ),
        "E-LICENCE": Code(
            Exit.CHECK,
            "an image holds files whose licence forbids passing them on",
            "if you may push it there nevertheless, say --accept-licence for each",
        ),
        "E-POLICY": Code(
            Exit.CHECK,
            "an image does not keep to the project's [policy]",
            "change the release, or the policy",
        ),
        "E-SIGNATURE": Code(
            Exit.CHECK,
            "a signature is missing, is of a key that is not trusted, or does not hold",
            "ask whoever published the image for its attestations and key",
        ),
        "E-IMAGE-DIRTY": Code(
            Exit.CHECK,
            "an image of overridden inputs is not given away",
            "realize it without --override, or say --dirty",
        ),
        "E-KERNEL-COVERAGE": Code(
            Exit.CHECK,
            "a module lacks kernels or architectures that its step requires, or holds PTX",
            "mend the module's units, `arch` or flags; or `require`, `forbid-ptx` and `kernels`",
        ),
        "E-IMAGE-VERIFY": Code(
            Exit.CHECK,
            "an image is not what was promised",
            "load or pull it again; when it stays so, do not use it",
        ),
        # -- 10: the environment (images) ---------------------------------------------------
        "E-IMAGE-WRITE": Code(
            Exit.ENVIRONMENT,
            "an image could not be written to a file",
            "make room, or name another place; nothing was left half-written",
        ),
        "E-REGISTRY": Code(
            Exit.ENVIRONMENT,
            "a container registry cannot be reached or refuses",
            "check its name, the network and `docker login`; what was sent already is kept there",
        ),
        "E-DOCKER-UNAVAILABLE": Code(
            Exit.ENVIRONMENT,
            "no Docker daemon can be reached",
            "start dockerd, set DOCKER_HOST, or use `reprobuild image save` and load that there",
        ),
        "E-DOCKER": Code(
            Exit.ENVIRONMENT,
            "the Docker daemon refused or broke off",
            "look at the daemon's own log",
        ),
        "E-COMPRESSOR": Code(
            Exit.ENVIRONMENT,
            "the compression library does not give the promised bytes",
            "install the exact version of `deflate` that this release pins",
        ),
        # -- 5: builds ---------------------------------------------------------------------
        "E-BUILD-FAILED": Code(
            Exit.BUILD,
            "a build's command failed",
            "read the log; `--keep-failed` keeps its files, `reprobuild shell` opens its sandbox",
        ),
        "E-BUILD-TIMEOUT": Code(
            Exit.BUILD,
            "a build ran or kept silent for too long",
            "set `timeout` in the step, if it is right to take so long",
        ),
        "E-BUILD-OUTPUT": Code(
            Exit.BUILD, "a build wrote more than it may", "find in its log what it writes"
        ),
        "E-BUILD-MEMORY": Code(
            Exit.BUILD,
            "a build ran out of memory",
            "set `memory` in the step, or give more with --memory and fewer --jobs",
        ),
        "E-BUILD-NO-OUTPUT": Code(
            Exit.BUILD,
            "a build left an output empty",
            "let it write into the directory that $out names",
        ),
        "E-INPUT-PATH": Code(
            Exit.BUILD,
            "an input holds nothing at the path that a recipe names",
            "compare the path in the component file with the names that are there",
        ),
        "E-DEPENDENCY": Code(
            Exit.BUILD, "several derivations failed", "mend the failures that are listed"
        ),
        # -- 6 -----------------------------------------------------------------------------
        "E-NOT-REPRODUCIBLE": Code(
            Exit.NOT_REPRODUCIBLE,
            "one action gave two different trees",
            "both are kept; compare them, and make the recipe say what it left open",
        ),
        # -- 130 ---------------------------------------------------------------------------
        "E-INTERRUPTED": Code(
            Exit.INTERRUPTED, "stopped by the user", "run the same command again to go on"
        ),
        # -- 7: the store ------------------------------------------------------------------
        "E-STORE-FORMAT": Code(
            Exit.STORE,
            "a directory is no store, or one of a format that this version does not know",
            "name another store directory, or use the version that made this one",
        ),
        "E-NO-STORE": Code(
            Exit.STORE, "there is no store at that place", "name the right one; `realize` makes it"
        ),
        "E-STORE-MISSING": Code(
            Exit.STORE,
            "an object is not in the store",
            "`reprobuild realize` makes it again; `reprobuild store verify` says what else is gone",
        ),
        "E-STORE-DAMAGED": Code(
            Exit.STORE,
            "an object of the store does not have the content that its name promises",
            "`reprobuild store verify` names all damage, `reprobuild store repair` mends it",
        ),
        "E-STORE-ROOT": Code(
            Exit.STORE,
            "a root does not say what it keeps, so nothing may be collected",
            "write the root anew by realizing its output, or remove its file under roots/",
        ),
        # -- the store's other codes: what is stored, and where it lies ----------------------
        "E-CONTENT-SIZE": Code(
            Exit.SOURCES,
            "content has another size than was promised",
            "obtain it again; when it stays so, the pin or its source is wrong",
        ),
        "E-OUTPUT-SPECIAL": Code(
            Exit.BUILD,
            "an output holds a socket, a device or a FIFO",
            "have the build remove it before it ends",
        ),
        "E-OUTPUT-SIZE": Code(
            Exit.BUILD,
            "an output is larger than its limit",
            "raise the step's output limit, or have the build leave less",
        ),
        "E-OUTPUT-CHANGED": Code(
            Exit.BUILD,
            "a directory changed while it was being stored",
            "make sure that nothing writes to it any more, and try again",
        ),
        "E-OUTPUT-READ": Code(
            Exit.BUILD, "a directory that is to be stored cannot be read", "mend its permissions"
        ),
        "E-STORE-WRITE": Code(
            Exit.ENVIRONMENT,
            "the disk refused a write to the store; nothing half-written is named",
            "free space (`reprobuild store gc`) or mend permissions, then run the same again",
        ),
        "E-STORE-BUSY": Code(
            Exit.ENVIRONMENT,
            "the store is in use and cannot be collected now",
            "wait until the running builds are done, then run the same again",
        ),
        "E-DISK-SPACE": Code(
            Exit.ENVIRONMENT,
            "there is not enough free space",
            "free some with `reprobuild store gc`, or put the store on a larger disk",
        ),
        "E-ENVIRONMENT": Code(
            Exit.ENVIRONMENT,
            "this machine lacks something that is needed",
            "install what is named; `make setup` in a checkout does it on Debian",
        ),
        # -- 70 ----------------------------------------------------------------------------
        "E-BUG": Code(Exit.BUG, "a bug of ours", "please report it with the traceback above"),
    }
)
