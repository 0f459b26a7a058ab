"""Which files make up each data set, what they must contain, and where to download them."""

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
    """One file, identified by its hash."""

    path: str  # relative to the data folder
    digest: str  # hexadecimal hash of the contents
    size: int | None = None  # in bytes, if known
    address: str | None = None  # download address, if there is one
    algorithm: str = "sha256"  # hash function, by its name in `hashlib`


@dataclasses.dataclass(frozen=True)
class Source:
    """What is known about a data set without opening it.

    Attributes:
        files: For each part, the files that may hold it; the first that exists is read.
        images: Number of images for training, validation and test.
        pixels: Height and width of an image.
        levels: Number of values a pixel takes.
        remark: Licence, and what to know before quoting results.
    """

    files: dict[str, tuple[File, ...]]
    images: tuple[int, int, int]
    pixels: tuple[int, int]
    levels: int
    remark: str

    @property
    def addresses(self) -> list[str]:
        """Download addresses of the parts; empty if there are none."""
        return [f.address for forms in self.files.values() for f in forms if f.address is not None]


def _source(table: dict[str, Any]) -> Source:
    files = {part: tuple(File(**form) for form in forms) for part, forms in table["files"].items()}
    return Source(files, tuple(table["images"]), tuple(table["pixels"]), table["levels"], table["remark"])


_TABLES = importlib.resources.files(__package__ or "").joinpath("sources.toml").read_text("utf-8")
SOURCES = {name: _source(table) for name, table in tomllib.loads(_TABLES).items()}


def find(name: str) -> Source:
    """Return the source of a data set; raise an error for an unknown name."""
    if name in SOURCES:
        return SOURCES[name]
    near = difflib.get_close_matches(name, SOURCES, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise UserError(f"There is no data set {name!r}. Choose from: {', '.join(SOURCES)}.{hint}")


HOW_CHOSEN = f"chosen by {named('data')}, else by the environment variable PATHGRAD_DATA"


def data_folder(given: Path | str | None) -> Path:
    """Return the data folder: the given one, else `PATHGRAD_DATA`, else one in the user's cache."""
    chosen = given or os.environ.get("PATHGRAD_DATA")
    if chosen:
        return Path(chosen).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG standard says to ignore a relative path in this variable.
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "pathgrad"
