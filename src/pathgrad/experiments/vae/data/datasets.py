"""The data sets as used in training: upright images, split and binarised as in the literature.

Random choices use NumPy's legacy generator, whose numbers never change, so the splits are those of the
Sylvester flows, FFJORD and the work that followed them.
"""

import dataclasses
import math
from pathlib import Path

import numpy as np

from pathgrad._data.contents import read
from pathgrad._words.errors import UserError

from . import formats
from .sources import Source, find

_BINARISATION_SEED = 777  # for OMNIGLOT's validation and test images, as in all published work


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Images in three parts, each (number, height, width).

    Attributes:
        name: One of `SOURCES`.
        train: Levels from 0 as uint8; if `binarise_each_batch`, probabilities of the value one as float32.
        validation: Levels as uint8.
        test: Levels as uint8.
        levels: Number of values a pixel takes: 2, or 256 shades of grey.
        binarise_each_batch: Whether each training batch makes a new Bernoulli draw of its pixels.
    """

    name: str
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    levels: int
    binarise_each_batch: bool


def load(name: str, folder: Path, split_seed: int = 123) -> Dataset:
    """Load a data set from the files in a folder, whose hashes must be the known ones.

    The seed decides the split of `freyfaces` into three parts, and which images of `omniglot` are for
    validation. The other splits are fixed.
    """
    source = find(name)
    if not 0 <= split_seed < 2**32:
        raise UserError(f"The seed of the split must be from 0 to 2^32 - 1, got {split_seed}.")
    readers = {"mnist": _mnist, "caltech": _caltech, "freyfaces": _freyfaces}
    parts = readers.get(name, _omniglot)(name, source, folder, split_seed)
    train, validation, test = (part.reshape(-1, *source.pixels) for part in parts)
    grey = train.dtype != np.uint8
    return Dataset(name, train, validation, test, source.levels, binarise_each_batch=grey)


# The training images of MNIST and Caltech stay in the order of their files: training shuffles them in every
# epoch, so another shuffle here would only act like another seed. The order of Caltech's validation images
# does not matter either.


def _mnist(name: str, source: Source, folder: Path, split_seed: int) -> list[np.ndarray]:
    parts = []
    for part, number in zip(source.files, source.images, strict=True):
        path, contents = read(name, source.files, part, folder)
        images = formats.amat(contents, path, math.prod(source.pixels))
        if len(images) != number:
            raise UserError(f"{path} must have {number} lines, got {len(images)}.")
        parts.append(images)
    return parts


def _caltech(name: str, source: Source, folder: Path, split_seed: int) -> list[np.ndarray]:
    names = ("train_data", "val_data", "test_data")
    shapes = {n: (k, math.prod(source.pixels)) for n, k in zip(names, source.images, strict=True)}
    path, contents = read(name, source.files, "all", folder)
    parts = formats.matlab(contents, path, shapes)
    if not all(np.isin(part, (0, 1)).all() for part in parts):
        raise UserError(f"{path}: pixels must be 0 or 1.")
    # In the file the object is 0; make it 1, as in other data sets of this kind.
    return [1 - _upright(part, source.pixels).astype(np.uint8) for part in parts]


def _freyfaces(name: str, source: Source, folder: Path, split_seed: int) -> list[np.ndarray]:
    path, contents = read(name, source.files, "all", folder)
    shape = (sum(source.images), math.prod(source.pixels))
    # A copy, since the array from the pickle may be read-only.
    images = formats.pickled_bytes(contents, path, shape).copy()
    np.random.RandomState(split_seed).shuffle(images)
    return np.split(images, np.cumsum(source.images[:2]))


def _omniglot(name: str, source: Source, folder: Path, split_seed: int) -> list[np.ndarray]:
    train, validation, test = source.images
    pixels = math.prod(source.pixels)
    path, contents = read(name, source.files, "all", folder)
    shapes = {"data": (pixels, train + validation), "testdata": (pixels, test)}
    both = formats.matlab(contents, path, shapes)
    if not all(((grey >= 0) & (grey <= 1)).all() for grey in both):
        raise UserError(f"{path}: pixels must be numbers from 0 to 1.")
    drawn, tested = (_upright(grey.T.astype(np.float32), source.pixels) for grey in both)
    np.random.RandomState(split_seed).shuffle(drawn)
    # Validation before test, from one stream, and pixels along the rows of upright images: any other order
    # would give a different test set from everyone else's.
    stream = np.random.RandomState(_BINARISATION_SEED)
    binary = [stream.binomial(1, grey).astype(np.uint8) for grey in (drawn[train:], tested)]
    return [drawn[:train], *binary]


def _upright(rows: np.ndarray, pixels: tuple[int, int]) -> np.ndarray:
    """Return images from rows that list their pixels column by column, as MATLAB does."""
    height, width = pixels
    return np.ascontiguousarray(rows.reshape(-1, width, height).swapaxes(1, 2))
