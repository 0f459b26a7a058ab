"""Physics from a trained flow: observables by weighting and by Metropolis, with errors and known values."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import pathgrad as pg

from .markov import autocorrelated_mean, gaussian_acceptance, metropolis, tau_of_rejections
from .observables import AVERAGED, averaged, derived, measure, plane
from .reference import Known, known
from .theory import Phi4
from .words import deviation

_BLOCKS = 100  # of the jackknife
_FIELDS = 16  # kept to be looked at
_WEIGHTS = 100_000  # kept for their histogram
_STEP = 1e-6  # relative, for derivatives by differences
_CURVES = {"two_point": 0, "effective_mass": 1}  # and the distance that each begins at

_measure = eqx.filter_jit(measure)


class LatticeMeasurement:
    """Measure the fields of an evaluation, `n` in all, as they go by.

    Of each draw a row of numbers and the weight are kept, and of the first few the field. All fields together
    never exist: 500,000 draws at size 64 take 90 MB instead of 8 GB.
    """

    def __init__(self, theory: Phi4, n: int) -> None:
        self._theory = theory
        # Blocks of consecutive draws, as equal as can be.
        self._edges = np.linspace(0, n, min(n, _BLOCKS) + 1).astype(int)
        self._seen = self._chunk = 0
        self._log_weight = np.empty(n)
        self._rows = np.empty((n, len(AVERAGED) + theory.size // 2 + 1), jnp.result_type(float))
        self._fields: list[np.ndarray] = []
        self._power = np.zeros((len(self._edges) - 1, theory.size, theory.size))
        self._largest = -math.inf  # log-weight; `_power` is in units of it

    def add(self, chunk: Mapping[str, np.ndarray]) -> None:
        """Take in what `pg.weighted_chunks` hands out."""
        x, log_weight = chunk["x"], chunk["log_weight"].astype(float)
        # Draws without weight are fields so large that the action overflows, and observables with it. Times
        # e^-S that is nothing, like the observables of no field. (With failed draws there are no results.)
        has_weight = np.isfinite(log_weight)
        measured = self._measure(np.where(has_weight[:, None, None], x, 0))
        here = slice(self._seen, self._seen + len(x))
        self._rows[here], self._log_weight[here] = averaged(measured), log_weight
        self._fields.extend(np.array(x[: max(0, _FIELDS - len(self._fields))]))
        if has_weight.any():
            self._add_power(np.where(has_weight, log_weight, -math.inf), measured["power"])
        self._seen = here.stop

    def _measure(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Measure the fields, filled up to as many as before: each new length would be compiled anew."""
        self._chunk = max(self._chunk, len(x))
        filled = np.zeros((self._chunk, *x.shape[1:]), x.dtype)
        filled[: len(x)] = x
        measured = _measure(self._theory, jnp.asarray(filled))
        return {name: np.asarray(values)[: len(x)] for name, values in measured.items()}

    def _add_power(self, log_weight: np.ndarray, power: np.ndarray) -> None:
        """Add to the weighted sum over each block, all in units of the largest weight so far."""
        largest = max(self._largest, log_weight.max())
        self._power *= math.exp(self._largest - largest)
        self._largest = largest
        block = np.searchsorted(self._edges, self._seen + np.arange(len(power)), side="right") - 1
        for b in np.unique(block):
            here = block == b
            self._power[b] += np.tensordot(np.exp(log_weight[here] - largest), power[here], 1)

    def finish(self, found: pg.Evaluation) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return what was measured: results that JSON can hold, and arrays for pictures.

        With a failed draw the results are `None`: an average over the others would be of another density.
        """
        arrays = {
            "log_weight": self._log_weight[:_WEIGHTS].astype(np.float32),
            "fields": np.stack(self._fields),
        }
        if found.failed:
            names = ("observables", "mcmc", "free_energy", "ward_identity", *_CURVES)
            return dict.fromkeys(names), arrays
        there = known(self._theory.size, self._theory.coupling, self._theory.mass_squared)
        with np.errstate(invalid="ignore", divide="ignore"):
            weighted, curves = self._weighted()
            chain, mcmc = self._metropolis(found)
        nothing = dict.fromkeys(("mcmc_value", "mcmc_error", "mcmc_tau"))
        table = {"log_z": {"value": found.log_z, "error": found.log_z_err} | nothing}
        table |= {name: row | chain[name] for name, row in weighted.items()}
        ward = table.pop("ward_identity")
        minus = Known(-there["log_z"].value, there["log_z"].error) if there else None
        results = {
            "observables": {name: _against(row, there.get(name)) for name, row in table.items()},
            "mcmc": mcmc,
            "free_energy": _against({"value": -found.log_z, "error": found.log_z_err}, minus),
            "ward_identity": _against(ward, Known(0.5, 0.0)),
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
        """Return self-normalised averages, with errors of the jackknife: numbers, and curves."""
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
        """Return averages over a Markov chain of the same draws, and what it is like."""
        chain = metropolis(self._log_weight, np.random.default_rng(0))
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
    """Return the averages that remain when one block is left out, for each block."""
    return (sums.sum(0) - sums) / (totals.sum() - totals)[..., None]


def jackknife_error(left_out: np.ndarray) -> np.ndarray | np.float64:
    """Return the standard error of an estimate, from what it is without each of the blocks (first axis)."""
    blocks = len(left_out)
    spread = np.sum((left_out - left_out.mean(0)) ** 2, axis=0)
    return np.sqrt((blocks - 1) / blocks * spread)


def _against(row: dict[str, Any], there: Known | None) -> dict[str, Any]:
    """Add a known value to a row, and how far off it is in units of both errors."""
    reference, error = there or (None, None)
    row = row | {"reference": reference, "reference_error": error}
    return row | {"deviation": deviation(row)}
