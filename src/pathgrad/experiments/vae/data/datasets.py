"""The data sets as they are trained on: upright images, split and binarised as in the literature.

Random choices are made by NumPy's legacy generator, whose numbers never change: so the splits are those of
the Sylvester flows, FFJORD and the work that followed them.
"""

import dataclasses
from pathlib import Path

import numpy as np

from pathgrad._errors import UserError

from . import formats
from .contents import present, read
from .sources import DATASETS as DATASETS
from .sources import SOURCES, Source

_BINARISATION_SEED = 777  # of OMNIGLOT's validation and test images, in all published work


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Images of three parts, each (number, height, width).

    Attributes:
        name: One of `DATASETS`.
        train: Levels from 0 as uint8; if `binarise_each_batch`, probabilities of a one as float32.
        validation: Levels as uint8.
        test: Levels as uint8.
        levels: Number of values a pixel takes: 2, or 256 shades of grey.
        binarise_each_batch: Whether every batch of training takes a new Bernoulli draw of its pixels.
    """

    name: str
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    levels: int
    binarise_each_batch: bool


def load(name: str, folder: Path, split_seed: int = 123) -> Dataset:
    """Return a data set from the files in a folder.

    Args:
        name: One of `DATASETS`.
        folder: Where the files are.
        split_seed: Decides the split of `freyfaces` into its three parts, and which images of `omniglot`
            are for validation. The other splits are fixed.

    Raises:
        UserError: A file is missing, or is not the known one.
    """
    if name not in SOURCES:
        raise UserError(f"There is no data set {name!r}. Choose from: {', '.join(SOURCES)}.")
    if not 0 <= split_seed < 2**32:
        raise UserError(f"The seed of the split must be from 0 to 2^32 - 1, got {split_seed}.")
    source = SOURCES[name]
    if name == "mnist":
        parts = _mnist(source, folder)
    elif name == "caltech":
        parts = _caltech(source, folder)
    elif name == "freyfaces":
        parts = _freyfaces(source, folder, split_seed)
    else:
        parts = _omniglot(name, source, folder, split_seed)
    train, validation, test = (part.reshape(-1, *source.pixels) for part in parts)
    grey = train.dtype != np.uint8
    return Dataset(name, train, validation, test, source.levels, binarise_each_batch=grey)


def resolve(name: str, folder: Path) -> str:
    """Return the name of what to begin a training with: the rebuilt OMNIGLOT where that is all there is.

    Not for what has begun: a model of the one must not be judged by the other.
    """
    only_rebuilt = not _there("omniglot", folder) and _there("omniglot-rebuilt", folder)
    return "omniglot-rebuilt" if name == "omniglot" and only_rebuilt else name


def _there(name: str, folder: Path) -> bool:
    return all(present(files, folder) is not None for files in SOURCES[name].files.values())


# The training images of MNIST and Caltech stay in the order of their files: training shuffles them for every
# epoch, so that a shuffle once and for all would change nothing but the seeds. The same holds of Caltech's
# validation images, whose order does not matter.


def _mnist(source: Source, folder: Path) -> list[np.ndarray]:
    parts = []
    for part, number in zip(source.files, source.images, strict=True):
        path, contents = read("mnist", source, part, folder)
        images = formats.amat(contents, path, source.pixels[0] * source.pixels[1])
        if len(images) != number:
            raise UserError(f"{path} must have {number} lines, got {len(images)}.")
        parts.append(images)
    return parts


def _caltech(source: Source, folder: Path) -> list[np.ndarray]:
    height, width = source.pixels
    names = ("train_data", "val_data", "test_data")
    shapes = {n: (k, height * width) for n, k in zip(names, source.images, strict=True)}
    path, contents = read("caltech", source, "all", folder)
    parts = formats.matlab(contents, path, shapes)
    if not all(np.isin(part, (0, 1)).all() for part in parts):
        raise UserError(f"{path}: pixels must be 0 or 1.")
    # In the file the object is 0; as in other data sets of this kind, it shall be 1.
    return [1 - _upright(part, source.pixels).astype(np.uint8) for part in parts]


def _freyfaces(source: Source, folder: Path, split_seed: int) -> list[np.ndarray]:
    height, width = source.pixels
    path, contents = read("freyfaces", source, "all", folder)
    shape = (sum(source.images), height * width)
    images = formats.pickled_bytes(
        contents, path, shape
    ).copy()  # the pickle's own is not to be written
    np.random.RandomState(split_seed).shuffle(images)
    train, validation, _ = source.images
    return np.split(images, [train, train + validation])


def _omniglot(name: str, source: Source, folder: Path, split_seed: int) -> list[np.ndarray]:
    train, validation, test = source.images
    pixels = source.pixels[0] * source.pixels[1]
    path, contents = read(name, source, "all", folder)
    shapes = {"data": (pixels, train + validation), "testdata": (pixels, test)}
    both = formats.matlab(contents, path, shapes)
    if not all(((grey >= 0) & (grey <= 1)).all() for grey in both):
        raise UserError(f"{path}: pixels must be numbers from 0 to 1.")
    drawn, tested = (_upright(grey.T.astype(np.float32), source.pixels) for grey in both)
    np.random.RandomState(split_seed).shuffle(drawn)
    # Validation before test, from one stream, and pixels along the rows of upright images: another order
    # would give another test set than everybody else's.
    stream = np.random.RandomState(_BINARISATION_SEED)
    binary = [stream.binomial(1, grey).astype(np.uint8) for grey in (drawn[train:], tested)]
    return [drawn[:train], *binary]


def _upright(rows: np.ndarray, pixels: tuple[int, int]) -> np.ndarray:
    """Return images from rows that list their pixels column by column, as MATLAB does."""
    height, width = pixels
    return np.ascontiguousarray(rows.reshape(-1, width, height).swapaxes(1, 2))
