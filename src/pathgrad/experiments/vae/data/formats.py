"""Readers of the formats in which the images come. They take bytes, and a name for their complaints."""

import gzip
import io
import pickle
import zlib
from pathlib import Path

import numpy as np
from scipy.io import loadmat

from pathgrad._words.errors import UserError


def amat(contents: bytes, path: Path, pixels: int) -> np.ndarray:
    """Return binary images, (number, pixels), from text with an image a line: 0 and 1, a space between.

    A path that ends in .gz says that the text is packed.
    """
    if path.suffix == ".gz":
        try:
            contents = gzip.decompress(contents)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{path} cannot be unpacked: {error}.") from error
    # Every pixel takes two bytes, itself and what follows: no number has to be parsed, of 39 million.
    if not contents or len(contents) % (2 * pixels):
        raise UserError(
            f"{path} has {len(contents)} bytes of text, which are not lines of {2 * pixels}: "
            f"{pixels} digits, each followed by a space, the last by the end of the line."
        )
    table = np.frombuffer(contents, np.uint8).reshape(-1, pixels, 2)
    images = table[:, :, 0] - np.uint8(ord("0"))  # what is below "0" wraps around, to above 1
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


class _ArrayUnpickler(pickle.Unpickler):
    """Makes NumPy arrays, and nothing else: a pickle may otherwise call any function it names."""

    def find_class(self, module: str, name: str):
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            # The function that arrays are made with. Its public name moves; arrays know it.
            return np.empty(0).__reduce__()[0]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        raise UserError(f"it asks for `{module}.{name}`, and only NumPy arrays are read from a pickle")


def pickled_bytes(contents: bytes, path: Path, shape: tuple[int, int]) -> np.ndarray:
    """Return the array of uint8 in a pickle, Python 2's too, where it is alone or alone in a list."""
    try:
        # Python 2 wrote bytes as text; latin1 gives every character back as the byte it was.
        found = _ArrayUnpickler(io.BytesIO(contents), encoding="latin1").load()
    except Exception as error:  # what a wrong pickle raises has no end
        raise UserError(f"{path} is not read: {error}.") from error
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    # `type`, since an array of a subclass would not be what it seems.
    if type(found) is not np.ndarray or found.dtype != np.uint8 or found.shape != shape:
        is_array = isinstance(found, np.ndarray)
        what = f"{found.dtype} of shape {found.shape}" if is_array else type(found).__name__
        raise UserError(f"{path} must hold an array of uint8 of shape {shape}, got {what}.")
    return found
