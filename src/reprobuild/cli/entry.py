"""The console script: a run with nothing to do is answered without building a command line.

click and all that hangs on it takes longer to import than the whole answer. So the plainest form
of the commonest call, `realize` with nothing but names and a few global options, is looked at
first; whatever is not exactly that, or has something to do, or fails, goes the long way, which
sees everything anew.

What this file imports before `entry` is there already when Python runs: a Ctrl-C in the meantime
would be answered by Python itself.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` takes longer to import than this file
if TYPE_CHECKING:
    from collections.abc import Sequence

_VALUES = {"-C": "directory", "--store": "store"}
_FLAGS = {"--json": "json", "--quiet": "quiet", "-q": "quiet"}


_INTERRUPTED = "interrupted", "E-INTERRUPTED", "run the same command again to go on"


def entry() -> None:
    """The whole program; exits."""
    try:
        import signal

        collect_seldom()
        catching = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if catching:
            # Raised out of an import, KeyboardInterrupt may land where Python swallows it.
            signal.signal(signal.SIGINT, _leave)
        answer = nothing_to_do(sys.argv[1:])
        if answer is not None and _write(answer):
            sys.exit(0)
        from reprobuild.cli.main import entry as every_command

        if catching:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        every_command()
    except KeyboardInterrupt:  # before or after the command: in it, `cli.main.run` says so
        _leave()


def collect_seldom() -> None:
    """Has Python look for cycles of garbage after 20,000 new objects instead of 700, and not at the
    end, where all goes anyway: what `show` imports is 40,000 objects, and they all stay."""
    import atexit
    import gc

    gc.set_threshold(20_000, 20, 20)
    atexit.register(gc.freeze)


def _leave(number: int = 0, frame: object = None) -> None:
    """Ends as an interrupted command does, by what is imported already; nothing is begun yet."""
    message, code, hint = _INTERRUPTED
    if _wants_json(sys.argv[1:]):
        fields = f'"code": "{code}",\n    "message": "{message}",\n    "facts": {{}}'
        text = f'{{\n  "error": {{\n    {fields},\n    "hint": "{hint}"\n  }}\n}}\n'
    else:
        text = f"error: {message}  [{code}]\nhint: {hint}\n"
    try:  # noqa: SIM105 - imports nothing
        os.write(1 if text.startswith("{") else 2, text.encode())
    except OSError:
        pass  # nobody is left to be told
    os._exit(130)


def _wants_json(argv: Sequence[str]) -> bool:
    words = iter(argv)
    for word in words:
        if word in ("-C", "--store", "--events"):
            next(words, "")
        elif word == "--json" or not word.startswith("-"):
            return word == "--json"
    return False


def nothing_to_do(argv: Sequence[str]) -> str | None:
    """What to print, for a plain `realize` whose answer is remembered; None for all else."""
    call = _plain_realize(argv)
    if call is None:
        return None
    options, names = call
    from reprobuild.app.glimpse import last_answer
    from reprobuild.cli.answer import remembered, text

    try:
        answer = last_answer(options.get("directory"), options.get("store"), names)
        return None if answer is None else text(remembered(answer), as_json="json" in options)
    except (OSError, ValueError, KeyError, TypeError):
        return None  # the long way says what is wrong


def _plain_realize(argv: Sequence[str]) -> tuple[dict[str, str], list[str]] | None:
    """Options and names, where the call is `[OPTIONS] realize [NAME]…` and nothing unusual."""
    options: dict[str, str] = {}
    words = iter(argv)
    for word in words:
        if word in _VALUES:
            options[_VALUES[word]] = next(words, "")
        elif word in _FLAGS:
            options[_FLAGS[word]] = word
        elif word == "realize":
            names = list(words)
            plain = all(name and not name.startswith("-") and "#" not in name for name in names)
            return (options, names) if plain else None
        else:
            return None
    return None


def _write(answer: str) -> bool:
    """Whether all of it could be written; if not, the long way finds the same and reports it."""
    try:
        data = memoryview(f"{answer}\n".encode(sys.stdout.encoding, sys.stdout.errors or "strict"))
        while data:
            data = data[os.write(sys.stdout.fileno(), data) :]
    except (AttributeError, OSError, ValueError):
        return False
    return True
