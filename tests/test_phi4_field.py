"""The equivariant field: its symmetries, its divergence, its arithmetic, and what it costs."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg
from pathgrad._flow.transport import Dynamics, State, motion
from pathgrad.experiments.phi4.base import FreeField
from pathgrad.experiments.phi4.channels import channels, cosine, sine, weighted_sum
from pathgrad.experiments.phi4.field import LatticeField
from pathgrad.experiments.phi4.lattice import orbits
from pathgrad.experiments.phi4.theory import Phi4

from .helpers import ravel
from .phi4_helpers import rough_field
from .test_costs import compile_for, flops, temporary_bytes

T = jnp.asarray(0.37)


def point_operations(phi):
    """The eight images of a field under rotations and reflections about the origin."""
    reflect = lambda a: jnp.roll(a[::-1], 1, 0)  # noqa: E731 (x -> -x keeps the origin in place)
    for first, second, exchange in itertools.product((False, True), repeat=3):
        image = reflect(phi) if first else phi
        image = reflect(image.T).T if second else image
        yield image.T if exchange else image


def symmetries(phi):
    """All translations of all images, of both signs."""
    for image in point_operations(phi):
        for shift in np.ndindex(phi.shape):
            moved = jnp.roll(image, shift, (0, 1))
            yield moved
            yield -moved


@pytest.mark.parametrize("size", [3, 4])
def test_field_has_the_symmetries_of_the_lattice(size):
    field = rough_field(size, scale=1.0)
    phi = jr.normal(jr.key(0), (size, size))
    fields = jnp.stack(list(symmetries(phi)))
    moved = jax.vmap(lambda x: field.velocity_and_divergence(T, x, field.prepare()))(fields)
    velocity, divergence = field.velocity_and_divergence(T, phi, field.prepare())
    assert len(fields) == 16 * size**2
    assert jnp.allclose(moved[0], jnp.stack(list(symmetries(velocity))))
    assert jnp.allclose(moved[1], divergence)
    assert jnp.abs(velocity).max() > 0.1


def test_flow_has_the_symmetries_of_the_lattice():
    size = 4
    flow = pg.Flow(FreeField(size, 0.3), [pg.CNF(rough_field(size), integrator=pg.FixedStep(8))])
    phi = 0.5 * jr.normal(jr.key(1), (size, size))
    fields = jnp.stack(list(symmetries(phi)))
    log_q = flow.log_prob(fields)
    assert jnp.allclose(log_q, log_q[0], atol=1e-9)
    # As a map: what begins at a transformed field ends at the transformed end.
    keys = jr.split(jr.key(2), len(fields))
    ends, log_det, _ = flow.transforms[0].pull(fields, keys=keys)
    assert jnp.allclose(ends, jnp.stack(list(symmetries(ends[0]))), atol=1e-9)
    assert jnp.allclose(log_det, log_det[0], atol=1e-9)
    assert jnp.abs(ends[0] - phi).max() > 0.05


@pytest.mark.parametrize("size", [4, 5])
def test_divergence_and_convolution_against_brute_force(size):
    field = rough_field(size)
    phi = jr.normal(jr.key(3), (size, size))
    velocity, divergence = field.velocity_and_divergence(T, phi, field.prepare())
    jacobian = jax.jacobian(lambda x: field(T, x))(phi).reshape(size**2, size**2)
    assert jnp.allclose(divergence, jnp.trace(jacobian))
    # The definition, sum by sum, with its own functions of time and field.
    index, _ = orbits(size)
    k = jnp.arange(1, 2)
    tau = jnp.concatenate([jnp.sin(2 * jnp.pi * k * T), jnp.cos(2 * jnp.pi * k * T), jnp.ones(1)])
    taps = field.kernel @ (field.time_bond @ tau / 3)
    features = jnp.concatenate([jnp.sin(field.omega[:, None, None] * phi), phi[None]])
    h = jnp.einsum("cf,fxy->cxy", field.feature_bond / features.shape[0], features)
    expected = np.zeros((size, size))
    for x, y, u, v in np.ndindex(size, size, size, size):
        expected[x, y] += taps[index[(x - u) % size, (y - v) % size]] @ h[:, u, v]
    assert jnp.allclose(velocity, expected)
    assert jnp.allclose(field(T, phi), expected)


def test_score_equation_in_closed_form():
    """The rate of the score, -sum_c h_c' (K_c * s) - sum_c K_c(0) h_c'', is what `motion` finds."""
    size, field = 4, rough_field(4)
    phi, score = jr.normal(jr.key(4), (2, size, size))
    state = State(phi[None], jnp.zeros(1), score[None])
    rate = motion(T, state, Dynamics(field, pg.ClosedForm(), field.prepare(), None)).score[0]
    taps = field.kernel @ field._strengths(T)
    kernels = taps.T[:, orbits(size)[0]]
    smeared = jnp.fft.ifft2(jnp.fft.fft2(kernels) * jnp.fft.fft2(score)).real
    b = field.feature_bond / field.feature_bond.shape[1]
    wave = field.omega[:, None, None] * phi
    first = jnp.einsum("cf,fxy->cxy", b[:, :-1] * field.omega, jnp.cos(wave)) + b[:, -1, None, None]
    second = -jnp.einsum("cf,fxy->cxy", b[:, :-1] * field.omega**2, jnp.sin(wave))
    expected = -jnp.sum(first * smeared, 0) - jnp.einsum("c,cxy->xy", taps[0], second)
    assert jnp.allclose(rate, expected)


