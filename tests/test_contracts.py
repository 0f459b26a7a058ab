"""What holds for every estimator and every flow: values, derivatives, and gradients that vanish at q = p.

The flows are those of the registry in `helpers.py`. Each is compiled once for each estimator (`evidence`),
and every test looks at the same numbers.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg

from .helpers import ESTIMATORS, FLOWS, TOLERANCE, FrozenCopy, bent_flow, curved_field, every_flow, ravel

N = 8
REPEATS = 40


@functools.cache
def compiled(estimator, name):
    """Compile once: the value and all gradients of a loss in which every draw has its own weight.

    Equality of such gradients for random weights is equality draw by draw.
    """

    @eqx.filter_jit
    def run(flow, target, key, weights):
        def loss(flow_and_target):
            flow, target = flow_and_target
            draw = ESTIMATORS[estimator].draw(flow, key=key, n=N)
            log_p = jax.vmap(target.log_prob)(draw.x)
            return jnp.vdot(weights, draw.log_q - log_p), (draw.log_q, log_p, draw.solve)

        (_, parts), gradients = eqx.filter_value_and_grad(loss, has_aux=True)((flow, target))
        return parts, ravel(gradients[0]), gradients[1].tilt

    return run


@functools.cache
def evidence(estimator, name, *, optimum=False):
    """Evaluate for a curved flow and a skewed target, or where q = p, with random weights."""
    bend, skew = (0.0, 0.0) if optimum else (1.0, 1.0)
    flow, target = FLOWS[name].flow(bend), FLOWS[name].target(skew)
    return compiled(estimator, name)(flow, target, jr.key(1), jr.normal(jr.key(2), (N,)))


@functools.cache
def compiled_derivatives(name):
    """Compile once: draws with score; by the inverse log q, and its derivatives at fixed x."""
    weights = jr.normal(jr.key(2), (N,))

    @eqx.filter_jit
    def run(flow):
        draw = flow.sample_with_score(key=jr.key(1), n=N)
        log_q, pull = eqx.filter_vjp(lambda flow, x: flow.log_prob(x, key=jr.key(1)), flow, pg.freeze(draw.x))
        in_flow, in_x = pull(weights)
        return draw, log_q, ravel(in_flow), in_x / weights[:, None]

    return run


@functools.cache
def draw_and_derivatives(name, bend=1.0):
    return compiled_derivatives(name)(FLOWS[name].flow(bend))


def assert_close(a, b, kind, name):
    """Compare as closely as solves allow, or as rounding does where nothing is solved."""
    kind = kind if FLOWS[name].flow(0.0).is_solved else "algebra"
    a, b = np.asarray(a), np.asarray(b)
    assert np.abs(a - b).max() <= TOLERANCE[kind] * max(np.abs(b).max(), 1.0)


@pytest.mark.parametrize("name", every_flow(lambda case: case.linear is not None))
def test_affine_flow_is_an_affine_map(name):
    flow = FLOWS[name].flow(0.0)
    draw, log_q, *_ = draw_and_derivatives(name, bend=0.0)
    z = pg.Flow(flow.base).sample(key=jr.key(1), n=N)
    linear = FLOWS[name].linear
    assert linear is not None
    matrix, shift = linear()
    exact = FLOWS[name].density
    assert_close(draw.x, z @ matrix.T + shift, "solve", name)
    # The score of an affine flow is free of Hutchinson noise; log q is not.
    assert_close(draw.score, jax.vmap(jax.grad(exact.log_prob))(draw.x), "solve", name)
    if not flow.is_noisy:
        assert_close(draw.log_q, jax.vmap(exact.log_prob)(draw.x), "solve", name)
        assert_close(log_q, jax.vmap(exact.log_prob)(draw.x), "two solves", name)


@pytest.mark.parametrize("name", every_flow())
def test_score_is_the_gradient_of_the_flows_own_density(name):
    draw, log_q, _, in_x = draw_and_derivatives(name)
    assert_close(draw.log_q, log_q, "two solves", name)
    assert_close(draw.score, in_x, "two solves", name)


@pytest.mark.parametrize("name", every_flow())
def test_path_gradient_is_the_two_copy_gradient(name):
    _, path, _ = evidence("path", name)
    _, two_copy, _ = evidence("two-copy", name)
    assert np.linalg.norm(path) > 0.1
    assert_close(path, two_copy, "two solves", name)


@pytest.mark.parametrize("name", every_flow())
def test_total_less_path_is_the_score_term(name):
    _, path, _ = evidence("path", name)
    _, total, _ = evidence("total", name)
    _, _, explicit, _ = draw_and_derivatives(name)
    assert np.linalg.norm(explicit) > 0.1
    assert_close(total - path, explicit, "two solves", name)


@pytest.mark.parametrize("name", every_flow())
def test_values_and_target_gradients_do_not_depend_on_the_estimator(name):
    is_solved = FLOWS[name].flow(1.0).is_solved
    all_parts = {}
    for estimator in ESTIMATORS:
        (log_q, log_p, solve), _, in_target = evidence(estimator, name)
        assert (solve is not None) == is_solved
        assert solve is None or solve.outcome == pg.Outcome.FINE
        all_parts[estimator] = (log_q, log_p, in_target)
    assert np.linalg.norm(all_parts["path"][2]) > 0.1
    for estimator in ("total", "two-copy"):
        for mine, reference in zip(all_parts[estimator], all_parts["path"], strict=True):
            assert_close(mine, reference, "two solves", name)


@pytest.mark.parametrize("name", every_flow())
def test_path_and_total_agree_in_the_mean(name):
    flow, target = FLOWS[name].flow(1.0), FLOWS[name].target()
    means = {}
    for estimator in ("path", "total"):
        run = compiled(estimator, name)
        weights = jnp.full(N, 1 / N)
        keys = jr.split(jr.key(11), REPEATS)
        means[estimator] = np.stack([run(flow, target, key, weights)[1] for key in keys])
    difference = means["total"] - means["path"]  # the score term, over the same draws
    z = difference.mean(0) / (difference.std(0, ddof=1) / REPEATS**0.5)
    assert np.abs(z).max() < TOLERANCE["z"]
    assert difference.std(0).max() > 0.01


@pytest.mark.parametrize("name", every_flow())
def test_only_path_gradients_vanish_at_the_optimum(name):
    """At q = p, draw by draw: p is known in closed form, or is a frozen copy of the flow.

    Only the gradient in `bend` and `curved` may see Hutchinson noise; at `bend` zero it does not either.
    """
    for estimator in ESTIMATORS:
        _, gradient, _ = evidence(estimator, name, optimum=True)
        if estimator == "total":
            assert np.linalg.norm(gradient) > 0.1
        else:
            assert_close(gradient, np.zeros_like(gradient), "two solves", name)


@pytest.mark.parametrize("divergence", ["closed", "exact", "hutchinson"])
@pytest.mark.parametrize("depth", [1, 2])
def test_frozen_copy_as_target(divergence, depth):
    """At q = p for a curved flow: zero with an exact divergence, and not with a noisy one."""
    if depth == 1 and divergence != "closed":
        pytest.skip("one depth is enough where the field is differentiated automatically")
    flow = bent_flow(divergence, field=curved_field(depth))
    target = FrozenCopy(flow)
    gradient = eqx.filter_jit(eqx.filter_grad(lambda f: pg.reverse_kl(f, target, key=jr.key(5), n=4)))(flow)
    size = float(jnp.linalg.norm(ravel(gradient)))
    if divergence == "hutchinson":
        assert size > 0.1
    else:
        assert size < TOLERANCE["two solves"]
