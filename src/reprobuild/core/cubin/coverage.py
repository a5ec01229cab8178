"""Whether a module holds the code that is required of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from reprobuild.core.cubin.module import Module

_ANONYMOUS = "(anonymous namespace)"


def plain_name(demangled: str) -> str:
    """`flashinfer::activation::act_and_mul_kernel` out of a demangled function template:
    no return type, no template arguments, no parameters."""
    text = demangled.replace(_ANONYMOUS, "\0")
    kept, depth = [], 0
    for char in text:
        if char == "(" and depth == 0:
            break
        if char == "<":
            depth += 1
        elif char == ">" and depth:
            depth -= 1
        elif depth == 0:
            kept.append(char)
    return "".join(kept).rpartition(" ")[2].replace("\0", _ANONYMOUS)


def uncovered(
    module: Module, archs: Sequence[str], readable: Mapping[str, str], *, forbid_ptx: bool
) -> list[str]:
    """What is missing, one line each; empty when nothing is.

    Required is machine code for each of `archs`, of the module and of every kernel in it; no
    object may have only PTX, and with `forbid_ptx` there may be none at all. `readable` gives the
    demangled form of each kernel's name.
    """
    problems = []
    held = ", ".join(module.archs) or "none"
    for arch in archs:
        if arch not in module.archs:
            problems.append(f"no machine code for {arch} (there is code for: {held})")
            continue
        for name, rows in module.by_name().items():
            if all(kernel.arch != arch for kernel in rows):
                others = ", ".join(sorted({kernel.arch for kernel in rows}))
                problems.append(
                    f"no code for {arch} in the kernel {readable[name]} (for {others} only)"
                )
    if forbid_ptx and module.ptx:
        problems.append("PTX for " + ", ".join(module.ptx))
    elif module.ptx_only:
        problems.append(f"{module.ptx_only} objects in it hold PTX and no machine code at all")
    return problems


def missing_kernels(patterns: Iterable[str], readable: Mapping[str, str]) -> list[str]:
    """One line for each pattern that no kernel has.

    A pattern is a demangled name (whole, or without return type, parameters and template
    arguments), a mangled name, or has `*` and `?` and is matched against any of these as a whole.
    """
    plain = {text: plain_name(text) for text in readable.values()}
    names = {*readable, *plain, *plain.values()}
    problems = []
    for pattern in patterns:
        if pattern in names or any(fnmatchcase(name, pattern) for name in names):
            continue
        near = get_close_matches(pattern, set(plain.values()), 1, 0.5)
        hint = f" (there is {near[0]})" if near else ""
        problems.append(f"no kernel is called {pattern}{hint}")
    return problems
