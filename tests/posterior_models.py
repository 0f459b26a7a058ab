"""The eight real posteriors written as users would: as functions of named parameters, and for NumPyro.

Their free coordinates are those of `pathgrad.targets`, in another order.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pathgrad as pg
from pathgrad.targets.compartment import OneCompartment

from .target_helpers import DESIGNS, data_of

try:
    import numpyro
    import numpyro.distributions as dist
    from numpyro.distributions import constraints
except ImportError:  # the tests that need it are skipped
    numpyro = dist = constraints = None


def arrays(name):
    return {key: np.asarray(value, float) for key, value in data_of(name).items()}


def normal(x, mean: Any = 0.0, sd: Any = 1.0):
    return jnp.sum(jax.scipy.stats.norm.logpdf(x, mean, sd))


def cauchy(x, scale):
    return jnp.sum(jax.scipy.stats.cauchy.logpdf(x, 0, scale))


def flat(name, support):
    """A parameter of NumPyro with density one on its support."""
    assert numpyro is not None
    return numpyro.sample(name, dist.ImproperUniform(support, (), ()))


# Eight schools


def schools():
    data = arrays("eight_schools_noncentered")

    def log_prob(v):
        theta = v["mu"] + v["tau"] * v["t"]
        prior = normal(v["t"]) + normal(v["mu"], 0, 5) + cauchy(v["tau"], 5)
        return normal(data["y"], theta, data["sigma"]) + prior

    supports = {"t": pg.real(8), "mu": pg.real(), "tau": pg.positive()}
    return pg.Posterior(log_prob, supports, derived=lambda v: {"theta": v["mu"] + v["tau"] * v["t"]})


def schools_model():
    data = arrays("eight_schools_noncentered")
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", 8):
        t = numpyro.sample("t", dist.Normal())
        theta = numpyro.deterministic("theta", mu + tau * t)
        numpyro.sample("y", dist.Normal(theta, data["sigma"]), obs=data["y"])


# Regressions


def lagged():
    y = arrays("arK")["y"]
    return np.column_stack([np.ones(195), *(y[5 - k : 200 - k] for k in range(1, 6))]), y[5:]


def lines(design, prior):
    def make():
        x, y = design()
        supports = {"beta": pg.real(x.shape[1]), "sigma": pg.positive()}
        return pg.Posterior(lambda v: normal(y, x @ v["beta"], v["sigma"]) + prior(v), supports)

    return make


def lines_model(design):
    def model():
        x, y = design()
        beta = numpyro.sample("beta", dist.ImproperUniform(constraints.real_vector, (), (x.shape[1],)))
        sigma = flat("sigma", constraints.positive)
        numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)

    return model


def auto_model():
    x, y = lagged()
    beta = numpyro.sample("beta", dist.Normal(0, 10).expand([6]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


# Time series


def volatilities(mu, alpha0, alpha1, beta1, y, first):
    def step(variance, value):
        return alpha0 + alpha1 * (value - mu) ** 2 + beta1 * variance, variance

    return jnp.sqrt(jax.lax.scan(step, jnp.zeros_like(mu) + first**2, y)[1])


def garch():
    data = arrays("garch11")

    def log_prob(v):
        return normal(data["y"], v["mu"], volatilities(**v, y=data["y"], first=data["sigma1"]))

    rest = pg.bounded(0, lambda before: 1 - before["alpha1"])
    return pg.Posterior(
        log_prob, {"mu": pg.real(), "alpha0": pg.positive(), "alpha1": pg.bounded(0, 1), "beta1": rest}
    )


def garch_model():
    data = arrays("garch11")
    v = {"mu": flat("mu", constraints.real), "alpha0": flat("alpha0", constraints.positive)}
    v["alpha1"] = flat("alpha1", constraints.unit_interval)
    v["beta1"] = flat("beta1", constraints.interval(0.0, 1 - v["alpha1"]))
    sd = volatilities(**v, y=data["y"], first=data["sigma1"])
    numpyro.sample("y", dist.Normal(v["mu"], sd), obs=data["y"])


def hidden(rows, mu, y):
    emitted = jax.scipy.stats.norm.logpdf(y[:, None], mu, 1)

    def step(forward, here):
        return jax.nn.logsumexp(forward[:, None] + jnp.log(rows), axis=0) + here, None

    return jax.nn.logsumexp(jax.lax.scan(step, emitted[0], emitted[1:])[0])


def markov():
    y = arrays("hmm_example")["y"]

    def log_prob(v):
        mu = jnp.stack([v["low"], v["high"]])
        return hidden(v["rows"], mu, y) + normal(mu, np.array([3.0, 10.0]))

    above = pg.bounded(low=lambda before: before["low"])
    return pg.Posterior(log_prob, {"rows": pg.simplex(2, shape=2), "low": pg.positive(), "high": above})


def markov_model():
    rows = numpyro.sample("rows", dist.Dirichlet(np.ones((2, 2))).to_event(1))
    low: Any = flat("low", constraints.positive)
    high = flat("high", constraints.greater_than(low))
    mu = jnp.stack([low, high])
    numpyro.factor("means", dist.Normal(np.array([3.0, 10.0])).log_prob(mu).sum())
    numpyro.factor("y", hidden(rows, mu, arrays("hmm_example")["y"]))


# A mixture, and a differential equation


def mixture():
    y = arrays("low_dim_gauss_mix")["y"]

    def log_prob(v):
        shares = jnp.log(jnp.stack([v["theta"], 1 - v["theta"]]))
        parts = jax.scipy.stats.norm.logpdf(y[:, None], v["mu"], v["sigma"]) + shares
        prior = normal(v["mu"], 0, 2) + normal(v["sigma"], 0, 2)
        prior += jax.scipy.stats.beta.logpdf(v["theta"], 5, 5)
        return jnp.sum(jax.nn.logsumexp(parts, axis=1)) + prior

    supports = {"mu": pg.ordered(2), "sigma": pg.positive(2), "theta": pg.bounded(0, 1)}
    return pg.Posterior(log_prob, supports)


def mixture_model():
    y = arrays("low_dim_gauss_mix")["y"]
    mu = numpyro.sample("mu", dist.ImproperUniform(constraints.ordered_vector, (), (2,)))
    numpyro.factor("means", dist.Normal(0, 2).log_prob(mu).sum())
    sigma = numpyro.sample("sigma", dist.HalfNormal(2).expand([2]).to_event(1))
    theta = numpyro.sample("theta", dist.Beta(5, 5))
    shares = dist.Categorical(jnp.stack([theta, 1 - theta]))
    with numpyro.plate("datum", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(shares, dist.Normal(mu, sigma)), obs=y)


@functools.cache
def compartment():
    data = arrays("one_comp_mm_elim_abs")
    return OneCompartment(data["times"], data["C_hat"], float(data["D"]), float(data["V"]))


RATES = ("k_a", "K_m", "V_m", "sigma")


def rates():
    measured = np.log(compartment().measured)

    def log_prob(v):
        logs = jnp.log(jnp.stack([v[name] for name in RATES]))
        fit = normal(measured, compartment().log_concentrations(logs), v["sigma"]) - measured.sum()
        return fit + sum(cauchy(v[name], 1) for name in RATES)

    return pg.Posterior(log_prob, {name: pg.positive() for name in RATES})


def rates_model():
    v = [numpyro.sample(name, dist.HalfCauchy(1)) for name in RATES]
    located = compartment().log_concentrations(jnp.log(jnp.stack(v)))
    numpyro.sample("C_hat", dist.LogNormal(located, v[-1]), obs=compartment().measured)


NAMED = {
    "eight_schools_noncentered": schools,
    "arK": lines(lagged, lambda v: normal(v["beta"], 0, 10) + cauchy(v["sigma"], 2.5)),
    "garch11": garch,
    "one_comp_mm_elim_abs": rates,
    "low_dim_gauss_mix": mixture,
    "hmm_example": markov,
    **{name: lines(design, lambda v: 0.0) for name, design in DESIGNS.items()},
}
# The model, and how many of its distributions are halves, which NumPyro normalises: a factor of two each.
MODELS = {
    "eight_schools_noncentered": (schools_model, 1),
    "arK": (auto_model, 1),
    "garch11": (garch_model, 0),
    "one_comp_mm_elim_abs": (rates_model, 4),
    "low_dim_gauss_mix": (mixture_model, 2),
    "hmm_example": (markov_model, 0),
    **{name: (lines_model(design), 0) for name, design in DESIGNS.items()},
}
LOG_2 = math.log(2)


# The parameters whose numbers are the columns of the reference, in order.
COLUMNS = dict.fromkeys(NAMED, ("beta", "sigma")) | {
    "eight_schools_noncentered": ("theta", "mu", "tau"),
    "garch11": ("mu", "alpha0", "alpha1", "beta1"),
    "one_comp_mm_elim_abs": RATES,
    "low_dim_gauss_mix": ("mu", "sigma", "theta"),
    "hmm_example": ("rows", "low", "high"),
}


def columns_of(name, values):
    """Return the columns of the reference, for the named values of one draw."""
    return jnp.concatenate([jnp.ravel(values[key]) for key in COLUMNS[name]])


def values_in(name, target, columns):
    """Return the named values of a target, for one row of the reference."""
    values, begin = {}, 0
    for key in COLUMNS[name]:
        shape = target.parameters[key]
        end = begin + math.prod(shape)
        values[key], begin = columns[begin:end].reshape(shape), end
    if "theta" in values and "tau" in values:
        values["t"] = (values["theta"] - values["mu"]) / values["tau"]
    return values
