"""Exit status 9: a check, policy, gate or comparison did not hold."""

from __future__ import annotations

from reprobuild.errors.kinds import Code, Exit

CODES = {
    "E-ABI": Code(
        Exit.CHECK,
        "components are built for different runtime ABIs, or files for another than is stated",
        "build them for one interpreter, CUDA, PyTorch, NCCL, C++ ABI, glibc and architecture",
    ),
    "E-ATTRIBUTION": Code(
        Exit.CHECK,
        "a file of an image comes from nothing that is declared, or stands in for a tracked "
        "source file without a head or patch that says so",
        "make the change a head or a patch of the source, or name the file with a reason in "
        "[image.modified] of the component",
    ),
    "E-AUDIT": Code(
        Exit.CHECK,
        "open pull requests are neither included nor excluded, or have moved",
        "include each or exclude it with a reason; `audit --write` drafts the entries",
    ),
    "E-BISECT": Code(
        Exit.CHECK,
        "the command does not tell the base from the whole stack",
        "give a command that passes on the base and fails with all heads",
    ),
    "E-BUNDLE-UNTRUSTED": Code(
        Exit.CHECK,
        "no key that is trusted here signed the bundle",
        "name the signer's public key with --trust, or import with --unsigned: then content "
        "counts, but no record of a build does",
    ),
    "E-BUNDLE-OLD": Code(
        Exit.CHECK,
        "a bundle is older than one of the same maker that was imported before",
        "ask for the newest one; `import --older` takes it where that is meant",
    ),
    "E-DIFF-CHECK": Code(
        Exit.CHECK,
        "what --fail-on asks for happened between two releases",
        "look at the report; leave out --fail-on where the change is wanted",
    ),
    "E-EVIDENCE-TRUST": Code(
        Exit.CHECK,
        "evidence from elsewhere is not signed by a key that is trusted here",
        "ask for signed evidence, and trust the key: `reprobuild key` does",
    ),
    "E-GATE": Code(
        Exit.CHECK,
        "a qualification gate was run and failed",
        "see what it showed; the evidence is kept",
    ),
    "E-IMAGE-DIRTY": Code(
        Exit.CHECK,
        "an image of overridden inputs is not given away",
        "realize it without --override, or say --dirty",
    ),
    "E-IMAGE-VERIFY": Code(
        Exit.CHECK,
        "an image is not what was promised",
        "load or pull it again; when it stays so, do not use it",
    ),
    "E-INVENTORY-REPLAY": Code(
        Exit.CHECK,
        "an inventory is older than one that was used before",
        "make a new one with `reprobuild inventory`",
    ),
    "E-KERNEL-COVERAGE": Code(
        Exit.CHECK,
        "a module lacks kernels or architectures that its step requires, or holds PTX",
        "mend the module's units, `arch` or flags; or `require`, `forbid-ptx` and `kernels`",
    ),
    "E-LICENCE": Code(
        Exit.CHECK,
        "an image holds files whose licence forbids passing them on",
        "if you may push it there nevertheless, say --accept-licence for each",
    ),
    "E-LOG-CHECK": Code(
        Exit.CHECK,
        "a server's log is not that of the release, or lacks something",
        "start the release's own image with the release's profile, on an empty JIT cache",
    ),
    "E-POLICY": Code(
        Exit.CHECK,
        "an image does not keep to the project's [policy], or to the isolation of its release",
        "change the release, or the policy",
    ),
    "E-PROFILE": Code(
        Exit.CHECK,
        "the settings of a serving profile break one of its rules, or are none",
        "change the settings as the rule says",
    ),
    "E-PROOF": Code(
        Exit.CHECK,
        "a bundle does not prove that it can be rebuilt",
        "export it with --prove, or import without --require-proof",
    ),
    "E-RELEASE-CHECK": Code(
        Exit.CHECK,
        "a document of a release says something that does not hold",
        "change the flake's text or profile, or the declared interface, to what is there",
    ),
    "E-REMOTE-LIED": Code(
        Exit.CHECK,
        "a remote-execution server gave content that is not what it, or a signed record, says",
        "take the server that is named out of use, and find out what is wrong with it",
    ),
    "E-SIGNATURE": Code(
        Exit.CHECK,
        "a signature is missing, is of a key that is not trusted, or does not hold",
        "ask whoever published the image for its attestations and key",
    ),
}
