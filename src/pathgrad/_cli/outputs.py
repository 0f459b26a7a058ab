"""Files that commands write: where they may go, and the errors if they cannot be written."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from matplotlib.figure import Figure

from pathgrad._show.style import save
from pathgrad._words.errors import UserError

PICTURES = (".png", ".svg", ".pdf")


def check_output(path: Path, *endings: str, option: str = "--out") -> None:
    """Raise before the work begins if its result could not be written."""
    if path.suffix not in endings:
        raise UserError(f"{option} must end in {' or '.join(endings)}, got {path}.")
    if path.is_dir():
        raise UserError(f"{option} {path} is a directory. Name a file in it.")
    if not path.absolute().parent.is_dir():
        raise UserError(f"There is no directory {path.absolute().parent} to write to. Create it first.")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of the file system into messages for users."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from error


def write_picture(figure: Figure, path: Path) -> None:
    """Write a figure, and print where it is."""
    with writing(path):
        save(figure, path)
    print(f"picture: {path}")
