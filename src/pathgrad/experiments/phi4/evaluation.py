"""Physics from a trained flow: observables by weighting and by Metropolis, with errors and known values."""

import itertools
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import pathgrad as pg

from .markov import autocorrelated_mean, gaussian_acceptance, metropolis, tau_of_rejections
from .observables import averaged, derived, measure, plane
from .reference import Known, known
from .theory import Phi4

_BLOCKS = 100  # of the jackknife
_FIELDS = 16  # kept to be looked at
_WEIGHTS = 100_000  # kept for their histogram
_STEP = 1e-6  # relative, for derivatives by differences

_measure = eqx.filter_jit(measure)


class LatticeMeasurement:
    """Measure the fields of an evaluation as they go by.

    Of each draw a row of numbers and the weight are kept, and of the first few the field. All fields together
    never exist: 500,000 draws at size 64 take 90 MB instead of 8 GB.
    """

    def __init__(self, theory: Phi4, n: int) -> None:
        """Get ready.

        Args:
            theory: The target.
            n: Number of draws to come.
        """
        self._theory = theory
        # Blocks of consecutive draws, as equal as can be.
        self._edges = np.linspace(0, n, min(n, _BLOCKS) + 1).astype(int)
        self._seen = self._chunk = 0
        self._log_weight = np.empty(n)
        self._rows: np.ndarray | None = None
        self._fields: list[np.ndarray] = []
        self._power = np.zeros((len(self._edges) - 1, theory.size, theory.size))
        self._largest = -math.inf  # log-weight; `_power` is in units of it

    def add(self, chunk: dict[str, np.ndarray]) -> None:
        """Take in what `pg.weighted_chunks` hands out."""
        x, log_weight = chunk["x"], chunk["log_weight"].astype(float)
        # Draws without weight are fields so large that the action overflows, and observables with it. Times
        # e^-S that is nothing, like the observables of no field.
        measured = self._measure(np.where((log_weight == -math.inf)[:, None, None], 0, x))
        rows = averaged(measured)
        if self._rows is None:
            self._rows = np.empty((len(self._log_weight), rows.shape[1]), rows.dtype)
        here = slice(self._seen, self._seen + len(x))
        self._rows[here] = rows
        self._log_weight[here] = log_weight
        self._add_power(np.arange(here.start, here.stop), measured["power"])
        if len(self._fields) < _FIELDS:
            self._fields.extend(np.array(x[: _FIELDS - len(self._fields)]))
        self._seen = here.stop

    def _measure(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Measure the fields, filled up to as many as before: each new length would be compiled anew."""
        self._chunk = max(self._chunk, len(x))
        filled = np.zeros((self._chunk, *x.shape[1:]), x.dtype)
        filled[: len(x)] = x
        measured = _measure(self._theory, jnp.asarray(filled))
        return {name: np.asarray(values)[: len(x)] for name, values in measured.items()}

    def _add_power(self, number: np.ndarray, power: np.ndarray) -> None:
        """Add to the weighted sum over each block, all in units of the largest weight so far."""
        number, power = (each[np.isfinite(self._log_weight[number])] for each in (number, power))
        log_weight = self._log_weight[number]
        largest = np.max(log_weight, initial=self._largest)
        if not len(number):
            return
        self._power *= math.exp(self._largest - largest)
        self._largest = largest
        block = np.searchsorted(self._edges, number, side="right") - 1
        for b in np.unique(block):
            here = block == b
            self._power[b] += np.tensordot(np.exp(log_weight[here] - largest), power[here], 1)

    def finish(self, found: pg.Evaluation) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return what was measured.

        Args:
            found: What the weights say.

        Returns:
            Results that JSON can hold, and arrays for pictures. With a failed draw the results are `None`:
            an average over the others would be of another density.
        """
        arrays = {
            "log_weight": self._log_weight[:_WEIGHTS].astype(np.float32),
            "fields": np.stack(self._fields),
        }
        if found.failed or self._rows is None:
            names = ("observables", "mcmc", "free_energy", "ward_identity")
            return dict.fromkeys((*names, "two_point", "effective_mass")), arrays
        there = known(self._theory.size, self._theory.coupling, self._theory.mass_squared)
        with np.errstate(invalid="ignore", divide="ignore"):
            weighted, curves = self._weighted()
            chain, mcmc = self._metropolis(found)
        table = {name: value | chain[name] for name, value in weighted.items()}
        nothing = dict.fromkeys(("mcmc_value", "mcmc_error", "mcmc_tau"))
        log_z = {"value": found.log_z, "error": found.log_z_err}
        rows = {
            name: row | _against(row, there.get(name))
            for name, row in ({"log_z": log_z | nothing} | table).items()
        }
        free_energy = {"value": -found.log_z, "error": found.log_z_err}
        minus = Known(-there["log_z"].value, there["log_z"].error) if there else None
        ward = rows.pop("ward_identity")
        results = {
            "observables": rows,
            "mcmc": mcmc,
            "free_energy": free_energy | _against(free_energy, minus),
            "ward_identity": ward | _against(ward, Known(0.5, 0.0)),
        }
        for name, first in (("two_point", 0), ("effective_mass", 1)):
            value, error = curves[name], curves[name + "_err"]
            distance = list(range(first, first + len(value)))
            results[name] = {"distance": distance, "value": value.tolist(), "error": error.tolist()}
        return results, arrays | curves

    def _sums(self, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the weighted sum of the rows over each block of draws, and the sum of the weights."""
        assert self._rows is not None
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
        flat = self._power.reshape(len(totals), -1)
        shape = self._power.shape[1:]
        curves["two_point_plane"] = plane((flat.sum(0) / totals.sum()).reshape(shape))
        each = plane(_left_out(flat, totals).reshape(-1, *shape))
        curves["two_point_plane_err"] = jackknife_error(each)
        return numbers, curves

    def _metropolis(self, found: pg.Evaluation) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return averages over a Markov chain of the same draws, and what it is like."""
        assert self._rows is not None
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
            rows[name] = {
                "mcmc_value": float(value),
                "mcmc_error": mean.error,
                "mcmc_tau": mean.tau,
            }
        return rows, {
            "acceptance": chain.acceptance,
            "acceptance_gaussian": gaussian_acceptance(found.ess),
            "tau_rejections": tau_of_rejections(chain),
            "length": len(chain.held),
        }


def _left_out(sums: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Return the averages that remain when one block is left out, for each block."""
    return (sums.sum(0) - sums) / (totals.sum() - totals)[:, None]


def jackknife_error(left_out: np.ndarray) -> np.ndarray | np.float64:
    """Return the standard error of an estimate, from what it is without each of the blocks (first axis)."""
    blocks = len(left_out)
    spread = np.sum((left_out - left_out.mean(0)) ** 2, axis=0)
    return np.sqrt((blocks - 1) / blocks * spread)


def _against(row: dict[str, Any], there: Known | None) -> dict[str, float | None]:
    """Compare with a known value, in units of both errors."""
    if there is None:
        return {"reference": None, "reference_error": None, "deviation": None}
    error = math.hypot(row["error"], there.error)
    deviation = (row["value"] - there.value) / error if error > 0 else None
    return {"reference": there.value, "reference_error": there.error, "deviation": deviation}
