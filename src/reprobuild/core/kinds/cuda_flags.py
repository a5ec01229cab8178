"""Flags that a cuda-module refuses, each with the reason that is told.

Two kinds: what makes two builds of one recipe differ, and what escapes the recipe (files, tools or
settings that the derivation does not name, or that have a key of their own). Measured with CUDA
13.3 in the sandbox of this project: docs/kernels-build.md. `-lineinfo` is not among them: its
paths are the sandbox's own, and three builds with it gave one object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from reprobuild.errors import ReprobuildError

Rules = tuple[tuple[re.Pattern[str], str], ...]


def _rules(*rows: tuple[str, str]) -> Rules:
    # nvcc takes long options with one dash or two, and values behind `=` or as the next word.
    return tuple((re.compile(rf"-{{1,2}}(?:{names})(?==|$)"), reason) for names, reason in rows)


_SET = "is set already"
_OBJECT = "a unit becomes an object"
_TELL = "say `{}` instead, so that what a unit could read is known"

_NVCC: Rules = (
    *_rules(
        ("split-compile|split-compile-extended", "the thread count is written into the code"),
        ("G|device-debug", "debug information of the device holds temporary names"),
        ("use-local-env", "the compiler would come from the environment"),
        ("objtemp|objdir-as-tempdir", "gives other bytes than the kept intermediates used here"),
        ("keep|k|save-temps|keep-dir|frandom-seed|threads|t", _SET),
        ("o|output-file|odir|output-directory|c|compile|device-c|device-w|dw", _SET),
        ("ccbin|compiler-bindir|archiver-binary|arbin", "the host compiler is the toolchain's"),
        ("gencode|generate-code|arch|gpu-architecture|code|gpu-code", "say `arch`"),
        ("std", "say `std`"),
        ("rdc|relocatable-device-code|dc|dlink|device-link|ewp", "say `relocatable`"),
        ("dlto|dlink-time-opt|lto|gen-opt-lto", "the code would be made by the last link"),
        ("x|run|r|run-args|E|preprocess|cuda|cubin|ptx|fatbin|ltoir|optix-ir|lib|link",
         _OBJECT),
        ("M|MM|MD|MMD|MF|MP|MT|MG|generate-dependencies.*|generate-nonsystem-dependencies.*"
         "|dependency-output|generate-dependency-targets|dependency-target-name", _SET),
        ("time|fdevice-time-trace|dryrun|clean-targets|clean|dryrun", "makes nothing to keep"),
        ("optf|options-file", "hides options from the recipe"),
        ("pch|create-pch|use-pch|pch-dir|pch-messages", "precompiled headers outlive sources"),
        ("libdevice-directory|ldir|target-directory|target-dir|noprof|dont-use-profile",
         "the toolkit is the toolchain's"),
        ("forward-unknown-to-host-compiler|forward-unknown-to-host-linker"
         "|forward-unknown-opts|forward-slash-prefix-opts", "say `host-flags`"),
        ("include|pre-include", _TELL.format("pre-include")),
        ("isystem|system-include", _TELL.format("system-include")),
        ("I|include-path", _TELL.format("include")),
        ("D|define-macro", _TELL.format("defines")),
        ("L|library-path", "say `library-path`"),
        ("l|library", "say `link`"),
    ),
    (re.compile(r"-I."), _TELL.format("include")),
    (re.compile(r"-isystem."), _TELL.format("system-include")),
    (re.compile(r"-D."), _TELL.format("defines")),
    (re.compile(r"-L."), "say `library-path`"),
    (re.compile(r"-l(?!ineinfo$)."), "say `link`"),
    (re.compile(r"@"), "hides options from the recipe"),
)  # fmt: skip

_NATIVE = (re.compile(r"-m(arch|tune|cpu)=native"), "depends on the building machine's processor")

_HOST: Rules = (
    _NATIVE,
    (re.compile(r"-(frandom-seed)\b"), _SET),
    (re.compile(r"-(o|c|S|E|x|M\w*)(=|$)"), _SET),
    (re.compile(r"-std\b"), "say `std`"),
    (re.compile(r"-(isystem|idirafter|iquote|iprefix|iwithprefix|isysroot|-sysroot|I)"),
     _TELL.format("include")),
    (re.compile(r"-(include|imacros)"), _TELL.format("pre-include")),
    (re.compile(r"-D"), _TELL.format("defines")),
    (re.compile(r"-(L|l)"), "say `link` and `library-path`"),
    (re.compile(r"-(B|specs|fplugin|wrapper|no-canonical-prefixes|-param=specs)"),
     "the host compiler is the toolchain's"),
    (re.compile(r"-(Wp,|Wa,|Xpreprocessor|Xassembler|Wl,|Xlinker)"),
     "hides options from the recipe"),
    (re.compile(r"-(save-temps|dumpdir|fdump|auxbase|ftime-report|aux-info)"), _SET),
    (re.compile(r"-fprofile-(?!abs-path)"), "profiles come from a run, which no recipe names"),
    (re.compile(r"-(trigraphs|traditional)"), "changes what an `#include` is"),
    (re.compile(r"-fmodules|-fmodule-|-fpch|-fpreprocessed"), "changes what an `#include` is"),
    (re.compile(r"@"), "hides options from the recipe"),
)  # fmt: skip

_LINK: Rules = (
    (re.compile(r"-o$|--output\b"), _SET),
    (re.compile(r"@"), "hides options from the recipe"),
    (re.compile(r"-(L|-library-path)"), "say `library-path`"),
    (re.compile(r"-(Wl,)?-?-?build-id=(uuid|0x)|-Wl,--build-id=(uuid|0x)"),
     "a build ID must follow from the content"),
    (re.compile(r"-(B|specs|fplugin|wrapper)"), "the host compiler is the toolchain's"),
    _NATIVE,
)  # fmt: skip

_PASSED = {
    "Xcompiler": _HOST,
    "compiler-options": _HOST,
    "Xlinker": _LINK,
    "linker-options": _LINK,
    **dict.fromkeys(
        ("Xptxas", "ptxas-options", "Xnvlink", "nvlink-options", "Xcicc", "Xcudafe", "Xfatbin"),
        _rules(
            ("split-compile|split-compile-extended", "the thread count is written into the code"),
            ("device-debug|g", "debug information of the device holds temporary names"),
            ("o|output-file|options-file|optf", "hides options from the recipe"),
            ("include-path|I", "hides options from the recipe"),
        ),
    ),
}


def check_flags(
    where: str,
    nvcc: Sequence[str] = (),
    host: Sequence[str] = (),
    link: Sequence[str] = (),
) -> None:
    """Raises E-CUDA-FLAG, with the reason, for the first flag that is refused.

    `where` names the step. Values that nvcc passes on to other programs are looked at as well.
    """
    for flag, rules in (
        *_nvcc_words(nvcc),
        *((f, _HOST) for f in host),
        *((f, _LINK) for f in link),
    ):
        for pattern, reason in rules:
            if pattern.match(flag):
                raise ReprobuildError(
                    "E-CUDA-FLAG", f"{where}: the flag {flag!r} is refused: {reason}", key=where
                )


def _nvcc_words(flags: Sequence[str]) -> Iterator[tuple[str, Rules]]:
    passed: Rules | None = None
    for flag in flags:
        if passed is not None:
            yield from ((part, passed) for part in flag.split(","))
            passed = None
            continue
        name, equals, value = flag.partition("=")
        rules = _PASSED.get(name.lstrip("-")) if name.startswith("-") else None
        if rules is None:
            yield flag, _NVCC
        elif equals:
            yield from ((part, rules) for part in value.split(","))
        else:
            passed = rules
