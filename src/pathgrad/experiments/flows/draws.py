"""Draws of a target that a user brings in a file."""

import csv
from pathlib import Path

import numpy as np

import pathgrad as pg
from pathgrad._numbers.target_draws import checked_draws
from pathgrad._words.extras import needed


def read_draws(name: str, shape: tuple[int, ...], target: pg.Target) -> np.ndarray:
    """Return the draws in a file, batch axis first; of a CSV file, one row for each.

    Files of ArviZ have draws by name, which are mapped to points of the target.
    """
    path, given = Path(name), f"{pg.named('draws')} {name}"
    try:
        if path.suffix == ".npy":
            draws = np.load(path, allow_pickle=False)
        elif path.suffix == ".csv":
            draws = _rows(path)
        elif path.suffix == ".nc":
            return checked_draws(_of_arviz(path), target, shape, "draws")
        else:
            raise pg.UserError(
                f"{given}: the name must end with .npy (an array of NumPy), .csv or .nc (a file of ArviZ)."
            )
    except pg.UserError:
        raise
    except OSError as error:
        raise pg.UserError(f"{given} cannot be read: {error.strerror or error}.") from error
    except (ValueError, EOFError, MemoryError) as error:
        raise pg.UserError(f"{given} does not hold an array of numbers: {error}") from error
    if draws.ndim == 2 and len(shape) != 1 and draws.shape[1] == np.prod(shape):
        draws = draws.reshape(-1, *shape)
    if draws.ndim == 1 and shape == (1,):
        draws = draws[:, None]
    if not np.issubdtype(draws.dtype, np.number) or np.iscomplexobj(draws):
        raise pg.UserError(f"{given} holds {draws.dtype}, not real numbers.")
    return checked_draws(np.asarray(draws, float), target, shape, "draws")


def _of_arviz(path: Path) -> dict[str, np.ndarray]:
    """Return the draws in the group `posterior`, by name; files of all versions of ArviZ have it."""
    open_dataset = needed("xarray", "arviz").open_dataset
    try:
        with open_dataset(path, group="posterior", engine="h5netcdf") as group:
            return {str(name): np.asarray(value) for name, value in group.data_vars.items()}
    except OSError as error:
        if "group not found" in str(error):
            raise pg.UserError(f"{pg.named('draws')} {path} has no group `posterior`.") from error
        raise


def _rows(path: Path) -> np.ndarray:
    """Return the rows of a CSV file, whose first line may be names."""
    with path.open(newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    try:
        list(map(float, rows[0] if rows else []))
    except ValueError:
        rows = rows[1:]
    return np.array([[float(number) for number in row] for row in rows], ndmin=2)
