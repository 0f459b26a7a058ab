"""The target that the options name: a density, or a model of NumPyro with its data."""

import json
from pathlib import Path
from typing import Any

import numpy as np

import pathgrad as pg

from ..density.loading import load_density, load_target
from .options import FitOptions


def target_of(options: FitOptions) -> pg.Target:
    """Return the target that the options name."""
    if options.numpyro:
        if options.dim is not None and not options.found.is_known:
            raise pg.ArgumentError(f"The model knows its dimension: leave {pg.named('dim')} out.")
        return _of_numpyro(options)
    if options.data is not None:
        raise pg.ArgumentError(
            f"{pg.named('data')} are the arguments of a NumPyro model: give {pg.named('numpyro')} too. Any "
            "other density has to load its data itself."
        )
    return load_target(options.density, options.dim)


def _of_numpyro(options: FitOptions) -> pg.Target:
    data = {} if options.data is None else read_data(Path(options.data))
    model = load_density(options.density)
    try:
        return pg.from_numpyro(model, **data)
    except pg.UserError:
        raise
    except Exception as error:  # whatever the user's model raises
        first = str(error).strip().splitlines()[0] if str(error).strip() else ""
        given = f"the arguments {', '.join(data)}" if data else "no arguments"
        raise pg.UserError(
            f"The model {options.density} failed with {given}: {type(error).__name__}: {first}"
        ) from error


def read_data(file: Path) -> dict[str, Any]:
    """Read the arguments of a model from a JSON file: numbers as they are, lists as arrays."""
    try:
        contents = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise pg.UserError(f"The data {file} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise pg.UserError(f"The data {file} are not JSON: {error}.") from error
    if not isinstance(contents, dict):
        raise pg.UserError(
            f"The data {file} must be a JSON object with the arguments of the model by name, such as "
            '{"y": [1.2, 0.4]}.'
        )
    return {name: _array(name, value, file) for name, value in contents.items()}


def _array(name: str, value: Any, file: Path) -> Any:
    if not isinstance(value, list):
        return value
    try:
        array = np.asarray(value)
    except ValueError as error:  # rows of unlike length
        raise pg.UserError(f"{name!r} in {file} is no array: {error}.") from error
    if array.dtype == object:  # JSON's null
        missing = sum(entry is None for entry in array.ravel())
        raise pg.UserError(
            f"{name!r} in {file} has {missing or 'some'} entries that are no numbers. Leave out what is "
            "missing."
        )
    if array.dtype.kind not in "biuf":
        raise pg.UserError(f"{name!r} in {file} is a list of {array.dtype}, not of numbers.")
    return array
