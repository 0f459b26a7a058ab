"""Readers for the file formats of the images. They take bytes, and a path for error messages."""

import gzip
import io
import zlib
from pathlib import Path

import numpy as np
from scipy.io import loadmat

from pathgrad._data.pickles import unpickled
from pathgrad._words.errors import UserError


def amat(contents: bytes, path: Path, pixels: int) -> np.ndarray:
    """Return binary images, (number, pixels), from text with one image per line: 0 and 1 with spaces between.

    If the path ends in .gz, the text is compressed.
    """
    if path.suffix == ".gz":
        try:
            contents = gzip.decompress(contents)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{path} cannot be unpacked: {error}.") from error
    # Every pixel takes two bytes, a digit and a separator, so none of the 39 million has to be parsed.
    if not contents or len(contents) % (2 * pixels):
        raise UserError(
            f"{path} has {len(contents)} bytes of text, not a multiple of {2 * pixels}: expected lines of "
            f"{pixels} digits, each followed by a space, the last by the end of the line."
        )
    table = np.frombuffer(contents, np.uint8).reshape(-1, pixels, 2)
    images = table[:, :, 0] - np.uint8(ord("0"))  # characters below "0" wrap around to above 1
    after = np.full(pixels, ord(" "), np.uint8)
    after[-1] = ord("\n")
    good = (images.max(axis=1) <= 1) & (table[:, :, 1] == after).all(axis=1)
    if not good.all():
        raise UserError(
            f"{path}, line {int(np.argmin(good)) + 1}: expected {pixels} digits 0 or 1 with single spaces "
            "between them."
        )
    return images


def matlab(contents: bytes, path: Path, shapes: dict[str, tuple[int, int]]) -> list[np.ndarray]:
    """Return the named variables of a MATLAB file, which must have the given shapes."""
    try:
        variables = loadmat(io.BytesIO(contents), variable_names=list(shapes))
    except Exception as error:  # a damaged file makes SciPy raise almost anything
        raise UserError(f"{path} cannot be read as a MATLAB file: {error}.") from error
    for name, shape in shapes.items():
        if name not in variables:
            raise UserError(f"{path} has no variable `{name}`.")
        value = variables[name]
        if value.shape != shape or value.dtype.kind not in "uif":
            raise UserError(
                f"{path}: `{name}` must be an array of numbers of shape {shape}, got {value.dtype} of shape "
                f"{value.shape}."
            )
    return [variables[name] for name in shapes]


def pickled_bytes(contents: bytes, path: Path, shape: tuple[int, int]) -> np.ndarray:
    """Return the uint8 array in a pickle (also of Python 2) that holds just it, or a list of just it."""
    try:
        array = unpickled(contents)
    except Exception as error:  # a bad pickle can raise anything
        raise UserError(f"{path} cannot be unpickled: {error}.") from error
    if isinstance(array, list) and len(array) == 1:
        array = array[0]
    # `type`, since a subclass of an array may behave differently.
    if type(array) is not np.ndarray or array.dtype != np.uint8 or array.shape != shape:
        is_array = isinstance(array, np.ndarray)
        what = f"{array.dtype} of shape {array.shape}" if is_array else type(array).__name__
        raise UserError(f"{path} must hold an array of uint8 of shape {shape}, got {what}.")
    return array