def test_channel_functions_have_the_derivatives_of_plain_code():
    """Values and derivatives of every order and argument against JAX's own."""
    phi, omega = jr.normal(jr.key(5), (3, 3)), jnp.array([0.7, 2.3])
    bond, slope = jr.normal(jr.key(6), (2, 2)), jnp.array([0.4, -0.9])

    def plain(phi, omega, bond, slope):
        waves = jnp.sin(omega[:, None, None] * phi)
        return jnp.einsum("cf,fxy->cxy", bond, waves) + slope[:, None, None] * phi

    def nest(fn, order):
        for _ in range(order):
            inner = fn
            fn = lambda p, *a, inner=inner: jax.jvp(  # noqa: E731
                lambda q: inner(q, *a), (p,), (jnp.ones_like(p),)
            )[1]
        return fn

    arguments = (phi, omega, bond, slope)
    for order in range(4):
        expected = nest(plain, order)
        assert jnp.allclose(channels(order, *arguments), expected(*arguments))
        mine = jax.jacrev(lambda *a, o=order: channels(o, *a), argnums=(0, 1, 2, 3))(*arguments)
        theirs = jax.jacrev(expected, argnums=(0, 1, 2, 3))(*arguments)
        for a, b in zip(mine, theirs, strict=True):
            assert jnp.allclose(a, b, atol=1e-12), order
    weight, x = jr.normal(jr.key(7), (2, 5, 3))
    assert jnp.allclose(weighted_sum(weight, x), jnp.sum(weight * x, 0))


def test_single_precision_sine_and_cosine():
    x = np.linspace(-60, 60, 400001)
    single = jnp.asarray(x, jnp.float32)
    exact = np.asarray(single, np.float64)
    assert np.abs(sine(single) - np.sin(exact)).max() < 1e-6
    assert np.abs(cosine(single) - np.cos(exact)).max() < 1e-6
    assert sine(single).dtype == jnp.float32
    assert np.array_equal(sine(jnp.asarray(x)), np.sin(x))


def single_precision(tree):
    return jax.tree.map(lambda a: a.astype(jnp.float32) if eqx.is_inexact_array(a) else a, tree)


