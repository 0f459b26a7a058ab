"""Options as nested dataclasses: read from a file, flattened, compared."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from .._words.errors import UserError

T = TypeVar("T")


def from_mapping(kind: type[T], mapping: Mapping[str, Any], where: str) -> T:
    """Build nested options from a TOML mapping; unknown names are errors, missing ones get their defaults."""
    fields = {f.name for f in dataclasses.fields(kind)}  # pyright: ignore[reportArgumentType]
    hints = typing.get_type_hints(kind)
    unknown = sorted(set(mapping) - fields)
    if unknown:
        raise UserError(
            f"{where} has unknown names {', '.join(unknown)}. Use any of {', '.join(sorted(fields))}."
        )
    values = {}
    for name, value in mapping.items():
        hint = hints[name]
        nested = isinstance(hint, type) and dataclasses.is_dataclass(hint) and isinstance(value, dict)
        values[name] = from_mapping(hint, value, where) if nested else _typed(hint, value, name, where)
    return kind(**values)


def _typed(hint: Any, value: object, name: str, where: str) -> object:
    """Return the value if it has the hinted type (an integer is accepted for a float)."""
    if typing.get_origin(hint) is Literal:
        if value not in typing.get_args(hint):
            raise UserError(f"{where}: {name} = {value!r} is not one of {', '.join(typing.get_args(hint))}.")
        return value
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if float in kinds and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise UserError(f"{where}: {name} = {value!r} is not {_called(kinds)}.")
    return value


_CALLED = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path"}


def _called(kinds: tuple[Any, ...]) -> str:
    """Return what TOML calls values of these types."""
    return " or ".join(_CALLED.get(kind, "a table") for kind in kinds if kind is not types.NoneType)


def flat(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested options under flat names such as `flow.width`."""
    result = {}
    for name, value in options.items():
        nested = isinstance(value, Mapping)
        result |= flat(value, f"{prefix}{name}.") if nested else {prefix + name: value}
    return result


def changes(before: object, after: object) -> dict[str, tuple[object, object]]:
    """Return the options in which two dataclasses of one type differ, by flat names, with both values."""
    old, new = (flat(dataclasses.asdict(options)) for options in (before, after))  # pyright: ignore
    return {name: (old[name], new[name]) for name in old if old[name] != new[name]}
