"""Which files make up each data set, what they must contain, and where to download them."""

import dataclasses
import difflib
import importlib.resources
import tomllib
from pathlib import Path
from typing import Any

from pathgrad._data.contents import present
from pathgrad._data.files import File, addresses, parts_of
from pathgrad._words.errors import UserError


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
        return addresses(self.files)


def _source(table: dict[str, Any]) -> Source:
    return Source(
        parts_of(table["files"]),
        tuple(table["images"]),
        tuple(table["pixels"]),
        table["levels"],
        table["remark"],
    )


_TABLES = importlib.resources.files(__package__ or "").joinpath("sources.toml").read_text("utf-8")
SOURCES = {name: _source(table) for name, table in tomllib.loads(_TABLES).items()}


def find(name: str) -> Source:
    """Return the source of a data set; raise an error for an unknown name."""
    if name in SOURCES:
        return SOURCES[name]
    near = difflib.get_close_matches(name, SOURCES, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise UserError(f"There is no data set {name!r}. Choose from: {', '.join(SOURCES)}.{hint}")


def resolve(name: str, folder: Path) -> str:
    """Return the data set for a new training: the rebuilt OMNIGLOT if the original is missing.

    Only for new runs: a model trained on one must not be evaluated on the other.
    """
    only_rebuilt = not _is_complete("omniglot", folder) and _is_complete("omniglot-rebuilt", folder)
    return "omniglot-rebuilt" if name == "omniglot" and only_rebuilt else name


def _is_complete(name: str, folder: Path) -> bool:
    return all(present(files, folder) is not None for files in SOURCES[name].files.values())
