"""Calls that look unusual and are right, each with a check of its result."""

# They are kinder than the annotations promise.
# pyright: reportArgumentType=false

import dataclasses
import math
from collections.abc import Callable
from pathlib import PurePath

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

import pathgrad as pg
from pathgrad._words.keys import any_keys

from .api_calls import FLOW, KEY, TARGET

OLD_KEY = jax.random.PRNGKey(0)
FREE = pg.Flow(pg.DiagonalNormal([2.0, -1.0], [0, 0]))


def _same(a: object, b: object) -> bool:
    return bool(np.array_equal(np.asarray(a), np.asarray(b)))


def _trained(optimizer: optax.GradientTransformation, steps: int) -> bool:
    fitted = pg.fit(
        FREE, TARGET, key=KEY, steps=steps, n=64, optimizer=optimizer, estimator=pg.TotalGradient()
    )
    return float(jnp.abs(fitted.flow.base.mean).max()) < 0.5  # pyright: ignore[reportAttributeAccessIssue]


def _drawn_by_rbg(shape: tuple[int, ...]) -> bool:
    old = jax.config.jax_default_prng_impl  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_default_prng_impl", "rbg")
    try:
        return pg.StandardNormal(shape).draw(key=any_keys(jax.random.PRNGKey(0)))[0].shape == shape
    finally:
        jax.config.update("jax_default_prng_impl", old)


def _is_not_there(call: Callable[[], object]) -> bool:
    try:
        call()
    except pg.ArgumentError:
        return False
    except pg.UserError as error:
        return "no run" in str(error)
    return False


@dataclasses.dataclass(frozen=True)
class _Frozen:
    scale: float

    def log_prob(self, x: jax.Array) -> jax.Array:
        return -0.5 * jnp.sum((x / self.scale) ** 2)


_SHIFT = pg.Affine([0.0, 0.0], [0.0, 0.0])
_NONE = {"x": np.zeros((9, 2)), "log_weight": np.zeros(9)}
_MEANS = np.zeros((3, 2))
TWO = FLOW.sample(key=KEY, n=2)
CASES: dict[str, Callable[[], bool]] = {
    "a NumPy integer": lambda: _same(FLOW.sample(key=KEY, n=np.int64(2)), TWO),
    "a JAX integer": lambda: _same(FLOW.sample(key=KEY, n=jnp.int32(2)), TWO),
    "an old key": lambda: _same(FLOW.sample(key=OLD_KEY, n=2), TWO),
    "old keys, one for each draw": lambda: _same(FLOW.sample(key=jr.split(OLD_KEY, 2), n=2), TWO),
    "a list of points": lambda: _same(FLOW.log_prob([[0, 1]]), FLOW.log_prob(jnp.array([[0.0, 1.0]]))),
    "a number as shape": lambda: pg.StandardNormal(2) == pg.StandardNormal((2,)),
    "a NumPy number as shape": lambda: pg.LogDensity(TARGET.log_prob, np.int32(2)).shape == (2,),
    "NumPy integers in a solver": lambda: pg.FixedStep(np.int16(3)) == pg.FixedStep(3),
    "a NumPy integer in an evaluation": lambda: (
        pg.evaluate(FLOW, TARGET, key=OLD_KEY, n=np.int64(64)).samples == 64
    ),
    "an array of probabilities": lambda: (
        pg.summarise(None, _NONE, np.array([0.1, 0.9])).probabilities == (0.1, 0.9)
    ),
    "scales of a mixture that are differentiated": lambda: (
        float(jax.jit(jax.grad(lambda s: pg.NormalMixture.at(_MEANS, s).log_scales.sum()))(2.0)) == 3.0
    ),
    "scales of a mixture": lambda: (
        pg.NormalMixture.at(_MEANS, [1, 2]).log_scales.shape == (3, 2)
        and pg.NormalMixture.at(_MEANS, np.ones((3, 2))).log_scales.shape == (3, 2)
    ),
    "an old key of another implementation": lambda: _drawn_by_rbg((2,)),
    "no limit of a step": lambda: pg.GaussNewton(trust=math.inf, clip=math.inf).clip == math.inf,
    "no time left": lambda: pg.fit(FREE, TARGET, key=KEY, max_seconds=0).stopped is pg.Stop.TIME_USED_UP,
    "transforms from an iterator": lambda: (
        len(pg.Flow(FREE.base, reversed([_SHIFT, _SHIFT])).transforms) == 2
    ),
    "an array as shape": lambda: (
        pg.StandardNormal(np.array([2, 3])).shape == pg.StandardNormal(jnp.array([2, 3])).shape == (2, 3)
    ),
    "paths of any kind": lambda: _is_not_there(lambda: pg.find_runs(iter([PurePath("no run")]))),
    "a path without a disk": lambda: _is_not_there(lambda: pg.Run.open(PurePath("no run"))),
    "a NumPy truth": lambda: pg.Recipe(defence=np.bool_(True)).defence is True,
    "whole numbers as log-weights": lambda: float(pg.metrics.ess([0, 0, 0])) == 1,
    "a target that is a frozen dataclass": lambda: pg.evaluate(FLOW, _Frozen(2.0), key=KEY, n=64).ess > 0,
    "NumPy integers in a fit": lambda: (
        int(pg.fit(FREE, TARGET, key=OLD_KEY, steps=np.int64(2), n=np.int64(8)).state.step) == 2
    ),
    "an optimiser with a line search": lambda: _trained(optax.lbfgs(), 8),
    "an optimiser that needs the value": lambda: _trained(optax.polyak_sgd(0.1, f_min=-2.0), 60),
    "an old key for a network": lambda: _same(
        pg.MLPField(2, 4, key=OLD_KEY).layers[0].weight, pg.MLPField(2, 4, key=KEY).layers[0].weight
    ),
    "an old key for a search of the best Gaussian": lambda: (
        pg.warm_start(TARGET, key=OLD_KEY).elbo == pg.warm_start(TARGET, key=KEY).elbo
    ),
}


def results() -> dict[str, str]:
    """Return what came of each."""
    found = {}
    for name, case in CASES.items():
        try:
            found[name] = "fine" if case() else "another result"
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"[:300]
    return found
