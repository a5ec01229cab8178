"""Gates: what is run, what is not, what evidence is bound to, and whose is taken."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from reprobuild.adapters.keys.keyring import Keyring
from reprobuild.adapters.qualify.files import EvidenceFiles
from reprobuild.core.evidence import Evidence, parse_evidence
from reprobuild.core.gates import Gate
from reprobuild.engine.qualify import NotRun, Shown, Subject, accept, bound, run_gates, signed
from reprobuild.errors import ReprobuildError

SUBJECT = Subject("demo", "demo:r1", "sha256:" + "0" * 64, "blake3:" + "1" * 64)


class FakeBench:
    def __init__(self, gpus: int = 0, status: int = 0) -> None:
        self._gpus, self._status = gpus, status
        self.ran: list[tuple[Sequence[str], Mapping[str, str]]] = []

    def hardware(self) -> str:
        return "a bench"

    def gpus(self) -> int:
        return self._gpus

    def now(self) -> str:
        return "2026-09-01T12:00:00Z"

    def command(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[int, str]:
        self.ran.append((argv, env))
        return self._status, "first\n68.45 steps/s\n"


GATES = {
    "composition": Gate(kind="release-composition"),
    "speed": Gate(command=("bench", "--once"), gpus=2, needs="two GPUs"),
    "by-hand": Gate(needs="a person"),
}


def test_what_this_machine_cannot_run_is_not_run() -> None:
    bench = FakeBench()
    runners = {"release-composition": lambda gate: NotRun("no remote")}
    results = run_gates(GATES, runners, SUBJECT, bench, "t")
    assert [(r.gate, r.evidence, r.reason) for r in results] == [
        ("composition", None, "no remote"),
        ("speed", None, "needs two GPUs; there are 0 here"),
        ("by-hand", None, "is run by hand; needs a person"),
    ]
    assert bench.ran == []


def test_evidence_is_bound_to_image_hardware_and_time() -> None:
    bench = FakeBench(gpus=2)
    runners = {"release-composition": lambda gate: Shown(False, "another tree")}
    composition, speed, _ = run_gates(GATES, runners, SUBJECT, bench, "reprobuild 1")
    assert composition.evidence is not None
    assert (composition.evidence.passed, composition.evidence.detail) == (False, "another tree")
    assert speed.evidence == Evidence(
        "demo", "speed", "command", "demo:r1", SUBJECT.image, SUBJECT.drv, True, "68.45 steps/s",
        "a bench", "2026-09-01T12:00:00Z", "reprobuild 1",
    )  # fmt: skip
    assert bench.ran == [
        (("bench", "--once"), {"REPROBUILD_IMAGE": "demo:r1", "REPROBUILD_OUTPUT": "demo"})
    ]
    failed = run_gates({"speed": GATES["speed"]}, {}, SUBJECT, FakeBench(2, 3), "t")[0].evidence
    assert failed is not None
    assert (failed.passed, failed.detail) == (False, "ended with 3: 68.45 steps/s")


def test_evidence_of_nothing_is_no_evidence() -> None:
    nothing = Subject("demo", "demo:r1", "", "")
    (result,) = run_gates({"speed": GATES["speed"]}, {}, nothing, FakeBench(2), "t")
    assert (result.evidence, result.reason[:18]) == (None, "there is no image ")


EVIDENCE = Evidence(
    "demo", "speed", "command", "demo:r1", SUBJECT.image, "", True, "fast", "a bench",
    "2026-09-01T12:00:00Z", "t",
)  # fmt: skip


def test_its_text_is_read_back(tmp_path: Path) -> None:
    files = EvidenceFiles(tmp_path)
    assert files.of("demo") == {}
    path = files.keep(EVIDENCE)
    assert parse_evidence(path.read_bytes(), "x") == EVIDENCE
    assert files.of("demo") == {"speed": EVIDENCE}
    files.keep(replace(EVIDENCE, passed=False))
    assert files.of("demo")["speed"].passed is False
    assert [p.name for p in (tmp_path / "evidence" / "demo").iterdir()] == ["speed.json"]


def test_signed_evidence_of_a_trusted_key_is_taken(tmp_path: Path) -> None:
    theirs, ours = Keyring(tmp_path / "theirs"), Keyring(tmp_path / "ours")
    public = theirs.generate()
    ours.generate()
    made = signed(EVIDENCE, theirs.signer())
    with pytest.raises(ReprobuildError) as caught:
        accept(made, "demo", ["speed"], ours)
    assert caught.value.code == "E-EVIDENCE-TRUST"
    ours.trust("lab", public.key)
    assert accept(made, "demo", ["speed"], ours) == made
    assert parse_evidence(made.text().encode(), "x") == made
    for wrong in (
        EVIDENCE,
        replace(made, passed=False),
        replace(made, detail="faster"),
        replace(made, image="sha256:" + "2" * 64),
        replace(made, time="2026-09-02T12:00:00Z"),
        replace(made, signature="00" * 64),
        replace(made, signature="0"),
    ):
        with pytest.raises(ReprobuildError) as caught:
            accept(wrong, "demo", ["speed"], ours)
        assert caught.value.code == "E-EVIDENCE-TRUST"


@pytest.mark.parametrize(("output", "gates"), [("other", ["speed"]), ("demo", ["slow"])])
def test_evidence_of_something_else_is_refused(
    output: str, gates: list[str], tmp_path: Path
) -> None:
    with pytest.raises(ReprobuildError) as caught:
        accept(EVIDENCE, output, gates, Keyring(tmp_path))
    assert caught.value.code == "E-EVIDENCE"


def test_only_evidence_of_this_composition_counts() -> None:
    both = {"speed": EVIDENCE, "old": replace(EVIDENCE, reference="demo:r0")}
    assert bound(both, "demo:r1") == {"speed": EVIDENCE}
    assert bound(both, "demo:r1", SUBJECT.image) == {"speed": EVIDENCE}
    assert bound(both, "demo:r1", "sha256:" + "9" * 64) == {}


GOOD = json.loads(EVIDENCE.text())


@pytest.mark.parametrize(
    "document",
    [
        b"", b"[]", b"{", b"null", b"[" * 100_000, b"\xff\xfe",
        b"x" * (1 << 21),
        json.dumps({**GOOD, "format": 1}).encode(),
        json.dumps({**GOOD, "extra": 1}).encode(),
        json.dumps({**GOOD, "passed": "yes"}).encode(),
        json.dumps({**GOOD, "passed": 1}).encode(),
        json.dumps({**GOOD, "time": "yesterday"}).encode(),
        json.dumps({**GOOD, "image": ""}).encode(),
        json.dumps({**GOOD, "signature": "zz"}).encode(),
        json.dumps({k: v for k, v in GOOD.items() if k != "hardware"}).encode(),
    ],
    ids=range(15),
)  # fmt: skip
def test_a_damaged_record_is_refused(document: bytes, tmp_path: Path) -> None:
    with pytest.raises(ReprobuildError) as caught:
        parse_evidence(document, "x.json")
    assert caught.value.code == "E-EVIDENCE"
    folder = tmp_path / "evidence" / "demo"
    folder.mkdir(parents=True)
    (folder / "speed.json").write_bytes(document)
    with pytest.raises(ReprobuildError):
        EvidenceFiles(tmp_path).of("demo")


@pytest.mark.parametrize("field", ["output", "gate"])
def test_a_record_cannot_leave_its_directory(field: str, tmp_path: Path) -> None:
    wrong = replace(EVIDENCE, **{field: "../../x"})  # type: ignore[arg-type]
    with pytest.raises(ReprobuildError):
        EvidenceFiles(tmp_path).keep(wrong)
    assert list(tmp_path.iterdir()) == []


def test_a_record_under_another_name_is_refused(tmp_path: Path) -> None:
    files = EvidenceFiles(tmp_path)
    path = files.keep(EVIDENCE)
    path.rename(path.with_name("other.json"))
    with pytest.raises(ReprobuildError) as caught:
        files.of("demo")
    assert caught.value.code == "E-EVIDENCE"
