"""Summaries of named parameters from weighted draws, with the errors that the weights leave."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._named.abstract import labelled
from .._words.arguments import share, shown
from .._words.errors import ArgumentError, named
from .weighted import smoothed
from .written import table_of

_PROBABILITIES = (0.05, 0.5, 0.95)


@dataclasses.dataclass(frozen=True)
class Summary:
    """What weighted draws say of each parameter. Printed, it is a table; it has the rows of `names` by index.

    Attributes:
        names: A label for each number, such as `theta[0]`.
        mean: Means.
        mean_err: Standard errors of the means.
        sd: Standard deviations.
        sd_err: Their standard errors.
        probabilities: Probabilities of the quantiles.
        quantiles: Quantiles, one column for each probability.
        quantiles_err: Their standard errors.
    """

    names: tuple[str, ...]
    mean: np.ndarray
    mean_err: np.ndarray
    sd: np.ndarray
    sd_err: np.ndarray
    probabilities: tuple[float, ...]
    quantiles: np.ndarray
    quantiles_err: np.ndarray

    def __getitem__(self, name: str) -> dict[str, float]:
        """Return the numbers of one parameter by their names."""
        if name not in self.names:
            some = ", ".join(self.names[:8]) + (", ..." if len(self) > 8 else "")
            raise KeyError(f"There is no parameter {name!r}. There are {some}.")
        return self._row(self.names.index(name))

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def to_json(self) -> dict[str, dict[str, float]]:
        """Return the numbers of each parameter."""
        return {name: self._row(i) for i, name in enumerate(self.names)}

    def _row(self, i: int) -> dict[str, float]:
        row = {n: float(getattr(self, n)[i]) for n in ("mean", "mean_err", "sd", "sd_err")}
        for j, probability in enumerate(self.probabilities):
            name = quantile_name(probability)
            row |= {name: float(self.quantiles[i, j]), f"{name}_err": float(self.quantiles_err[i, j])}
        return row

    def __str__(self) -> str:
        heads, rows = table_of(self.to_json())
        cells = [heads, *rows]
        widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
        first, *rest = widths
        lines = [
            "  ".join([row[0].ljust(first), *(c.rjust(w) for c, w in zip(row[1:], rest, strict=True))])
            for row in cells
        ]
        return "\n".join(lines)


def quantile_name(probability: float) -> str:
    """Return the name of a quantile: `q05` is exceeded by 95 %."""
    return f"q{100 * probability:04.1f}".removesuffix(".0")


def summarise(
    target: Any, draws: Mapping[str, Any], probabilities: Sequence[float] = _PROBABILITIES
) -> Summary:
    """Return mean, standard deviation and quantiles of each parameter of the target, with their errors.

    The largest weights are smoothed where that helps, as by `Weighted`. Errors are those of weighted
    averages; where the verdict on the weights is bad, neither numbers nor errors are to be trusted.

    Args:
        target: The target. Without names, its coordinates are `x[0]`, `x[1]` and so on.
        draws: Arrays `x` and `log_weight`, as from `weighted_draws`.
        probabilities: Of the quantiles.
    """
    is_array = np.ndim(probabilities) == 1 and hasattr(probabilities, "dtype")
    if not (is_array or isinstance(probabilities, Sequence)) or isinstance(probabilities, str):
        raise ArgumentError(
            f"{named('probabilities')} must be a list of numbers, got {shown(probabilities)}."
        )
    probabilities = [share("probabilities", p) for p in probabilities]
    draws = checked_pair(draws)
    names, columns = labelled(target, draws["x"])
    weight = smoothed_weights(draws["log_weight"])
    columns = np.where(
        weight[:, None] == 0, 0.0, columns
    )  # where the target has no mass, they may be anything
    mean = weight @ columns
    off = columns - mean
    squares = off**2
    variance = weight @ squares
    sd = np.sqrt(variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        sd_err = 0.5 * _error(weight, squares - variance) / sd
    quantiles = [_quantiles(column, weight, probabilities) for column in columns.T]
    found, errors = (np.array([pair[i] for pair in quantiles]) for i in (0, 1))
    sd_err = np.where(sd == 0, 0.0, sd_err)
    return Summary(names, mean, _error(weight, off), sd, sd_err, tuple(probabilities), found, errors)


def checked_pair(draws: Any) -> Mapping[str, Any]:
    """Return arrays of weighted draws; raise unless there are `x` and `log_weight`, of the same length."""
    if not isinstance(draws, Mapping) or not {"x", "log_weight"} <= set(draws):
        raise ArgumentError(
            f"{named('draws')} must have arrays `x` and `log_weight`, as from `weighted_draws`, got "
            f"{shown(draws)}."
        )
    x, log_weight = np.shape(draws["x"]), np.shape(draws["log_weight"])
    if len(log_weight) != 1 or x[:1] != log_weight:
        raise ArgumentError(
            f"{named('draws')} must have one `log_weight` for each `x`, got shapes {log_weight} and {x}."
        )
    return draws


def smoothed_weights(log_weight: Any) -> np.ndarray:
    """Return weights that add up to one, with a smoothed tail where that helps."""
    log_weight = np.asarray(log_weight, np.float64)
    if np.isnan(log_weight).any() or (log_weight == np.inf).any() or not np.isfinite(log_weight).any():
        raise ArgumentError(
            "Some log-weights are NaN or infinite, so that nothing can be averaged. Read the verdict of the "
            "evaluation."
        )
    return np.exp(smoothed(log_weight)[0])


def _error(weight: np.ndarray, off: np.ndarray) -> np.ndarray:
    """Return standard errors of weighted averages, given how far each draw is off."""
    return np.sqrt(weight**2 @ off**2)


def _quantiles(
    column: np.ndarray, weight: np.ndarray, probabilities: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Return quantiles and their errors, from the distance between the quantiles two errors of p away."""
    order = np.argsort(column)
    column, weight = column[order], weight[order]
    middle = np.cumsum(weight) - 0.5 * weight
    found, errors = [], []
    for p in probabilities:
        value = np.interp(p, middle, column)
        # The influence of a draw on the share below, (1[x < q] - p) w.
        error = math.sqrt(float(weight**2 @ ((column < value) - p) ** 2))
        low, high = np.interp([p - 2 * error, p + 2 * error], middle, column)
        found.append(float(value))
        errors.append(0.25 * float(high - low))
    return found, errors
