"""Read the data of the targets into densities."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from pathgrad._words.errors import UserError

from . import regressions
from .compartment import OneCompartment
from .cox import CoxProcess
from .density import AbstractPosterior
from .hierarchies import EightSchools
from .known import Reference
from .mixtures import TwoNormals
from .series import Garch, HiddenMarkov
from .sources import SOURCES, read

_CHAINS, _LENGTH = 10, 1000  # of the reference draws


def credit(data: Path | str | None, prior_sd: float | None = None) -> regressions.LogisticRegression:
    """Read German credit."""
    _, path, contents = read("german-credit", "all", data)
    return regressions.credit(_table(contents, path, columns=25), prior_sd)


def labelled(name: str, data: Path | str | None) -> regressions.LogisticRegression:
    """Read features and labels: `ionosphere` or `sonar`."""
    _, path, contents = read(name, "all", data)
    arrays = _arrays(contents, path)
    # What was downloaded is one array, with the labels in the last column.
    x, y = (arrays["x"], arrays["y"]) if "x" in arrays else np.split(arrays[""], [-1], axis=1)
    return regressions.standardised(x, y.ravel())


def cox(cells: int, data: Path | str | None) -> CoxProcess:
    """Read the pines into a grid with this many cells per side."""
    _, path, contents = read("pines", "all", data)
    lines = contents.decode("ascii").splitlines()[1:]
    points = _table("\n".join(line.partition(",")[2] for line in lines).encode(), path, 2, ",")
    return CoxProcess.of(points, cells)


def posterior(name: str, data: Path | str | None) -> tuple[AbstractPosterior, Reference]:
    """Read the data and the reference draws of a posterior."""
    _, path, contents = read(name, "data", data)
    try:
        density = _POSTERIORS[name](json.loads(contents))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} does not hold the data of {name}: {error}.") from error
    return density, _reference(name, density, data)


_POSTERIORS: dict[str, Any] = {
    "eight_schools_noncentered": lambda d: EightSchools(_array(d["y"]), _array(d["sigma"])),
    "arK": regressions.auto_regression,
    "garch11": lambda d: Garch(_array(d["y"]), _array(d["sigma1"])),
    "one_comp_mm_elim_abs": lambda d: OneCompartment(
        _array(d["times"]), _array(d["C_hat"]), float(d["D"]), float(d["V"])
    ),
    "low_dim_gauss_mix": lambda d: TwoNormals(_array(d["y"])),
    "hmm_example": lambda d: HiddenMarkov(_array(d["y"])),
    "logearn_interaction": regressions.earnings,
    "nes2000": regressions.party,
}
# Whose tails have no second moment, or hardly: K_m, and V_m, which follows it along a ridge.
_HEAVY = {"one_comp_mm_elim_abs": ("K_m", "V_m")}


def _reference(name: str, density: AbstractPosterior, data: Path | str | None) -> Reference:
    _, path, contents = read(name, "reference", data)
    arrays = _arrays(contents, path)
    draws = arrays["draws" if "draws" in arrays else ""]
    wanted = (_CHAINS, _LENGTH, len(density.names))
    if draws.shape != wanted:
        raise UserError(f"{path}: the draws must have the shape {wanted}, got {draws.shape}.")
    flat = draws.reshape(-1, draws.shape[-1]).astype(float)
    mean, sd = np.mean(flat, axis=0), np.std(flat, axis=0, ddof=1)
    return Reference(density.names, draws, mean, sd, _HEAVY.get(name, ()), SOURCES[name].remark)


def _array(values: Any) -> np.ndarray:
    return np.asarray(values, float)


def _table(contents: bytes, path: Path, columns: int, separator: str | None = None) -> np.ndarray:
    try:
        table = np.loadtxt(io.BytesIO(contents), delimiter=separator, ndmin=2)
    except ValueError as error:
        raise UserError(f"{path} is no table of numbers: {error}.") from error
    if table.shape[1] != columns:
        raise UserError(f"{path} must have {columns} columns, got {table.shape[1]}.")
    return table


def _arrays(contents: bytes, path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file by name, or the one of an .npy file with an empty name."""
    try:
        found = np.load(io.BytesIO(contents), allow_pickle=False)
        return {"": found} if isinstance(found, np.ndarray) else {n: found[n] for n in found.files}
    except Exception as error:  # a damaged file makes NumPy raise almost anything
        raise UserError(f"{path} cannot be read as a NumPy file: {error}.") from error
