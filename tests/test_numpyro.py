"""Models of NumPyro as targets: names, supports, what is derived, and what is refused."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

import pathgrad as pg

numpyro = pytest.importorskip("numpyro", reason="NumPyro is not installed")
import numpyro.distributions as dist  # noqa: E402
from numpyro.distributions import constraints  # noqa: E402

Y = np.array([1.2, -0.4, 2.3, 1.7])


def regression(x, y=None):
    """Sites whose names are not in alphabetical order, and one that is derived."""
    slope = numpyro.sample("slope", dist.Normal(0, 2).expand([2]).to_event(1))
    Noise = numpyro.sample("Noise", dist.LogNormal(0, 0.5))
    mean = numpyro.deterministic("mean", x @ slope)
    with numpyro.plate("row", len(x)):
        numpyro.sample("y", dist.Normal(mean, Noise), obs=y)


X = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0], [1.0, 4.0]])
TARGET = pg.from_numpyro(regression, X, y=Y)
FREE = np.array([-0.3, 0.7, 0.2])  # log noise, then slopes: sorted by name, capitals first


def test_density_names_and_what_is_derived():
    slope, noise = FREE[1:], np.exp(FREE[0])
    expected = stats.norm.logpdf(Y, X @ slope, noise).sum() + stats.norm.logpdf(slope, 0, 2).sum()
    expected += stats.lognorm.logpdf(noise, 0.5) + np.log(noise)
    assert TARGET.shape == (3,)
    assert float(TARGET.log_prob(jnp.asarray(FREE))) == pytest.approx(expected, abs=1e-10)
    assert TARGET.names == ("slope[0]", "slope[1]", "Noise", *(f"mean[{i}]" for i in range(4)))
    values = TARGET.constrain(jnp.asarray(FREE))
    assert list(values) == ["slope", "Noise", "mean"]
    np.testing.assert_allclose(values["mean"], X @ slope, rtol=1e-12)
    np.testing.assert_allclose(TARGET.unconstrain({"Noise": noise, "slope": slope}), FREE, atol=1e-12)
    with pytest.raises(pg.ArgumentError, match="'Noise' is missing"):
        TARGET.unconstrain({"slope": slope})


def test_likelihood_of_each_observation_and_new_data():
    draws = {"slope": np.array([[0.7, 0.2], [1.0, -0.5]]), "Noise": np.array([0.5, 1e-9])}
    found = TARGET.log_likelihood(draws)
    expected = [stats.norm.logpdf(Y, X @ s, n) for s, n in zip(draws["slope"], draws["Noise"], strict=True)]
    assert list(found) == ["y"]
    np.testing.assert_allclose(found["y"], expected, rtol=1e-10)
    again = TARGET.predictive(draws)
    assert list(again) == ["y"]
    np.testing.assert_allclose(again["y"][1], X @ draws["slope"][1], atol=1e-7)  # hardly any noise
    assert np.abs(again["y"][0] - X @ draws["slope"][0]).max() > 0.01
    elsewhere = TARGET.predictive(draws, X[:2] + 3, key=jr.key(1))
    np.testing.assert_allclose(elsewhere["y"][1], (X[:2] + 3) @ draws["slope"][1], atol=1e-7)


def test_in_double_precision_inside_a_program_in_single():
    x = FREE.astype(np.float32)
    exact = float(TARGET.log_prob(jnp.asarray(x, jnp.float64)))
    with jax.enable_x64(False):
        value, slope = jax.jit(jax.value_and_grad(pg.Precise(TARGET).log_prob))(jnp.asarray(x))
        assert value.dtype == slope.dtype == jnp.float32
    assert float(value) == pytest.approx(exact, rel=1e-7)


@pytest.mark.parametrize("is_wrapped", [False, True], ids=["plain", "wrapped"])
def test_a_support_that_depends_on_another_site(is_wrapped):
    """Wrapped in `to_event`, NumPyro's own post-processing keeps the bounds of its first trace."""

    def model():
        a = numpyro.sample("a", dist.Uniform(0, 1))
        share = dist.Uniform(0.0, 1 - a)
        numpyro.sample("b", share.expand([2]).to_event(1) if is_wrapped else share)
        numpyro.factor("data", -3 * a)

    target = pg.from_numpyro(model)
    x = jnp.array([2.5, *([-1.0, 0.5] if is_wrapped else [-1.0])])
    a = 1 / (1 + np.exp(-2.5))
    expected = (1 - a) / (1 + np.exp(-np.asarray(x[1:])))
    np.testing.assert_allclose(np.ravel(target.constrain(x)["b"]), expected, rtol=1e-12)
    # Uniform densities cancel the widths; what is left are the derivatives of sigmoids.
    log_det = sum(stats.logistic.logpdf(t) for t in np.asarray(x))
    assert float(target.log_prob(x)) == pytest.approx(log_det - 3 * a, abs=1e-10)


