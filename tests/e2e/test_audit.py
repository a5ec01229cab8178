"""`reprobuild audit` as a drop-in, and the drafts that it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.cliin import Said, cli
from support.webserver import web_server

A, B, C = "a" * 40, "b" * 40, "c" * 40


def manifest(tmp: Path, **more: Any) -> Path:
    path = tmp / "manifest.json"
    document = {
        "schema_version": 1,
        "name": "x",
        "repository": "https://github.com/some/thing.git",
        "base_ref": "refs/heads/main",
        "pull_requests": [{"number": 10, "head": A}],
        "reviewed_exclusions": [
            {"number": 11, "head": B, "disposition": "superseded", "reason": "Covered by #10."}
        ],
        **more,
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path


def pulls(tmp: Path, *rows: tuple[int, str]) -> Path:
    path = tmp / "pulls.json"
    path.write_text(
        json.dumps([{"number": n, "head": {"sha": h}, "title": f"Title {n}"} for n, h in rows])
    )
    return path


def audit(path: Path, saved: Path, *flags: str) -> Said:
    return cli("audit", str(path), "--pulls-json", str(saved), *flags)


def test_everything_classified_passes(tmp_path: Path) -> None:
    said = audit(manifest(tmp_path), pulls(tmp_path, (10, A), (11, B)))
    assert said.status == 0
    assert said.out == "release PR audit: PASS (2 open base-branch PRs classified)\n"


@pytest.mark.parametrize(
    "disposition",
    ["alternative", "experimental", "out_of_scope", "research-only", "superseded", "unsupported"],
)
def test_every_disposition_is_accepted(tmp_path: Path, disposition: str) -> None:
    entry = {"number": 11, "head": B, "disposition": disposition, "reason": "r"}
    path = manifest(tmp_path, reviewed_exclusions=[entry])
    assert audit(path, pulls(tmp_path, (11, B))).status == 0


def test_refusals(tmp_path: Path) -> None:
    said = audit(manifest(tmp_path), pulls(tmp_path, (12, C), (11, C), (10, B)))
    assert said.status == 1
    assert "release PR audit failed: " in said.err
    assert "open PR #12 is not classified" in said.err
    assert f"open PR #11 (excluded) moved: pinned {B}, live {C}" in said.err
    assert f"open PR #10 (included) moved: pinned {A}, live {B}" in said.err


def test_json_names_what_is_unclassified_and_what_moved(tmp_path: Path) -> None:
    path, saved = manifest(tmp_path), pulls(tmp_path, (12, C), (11, C))
    said = cli("--json", "audit", str(path), "--pulls-json", str(saved))
    assert said.status == 1
    assert [p["number"] for p in said.document["unclassified"]] == [12]
    assert said.document["moved"] == [
        {"number": 11, "disposition": "excluded", "pinned": B, "live": C}
    ]
    assert said.document["error"]["code"] == "E-AUDIT"
    good = cli("--json", "audit", str(path), "--pulls-json", str(pulls(tmp_path, (10, A))))
    assert (good.status, good.document["unclassified"], good.document["moved"]) == (0, [], [])


@pytest.mark.parametrize(
    ("more", "phrase"),
    [
        ({"reviewed_exclusions": [{"number": 10, "head": B, "disposition": "superseded",
                                   "reason": "r"}]}, "PR #10 is classified more than once"),
        ({"reviewed_exclusions": [{"number": 11, "head": B, "disposition": "superseded"}]},
         "PR #11 has an incomplete exclusion record"),
        ({"reviewed_exclusions": [{"number": 11, "head": B, "disposition": "dull",
                                   "reason": "r"}]}, "PR #11 has an incomplete exclusion record"),
        ({"reviewed_exclusions": None},
         "manifest must contain pull_requests and reviewed_exclusions"),
        ({"pull_requests": [{"number": 10, "head": "abc"}]}, "PR #10 has an invalid pinned head"),
    ],
)  # fmt: skip
def test_wrong_manifests(tmp_path: Path, more: dict[str, Any], phrase: str) -> None:
    said = audit(manifest(tmp_path, **more), pulls(tmp_path))
    assert said.status == 1
    assert phrase in said.err


@pytest.mark.parametrize(
    "text", ["{}", "[1]", "[{}]", '[{"number": 1, "head": {"sha": "x"}}]', "nope"]
)
def test_wrong_answers_of_a_forge(tmp_path: Path, text: str) -> None:
    saved = tmp_path / "pulls.json"
    saved.write_text(text)
    said = audit(manifest(tmp_path), saved)
    assert said.status == 1
    assert "E-PULLS" in said.err


def test_write_drafts_entries_that_do_not_pass_by_themselves(tmp_path: Path) -> None:
    path, saved = manifest(tmp_path), pulls(tmp_path, (12, C), (10, A))
    assert audit(path, saved, "--write").status == 1
    document = json.loads(path.read_text())
    draft = document["reviewed_exclusions"][-1]
    assert (draft["number"], draft["head"], draft["title"]) == (12, C, "Title 12")
    assert draft["disposition"] == "" and draft["reason"] == ""
    again = audit(path, saved)
    assert again.status == 1 and "PR #12 has an incomplete exclusion record" in again.err
    draft.update(disposition="unsupported", reason="Not in this release.")
    path.write_text(json.dumps(document))
    assert audit(path, saved).status == 0


def test_write_changes_nothing_where_nothing_is_missing(tmp_path: Path) -> None:
    path = manifest(tmp_path)
    before = path.read_bytes()
    assert audit(path, pulls(tmp_path, (10, A)), "--write").status == 0
    assert path.read_bytes() == before


def test_offline_without_a_saved_answer(tmp_path: Path) -> None:
    said = cli("--offline", "audit", str(manifest(tmp_path)))
    assert said.status == 1
    assert "E-OFFLINE" in said.err and "--pulls-json" in said.err


@pytest.mark.parametrize(
    "repository", ["https://github.com/only", "https://github.com/a/b/c", "https://github.com/a/..",
                   "file:///etc/passwd"]
)  # fmt: skip
def test_addresses_that_are_no_forge_repository(tmp_path: Path, repository: str) -> None:
    said = cli("audit", str(manifest(tmp_path, repository=repository)))
    assert said.status == 1
    assert "unsupported GitHub repository URL" in said.err


def _page(number: int) -> str:
    return f"/repos/some/thing/pulls?state=open&base=main&per_page=100&page={number}"


def _rows(*numbers: int) -> bytes:
    return json.dumps([{"number": n, "head": {"sha": C}, "title": ""} for n in numbers]).encode()


def test_the_forge_is_asked_page_by_page_and_the_token_is_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "ghp_verysecret"
    monkeypatch.setenv("GITHUB_TOKEN", secret)
    with web_server() as web:
        monkeypatch.setenv("GITHUB_API_URL", web.url)
        web.put(_page(1), _rows(*range(100, 200)), authorization=f"Bearer {secret}")
        web.put(_page(2), _rows(200), authorization=f"Bearer {secret}")
        said = cli("audit", str(manifest(tmp_path)))
        assert said.status == 1
        assert "open PR #100 is not classified" in said.err
        assert "open PR #200 is not classified" in said.err
        assert len(web.seen) == 2
        web.put(_page(1), b"no", authorization="Bearer other")
        refused = cli("--json", "-v", "audit", str(manifest(tmp_path)))
        assert refused.status == 1
        assert "401" in refused.document["error"]["message"]
    gone = cli("audit", str(manifest(tmp_path)))
    assert gone.status == 1 and "cannot query open PRs for some/thing" in gone.err
    for answer in (said, refused, gone):
        assert secret not in answer.out + answer.err


def test_a_forge_that_redirects_does_not_get_the_token_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from support.webserver import Fault

    monkeypatch.setenv("GH_TOKEN", "secret")
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    with web_server() as web, web_server() as thief:
        monkeypatch.setenv("GITHUB_API_URL", web.url)
        web.put(_page(1), b"", always=Fault("redirect", 302, thief.url + "/x"))
        assert cli("audit", str(manifest(tmp_path))).status == 1
        assert thief.seen == []
