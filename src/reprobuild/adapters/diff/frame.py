"""What every page of ours stands in: policy, style, script, a bar to filter and fold.

The page's policy allows its own script and style by digest, and nothing from anywhere.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from html import escape
from importlib.resources import files

_BAR = """\
<div class="bar" role="search">
<label for="filter">Filter</label><input id="filter" type="search" autocomplete="off">
<button id="fold" type="button" aria-pressed="false" hidden>Open all</button>
<button id="theme" type="button" hidden>Dark or light</button>
<span class="dim keys" hidden><kbd>/</kbd> filter <kbd>j</kbd> <kbd>k</kbd> move</span>
<span id="status" role="status" class="dim"></span>
</div>
"""


def frame(title: str, head: str, body: str, *, skip: str) -> str:
    """A whole page; `head` and `body` are HTML, `title` and `skip` (the first link) are text."""
    here = files("reprobuild.adapters.diff")
    style = (here / "page.css").read_text("utf-8")
    script = (here / "page.js").read_text("utf-8")
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}"
    return "".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n",
            f'<a class="skip" href="#main">{escape(skip)}</a>\n',
            head,
            _BAR,
            f'<main id="main">\n{body}</main>\n<script>{script}</script>\n</body>\n</html>\n',
        )
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{b64encode(digest).decode()}'"
