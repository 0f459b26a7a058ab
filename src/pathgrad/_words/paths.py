"""Paths as people write them."""

from pathlib import Path

from .errors import UserError


def expanded(name: Path | str) -> Path:
    """Return a path with `~` and `~name` replaced by home directories."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:  # no such user, or one without a home
        raise UserError(f"{name}: there is no such home directory. Write the path without `~`.") from error


def check_unicode(path: Path) -> None:
    """Raise a `UserError` for a path whose bytes are no text."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        written = str(path).encode("utf-8", "backslashreplace").decode()
        raise UserError(f"The path {written} is not valid Unicode. Rename the file or the folder.") from error


def home(purpose: str) -> Path:
    """Return the home directory. If there is none, the error ends with what to do about `purpose`."""
    try:
        return Path.home()
    except RuntimeError as error:  # as in a container that runs under a number without a user
        raise UserError(f"There is no home directory. {purpose}") from error
