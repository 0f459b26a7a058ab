"""Errors that a user can fix, as opposed to bugs in our code.

A message may name an argument: `time_kernels` in Python, but an option with dashes on the command line. So
the library only marks the name, and the code that shows the message writes it in the form the reader needs.
"""

import re

# From Unicode's private-use area: no file name and no text from a user contains them by accident.
_BEGIN, _END = "\ue000", "\ue001"
_MARKED = re.compile(f"{_BEGIN}(\\w+){_END}")


def named(argument: str) -> str:
    """Mark the name of an argument in a message."""
    return f"{_BEGIN}{argument}{_END}"


def in_python(text: str) -> str:
    """Write a message for somebody who calls the library from Python."""
    return _MARKED.sub(r"`\1`", text)


def as_options(text: str) -> str:
    """Write a message for somebody at the command line."""
    return _MARKED.sub(lambda match: f"--{match[1].replace('_', '-')}", text)


class UserError(Exception):
    """An error that the user can fix. The message says what happened, why, and what to do.

    Attributes:
        text: The message, with the names of arguments marked; `str` of the error writes them for Python.
    """

    def __init__(self, text: str) -> None:
        """Store a message in which the names of arguments are marked by `named`."""
        self.text = text
        super().__init__(in_python(text))


class ArgumentError(UserError, ValueError):
    """An invalid argument, on its own or together with another."""


def check_at_least_one(**arguments: int | float | None) -> None:
    """Raise an `ArgumentError` for arguments below one; `None` means a default and is allowed."""
    for name, value in arguments.items():
        if value is not None and value < 1:
            raise ArgumentError(f"{named(name)} must be at least 1, got {value}.")


def check_at_most(most: int, **arguments: int | None) -> None:
    """Raise an `ArgumentError` for arguments above a limit; `None` means a default and is allowed."""
    for name, value in arguments.items():
        if value is not None and value > most:
            raise ArgumentError(f"{named(name)} must be at most {most}, got {value}.")


def check_seconds(**arguments: float) -> None:
    """Raise an `ArgumentError` for arguments that are no span of time: negative or NaN."""
    for name, value in arguments.items():
        if not value >= 0:
            raise ArgumentError(f"{named(name)} must be a number of seconds, zero or more, got {value}.")
