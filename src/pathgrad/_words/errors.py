"""What went wrong for a user, as opposed to in our code.

A message may speak of an argument. In Python that is `time_kernels`, on the command line an option, with
dashes: so the library only marks the name, and whoever shows the message says it in the reader's language.
"""

import re

# Of Unicode's private use: no name of a file and no text of a user has them by accident.
_BEGIN, _END = "\ue000", "\ue001"
_MARKED = re.compile(f"{_BEGIN}(\\w+){_END}")


def named(argument: str) -> str:
    """Mark the name of an argument in a message."""
    return f"{_BEGIN}{argument}{_END}"


def in_python(text: str) -> str:
    """Write a message for somebody who calls the library."""
    return _MARKED.sub(r"`\1`", text)


def as_options(text: str) -> str:
    """Write a message for somebody at the command line."""
    return _MARKED.sub(lambda found: f"--{found[1].replace('_', '-')}", text)


class UserError(Exception):
    """Something the user can mend. The message says what happened, why, and what to do.

    Attributes:
        text: The message, with the names of arguments marked; `str` of the error writes them for Python.
    """

    def __init__(self, text: str) -> None:
        """Take a message in which arguments are marked by `named`."""
        self.text = text
        super().__init__(in_python(text))


class ArgumentError(UserError, ValueError):
    """An argument that makes no sense, alone or beside another."""


def check_at_least_one(**arguments: int | float | None) -> None:
    """Refuse arguments below one; `None` stands for a default."""
    for name, value in arguments.items():
        if value is not None and value < 1:
            raise ArgumentError(f"{named(name)} must be at least 1, got {value}.")
