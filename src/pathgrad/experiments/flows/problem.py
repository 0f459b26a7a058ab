"""The problem of fitting a flow to a target: its evaluation by importance weights, and weighted draws."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

import pathgrad as pg
from pathgrad._numbers.mode_search import GRADIENTS
from pathgrad._words.memory import check_memory

from .draws import read_draws
from .experiment import FlowEvaluateOptions

_SEARCH = 2**30 + 3  # folded into the key
_SEARCHED = 2**12  # draws that a search begins with, where no figure shows them
_KEPT = 4  # numbers kept of each draw, or made of it at the end
_SHOWN = 2**14  # draws stored in evaluation.npz
_GRID = 80  # points along each axis for the contours of the target


@runtime_checkable
class Measurement(Protocol):
    """Collects further results of an evaluation, beyond the weights, chunk by chunk."""

    def add(self, chunk: Mapping[str, np.ndarray]) -> None:
        """Add a chunk of draws from `pg.weighted_chunks`."""
        ...

    def finish(self, found: pg.Evaluation) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return results for evaluation.json, and arrays for evaluation.npz."""
        ...


class FlowProblem(pg.AbstractProblem):
    """The problem of fitting a flow to a target.

    Args:
        training: The training of the flow, which must minimise `pg.ReverseKL`.
        sample_target: Function that returns one exact sample of the target, `sample_target(key=...)`, if any.
        refine: Default factor by which evaluation multiplies the solver steps of training.
        measure: Function of the number of draws that returns a `Measurement`, for results beyond the weights.
    """

    def __init__(
        self,
        training: pg.Training,
        *,
        sample_target: Callable[..., Array] | None = None,
        refine: int = 1,
        measure: Callable[[int], Measurement] | None = None,
    ) -> None:
        if not isinstance(training.objective, pg.ReverseKL) or training.objective.target is None:
            raise pg.ArgumentError(
                f"The {pg.named('training')} of a flow problem must minimise `ReverseKL(target)`, got "
                f"{type(training.objective).__name__}."
            )
        self._training = training
        self.objective: pg.ReverseKL = training.objective
        self.target: pg.Target = training.objective.target
        self.sample_target, self.refine, self.measure = sample_target, refine, measure

    @property
    def training(self) -> pg.Training:
        """The flow to train, and how to train it."""
        return self._training

    def evaluate(
        self,
        trained: pg.Trained,
        how: FlowEvaluateOptions,
        *,
        key: Key[Array, ""],
        tell: Callable[[str, int, int], None],
    ) -> Iterator[pg.Findings]:
        """Evaluate the flow by its importance weights, and take the further measurements, if any."""
        if how.samples < 1:
            raise pg.ArgumentError(f"{pg.named('samples')} must be at least 1, got {how.samples}.")
        check_memory(_KEPT * how.samples, samples=how.samples)
        flow, factor = trained.model, self.refine if how.refine is None else how.refine

        def report(done: int) -> None:
            tell("drawing" if done < how.samples else "checking the solver", done, how.samples)

        given = None if how.draws is None else self.target_draws(how.draws)
        chunks = pg.weighted_chunks(flow.refined(factor), self.target, key=key, n=how.samples, tell=report)
        measurement = None if self.measure is None else self.measure(how.samples)
        draws, kept = _collect(chunks, measurement)
        evaluation = pg.evaluate(
            flow,
            self.target,
            key=key,
            sample_target=self.sample_target,
            refine=factor,
            draws=draws,
            divergence=pg.check_divergence(flow, key=key),
            target_draws=given,
            search=self._search(flow.refined(factor), kept, how, key, tell),
        )
        if measurement is None:
            more, arrays = {}, with_contours(kept, self.target)
        else:
            more, arrays = measurement.finish(evaluation)
        numbers = dataclasses.asdict(evaluation) | {
            "verdict": evaluation.verdict.to_json(),
            "warnings": evaluation.warnings,
            "refine": factor,
            "solver_evaluations": round(evaluation.evaluations * how.samples),
        }
        if self.objective.log_z is not None:
            numbers |= {"log_z_known": self.objective.log_z, "log_z_known_err": self.objective.log_z_err}
        yield pg.Findings(numbers | more, arrays)

    def target_draws(self, name: str) -> np.ndarray:
        """Return draws of the target from a file, in the coordinates of the problem."""
        return read_draws(name, self._training.model.shape, self.target)

    def _search(
        self,
        flow: pg.Flow,
        draws: dict[str, np.ndarray],
        how: FlowEvaluateOptions,
        key: Key[Array, ""],
        tell: Callable[[str, int, int], None],
    ) -> pg.ModeSearch | None:
        """Look for modes that the flow has lost, unless exact samples tell more, or there is no use."""
        is_wanted = how.mode_search and self.sample_target is None and pg.devices.is_alone()
        if not is_wanted or np.isfinite(draws["log_weight"]).sum() < max(2, draws["log_weight"].size // 2):
            return None
        tell("looking for lost modes", how.samples, how.samples)
        gradients = min(GRADIENTS, how.samples)
        return pg.search_modes(
            flow, self.target, key=jr.fold_in(key, _SEARCH), gradients=gradients, draws=draws
        )

    def sample(
        self, model: pg.Flow, *, key: Key[Array, ""], n: int, refine: int | None
    ) -> dict[str, np.ndarray]:
        """Draw `x`, `log_q` and `log_weight`; in memory are these arrays and one chunk of draws."""
        check_memory(n * (math.prod(model.shape) + 2), n=n)
        flow = model.refined(self.refine if refine is None else refine)
        arrays: dict[str, np.ndarray] = {}
        done = 0
        for chunk in pg.weighted_chunks(flow, self.target, key=key, n=n):
            parts = {name: chunk[name] for name in ("x", "log_q", "log_weight")}
            arrays = arrays or {k: np.empty((n, *v.shape[1:]), v.dtype) for k, v in parts.items()}
            for name, part in parts.items():
                arrays[name][done : done + len(part)] = part
            done += len(chunk["x"])
        return arrays


def with_contours(kept: dict[str, np.ndarray], target: pg.Target) -> dict[str, np.ndarray]:
    """Add the target's log density on a grid to two-dimensional draws, for contours."""
    x = kept["x"][np.isfinite(kept["x"]).reshape(len(kept["x"]), -1).all(axis=1)]
    if x.shape[1:] != (2,) or len(x) < 2:
        return kept
    low, high = np.quantile(x, [0.001, 0.999], axis=0)
    axes = [np.linspace(a, b, _GRID, dtype=x.dtype) for a, b in zip(low, high, strict=True)]
    grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    height = np.asarray(jax.jit(jax.vmap(target.log_prob))(grid))
    return kept | {"grid": np.stack(axes), "grid_log_prob": height.reshape(_GRID, _GRID)}


def _collect(
    chunks: Iterator[dict[str, np.ndarray]], measurement: Measurement | None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Go through the chunks once; return all weights, and as many draws as a figure or a search needs."""
    wanted = _SHOWN if measurement is None else _SEARCHED
    log_weight, evaluations, shown = [], [], []
    for chunk in chunks:
        log_weight.append(chunk["log_weight"])
        evaluations.append(chunk["evaluations"])
        if measurement is not None:
            measurement.add(chunk)
        shown.append(chunk["x"][:wanted].copy())  # so that the chunk itself can go
        wanted -= len(shown[-1])
    draws = {"evaluations": np.stack(evaluations), "log_weight": np.concatenate(log_weight)}
    x = np.concatenate(shown)
    return draws, {"x": x, "log_weight": draws["log_weight"][: len(x)]}
