"""Gradients of the evidence lower bound, parameter group by parameter group, against independent ways."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm
from scipy.stats import multivariate_normal, norm

import pathgrad as pg
from pathgrad._words.draw import Draw
from pathgrad._words.tree import freeze, inner_products, over_draws
from pathgrad.experiments.vae import convolution
from pathgrad.experiments.vae import field as field_module
from pathgrad.experiments.vae.options import NetworkOptions

from .helpers import ESTIMATORS, RTOL, TOLERANCE, ravel
from .vae_helpers import small_model, solved


@pytest.fixture(scope="module", autouse=True)
def quick_to_compile():
    """XLA's own convolutions; ours have their own tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convolution, "_rewrites", lambda: False)
        yield


N = 3
LATENT = 3
BETA = 0.7
END_TIME = 0.7
KEY = jr.key(17)
DATA = pg.Data(np.zeros(1))  # batches are given by hand
# Enough for the inverse solve to agree with the forward one to nine digits.
FINE = pg.FixedStep(24)
SHAPE = (4, 8)
DENSE, CONVOLUTIONS = NetworkOptions("mlp", hidden=6), NetworkOptions("published", channels=1)
SOLVES = {"rk4": (FINE, pg.Discrete()), "dopri5": (pg.Adaptive(RTOL, RTOL, "dopri5"), pg.Backsolve())}


@functools.cache
def grown(field, levels=2, network=DENSE, depth=1, cnfs=2):
    """A small model, its weights scaled up until the flow is far from the identity."""
    shape = {"field": field, "width": 5, "depth": depth, "rank": 2, "activation": "softplus"}
    model = small_model(
        SHAPE, levels=levels, seed=4, latent=LATENT, network=network, cnfs=cnfs, end_time=END_TIME, **shape
    )
    if field == "low-rank":
        parts = lambda m: (m.flow.families, m.flow.heads, m.flow.base)  # noqa: E731
        return eqx.tree_at(parts, model, jax.tree.map(lambda a: 2 * a, parts(model)))
    parts = lambda m: [*(f.outer for f in m.flow.families), *(h.weight for h in m.flow.heads)]  # noqa: E731
    return eqx.tree_at(parts, model, [6 * a for a in parts(model)])


def images_of(levels):
    return jr.randint(jr.key(levels), (N, *SHAPE), 0, levels).astype(jnp.uint8)


def groups(tree):
    """Return the parameter groups of a model, or of a gradient of its shape, as vectors."""
    flow = tree.flow
    named = {
        "encoder": tree.encoder,
        "mean head": flow.base.mean,
        "scale head": flow.base.scale,
        **{f"field head {i}": head for i, head in enumerate(flow.heads)},
        **{f"field {i}": family for i, family in enumerate(flow.families)},
        "decoder": tree.decoder,
    }
    if any(map(eqx.is_inexact_array, jax.tree.leaves(tree.likelihood))):
        named["decoder's logits"] = tree.likelihood
    return {name: ravel(part) for name, part in named.items()}


def is_decoder(name):
    return name.startswith("decoder")


def assert_close(found, expected, tolerance, scale=None):
    """Compare gradients group by group, relative to the length of each group of `scale`."""
    for name, vector in expected.items():
        length = np.linalg.norm((scale or expected)[name])
        error = np.linalg.norm(found[name] - vector) / length
        assert error < tolerance, f"{name}: {error}"


@functools.cache
def differentiated(estimator):
    """Return a compiled function of model, images and beta: loss and groups of its gradient."""

    @eqx.filter_jit
    def run(model, images, beta):
        def loss(model):
            objective = pg.NegativeELBO(DATA, ESTIMATORS[estimator], lambda step: beta)
            return objective(model, pg.Batch(jr.split(KEY, N), images)).loss

        value, gradient = eqx.filter_value_and_grad(loss)(model)
        return value, groups(gradient)

    return run


@functools.cache
def model_of(case):
    """Both kinds of fields; 256 grey levels by way of few outputs; adaptive steps; the published networks."""
    made = {
        "low-rank": lambda: grown("low-rank"),
        "gates": lambda: grown("gates"),
        "grey": lambda: grown("gates", 256, cnfs=1),
        "adaptive": lambda: grown("gates", cnfs=1),
        "deep": lambda: grown("low-rank", network=CONVOLUTIONS, depth=2, cnfs=1),
    }[case]()
    return solved(made, *SOLVES["dopri5" if case == "adaptive" else "rk4"]), images_of(made.levels)


