"""qualify: gates of an output that this machine can run, with evidence; the others as not run.

A gate's runner gives either what it showed or why it could not be run here. Nothing is guessed: a
gate that was not run leaves no evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from reprobuild.core.evidence import Evidence
from reprobuild.core.gates import Gate
from reprobuild.core.publickey import key_id
from reprobuild.errors import ReprobuildError


class Bench(Protocol):
    """This machine, for gates."""

    def hardware(self) -> str:
        """What it is, in words: processors, memory, GPUs."""
        ...

    def gpus(self) -> int:
        """How many NVIDIA GPUs a process here can use."""
        ...

    def now(self) -> str:
        """The time, as YYYY-MM-DDTHH:MM:SSZ."""
        ...

    def command(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[int, str]:
        """Runs a gate's command; its status and the end of its output."""
        ...


class Signer(Protocol):
    """A private key."""

    @property
    def key(self) -> bytes:
        """The 32 bytes of the public key."""
        ...

    def sign(self, message: bytes) -> bytes:
        """The 64 bytes of the signature."""
        ...


class Trust(Protocol):
    """Whose signatures count."""

    def verify(self, key: bytes, message: bytes, signature: bytes) -> bool:
        """Whether the key is believed here and made this signature."""
        ...


@dataclass(frozen=True, slots=True)
class Subject:
    """What evidence is bound to. `image` is the config digest, empty where it is not made here."""

    output: str
    reference: str
    image: str
    drv: str


@dataclass(frozen=True, slots=True)
class Shown:
    """What a gate showed; `modules` are the trees that were run, where kernels were."""

    passed: bool
    detail: str
    modules: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotRun:
    """Why a gate was not run here."""

    reason: str


Runner = Callable[[Gate], Shown | NotRun]


@dataclass(frozen=True, slots=True)
class Result:
    """One gate: new evidence, or why there is none."""

    gate: str
    evidence: Evidence | None
    reason: str = ""


def run_gates(
    gates: Mapping[str, Gate],
    runners: Mapping[str, Runner],
    subject: Subject,
    bench: Bench,
    tool: str,
    signer: Signer | None = None,
) -> list[Result]:
    """Runs what can be run, in the flake's order. `runners` are by kind."""
    results = []
    for name, gate in gates.items():
        shown = _run(gate, runners, subject, bench)
        if isinstance(shown, NotRun):
            results.append(Result(name, None, shown.reason))
            continue
        if not (subject.image or subject.drv):
            results.append(Result(name, None, "there is no image that evidence could be bound to"))
            continue
        evidence = Evidence(
            output=subject.output,
            gate=name,
            kind=gate.kind or "command",
            reference=subject.reference,
            image=subject.image,
            drv=subject.drv,
            passed=shown.passed,
            detail=shown.detail,
            hardware=bench.hardware(),
            time=bench.now(),
            tool=tool,
            modules=shown.modules,
        )
        results.append(Result(name, signed(evidence, signer) if signer else evidence))
    return results


def _run(
    gate: Gate, runners: Mapping[str, Runner], subject: Subject, bench: Bench
) -> Shown | NotRun:
    wanted = gate.gpus_wanted
    if wanted > bench.gpus():
        needs = gate.needs or ("a GPU" if wanted == 1 else f"{wanted} GPUs")
        return NotRun(f"needs {needs}; there are {bench.gpus()} here")
    if gate.kind is not None:
        return runners[gate.kind](gate)
    if not gate.command:
        return NotRun("is run by hand" + (f"; needs {gate.needs}" if gate.needs else ""))
    env = {"REPROBUILD_IMAGE": subject.reference, "REPROBUILD_OUTPUT": subject.output}
    status, tail = bench.command(gate.command, env)
    last = tail.strip().splitlines()[-1][:300] if tail.strip() else "no output"
    return Shown(status == 0, last if status == 0 else f"ended with {status}: {last}")


def signed(evidence: Evidence, signer: Signer) -> Evidence:
    """The evidence with a signature of that key."""
    signature = signer.sign(evidence.message())
    return replace(evidence, key=signer.key.hex(), signature=signature.hex())


def accept(evidence: Evidence, output: str, gates: Iterable[str], trust: Trust) -> Evidence:
    """Evidence from elsewhere, once it is known to be of this output and of a trusted key.

    Raises E-EVIDENCE for another output or gate, E-EVIDENCE-TRUST without a believed signature.
    """
    if evidence.output != output or evidence.gate not in gates:
        raise ReprobuildError(
            "E-EVIDENCE",
            f"this is evidence of gate {evidence.gate} of {evidence.output}; {output} has the "
            "gates " + (", ".join(gates) or "none"),
        )
    key, signature = bytes.fromhex(evidence.key), _bytes(evidence.signature)
    if not evidence.signature or not trust.verify(key, evidence.message(), signature):
        raise ReprobuildError(
            "E-EVIDENCE-TRUST",
            f"the evidence of gate {evidence.gate} "
            + (
                "has no signature"
                if not evidence.signature
                else "is not signed by a trusted key, or was changed after it was signed"
            ),
            key=key_id(key) if key else None,  # as `reprobuild key show` names it
        )
    return evidence


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def bound(evidence: Mapping[str, Evidence], reference: str, image: str = "") -> dict[str, Evidence]:
    """The evidence that is of this very composition, and of this very image where its config
    digest is known: what others were shown to do says nothing about it."""
    return {
        name: one
        for name, one in evidence.items()
        if one.reference == reference and (not image or not one.image or one.image == image)
    }
