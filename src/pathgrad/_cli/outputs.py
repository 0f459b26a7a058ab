"""Files that commands write: where they may go, and what to say where they cannot."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from matplotlib.figure import Figure

from pathgrad._show.style import save
from pathgrad._words.errors import UserError

PICTURES = (".png", ".svg", ".pdf")


def check_output(path: Path, *endings: str, option: str = "--out") -> None:
    """Refuse to begin work whose result cannot be written."""
    if path.suffix not in endings:
        raise UserError(f"{option} must end in {' or '.join(endings)}, got {path}.")
    if path.is_dir():
        raise UserError(f"{option} {path} is a directory: name a file in it.")
    if not path.absolute().parent.is_dir():
        raise UserError(f"There is no directory {path.absolute().parent} to write into.")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the disk has against a file into a message for users."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from error


def write_picture(figure: Figure, path: Path) -> None:
    """Write a figure, and say where it is."""
    with writing(path):
        save(figure, path)
    print(f"picture: {path}")