@functools.cache
def loss_and_gradient(case, estimator, beta=BETA):
    return jax.tree.map(np.asarray, differentiated(estimator)(*model_of(case), jnp.asarray(beta)))


@functools.cache
def score_gradient(case):
    """Return d/dθ of the mean of ln q(z | x) where z stays what it is, by solving backwards."""
    model, images = model_of(case)
    model = solved(model, *SOLVES["rk4"])  # what the adaptive solves should find, too

    @eqx.filter_jit
    def run(model):
        z = freeze(model).posterior(images).sample(key=KEY, n=N)
        gradient = eqx.filter_grad(lambda m: jnp.mean(m.posterior(images).log_prob(z)))(model)
        return groups(gradient)

    return jax.tree.map(np.asarray, run(model))


@pytest.mark.parametrize(
    "case",
    [
        "low-rank",
        "gates",
        pytest.param("adaptive", marks=pytest.mark.slow),
        pytest.param("deep", marks=pytest.mark.slow),
    ],
)
def test_path_gradient_is_the_total_one_without_the_score(case):
    loss, path = loss_and_gradient(case, "path")
    total_loss, total = loss_and_gradient(case, "total")
    score = score_gradient(case)
    tolerance = TOLERANCE["two solves" if case == "adaptive" else "solve"]
    np.testing.assert_allclose(loss, total_loss, rtol=tolerance)
    for name, vector in total.items():
        if is_decoder(name):
            assert not np.any(score[name])
        else:  # there is something to tell them apart by
            assert np.linalg.norm(score[name]) > 0.02 * np.linalg.norm(vector), name
    expected = {name: vector - BETA * score[name] for name, vector in total.items()}
    assert_close(path, expected, tolerance, scale=total)


@pytest.mark.parametrize("case", ["low-rank", "gates"])
def test_the_flow_is_far_from_the_identity(case):
    @eqx.filter_jit
    def run(model, images):
        flow = model.posterior(images)
        base = pg.Flow(flow.base)
        begin, end = (f.sample_and_log_prob(key=KEY, n=N) for f in (base, flow))
        return begin, end

    (begin, log_q0), (end, log_q) = run(*model_of(case))
    assert float(jnp.linalg.norm(end - begin, axis=1).min()) > 0.5
    assert float(jnp.abs(log_q - log_q0).max()) > 0.3


@pytest.mark.parametrize("case", ["low-rank", "gates"])
def test_two_copies_give_the_path_gradient(case):
    loss, path = loss_and_gradient(case, "path")
    two_loss, two = loss_and_gradient(case, "two-copy")
    np.testing.assert_allclose(two_loss, loss, rtol=TOLERANCE["solve"])
    assert_close(two, path, TOLERANCE["solve"])


def test_the_weight_of_the_divergence_is_that_of_its_path_term():
    """The gradient is affine in beta, and beta does nothing to the decoder."""
    at = {beta: loss_and_gradient("gates", "path", beta)[1] for beta in (0.0, BETA, 1.9)}
    for name, none in at[0.0].items():
        slope = (at[1.9][name] - none) / 1.9
        error = np.linalg.norm(at[BETA][name] - none - BETA * slope)
        assert error < 1e-10 * np.linalg.norm(none), name
        assert np.any(slope) != is_decoder(name), name


@pytest.mark.parametrize(("case", "estimator"), [("gates", "path"), ("grey", "path")])
def test_bound_is_the_reverse_divergence_from_the_joint(case, estimator):
    """The library's own objective, image by image through `PerDraw`, knows nothing of `NegativeELBO`."""

    @eqx.filter_jit
    def run(model, images):
        def loss(model):
            flow, target = model.posterior(images), model.joint(images)
            return pg.reverse_kl(flow, target, key=KEY, n=N, estimator=ESTIMATORS[estimator])

        value, gradient = eqx.filter_value_and_grad(loss)(model)
        return value, groups(gradient)

    value, expected = run(*model_of(case))
    found_value, found = loss_and_gradient(case, estimator, 1.0)
    np.testing.assert_allclose(found_value, value, rtol=1e-11)
    assert_close(found, expected, 1e-9)


