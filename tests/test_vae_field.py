"""The amortised fields: against loops in NumPy, divergences against traces, sizes by the table."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg
from pathgrad._words.errors import UserError
from pathgrad._words.tree import over_draws
from pathgrad.experiments.vae.field import (
    AmortisedField,
    LowRank,
    layer_sizes,
    per_draw_updates,
    shared_layers,
    update_size,
)
from pathgrad.experiments.vae.gates import Gates

from .helpers import TOLERANCE

N, DIM, WIDTH, RANK = 4, 3, 5, 2
TIME = 0.37
NUMPY = {"softplus": lambda a: np.log1p(np.exp(a)), "tanh": np.tanh}


def numbers_for(depth):
    """Return what an encoder would: one row of numbers for each image."""
    size = update_size(layer_sizes(DIM, WIDTH, depth), RANK)
    return 0.8 * jr.normal(jr.key(11), (N, size))


def amortised(depth, activation="softplus", numbers=None):
    sizes = layer_sizes(DIM, WIDTH, depth)
    layers = jax.tree.map(lambda a: 2 * a, shared_layers(sizes, key=jr.key(3)))
    numbers = numbers_for(depth) if numbers is None else numbers
    return AmortisedField(layers, per_draw_updates(numbers, sizes, RANK), activation)


def points():
    return 1.5 * jr.normal(jr.key(8), (N, DIM)) + jnp.array([0.4, -1.0, 0.2])


def velocities(field, t, x):
    return over_draws(lambda f, x: f(t, x), field, x)


def by_hand(field, numbers, t, x):
    """Return one image's velocity by sums over units, its numbers read from the front one after another."""
    numbers = list(np.asarray(numbers))
    take = lambda rows, columns: np.array(  # noqa: E731
        [[numbers.pop(0) for _ in range(columns)] for _ in range(rows)]
    )
    h = np.asarray(x)
    layers = jax.tree.map(np.asarray, field.layers)
    for number, layer in enumerate(layers):
        n_in, n_out = layer.weight.shape
        shared = np.concatenate([layer.time[None], layer.weight])  # time is the first input
        inputs = np.concatenate([[t], h])
        u, v, bias = take(RANK, n_in), take(RANK, n_out), take(1, n_out)[0]
        pre = np.zeros(n_out)
        for o in range(n_out):
            pre[o] = layer.bias[o] + bias[o]
            for i in range(n_in + 1):
                pre[o] += shared[i, o] * inputs[i]
            for i in range(n_in):
                for r in range(RANK):
                    pre[o] += h[i] * u[r, i] * v[r, o]
        h = pre if number == len(layers) - 1 else NUMPY[field.activation](pre)
    assert numbers == []
    return h


@pytest.mark.parametrize("activation", NUMPY)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_velocity_is_that_of_a_loop(depth, activation):
    field, numbers, x = amortised(depth, activation), numbers_for(depth), points()
    found = velocities(field, TIME, x)
    for i in range(N):
        expected = by_hand(field, numbers[i], TIME, x[i])
        np.testing.assert_allclose(found[i], expected, rtol=1e-11, atol=1e-12)


def test_updates_do_not_act_on_time():
    """The last layer's part of time is its own weight alone, whatever the image says."""
    field = amortised(2, "tanh")
    # Without time in the hidden layers, only the last one can see it.
    field = eqx.tree_at(lambda f: [f.layers[0].time, f.layers[1].time], field, [jnp.zeros(WIDTH)] * 2)
    later = velocities(field, 2.5, points()) - velocities(field, 0.5, points())
    expected = np.broadcast_to(2 * field.layers[2].time, (N, DIM))
    np.testing.assert_allclose(later, expected, rtol=1e-11)
    assert np.abs(expected).min() > 0.05


def gates():
    """Return a family of gated fields, all of whose parts matter, and the numbers of some images."""
    made = jax.tree.map(lambda a: 2 * a, Gates(DIM, WIDTH, key=jr.key(5), output_scale=1.0))
    family = eqx.tree_at(lambda f: f.outer_time, made, jnp.array([0.3, -0.7, 1.1]))
    return family, 0.8 * jr.normal(jr.key(6), (N, family.size))


def test_velocity_of_gates_is_that_of_a_loop():
    family, numbers = gates()
    assert family.size == 2 * WIDTH + DIM
    found = velocities(family(numbers), TIME, points())
    inner, inner_time, outer, outer_time = map(np.asarray, jax.tree.leaves(family))
    for x, own, velocity in zip(np.asarray(points()), np.asarray(numbers), found, strict=True):
        # What an image says of the gates, of the biases of the hidden units, and of the velocity's.
        gate, bias, shift = own[:WIDTH], own[WIDTH : 2 * WIDTH], own[2 * WIDTH :]
        expected = shift + TIME * outer_time
        for k in range(WIDTH):
            pre = bias[k] + TIME * inner_time[k] + sum(inner[k, i] * x[i] for i in range(DIM))
            for o in range(DIM):
                expected[o] += outer[o, k] * (1 + gate[k]) * np.tanh(pre)
        np.testing.assert_allclose(velocity, expected, rtol=1e-11)


