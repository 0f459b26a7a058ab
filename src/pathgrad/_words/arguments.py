"""Checks of arguments: each returns the argument as a plain value, or raises one sentence with a remedy.

Neither JAX nor NumPy here: options that are only read are checked by the same rules.
"""

import math
import operator
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .errors import ArgumentError, named

_SHORT = 40  # characters of a value that is shown in a message


def shown(value: object) -> str:
    """Write a wrong argument for a message: small ones as they are, others by what they are."""
    kind = type(value).__name__
    if "Tracer" in kind:
        return "a number that JAX is still computing (inside `jit`, `vmap` or `grad`)"
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape and hasattr(value, "dtype"):
        return f"an array of shape {shape}"
    if callable(value) and hasattr(value, "__name__"):
        return "a function"
    text = repr(value)
    is_plain = isinstance(value, str | int | float | complex | bytes | list | tuple | dict | set | None)
    is_plain = is_plain or shape == ()
    if is_plain and len(text) <= _SHORT and "\n" not in text:
        return text
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"


def whole(name: str, value: Any, least: int | None = 1) -> int:
    """Return a whole number, also one of NumPy or JAX, as Python's."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(f"{named(name)} must be a whole number, got {shown(value)}.") from None
    if least is not None and number < least:
        raise ArgumentError(f"{named(name)} must be at least {least}, got {number}.")
    return number


def whole_or_none(name: str, value: Any, least: int = 1) -> int | None:
    """Return a whole number, or `None`, which means a default."""
    return None if value is None else whole(name, value, least)


def number(
    name: str, value: Any, fits: Callable[[float], bool] = math.isfinite, words: str = "finite"
) -> float:
    """Return a real number as Python's.

    Args:
        name: Name of the argument.
        value: Its value.
        fits: Whether a number is in the range.
        words: The range in words, after "must be".
    """
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"{named(name)} must be a number, got {shown(value)}.") from None
    if not fits(found):
        raise ArgumentError(f"{named(name)} must be {words}, got {shown(value)}.")
    return found


def positive(name: str, value: Any) -> float:
    """Return a positive, finite number."""
    return number(name, value, lambda x: 0 < x < math.inf, "positive and finite")


def limit(name: str, value: Any) -> float | None:
    """Return a number that is zero or above, and may be infinite, or `None`, which means no limit."""
    return None if value is None else number(name, value, lambda x: x >= 0, "zero or above")


def not_negative(name: str, value: Any) -> float:
    """Return a finite number that is zero or above."""
    return number(name, value, lambda x: 0 <= x < math.inf, "zero or above, and finite")


def share(name: str, value: Any) -> float:
    """Return a number between zero and one."""
    return number(name, value, lambda x: 0 < x < 1, "between 0 and 1")


def shape_of_point(name: str, value: Any) -> tuple[int, ...]:
    """Return the shape of a point as a tuple; a single number is that of a vector, as in NumPy."""
    if not isinstance(value, tuple | list):
        try:
            value = tuple(value) if getattr(value, "ndim", 0) == 1 else (operator.index(value),)
        except TypeError:
            raise ArgumentError(f"{named(name)} must be a shape, such as (2,), got {shown(value)}.") from None
    try:
        return tuple(whole(name, n) for n in value)
    except ArgumentError:
        raise ArgumentError(
            f"{named(name)} must be one or several positive whole numbers, such as (2,), got {shown(value)}."
        ) from None


def instance(name: str, value: Any, kind: type | tuple[type, ...], example: str) -> None:
    """Raise unless an argument is of a kind.

    Args:
        name: Name of the argument.
        value: Its value.
        kind: The class, or several.
        example: What it must be, such as "a `Flow`".
    """
    if not isinstance(value, kind):
        raise ArgumentError(f"{named(name)} must be {example}, got {shown(value)}.")


def path_of(name: str, value: Any) -> Path:
    """Return a path, also from a string."""
    instance(name, value, (str, os.PathLike), "a path")
    return Path(value)


def function(name: str, value: Any, call: str) -> None:
    """Raise unless an argument can be called; `call` says how it will be, such as `f(x)`."""
    if not callable(value) or isinstance(value, type):
        raise ArgumentError(f"{named(name)} must be a function, called as `{call}`, got {shown(value)}.")


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise unless an argument is one of some words."""
    if not isinstance(value, str) or value not in choices:
        words = " or ".join(map(repr, choices))
        raise ArgumentError(f"{named(name)} must be {words}, got {shown(value)}.")
