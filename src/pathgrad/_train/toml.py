"""Write TOML. The standard library reads it (`tomllib`) and has no writer."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SHORT_ESCAPES = {
    "\\": "\\\\",
    '"': '\\"',
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}
# TOML forbids control characters in strings; quote and backslash would end or bend the string.
_TO_ESCAPE = re.compile(r'[\x00-\x1f\x7f"\\]')
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def dump_toml(mapping: Mapping[str, Any]) -> str:
    """Write a nested mapping as TOML text, such that `tomllib.loads` gives it back.

    What TOML cannot tell apart comes back as its nearest kin: tuples as lists, paths as strings.
    Entries that are `None` are left out, because TOML has no null.

    Args:
        mapping: Keys are strings; values are `str`, `bool`, `int`, `float` (infinities and NaN
            included), `pathlib.Path`, `None`, and lists, tuples and mappings of these.

    Raises:
        TypeError: A key or a value is of another type. The message names the entry.
        ValueError: A list holds `None`, or a text holds a lone surrogate, which UTF-8 cannot write.
    """
    return "\n".join(_table_lines(mapping, ())).strip("\n") + "\n"


def _table_lines(table: Mapping[Any, Any], path: tuple[str, ...]) -> Iterator[str]:
    present = {key: value for key, value in table.items() if value is not None}
    # A table's own values must stand before its subtables: after a header, lines belong to it.
    subtables = {key: value for key, value in present.items() if isinstance(value, Mapping)}
    values = {key: value for key, value in present.items() if key not in subtables}
    if path and (values or not subtables):
        yield ""
        yield f"[{'.'.join(_key(name, path) for name in path)}]"
    for key, value in values.items():
        yield f"{_key(key, path)} = {_value(value, (*path, key))}"
    for key, value in subtables.items():
        _key(key, path)
        yield from _table_lines(value, (*path, key))


def _key(key: Any, path: tuple[str, ...]) -> str:
    if not isinstance(key, str):
        raise TypeError(
            f"TOML keys are strings; `{_name(path)}` has the key {key!r}. Write it as a string."
        )
    return key if _BARE_KEY.fullmatch(key) else _string(key, path)


def _value(value: Any, path: tuple[str, ...]) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return int.__repr__(value)
        case float():
            # The base class's `repr` is the shortest text that reads back to the same bits; that of
            # a subclass, such as NumPy's `float64`, may be no number at all.
            return float.__repr__(value)
        case str():
            return _string(value, path)
        case Path():
            return _string(str(value), path)
        case list() | tuple():
            return f"[{', '.join(_value(item, path) for item in value)}]"
        case Mapping():
            entries = ((key, item) for key, item in value.items() if item is not None)
            pairs = (f"{_key(key, path)} = {_value(item, (*path, key))}" for key, item in entries)
            return f"{{{', '.join(pairs)}}}"
        case None:
            raise ValueError(
                f"The list `{_name(path)}` holds None, and TOML has no null. "
                "Leave the item out, or write a string for it."
            )
    raise TypeError(
        f"`{_name(path)}` is a {type(value).__name__}, which TOML cannot hold. Convert it to a "
        "string, a number, a list or a dict first."
    )


def _string(text: str, path: tuple[str, ...]) -> str:
    if _SURROGATE.search(text):
        raise ValueError(
            f"{text!r} at `{_name(path)}` is not valid Unicode, and TOML is UTF-8. Rename the file "
            "it comes from, or replace the odd characters."
        )
    return f'"{_TO_ESCAPE.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return _SHORT_ESCAPES.get(character, f"\\u{ord(character):04x}")


def _name(path: tuple[str, ...]) -> str:
    return ".".join(map(str, path)) or "the top level"