def gated(numbers=None):
    family, own = gates()
    return family(own if numbers is None else numbers)


FIELDS = {
    **{f"{depth}-{name}": lambda d=depth, a=name: amortised(d, a) for depth in (1, 2) for name in NUMPY},
    "gates": gated,
}


@pytest.mark.parametrize("make", FIELDS.values(), ids=FIELDS)
def test_closed_divergence_is_the_trace(make):
    field, x = make(), points()

    def closed(f, x):
        return pg.ClosedForm()(f, jnp.asarray(TIME), x, f.prepare(), None)

    def by_autodiff(f, x):
        return f(TIME, x), jnp.trace(jax.jacfwd(lambda x: f(TIME, x))(x))

    (velocity, divergence), (expected_velocity, trace) = (
        over_draws(f, field, x) for f in (closed, by_autodiff)
    )
    np.testing.assert_allclose(velocity, expected_velocity, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(divergence, trace, rtol=1e-11)
    # Every image has a divergence of its own: with another's update it would be another.
    assert np.diff(np.sort(np.asarray(trace))).min() > 1e-3


@pytest.mark.parametrize(
    ("make", "numbers"),
    [(lambda numbers: amortised(2, numbers=numbers), numbers_for(2)), (gated, gates()[1])],
    ids=["low-rank", "gates"],
)
def test_closed_form_along_a_solve(make, numbers):
    """What the closed form prepares once per solve is each image's own."""

    @jax.jit
    def draw(numbers):
        found = []
        for divergence in (pg.ClosedForm(), pg.Exact()):
            field = make(numbers)
            cnf = pg.CNF(field, divergence, pg.FixedStep(3), t0=0.3, t1=1.1)
            flow = pg.Flow(pg.StandardNormal((DIM,)), [cnf])
            found.append(flow.draw("score", key=jr.key(2), n=N))
        return found

    closed, exact = draw(numbers)
    np.testing.assert_allclose(closed.x, exact.x, rtol=TOLERANCE["algebra"])
    np.testing.assert_allclose(closed.log_q, exact.log_q, rtol=1e-11)
    np.testing.assert_allclose(closed.score, exact.score, rtol=1e-10, atol=1e-11)


def test_three_hidden_layers_have_no_closed_form():
    field = amortised(3)
    message = "AmortisedField has no closed-form divergence: it has 3 hidden layers.*`Exact"
    with pytest.raises(ValueError, match=message):
        pg.CNF(field, pg.ClosedForm())
    assert pg.CNF(field).divergence == pg.Exact()
    assert pg.CNF(amortised(2)).divergence == pg.ClosedForm()


@pytest.mark.parametrize(
    ("width", "depth", "rank", "size"),
    [
        (1024, 2, 64, 272_448),
        (512, 2, 64, 140_352),
        (512, 2, 20, 44_608),
        (2048, 2, 20, 170_560),
        (2048, 1, 20, 86_592),
    ],
)
def test_numbers_that_an_image_gives_to_a_field(width, depth, rank, size):
    assert update_size(layer_sizes(64, width, depth), rank) == size
    made = eqx.filter_eval_shape(lambda key: LowRank(64, width, depth, rank, key=key), jr.key(0))
    # An exact divergence needs the whole matrix of the largest layer, updated for each image.
    assert (made.size, made.prepared_size) == (size, width * (64 if depth == 1 else width))


def test_sizes_and_initial_weights():
    sizes = layer_sizes(7, 300, 2)
    assert sizes == [(7, 300), (300, 300), (300, 7)]
    for layer, (n_in, n_out) in zip(shared_layers(sizes, key=jr.key(0)), sizes, strict=True):
        assert (layer.weight.shape, layer.time.shape) == ((n_in, n_out), (n_out,))
        # PyTorch's linear layer, of which time is one more input.
        bound = 1 / np.sqrt(n_in + 1)
        everything = np.concatenate([layer.weight.ravel(), layer.time, layer.bias])
        assert 0.99 * bound < np.abs(everything).max() <= bound
        assert np.std(everything) == pytest.approx(bound / np.sqrt(3), rel=0.05)
        for part in (layer.weight, layer.time, layer.bias):
            assert np.abs(part).max() > 0.5 * bound


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layer_sizes(0, 8, 2), "`latent` must be at least 1, got 0"),
        (lambda: layer_sizes(3, 0, 2), "`width` must be at least 1, got 0"),
        (lambda: layer_sizes(3, 8, 0), "`depth` must be at least 1, got 0"),
        (lambda: update_size([(3, 3)], 0), "`rank` must be at least 1, got 0"),
        (lambda: Gates(3, 0, key=jr.key(0)), "`width` must be at least 1, got 0"),
    ],
    ids=["latent", "width", "depth", "rank", "gates"],
)
def test_senseless_sizes_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()
