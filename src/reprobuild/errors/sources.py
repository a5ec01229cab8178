"""Exit status 4: a head moved, a conflict, a missing commit, another content."""

from __future__ import annotations

from reprobuild.errors.kinds import Code, Exit

CODES = {
    "E-ANCESTRY": Code(
        Exit.SOURCES,
        "commits are not related as the composition says",
        "check base, composition and heads against the published branch",
    ),
    "E-CONFLICT": Code(
        Exit.SOURCES,
        "a head does not merge onto the stack before it",
        "the clean stack is the base with the heads before it. "
        "`reprobuild integrate OUTPUT.COMPONENT` shows both sides and `--analyze` which heads "
        "collide; update, reorder or drop one, or record a reviewed resolution (`--resolve`)",
    ),
    "E-CONTENT-SIZE": Code(
        Exit.SOURCES,
        "content has another size than was promised",
        "obtain it again; when it stays so, the pin or its source is wrong",
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
    "E-GIT-FETCH": Code(
        Exit.SOURCES,
        "a repository could not be reached or refused",
        "check the address, the network and your credentials; or give a mirror in the "
        'user\'s configuration: [mirrors] "URL" = "/path/to/mirror.git"',
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
    "E-HEAD-MOVED": Code(
        Exit.SOURCES,
        "a pull request's head is not the pinned commit any more",
        "review what changed, then accept it with `reprobuild lock --update INPUT.pulls.N`",
    ),
    "E-LOCK-MISSING": Code(
        Exit.SOURCES, "an input is not pinned in flake-like.lock", "run `reprobuild lock`"
    ),
    "E-LOCK-STALE": Code(
        Exit.SOURCES,
        "an input's declaration changed after it was pinned",
        "run `reprobuild lock` to pin it again",
    ),
    "E-OCI-REFERENCE": Code(
        Exit.SOURCES,
        "an image reference leads to no usable image",
        "check the name, the tag and that the image has a linux/amd64 variant",
    ),
    "E-OUTPUT-OPEN": Code(
        Exit.SOURCES,
        "the output holds something that could not be pinned yet",
        "run `reprobuild lock` where the named source can be reached",
    ),
    "E-PACKAGE-MISSING": Code(
        Exit.SOURCES,
        "no configured index or directory offers the wheel or sdist",
        "name a version that is offered, or configure pip's index or `wheels` under [mirrors]",
    ),
    "E-PATCH": Code(
        Exit.SOURCES,
        "a source patch is missing, changed or does not apply",
        "restore the patch, or pin the new one by its sha256 after review",
    ),
    "E-REF-MISSING": Code(
        Exit.SOURCES, "a repository lacks a ref", "check the name, and whether it was deleted"
    ),
    "E-TREE-MISMATCH": Code(
        Exit.SOURCES,
        "the integration came out as another tree than the one that is pinned",
        "check base, heads and their order against the lock; `reprobuild lock` pins anew",
    ),
    "E-WHITESPACE": Code(
        Exit.SOURCES,
        "the result holds conflict markers or white-space errors that git diff --check reports",
        "mend the head that brings them",
    ),
}
