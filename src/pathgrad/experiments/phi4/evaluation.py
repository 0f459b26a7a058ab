"""Observables from a trained flow, by weighting and by a Metropolis chain, beside known values."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import pathgrad as pg
from pathgrad._numbers.metropolis import walk

from .markov import autocorrelated_mean, gaussian_acceptance, tau_of_rejections
from .observables import AVERAGED, averaged, derived, measure, plane
from .reference import Known, known
from .theory import Phi4
from .words import deviation

_BLOCKS = 100  # for the jackknife
_FIELDS = 16  # stored for figures
_WEIGHTS = 100_000  # stored for their histogram
_STEP = 1e-6  # relative step of finite differences
_CURVES = {"two_point": 0, "effective_mass": 1}  # and the distance at which each begins

_measure = eqx.filter_jit(measure)


class LatticeMeasurement:
    """Measure the `n` fields of an evaluation, chunk by chunk.

    Only a row of numbers and the weight are kept for each draw, and the field for the first few. The fields
    are never all in memory: 500,000 draws at size 64 take 90 MB instead of 8 GB.
    """

    def __init__(self, theory: Phi4, n: int) -> None:
        self._theory = theory
        # Blocks of consecutive draws, as equal in size as possible.
        self._edges = np.linspace(0, n, min(n, _BLOCKS) + 1).astype(int)
        self._seen = self._chunk = 0
        self._log_weight = np.empty(n)
        self._rows = np.empty((n, len(AVERAGED) + theory.size // 2 + 1), jnp.result_type(float))
        self._fields: list[np.ndarray] = []
        self._power = np.zeros((len(self._edges) - 1, theory.size, theory.size))
        self._largest = -math.inf  # log-weight so far; `_power` is in units of that weight

    def add(self, chunk: Mapping[str, np.ndarray]) -> None:
        """Add a chunk of draws from `pg.weighted_chunks`."""
        x, log_weight = chunk["x"], chunk["log_weight"].astype(float)
        # Draws without weight are fields so large that the action and the observables overflow. Their weight
        # e^-S is zero, so a zero field can take their place. (With failed draws there are no results.)
        has_weight = np.isfinite(log_weight)
        measured = self._measure(np.where(has_weight[:, None, None], x, 0))
        here = slice(self._seen, self._seen + len(x))
        self._rows[here], self._log_weight[here] = averaged(measured), log_weight
        self._fields.extend(np.array(x[: max(0, _FIELDS - len(self._fields))]))
        if has_weight.any():
            self._add_power(np.where(has_weight, log_weight, -math.inf), measured["power"])
        self._seen = here.stop

    def _measure(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Measure the fields, padded to the longest chunk so far: every new length means a compilation."""
        self._chunk = max(self._chunk, len(x))
        padded = np.zeros((self._chunk, *x.shape[1:]), x.dtype)
        padded[: len(x)] = x
        measured = _measure(self._theory, jnp.asarray(padded))
        return {name: np.asarray(values)[: len(x)] for name, values in measured.items()}

    def _add_power(self, log_weight: np.ndarray, power: np.ndarray) -> None:
        """Add to the weighted sum of each block, in units of the largest weight so far."""
        largest = max(self._largest, log_weight.max())
        self._power *= math.exp(self._largest - largest)
        self._largest = largest
        block = np.searchsorted(self._edges, self._seen + np.arange(len(power)), side="right") - 1
        for b in np.unique(block):
            here = block == b
            self._power[b] += np.tensordot(np.exp(log_weight[here] - largest), power[here], 1)

    def finish(self, found: pg.Evaluation) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the results, as JSON can hold them, and arrays for figures.

        With a failed draw the results are `None`: an average over the others would belong to another density.
        """
        arrays = {
            "log_weight": self._log_weight[:_WEIGHTS].astype(np.float32),
            "fields": np.stack(self._fields),
        }
        if found.failed:
            names = ("observables", "mcmc", "free_energy", "ward_identity", *_CURVES)
            return dict.fromkeys(names), arrays
        references = known(self._theory.size, self._theory.coupling, self._theory.mass_squared)
        with np.errstate(invalid="ignore", divide="ignore"):
            weighted, curves = self._weighted()
            chain, mcmc = self._metropolis(found)
        no_chain = dict.fromkeys(("mcmc_value", "mcmc_error", "mcmc_tau"))
        table = {"log_z": {"value": found.log_z, "error": found.log_z_err} | no_chain}
        table |= {name: row | chain[name] for name, row in weighted.items()}
        ward = table.pop("ward_identity")
        minus = Known(-references["log_z"].value, references["log_z"].error) if references else None
        results = {
            "observables": {name: _compared(row, references.get(name)) for name, row in table.items()},
            "mcmc": mcmc,
            "free_energy": _compared({"value": -found.log_z, "error": found.log_z_err}, minus),
            "ward_identity": _compared(ward, Known(0.5, 0.0)),
        }
        for name, first in _CURVES.items():
            value, error = curves[name], curves[f"{name}_err"]
            distance = list(range(first, first + len(value)))
            results[name] = {"distance": distance, "value": value.tolist(), "error": error.tolist()}
        return results, arrays | curves

    def _sums(self, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the weighted sum of the rows over each block of draws, and the sum of the weights."""
        pairs = list(itertools.pairwise(self._edges))
        sums = np.stack([weight[a:b] @ self._rows[a:b] for a, b in pairs])
        return sums, np.array([weight[a:b].sum() for a, b in pairs])

    def _weighted(self) -> tuple[dict[str, dict[str, float]], dict[str, np.ndarray]]:
        """Return self-normalised averages with jackknife errors: numbers, and curves."""
        sums, totals = self._sums(np.exp(self._log_weight - self._log_weight.max()))
        values = derived(sums.sum(0) / totals.sum(), self._theory)
        errors = derived(_left_out(sums, totals), self._theory)
        curves, numbers = {}, {}
        for name, value in values.items():
            error = jackknife_error(errors[name])
            if np.ndim(value):
                curves |= {name: value, f"{name}_err": error}
            else:
                numbers[name] = {"value": float(value), "error": float(error)}
        curves["two_point_plane"] = plane(self._power.sum(0) / totals.sum())
        curves["two_point_plane_err"] = jackknife_error(plane(_left_out(self._power, totals[:, None])))
        return numbers, curves

    def _metropolis(self, found: pg.Evaluation) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return averages over a Markov chain of the same draws, and statistics of the chain."""
        chain = walk(self._log_weight, np.random.default_rng(0))
        counts = np.bincount(chain.held, minlength=len(self._log_weight)).astype(float)
        sums, totals = self._sums(counts)
        means = sums.sum(0) / totals.sum()
        # To first order, a function of averages is the average of its gradient times the row (Wolff 2004).
        steps = np.where(means == 0, _STEP, _STEP * np.abs(means))
        up, down = (derived(means + sign * np.diag(steps), self._theory) for sign in (1.0, -1.0))
        values = {n: v for n, v in derived(means, self._theory).items() if np.ndim(v) == 0}
        gradients = np.stack([(up[name] - down[name]) / (2 * steps) for name in values], axis=1)
        pairs = itertools.pairwise(self._edges)
        moves = np.concatenate([(self._rows[a:b] - means) @ gradients for a, b in pairs])
        rows = {}
        for i, (name, value) in enumerate(values.items()):
            mean = autocorrelated_mean(moves[chain.held, i])
            rows[name] = {"mcmc_value": float(value), "mcmc_error": mean.error, "mcmc_tau": mean.tau}
        return rows, {
            "acceptance": chain.acceptance,
            "acceptance_gaussian": gaussian_acceptance(found.ess),
            "tau_rejections": tau_of_rejections(chain),
            "length": len(chain.held),
        }


def _left_out(sums: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Return the averages without one of the blocks, for each block."""
    return (sums.sum(0) - sums) / (totals.sum() - totals)[..., None]


def jackknife_error(left_out: np.ndarray) -> np.ndarray | np.float64:
    """Return the standard error of an estimate from its values without each of the blocks (first axis)."""
    blocks = len(left_out)
    spread = np.sum((left_out - left_out.mean(0)) ** 2, axis=0)
    return np.sqrt((blocks - 1) / blocks * spread)


def _compared(row: dict[str, Any], known_value: Known | None) -> dict[str, Any]:
    """Add a known value to a row, and the deviation from it in units of the combined error."""
    reference, error = known_value or (None, None)
    row = row | {"reference": reference, "reference_error": error}
    return row | {"deviation": deviation(row)}
