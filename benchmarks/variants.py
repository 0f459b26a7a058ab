"""The default fit without one of its parts, to learn what each is worth; and of targets made difficult.

    python -m benchmarks.targets --out results/targets/warm_start --fit benchmarks.variants:warm_start credit

Each function is called as `pathgrad.fit(target, key=key, max_seconds=max_seconds)`. All but `stretched` and
`cpu_seconds` leave out the part that they are named after.
"""

import dataclasses
import time
import types
from typing import Any

import jax.random as jr
import numpy as np

import pathgrad as pg
from pathgrad._default import clock
from pathgrad._train import trainer
from pathgrad._train.warm_start import budget, evaluator
from pathgrad._train.warm_start import warm_start as gaussian


def warm_start(target: Any, **how: Any) -> pg.TargetFit:
    """Fit from a standard normal."""
    return pg.fit(target, recipe=pg.Recipe(warm_start=None), **how)


def coordinates(target: Any, *, key: Any, max_seconds: float | None = None) -> pg.TargetFit:
    """Fit in the target's own coordinates: the Gaussian of the warm start is a base, and trained too."""
    start = pg.warm_start(target, key=key)
    matrix = np.asarray(start.map.matrix)
    base = pg.FullNormal.from_covariance(start.map.shift, matrix @ matrix.T)
    flow = pg.Flow(base, pg.coupling_transforms(target.shape, key=jr.fold_in(key, 1)))
    recipe = pg.Recipe(warm_start=None, flow=flow)
    return pg.fit(target, recipe=recipe, key=key, max_seconds=max_seconds)


def couplings(target: Any, **how: Any) -> pg.TargetFit:
    """Fit a network as velocity field."""
    return pg.fit(target, recipe=pg.Recipe(kinds=[pg.Kind.NETWORK]), **how)


def defence(target: Any, **how: Any) -> pg.TargetFit:
    """Fit without wider draws in the base."""
    return pg.fit(target, recipe=pg.Recipe(defence=False), **how)


def rounds(target: Any, **how: Any) -> pg.TargetFit:
    """Fit with one round of training."""
    return pg.fit(target, recipe=pg.Recipe(rounds=1), **how)


def flow(target: Any, **how: Any) -> pg.TargetFit:
    """Fit the Gaussian of the warm start alone, with an affine map of each coordinate to correct it."""
    own = pg.Flow(pg.StandardNormal(target.shape), [pg.Affine.identity(target.shape)])
    return pg.fit(target, recipe=pg.Recipe(flow=own, rounds=1), **how)


def cpu_seconds(target: Any, **how: Any) -> pg.TargetFit:
    """Fit as usual, in a time that is counted in CPU seconds of this process, pinned to a shared core."""
    for module in (clock, trainer, budget, evaluator, gaussian):
        module.time = types.SimpleNamespace(perf_counter=time.process_time)  # pyright: ignore
    return pg.fit(target, **how)


@dataclasses.dataclass(frozen=True)
class Stretched:
    """A fit in other coordinates, with its flow in those of the target."""

    flow: pg.Flow
    evaluation: pg.Evaluation
    gradients: int


def stretched(target: Any, *, key: Any, max_seconds: float | None = None) -> Stretched:
    """Fit a copy whose coordinates are mixed, with condition 1e6, and that is 100 sd away."""
    start, dim = pg.warm_start(target, key=key), target.shape[0]
    rng = np.random.default_rng(dim)
    left, right = (np.linalg.qr(rng.standard_normal((dim, dim)))[0] for _ in range(2))
    matrix = left @ np.diag(np.logspace(-3, 3, dim)) @ right
    aside = rng.standard_normal(dim)
    origin = start.map.shift + 100 * np.asarray(start.map.matrix) @ (aside / np.linalg.norm(aside))
    copy = pg.Whitened(target, pg.FullAffine(origin, matrix))
    fit = pg.fit(copy, key=key, max_seconds=max_seconds)
    assert fit.start is not None
    # One map instead of two: numbers between them would be rounded.
    inner = fit.start.map
    back = pg.FullAffine(origin + matrix @ inner.shift, matrix @ inner.matrix)
    return Stretched(pg.Flow(fit.flow.base, [*fit.flow.transforms[:-1], back]), fit.evaluation, fit.gradients)
