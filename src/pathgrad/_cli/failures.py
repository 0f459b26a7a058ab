"""What to say of failures that are neither bad input nor bugs: of the machine, or of a user's own code."""

import errno
import itertools
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path

import pathgrad
from pathgrad._words.text import first_line

# How NumPy and JAX say that a number does not fit.
_TOO_LARGE = ("array is too big", "Maximum allowed", "too large to convert", "out of bounds for int")
_IN_DENSITY = "The log density was called"  # how the note on an exception of a density begins
_MANY = 1000  # options below this do not fill a memory
# Options that take no memory, however large.
_SMALL = {
    *("--checkpoint-seconds", "--epochs", "--first", "--kl-warmup", "--max-seconds", "--newton-steps"),
    *("--patience", "--process-id", "--rate-warmup", "--rounds", "--seed", "--seeds", "--split-seed"),
    *("--steps", "--validate", "--warmup-epochs"),
}
_LIBRARIES = ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
_INSTALLED = (Path(pathgrad.__file__).parent, *(Path(sysconfig.get_path(name)) for name in _LIBRARIES))


class HelpShown(SystemExit):
    """The help was printed, which ends the command; any other `SystemExit` comes from a user's code."""


def explained(error: BaseException, words: Sequence[str]) -> str | None:
    """Return what to say of a failure, given the command line; `None` for a bug."""
    if isinstance(error, SystemExit):
        return f"the code that you gave ended the command with sys.exit({error.code!r}). Remove that call."
    text = first_line(error)
    if any(note.startswith(_IN_DENSITY) for note in getattr(error, "__notes__", ())):
        return f"the density or model that you gave failed: {text}{_place(error)}."
    is_full = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    if is_full or "RESOURCE_EXHAUSTED" in text:
        detail = f" ({error})" if type(error) is MemoryError and error.args else ""
        return f"there is not enough memory{detail}. {_remedy(words)}"
    if isinstance(error, OverflowError) or any(sign in text for sign in _TOO_LARGE):
        return f"a number is too large to compute with. {_remedy(words)}"
    if isinstance(error, RecursionError):
        return f"something is nested too deeply. {_remedy(words)}"
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else "the output cannot be written: "
        return f"{where}{error.strerror}. What was saved is kept; a run can be continued with --resume."
    if type(error).__name__ == "JaxRuntimeError":  # by its name: many commands need no JAX
        last = [line.strip() for line in str(error).splitlines() if line.strip()][-1]
        return f"a computation failed, or a function that it calls: {last}"
    return None


def _place(error: BaseException) -> str:
    """Return where in a user's own file an error arose: behind none of the installed packages."""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        file = Path(frame.filename)
        if file.is_file() and not any(file.is_relative_to(folder) for folder in _INSTALLED):
            return f" ({file}, line {frame.lineno})"
    return ""


def _remedy(words: Sequence[str]) -> str:
    """Name the option that is most likely at fault: the largest number."""
    given = {}
    for word, after in itertools.pairwise([*words, ""]):
        name, _, value = word.partition("=") if "=" in word else (word, "", after)
        if name.startswith("--") and name not in _SMALL and value.isdigit():
            given[name] = int(value)
    name = max(given, key=lambda name: given[name], default=None)
    if name is None or given[name] < _MANY:
        return "Use fewer draws, fewer solver steps, or a smaller model."
    return f"Most likely {name} {given[name]} is too large."