@pytest.mark.parametrize("case", ["low-rank", "gates"])
def test_path_gradient_vanishes_where_the_target_is_the_posterior(case):
    """Draw by draw, in every group, and unlike the total one."""

    @eqx.filter_jit
    def run(model, images):
        frozen = freeze(model).posterior(images)
        arrays, static = eqx.partition(model, eqx.is_inexact_array)

        def each(arrays):
            flow = eqx.combine(arrays, static).posterior(images)
            path, total = (ESTIMATORS[e].draw(flow, key=KEY, n=N) for e in ("path", "total"))
            # Both draw the same points, with the same derivatives.
            log_p = frozen.log_prob(path.x)
            return path.log_q - log_p, total.log_q - log_p

        values, pull = jax.vjp(each, arrays)
        one_by_one = jnp.split(jnp.eye(2 * N), 2, axis=1)
        return values, jax.vmap(lambda *one: groups(pull(one)[0]))(*one_by_one)

    values, gradients = run(*model_of(case))
    np.testing.assert_allclose(values, np.zeros((2, N)), atol=TOLERANCE["solve"])
    for name, rows in gradients.items():
        if not is_decoder(name):
            path, total = np.split(np.linalg.norm(rows, axis=1), 2)
            assert total.min() > 1e-2, name
            assert path.max() < TOLERANCE["solve"] * total.max(), name


def pushed_forward(model, images):
    """Return mean and covariance of each posterior with affine fields, by matrix exponentials."""
    features = model.encoder(images.astype(float))
    base, heads = model.flow.base, model.flow.heads
    mean, log_scale = np.asarray(base.mean(features)), np.asarray(base.log_scale(features))
    numbers = [np.asarray(head(features)) for head in heads]
    fields = [jax.tree.map(np.asarray, family.layers) for family in model.flow.families]
    found = []
    for n in range(N):
        mu, cov = mean[n], np.diag(np.exp(2 * log_scale[n]))
        for layers, own in zip(fields, numbers, strict=True):
            rest, rank = own[n], model.flow.families[0].rank
            # The field as M h + s t + b of what comes in, one layer after the other.
            matrix, slope, shift = np.eye(LATENT), np.zeros(LATENT), np.zeros(LATENT)
            for layer in layers:
                n_in, n_out = layer.weight.shape
                u, v, bias, rest = np.split(rest, np.cumsum([rank * n_in, rank * n_out, n_out]))
                whole = layer.weight.T + v.reshape(rank, n_out).T @ u.reshape(rank, n_in)
                matrix, slope, shift = whole @ matrix, whole @ slope, whole @ shift
                slope, shift = slope + layer.time, shift + layer.bias + bias
            block = np.zeros((LATENT + 2, LATENT + 2))  # of (z, t, 1)
            block[:LATENT] = np.column_stack([matrix, slope, shift])
            block[LATENT, -1] = 1
            flow = expm(END_TIME * block)
            mu = flow[:LATENT, :LATENT] @ mu + flow[:LATENT, -1]
            cov = flow[:LATENT, :LATENT] @ cov @ flow[:LATENT, :LATENT].T
        found.append((mu, cov))
    return found


@pytest.mark.parametrize("divergence", [pg.ClosedForm(), pg.Hutchinson(2, "gaussian")])
def test_affine_fields_make_normals(divergence, monkeypatch):
    """Their score is known, and free of noise whatever the divergence."""
    monkeypatch.setitem(field_module.ACTIVATIONS, "softplus", lambda a: a)
    model = solved(grown("low-rank"), divergence, pg.FixedStep(200))
    images = images_of(2)
    draw = eqx.filter_jit(lambda m: m.posterior(images).sample_with_score(key=KEY, n=N))(model)
    for n, (mu, cov) in enumerate(pushed_forward(model, images)):
        expected = -np.linalg.solve(cov, draw.x[n] - mu)
        np.testing.assert_allclose(draw.score[n], expected, rtol=1e-7, atol=1e-7)
        log_q = multivariate_normal(mu, cov).logpdf(draw.x[n])
        if divergence.is_noisy:
            assert abs(draw.log_q[n] - log_q) > 1e-3
        else:
            assert float(draw.log_q[n]) == pytest.approx(log_q, abs=1e-7)
        off_diagonal = cov - np.diag(np.diag(cov))
        assert np.abs(off_diagonal).max() > 0.05