@pytest.mark.parametrize("size", [8, 64])
def test_single_precision_is_enough(size):
    """Log-weights of the same draws in both precisions: sums over 4096 sites must not lose what matters."""
    theory, base = Phi4(size, 4.398), FreeField(size, 0.3)
    cnf = pg.CNF(rough_field(size, scale=0.5 / size), integrator=pg.FixedStep(4))
    noise = jax.vmap(lambda k: base.draw(key=k)[0])(jr.split(jr.key(8), 16)).astype(jnp.float32)

    def log_weight(cnf, x):
        log_q = jax.vmap(base.log_prob)(x)
        draw = cnf.push(pg.Draw(x, log_q), keys=jr.split(jr.key(9), x.shape[0]))
        return jax.vmap(theory.log_prob)(draw.x) - draw.log_q

    exact = log_weight(cnf, noise.astype(jnp.float64))
    with jax.enable_x64(False):
        single = log_weight(single_precision(cnf), noise)
    assert single.dtype == jnp.float32
    error = np.asarray(single, np.float64) - np.asarray(exact)
    # Rounding of numbers of order 10 and 1000, to be held against a spread of some tenths between draws.
    assert np.abs(error).max() < {8: 3e-5, 64: 3e-3}[size]
    assert np.abs(exact).max() > 0.1 * size**2


def test_parameters_of_the_published_model():
    for size, count in ((6, 5469), (12, 12669), (20, 27869)):
        field = LatticeField.zero(
            size, time_kernels=21, time_bond=20, features=50, channels=20, key=jr.key(0)
        )
        assert ravel(field).size == count
        assert not field.kernel.any()
        assert field.fastest_frequency == 10


def test_bad_sizes_are_refused():
    def zero(**given: int):
        sizes = {"time_kernels": 3, "time_bond": 2, "features": 4, "channels": 2} | given
        return LatticeField.zero(4, **sizes, key=jr.key(0))

    with pytest.raises(ValueError, match="odd"):
        zero(time_kernels=4)
    for name, value in (("time_bond", 0), ("features", 1), ("channels", 0)):
        with pytest.raises(ValueError, match=f"`{name}` must be at least"):
            zero(**{name: value})


@pytest.mark.parametrize("with_divergence", [False, True])
def test_cost_grows_with_the_volume_to_the_three_halves(with_divergence):
    """All of it, the spectrum of the kernels included, which all draws share."""
    costs = []
    sizes = (8, 16, 32, 64)
    t = T.astype(jnp.float32)
    for size in sizes:
        field = single_precision(rough_field(size, features=12, channels=6))
        x = jnp.zeros((4, size, size), jnp.float32)

        def velocity(field, key, x=x):
            del key
            if not with_divergence:
                return jax.vmap(lambda y: field(t, y))(x)
            prepared = field.prepare()
            return jax.vmap(lambda y: field.velocity_and_divergence(t, y, prepared))(x)

        costs.append(flops(compile_for(velocity, field)))
    growth = np.diff(np.log(costs)) / np.diff(np.log(np.square(sizes)))
    assert growth.max() <= 1.5
    assert growth[1:].min() > 1.2  # or the count has missed the transforms (at size 8 they are dense)


def test_path_gradient_costs_little_more_than_the_total_one():
    """In single precision, as it is trained."""
    size = 12

    def gradient(estimator):
        field = single_precision(rough_field(size, features=12, channels=6))
        flow = pg.Flow(FreeField(size, 0.12), [pg.CNF(field, integrator=pg.FixedStep(6))])

        def loss(flow, key):
            return pg.reverse_kl(flow, Phi4(size, 5.276), key=key, n=64, estimator=estimator)

        return compile_for(lambda f, key: eqx.filter_value_and_grad(loss)(f, key), flow)

    with jax.enable_x64(False):
        path, total = gradient(pg.PathGradient()), gradient(pg.TotalGradient())
    assert flops(path) <= 1.20 * flops(total)
    assert temporary_bytes(path) <= 1.1 * temporary_bytes(total)
