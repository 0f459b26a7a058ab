"""Which files make up which data set, what they must contain, and where they can be had."""

import dataclasses
import difflib
import importlib.resources
import os
import tomllib
from pathlib import Path
from typing import Any

from pathgrad._words.errors import UserError, named


@dataclasses.dataclass(frozen=True)
class File:
    """One file, known by its hash."""

    path: str  # below the data folder
    digest: str  # hexadecimal hash of the contents
    size: int | None = None  # in bytes, if known
    address: str | None = None  # to download it from, if that is possible
    algorithm: str = "sha256"  # of the hash, as `hashlib` calls it


@dataclasses.dataclass(frozen=True)
class Source:
    """What is known about a data set without opening it.

    Attributes:
        files: For each part those that may hold it; the first that is there is read.
        images: Numbers of images for training, validation and test.
        pixels: Height and width of an image.
        levels: Number of values a pixel takes.
        remark: Licence, and what one has to know before quoting results.
    """

    files: dict[str, tuple[File, ...]]
    images: tuple[int, int, int]
    pixels: tuple[int, int]
    levels: int
    remark: str

    @property
    def addresses(self) -> list[str]:
        """Where the parts can be downloaded; empty if that is impossible."""
        return [f.address for forms in self.files.values() for f in forms if f.address is not None]


def _source(table: dict[str, Any]) -> Source:
    files = {part: tuple(File(**form) for form in forms) for part, forms in table["files"].items()}
    return Source(files, tuple(table["images"]), tuple(table["pixels"]), table["levels"], table["remark"])


_TABLES = importlib.resources.files(__package__ or "").joinpath("sources.toml").read_text("utf-8")
SOURCES = {name: _source(table) for name, table in tomllib.loads(_TABLES).items()}


def find(name: str) -> Source:
    """Return what is known about a data set; refuse names that are of none."""
    if name in SOURCES:
        return SOURCES[name]
    near = difflib.get_close_matches(name, SOURCES, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise UserError(f"There is no data set {name!r}. Choose from: {', '.join(SOURCES)}.{hint}")


HOW_CHOSEN = f"chosen by {named('data')}, else by the environment variable PATHGRAD_DATA"


def data_folder(given: Path | str | None) -> Path:
    """Return the folder of the data: the given one, else `PATHGRAD_DATA`, else one in the user's cache."""
    chosen = given or os.environ.get("PATHGRAD_DATA")
    if chosen:
        return Path(chosen).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # A relative path in this variable is to be ignored, by the standard that defines it.
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "pathgrad"