def log_q_of(model, features, n, z):
    """Return ln q(z | x) of one image by SciPy's solver, backwards, with the formulas of gates in NumPy."""
    total, base = 0.0, model.flow.base
    for head, family in reversed(list(zip(model.flow.heads, model.flow.families, strict=True))):
        gate, bias, shift = np.split(np.asarray(head(features))[n], [5, 10])
        inner, inner_time, outer, outer_time = map(np.asarray, jax.tree.leaves(family))

        def motion(t, y, gate=1 + gate, bias=bias, shift=shift, w=(inner, inner_time, outer, outer_time)):
            hidden = np.tanh(w[0] @ y[:-1] + t * w[1] + bias)
            jacobian = w[2] @ np.diag(gate * (1 - hidden**2)) @ w[0]
            return np.append(w[2] @ (gate * hidden) + t * w[3] + shift, np.trace(jacobian))

        ends = solve_ivp(motion, (END_TIME, 0.0), np.append(z, 0.0), "DOP853", rtol=1e-12, atol=1e-12).y[
            :, -1
        ]
        z, total = ends[:-1], total + ends[-1]
    mean, scale = np.asarray(base.mean(features))[n], np.exp(np.asarray(base.log_scale(features))[n])
    return norm.logpdf(z, mean, scale).sum() + total


def test_density_and_score_of_gates():
    """By an independent solver, and by differences of what it gives."""
    model, images = model_of("gates")
    draw = eqx.filter_jit(lambda m: m.posterior(images).sample_with_score(key=KEY, n=N))(model)
    features = model.encoder(images.astype(float))
    for n, z in enumerate(np.asarray(draw.x)):
        assert float(draw.log_q[n]) == pytest.approx(log_q_of(model, features, n, z), abs=1e-7)
        steps = 1e-4 * np.eye(LATENT)
        up, down = ([log_q_of(model, features, n, z + sign * d) for d in steps] for sign in (1, -1))
        np.testing.assert_allclose(draw.score[n], (np.array(up) - down) / 2e-4, rtol=1e-5, atol=1e-5)


def path_loss(model, images, noise_key):
    """The path estimator's loss with noise of the divergence from a key of its own."""
    flow = model.posterior(images)
    keys = jr.split(KEY, N)
    x, _ = over_draws(lambda b, k: b.draw(key=jr.fold_in(k, 0)), flow.base, keys)
    log_q, score = over_draws(lambda b, x: jax.value_and_grad(b.log_prob)(x), freeze(flow.base), freeze(x))
    draw = Draw(x, log_q, score)
    for i, transform in enumerate(flow.transforms):
        noise_keys = jax.vmap(lambda k, i=i: jr.fold_in(k, i + 1))(jr.split(noise_key, N))
        draw = transform.push(draw, keys=noise_keys)
    assert draw.score is not None
    along_path = inner_products(freeze(draw.score), draw.x - freeze(draw.x))
    log_p = jax.vmap(model.prior.log_prob)(draw.x)
    kl = draw.log_q + along_path - log_p
    return jnp.mean(-model.log_likelihood(draw.x, images) + BETA * kl)


@pytest.mark.parametrize(
    ("case", "divergence"),
    [
        pytest.param("low-rank", pg.Hutchinson(1, "gaussian"), id="gaussian"),
        pytest.param("gates", pg.Hutchinson(3, "rademacher"), id="three-signs", marks=pytest.mark.slow),
    ],
)
def test_mean_over_noise_is_the_exact_path_gradient(case, divergence):
    """Coordinate by coordinate, within five standard errors of many draws of the noise alone."""
    number, (model, images) = 1000, model_of(case)
    model = solved(model, divergence)
    _, exact = loss_and_gradient(case, "path")
    keys = jr.split(jr.key(23), number).at[0].set(KEY)

    @eqx.filter_jit
    def run(model, keys):
        def one(key):
            return groups(eqx.filter_grad(lambda m: path_loss(m, images, key))(model))

        return jax.vmap(one)(keys)

    many = run(model, keys)
    if divergence.probes > 1:
        # With the noise of the estimator, the loss made by hand is the estimator's.
        _, theirs = differentiated("path")(model, images, jnp.asarray(BETA))
        assert_close({name: vectors[0] for name, vectors in many.items()}, theirs, 1e-10)
    for name, vectors in many.items():
        vectors, truth = np.asarray(vectors), np.asarray(exact[name])
        spread = vectors.std(0)
        error = np.abs(vectors.mean(0) - truth)
        rounding = 1e-10 * np.linalg.norm(truth)
        assert np.all(error < TOLERANCE["z"] * spread / number**0.5 + rounding), name
        if is_decoder(name):
            assert spread.max() < rounding, name
        else:
            # Noise there is, and its mean is known well enough to say something about the gradient.
            length = np.linalg.norm(spread)
            assert length > 1e-2 * np.linalg.norm(truth), name
            assert length / number**0.5 < 0.1 * np.linalg.norm(truth), name
