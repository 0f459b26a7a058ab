"""What a fit says about densities that cannot be fitted: one sentence with a remedy, and soon."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pathgrad as pg
from pathgrad._default.clock import Clock
from pathgrad._default.contender import Contender
from pathgrad._default.inside import Inside
from pathgrad._default.pipeline import Pipeline
from pathgrad._ingredients.inspection import inspect_target
from pathgrad._train.warm_start import warm_start as module

COLUMN = np.arange(6).reshape(2, 3)


def normal(x):
    return -0.5 * x @ x


DENSITIES = {
    "NaN in half of the space": (
        lambda x: jnp.where(x[0] > 0, normal(x), jnp.nan),
        "NaN at some of the points",
    ),
    "cut off at two sd": (lambda x: jnp.where(x[0] > -2, normal(x), -jnp.inf), "map bounded parameters"),
    "a point": (lambda x: normal(x / 1e-30), "shrinks on and on.* other units"),
    "wide": (lambda x: normal(x / 1e30), "no finite integral.* other units"),
    "a direction without effect": (
        lambda x: -0.5 * (x[0] + x[1]) ** 2,
        "no finite integral.*without a prior",
    ),
    "nowhere": (lambda x: normal(x) - jnp.inf, "not a finite number at any point tried"),
    "NaN in the data": (lambda x: normal(x - np.array([1.0, np.nan])), "not a finite number at any point"),
    "a huge constant": (lambda x: normal(x) - 1e20, "about -1e[+]20.*Leave out the constant"),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_a_density_that_cannot_be_fitted_is_refused_with_a_reason(name):
    density, why = DENSITIES[name]
    with pytest.raises(pg.UserError, match=why):
        pg.fit(pg.LogDensity(density, (2,)))


def test_minus_infinity_that_is_hardly_ever_met_does_no_harm():
    density = lambda x: jnp.where(x[0] > -4.5, normal(x), -jnp.inf)  # noqa: E731
    assert pg.warm_start(pg.LogDensity(density, (2,)), key=jax.random.key(0)).outcome.is_usable


FUNCTIONS = {
    "NumPy": (lambda x: -0.5 * float(np.sum(np.square(x))), jax.errors.TracerArrayConversionError),
    "if": (lambda x: normal(x) if x[0] > 0 else -x @ x, jax.errors.TracerBoolConversionError),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_jax_cannot_follow_gets_a_hint(name):
    function, kind = FUNCTIONS[name]
    with pytest.raises(kind) as failed:
        pg.LogDensity(function, (2,))
    assert any("Write it with `jax.numpy`" in note for note in failed.value.__notes__)


def test_the_shape_of_a_point_is_that_of_an_array():
    assert pg.LogDensity(normal, 3).shape == (3,)
    assert pg.LogDensity(normal, [3]).shape == (3,)
    for shape in ((2.0,), (0,), -1):
        with pytest.raises(pg.ArgumentError, match="positive whole numbers"):
            pg.LogDensity(normal, shape)
    with pytest.raises(pg.ArgumentError, match="Return a floating-point number"):
        pg.LogDensity(lambda x: jnp.round(normal(x)).astype(int), 3)


INDICES = {
    "too large": (lambda x: x[0] + x[2], "index 2 of an axis with 2 entries"),
    "an array that begins at one": (lambda x: jnp.sum(x[jnp.array([1, 2])]), "do indices begin at 0"),
    "in a loop": (lambda x: jax.lax.fori_loop(0, 4, lambda i, s: s + x[i], 0.0), "index 3|index 2"),
    "another array": (lambda x: normal(x) + jnp.asarray(COLUMN)[1, jnp.array(3)], "axis with 3 entries"),
}


@pytest.mark.parametrize("name", INDICES)
def test_an_index_beyond_the_end_is_found(name):
    density, why = INDICES[name]
    with pytest.raises(pg.UserError, match=why):
        inspect_target(pg.LogDensity(density, (2,)), (2,))


def test_what_is_right_passes_inspection():
    good = lambda x: x[-1] * x[0] + jnp.sum(x[jnp.array([1, 0, -2])]) + jnp.asarray(COLUMN)[1, 2]  # noqa: E731
    inspect_target(pg.LogDensity(good, (2,)), (2,))
    # Beyond the end on purpose: nothing is there, as at the open ends of a chain.
    open_ended = lambda x: jnp.sum(x.at[jnp.array([0, 2])].get(mode="fill", fill_value=0.0) * x)  # noqa: E731
    inspect_target(pg.LogDensity(open_ended, (2,)), (2,))


def test_a_density_without_gradient_is_refused():
    def outside(x):
        return jax.pure_callback(lambda v: np.sum(v), jax.ShapeDtypeStruct((), x.dtype), x)

    with pytest.raises(pg.UserError, match=r"gradient of the log density cannot be computed.*custom_jvp"):
        inspect_target(pg.LogDensity(outside, (2,)), (2,))


class Vector:
    shape = (2,)

    def log_prob(self, x):
        return -x * x


def test_targets_of_any_class_are_inspected():
    with pytest.raises(pg.ArgumentError, match="must be a scalar"):
        pg.fit(Vector())
    whole = type("Whole", (Vector,), {"shape": 2})()
    with pytest.raises(pg.ArgumentError, match="must be a tuple"):
        pg.fit(whole)


def test_a_target_that_is_too_slow_for_a_search_is_refused_at_once(monkeypatch):
    monkeypatch.setattr(module, "_FEWEST", 1e12)
    with pytest.raises(pg.UserError, match=r"One gradient of the target takes .* s.*Give it more"):
        pg.fit(pg.LogDensity(normal, (2,)), max_seconds=100.0)


def test_the_first_round_is_shortened_where_steps_are_slow(monkeypatch):
    target = pg.LogDensity(normal, (2,))
    pipeline = Pipeline(target, pg.Recipe(warm_start=None), Clock(60.0), jax.random.key(0), lambda *_: None)
    inside = Inside(target, False, 0.0, False)
    for each, expected in ((0.001, 1500), (0.1, 300), (10.0, 100)):
        monkeypatch.setattr(Contender, "try_out", lambda self, each=each: each)
        paced = pipeline._paced(pipeline._contender(pg.Kind.TIED, inside, 64, 1500))
        assert paced.first == pytest.approx(expected, rel=0.2)
