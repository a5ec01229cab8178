"""The counts of the plain and the live view."""

from __future__ import annotations

from reprobuild.adapters.report.progress import Progress


def test_one_command_may_realize_several_times() -> None:
    progress = Progress()
    seen: list[str] = []
    for build in (1, 2, 1):
        progress.take("plan", {"build": build, "fetch": 0, "reuse": 0})
        for number in range(build):
            progress.take("started", {"name": f"step-{number}"})
            progress.take("finished", {"name": f"step-{number}", "how": "built"})
            seen.append(progress.summary())
    assert seen == ["[1/1]", "[2/3]", "[3/3]", "[4/4]"]


def test_what_was_pinned_before_the_plan_is_not_above_it() -> None:
    progress = Progress()
    for name in ("one", "two"):
        progress.take("finished", {"name": name, "how": "pinned"})
    assert progress.summary() == "[2]"
    progress.take("plan", {"build": 1, "fetch": 1, "reuse": 0})
    assert progress.summary() == "[2/4]"


def test_what_failed_stays_in_the_count_of_what_was_planned() -> None:
    progress = Progress()
    progress.take("plan", {"build": 2, "fetch": 0, "reuse": 0})
    progress.take("failed", {"name": "one", "error": "no"})
    progress.take("plan", {"build": 1, "fetch": 0, "reuse": 0})
    assert progress.summary() == "[0/3]"
