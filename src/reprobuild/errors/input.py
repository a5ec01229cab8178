"""Exit status 3: a file that a person or a machine wrote is off."""

from __future__ import annotations

from reprobuild.errors.kinds import Code, Exit

CODES = {
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
        "do not use it unless its maker is to be trusted: the limits of unpacking (64 GiB, 300 "
        "times the archive, 2,000,000 entries) are fixed; a script step may unpack up to 32 GiB",
    ),
    "E-BUNDLE": Code(
        Exit.INPUT,
        "a bundle or inventory was changed, cut short or never was one",
        "copy it again and compare its digest with the one that export printed",
    ),
    "E-BUNDLE-BASE": Code(
        Exit.INPUT,
        "a delta builds on something that this store does not have",
        "import the base first, or export again with `--have` an inventory of this store",
    ),
    "E-BUNDLE-INCOMPLETE": Code(
        Exit.INPUT,
        "a bundle lacks an object that it needs",
        "export it again; for a delta, import the bundle that it builds on first",
    ),
    "E-BUNDLE-LIMIT": Code(
        Exit.INPUT,
        "a bundle says sizes that no honest one has",
        "do not use it; ask for it again from whom it came",
    ),
    "E-COMPONENT": Code(
        Exit.INPUT,
        "a file under derivations/ is off",
        "mend the file at the place that is named",
    ),
    "E-CONFIG": Code(
        Exit.INPUT, "the user's configuration is off", "mend the named key of config.toml"
    ),
    "E-CONTRACT": Code(
        Exit.INPUT,
        "a source merge contract cannot be read",
        "mend the text at the line that is named",
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
    "E-DERIVATION": Code(
        Exit.INPUT,
        "a recipe that is not closed or breaks the format",
        "mend the component file",
    ),
    "E-DIGEST": Code(Exit.INPUT, "text that is no digest", "check the digest for typing slips"),
    "E-ENCODING": Code(
        Exit.INPUT, "bytes that are not in canonical form", "obtain the document again"
    ),
    "E-EVIDENCE": Code(
        Exit.INPUT,
        "a record of a gate that was run is damaged, or of something else",
        "run `reprobuild qualify` again, or obtain the evidence anew",
    ),
    "E-FIXTURE": Code(
        Exit.INPUT,
        "the text of a fixture repository is off",
        "mend the file at the place that is named",
    ),
    "E-FLAKE": Code(
        Exit.INPUT, "flake-like.toml is off", "mend the file at the place that is named"
    ),
    "E-GIT-URL": Code(
        Exit.INPUT,
        "a repository address that is not allowed",
        "use https://, ssh://, git://, file:// or a path",
    ),
    "E-IMAGE": Code(
        Exit.INPUT, "not a well-formed OCI image", "obtain or assemble the image again"
    ),
    "E-IMAGE-OVERLAP": Code(
        Exit.INPUT,
        "two layers put different content in one place",
        "place the components apart, or exclude the path from one of them",
    ),
    "E-INTEGRATION": Code(
        Exit.INPUT,
        "heads, patches or exclusions that contradict themselves or break the format",
        "mend the entry that is named",
    ),
    "E-KEY": Code(
        Exit.INPUT,
        "a key, trust file or attestation that cannot be read",
        "make a key with `reprobuild key generate`",
    ),
    "E-LOCK": Code(
        Exit.INPUT,
        "flake-like.lock is off",
        "restore it from version control, or remove it and run `reprobuild lock`",
    ),
    "E-MANIFEST": Code(
        Exit.INPUT, "a composition manifest is off", "mend the file at the place that is named"
    ),
    "E-NAME": Code(
        Exit.INPUT, "a name that is not allowed", "use letters, digits, '-', '_' and '+'"
    ),
    "E-NO-RELEASE": Code(
        Exit.INPUT,
        "an output is no image, so there is nothing to say of a release",
        "give the output the tables `release` and `image`",
    ),
    "E-PARAMS": Code(
        Exit.INPUT,
        "a built-in builder's parameters or inputs are off",
        "mend the component file that asks for it",
    ),
    "E-PULLS": Code(
        Exit.INPUT,
        "a saved list of open pull requests is off",
        "save the forge's answer again (GET /repos/OWNER/NAME/pulls?state=open)",
    ),
    "E-REF": Code(
        Exit.INPUT,
        "text that is no full git ref name",
        "write it as refs/heads/NAME or refs/pull/N/head",
    ),
    "E-RELEASE-SIDE": Code(
        Exit.INPUT,
        "a release side that cannot be read",
        "say an installable, git:REV:INSTALLABLE, file:PATH, docker:REF or registry:REF",
    ),
    "E-REMOTE-NAME": Code(
        Exit.INPUT,
        "a file name or link that is not UTF-8, which remote execution has no way to write",
        "rename it, or build here, without --no-local",
    ),
    "E-RESOLUTION": Code(
        Exit.INPUT,
        "a recorded resolution is off",
        "restore it from version control, or record it anew with `integrate --resolve`",
    ),
    "E-TREE": Code(
        Exit.INPUT, "a directory node that breaks the format", "obtain the object again"
    ),
    "E-TREE-CONFLICT": Code(
        Exit.INPUT,
        "two sources put different content in one place",
        "exclude the path from one of them, or place them apart",
    ),
    "E-UPSTREAM-LOCK": Code(
        Exit.INPUT,
        "a published integration or source lock is off",
        "obtain the file again, or mend the place that is named",
    ),
    "E-WHEEL": Code(
        Exit.INPUT, "a wheel breaks its own format", "obtain the wheel again or pin another"
    ),
}