@pytest.mark.slow
def test_discrete_sites_are_summed_out():
    pytest.importorskip("funsor")

    def model(y):
        mean = numpyro.sample("mean", dist.Normal(0, 2).expand([2]).to_event(1))
        share = numpyro.sample("share", dist.Beta(2, 3))
        with numpyro.plate("datum", len(y)):
            kind = numpyro.sample("kind", dist.Bernoulli(share))
            numpyro.sample("y", dist.Normal(mean[kind], 0.5), obs=y)

    target = pg.from_numpyro(model, Y)
    mean, share = np.array([0.3, -1.0]), 0.3
    likely = (1 - share) * stats.norm.pdf(Y, mean[0], 0.5) + share * stats.norm.pdf(Y, mean[1], 0.5)
    expected = np.log(likely).sum() + stats.norm.logpdf(mean, 0, 2).sum() + stats.beta.logpdf(share, 2, 3)
    x = target.unconstrain({"mean": mean, "share": share})
    log_det = np.log(share) + np.log1p(-share)
    assert float(target.log_prob(x)) == pytest.approx(expected + log_det, abs=1e-10)
    assert target.summed_out == ("kind",)
    assert target.names == ("mean[0]", "mean[1]", "share")
    with pytest.raises(pg.ArgumentError, match=r"'kind' is summed out\. Write the model with a mixture"):
        target.log_likelihood({"mean": mean[None], "share": np.array([share])})


def sampled(*sites):
    """A model with some sites beside a normal one."""

    def model(y=None):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        for site in sites:
            site(mean)
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    return model


def minibatch(mean):
    with numpyro.plate("data", 100, subsample_size=10):
        numpyro.sample("z", dist.Normal(mean, 1), obs=jnp.zeros(10))


REFUSED = {
    "plate": (sampled(minibatch), Y, "'data' takes 10 of 100 data at random.*Leave `subsample_size` out"),
    "infinite": (
        sampled(lambda mean: numpyro.sample("k", dist.Poisson(3.0))), Y,
        "'k' is discrete, and Poisson has no finite list",
    ),
    "delta": (sampled(lambda mean: numpyro.sample("d", dist.Delta(mean))), Y, r"deterministic\('d', ...\)"),
    "param": (sampled(lambda mean: numpyro.param("p", 1.0)), Y, r"param\('p'\)`, which nothing here would"),
    "no data": (sampled(), None, "'y' is observed as the argument `y`, which was not given.*`y=...`"),
    "NaN": (sampled(), np.array([0.0, np.nan, 1.0]), "'y' has NaN in 1 of 3 numbers"),
    "nothing": (lambda y: numpyro.sample("y", dist.Normal(0, 1), obs=y), Y, "no continuous latent site"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    model, y, text = REFUSED[case]
    with pytest.raises(pg.ArgumentError, match=text):
        pg.from_numpyro(model, y)


def measured(size, data=None):
    """Looks at its data, so that nothing can stand for them."""
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    if data is not None:
        size = data.size
    numpyro.sample("level", dist.Normal(mean, 1).expand([size]), obs=data)


def named_like_its_data(size, y=None):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    numpyro.factor("penalty", -(mean**2))
    numpyro.sample("y", dist.Normal(mean, 1).expand([size if y is None else y.size]), obs=y)


@pytest.mark.parametrize("model", [measured, named_like_its_data])
def test_missing_data_that_the_model_looks_at(model):
    with pytest.raises(pg.ArgumentError, match=r"not given.*Give (the|its) data: `(data|y)=\.\.\.`"):
        pg.from_numpyro(model, 3)
    data = np.zeros(3)
    target = pg.from_numpyro(model, 3, data)
    assert target.names == ("mean",)
    assert target.observed.keys() <= {"level", "y"}


def test_a_missing_argument_that_is_no_observation_is_the_models_own_business():
    def model(y, groups=None):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        if groups is not None:
            mean = mean[groups]
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    assert pg.from_numpyro(model, Y).names == ("mean",)


@pytest.mark.slow
def test_kinds_of_sites_have_the_free_size_they_should():
    def model():
        numpyro.sample("simplex", dist.Dirichlet(np.ones(3)))
        numpyro.sample("factor", dist.LKJCholesky(3))
        numpyro.sample("flat", dist.ImproperUniform(constraints.ordered_vector, (), (2,)))
        numpyro.factor("data", 0.0)

    target = pg.from_numpyro(model)
    assert target.shape == (2 + 3 + 2,)
    assert target.parameters == {"simplex": (3,), "factor": (3, 3), "flat": (2,)}
