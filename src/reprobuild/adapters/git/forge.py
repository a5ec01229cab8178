"""Asking a forge (GitHub's REST API, version 2022-11-28) which pull requests are open."""

from __future__ import annotations

from collections.abc import Mapping

from reprobuild.core.integration.audit import OpenPull, parse_pulls
from reprobuild.errors import ReprobuildError

PAGE = 100
_PAGES = 100


class Forge:
    """The forge's API. The token is sent and never shown."""

    def __init__(self, environment: Mapping[str, str], *, offline: bool = False) -> None:
        self._token = environment.get("GITHUB_TOKEN") or environment.get("GH_TOKEN") or ""
        self._root = environment.get("GITHUB_API_URL", "https://api.github.com").rstrip("/")
        self._offline = offline

    def open_pulls(self, slug: str, base: str) -> tuple[OpenPull, ...]:
        """The open pull requests of `owner/name` against a branch.

        Raises E-OFFLINE, E-GIT-FETCH when the forge refuses or cannot be reached, E-PULLS when
        its answer is off.
        """
        if self._offline:
            raise ReprobuildError(
                "E-OFFLINE",
                f"cannot query open PRs for {slug}: the network is off",
                hint="save the forge's answer and give it with --pulls-json",
            )
        import requests

        headers = {
            "Accept": "application/vnd.github+json",
            "User-Agent": "reprobuild",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        pulls: list[OpenPull] = []
        for page in range(1, _PAGES + 1):
            try:
                answer = requests.get(
                    f"{self._root}/repos/{slug}/pulls",
                    params={
                        "state": "open",
                        "base": base,
                        "per_page": str(PAGE),
                        "page": str(page),
                    },
                    headers=headers,
                    timeout=30,
                    allow_redirects=False,
                )
            except requests.RequestException as error:
                raise self._failure(slug, type(error).__name__) from None
            if answer.status_code != 200:
                raise self._failure(slug, f"the forge answered {answer.status_code}")
            batch = parse_pulls(answer.content, f"the forge's answer for {slug}")
            pulls += batch
            if len(batch) < PAGE:
                return tuple(pulls)
        raise self._failure(slug, f"more than {_PAGES * PAGE} open pull requests")

    def _failure(self, slug: str, why: str) -> ReprobuildError:
        return ReprobuildError(
            "E-GIT-FETCH",
            f"cannot query open PRs for {slug}: {why}",
            hint="check GITHUB_TOKEN and the network, or give a saved answer with --pulls-json",
        )


__all__ = ["Forge"]
