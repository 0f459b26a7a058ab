"""Standard output and error: every text can be printed, and what cannot be written is noticed."""

import codecs
import contextlib
import os
import sys

# What our own texts have beyond ASCII, for terminals without it.
_ASCII = {"±": "+/-", "–": "-", "—": "-", "−": "-", "×": "x", "é": "e", "…": "..."}
_HANDLER = "pathgrad.plain"


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that the terminal does not have."""
    assert isinstance(error, UnicodeEncodeError)
    letters = error.object[error.start : error.end]
    return "".join(_ASCII.get(x, x.encode("ascii", "backslashreplace").decode()) for x in letters), error.end


codecs.register_error(_HANDLER, _plain)


def prepare() -> None:
    """Let both streams take any text; replace those that were closed before the start."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (until the end)
        elif reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors=_HANDLER)


def give_up_if_full() -> None:
    """Give up on standard output if what was printed cannot be written."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        give_up()


def give_up() -> None:
    """Write nothing more: at its end, Python would try again and print a traceback."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
