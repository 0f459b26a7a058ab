"""The problem of a fit whose decisions are made: training, evaluation and draws."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Array, Key

import pathgrad as pg
from pathgrad._default.contender import parts_of
from pathgrad._default.inside import Inside
from pathgrad._default.kinds import new_flow
from pathgrad._default.looks import Look, Looks, gains_by_defence
from pathgrad._default.pipeline import shape_of

from ..flows.draws import read_draws
from ..flows.experiment import FlowEvaluateOptions
from ..flows.problem import with_contours
from .deciding import PRECISIONS, kind_of
from .options import FitOptions, Found
from .target import target_of

_MOST_PARAMETERS = 200  # in evaluation.json


def build(options: FitOptions) -> "FitProblem":
    """Return the problem that the options describe."""
    target, training = target_of(options), options.training
    numbers = training.batch, training.first, training.rounds, training.look_draws
    known = [number for number in numbers if number is not None]
    if options.flow == "auto" or not options.found.is_known or len(known) < len(numbers):
        raise pg.UserError(
            "A fit whose decisions are not made cannot be built. Train it first, or measure the costs of a "
            "flow of your choice with the experiment `density`."
        )
    n, first, rounds, look_draws = known
    kind, shape = kind_of(options.flow), shape_of(target)
    to_target = _like(options.found, shape)
    inside = Inside(target, to_target is not None, options.found.centre, bool(PRECISIONS[options.precision]))
    parts = parts_of(kind, inside, n, first, look_draws)
    flow = new_flow(kind, shape, to_target, key=pg.run_keys(training.seed)[0])
    finish = pg.defended if options.found.defended else None
    steps = parts.validation.rounds.end(rounds)
    return FitProblem(pg.Training(flow, *parts[:2], steps, parts.validation, finish=finish), inside)


def _like(found: Found, shape: tuple[int, ...]) -> pg.FullAffine | pg.LowRankAffine | None:
    """Return a map whose arrays have the shapes of those in a checkpoint."""
    size, rank = math.prod(shape), found.directions
    if found.coordinates == "full":
        return pg.FullAffine(np.zeros(shape), np.eye(size))
    if found.coordinates == "diagonal":
        return pg.LowRankAffine(np.zeros(shape), np.ones(shape), np.eye(size, rank), np.ones(rank))
    return None


def parameters_of(target: pg.Target, draws: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return a summary of the parameters, if they have names and the weights are all finite."""
    log_weight = draws["log_weight"]
    is_finite = not np.isnan(log_weight).any() and np.isfinite(log_weight.max())
    if not isinstance(target, pg.AbstractNamedTarget) or not is_finite:
        return {}
    rows = pg.summarise(target, draws).to_json()
    shown = list(rows)[:_MOST_PARAMETERS]
    return {"parameters": {name: rows[name] for name in shown}, "parameters_in_all": len(rows)}


class _InnerProblem(pg.FlowProblem):
    """The problem in the coordinates in which a flow is trained; draws from elsewhere have those outside."""

    def __init__(self, training: pg.Training, inside: Inside, whole: pg.Flow) -> None:
        super().__init__(training)
        self._inside, self._whole = inside, whole

    def target_draws(self, name: str) -> np.ndarray:
        points = read_draws(name, self._whole.shape, self._inside.target)
        return self._inside.within(self._whole, points)[0]


class FitProblem(pg.AbstractProblem):
    """The problem of fitting a density with nothing chosen.

    Weights are computed in the coordinates in which the flow is trained, where they keep their digits, and
    points are shown in those of the density.
    """

    def __init__(self, training: pg.Training, inside: Inside) -> None:
        self._training, self.inside = training, inside

    @property
    def training(self) -> pg.Training:
        """The flow, and how it is trained."""
        return self._training

    @property
    def target(self) -> pg.Target:
        """The density."""
        return self.inside.target

    def concluded(self, options: FitOptions, trained: pg.Trained, *, key: Key[Array, ""]) -> FitOptions:
        """Decide whether the flow gets a wider base."""
        looks = self._training.validation
        assert isinstance(looks, Looks)
        seen = Look.of_best(trained.state.best, looks.n)
        is_wanted = options.defence and gains_by_defence(trained.model, self.inside, seen, key=key, n=looks.n)
        return dataclasses.replace(options, found=dataclasses.replace(options.found, defended=is_wanted))

    def _inner(self, model: pg.Flow) -> tuple[pg.Flow, pg.FlowProblem]:
        """Return the flow without its map, and the problem of fitting it."""
        flow, target = self.inside.of(model)
        how = self._training
        training = pg.Training(flow, pg.ReverseKL(target), how.method, how.steps)
        return flow, _InnerProblem(training, self.inside, model)

    def evaluate(
        self,
        trained: pg.Trained,
        how: FlowEvaluateOptions,
        *,
        key: Key[Array, ""],
        tell: Callable[[str, int, int], None],
    ) -> Iterator[pg.Findings]:
        """Evaluate the flow by its importance weights."""
        flow, problem = self._inner(trained.model)
        inner, centre = trained._replace(model=flow), self.inside.centre
        for numbers, arrays in problem.evaluate(inner, how, key=key, tell=tell):
            bounds = ("elbo", "log_z", "eubo", "log_z_both")
            shifted = {name: numbers[name] + centre for name in bounds if numbers.get(name) is not None}
            if (point := numbers.get("lost_point")) is not None:
                point = np.reshape(point, (1, *flow.shape))
                shifted["lost_point"] = self.inside.outside(trained.model, point)[0].ravel().tolist()
            x = self.inside.outside(trained.model, arrays["x"])[0]
            if how.draws is not None:
                away = pg.Distances.between(x, read_draws(how.draws, flow.shape, self.target), self.target)
                shifted |= {"distances": dataclasses.asdict(away), **away.worst()}
            kept = {"x": x, "log_weight": arrays["log_weight"]}
            found = numbers | shifted | parameters_of(self.target, kept)
            if (verdict := pg.Verdict.from_json(found["verdict"])) is not None:
                found["warnings"] = verdict.explain(found)  # which may name the point
            yield pg.Findings(found, with_contours(kept, self.target))

    def sample(
        self, model: pg.Flow, *, key: Key[Array, ""], n: int, refine: int | None
    ) -> dict[str, np.ndarray]:
        """Draw `x`, `log_q` and `log_weight`."""
        flow, problem = self._inner(model)
        arrays = problem.sample(flow, key=key, n=n, refine=refine)
        return self.inside.outward(model, arrays)
