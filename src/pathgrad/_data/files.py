"""What is known about data files without opening them, and the folder that they are in."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pathgrad._words.errors import named
from pathgrad._words.paths import expanded, home


@dataclasses.dataclass(frozen=True)
class File:
    """One file, identified by its hash."""

    path: str  # relative to the data folder
    digest: str  # hexadecimal hash of the contents
    size: int | None = None  # in bytes, if known
    address: str | None = None  # download address, if there is one
    algorithm: str = "sha256"  # hash function, by its name in `hashlib`
    conversion: str | None = None  # how the file is made from what the address sends; `None`: as it is
    columns: tuple[str, ...] = ()  # names for the conversion


# The files of each part of a data set; the first that exists is read.
Parts = Mapping[str, tuple[File, ...]]


def parts_of(tables: dict[str, Any]) -> dict[str, tuple[File, ...]]:
    """Return the parts that a TOML table describes."""
    return {part: tuple(_file(form) for form in forms) for part, forms in tables.items()}


def _file(form: dict[str, Any]) -> File:
    columns: Any = tuple(form.pop("columns", ()))
    return File(**form, columns=columns)


def addresses(parts: Parts) -> list[str]:
    """Return the download addresses of the parts; empty if there are none."""
    return [f.address for forms in parts.values() for f in forms if f.address is not None]


HOW_CHOSEN = f"chosen by {named('data')}, else by the environment variable PATHGRAD_DATA"


def data_folder(given: Path | str | None) -> Path:
    """Return the data folder: the given one, else `PATHGRAD_DATA`, else one in the user's cache."""
    chosen = given or os.environ.get("PATHGRAD_DATA")
    if chosen:
        return expanded(chosen)
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG standard says to ignore a relative path in this variable.
    if not cache.is_absolute():
        cache = home(f"Give a folder of data with {named('data')} or PATHGRAD_DATA.") / ".cache"
    return cache / "pathgrad"
