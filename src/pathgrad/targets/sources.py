"""Which files the targets need, what they must contain, and where to download them. No NumPy here."""

import importlib.resources
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pathgrad._data import contents
from pathgrad._data.files import File, Parts, addresses, data_folder, parts_of
from pathgrad._words.errors import UserError


class Source(NamedTuple):
    """The data of one or several targets.

    Attributes:
        files: For each part, the files that may hold it; the first that exists is read.
        remark: Origin and licence.
    """

    files: Parts
    remark: str

    @property
    def addresses(self) -> list[str]:
        """Download addresses of the parts; empty if there are none."""
        return addresses(self.files)


def _source(table: dict[str, Any]) -> Source:
    return Source(parts_of(table["files"]), table["remark"])


_TABLES = importlib.resources.files(__package__ or "").joinpath("sources.toml").read_text("utf-8")
SOURCES: Mapping[str, Source] = {name: _source(table) for name, table in tomllib.loads(_TABLES).items()}


def read(name: str, part: str, data: Path | str | None) -> tuple[File, Path, bytes]:
    """Return what is known of a file, its path, and its contents, whose hash must be the known one."""
    folder, parts = data_folder(data), SOURCES[name].files
    try:
        path, found = contents.read(name, parts, part, folder)
    except UserError as error:
        without = "funnel, banana, correlated, ring, two-modes, many-well, gmm40 and seeds need no data"
        raise UserError(f"{error.text} (The targets {without}.)") from error
    return next(file for file in parts[part] if folder / file.path == path), path, found
