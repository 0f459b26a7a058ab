"""Write configurations as TOML."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w


def dump_toml(mapping: Mapping[str, Any]) -> str:
    """Return a nested mapping as TOML text, which `tomllib.loads` reads back.

    Tuples are read back as lists, and paths as strings. Entries that are `None` are left out, because TOML
    has no null. Types that TOML does not have raise a `TypeError`.
    """
    text = tomli_w.dumps(_plain(mapping, ""))
    if odd := re.search(r".*[\ud800-\udfff].*", text):  # a lone surrogate
        raise ValueError(
            f"{odd[0]!r} is not valid Unicode, and TOML is UTF-8. Rename the file it comes from, or replace "
            "the odd characters."
        )
    return text


def _plain(value: Any, name: str) -> Any:
    match value:
        case str() | int():
            return value
        case float():  # a subclass may not print as a number
            return float(value)
        case Path():
            return str(value)
        case list() | tuple():
            return [_plain(item, name) for item in value]
        case Mapping():
            present = [(key, item) for key, item in value.items() if item is not None]
            return {key: _plain(item, f"{name}.{key}".strip(".")) for key, item in present}
    raise TypeError(
        f"`{name}` holds a {type(value).__name__}, which TOML cannot. Convert it to a string, a "
        "number, a list or a dict first."
    )
