"""Summaries of named parameters, and draws for ArviZ: by exact moments, repetition, and reading back."""

import importlib.util
import math

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

import pathgrad as pg
from pathgrad._numbers.written import written

# Independent: a normal, the exponential of a normal, and their sum.
MEAN, SD = 1.5, 2.0
LOG_MEAN, LOG_SD = -0.4, 0.3


def log_prob(v):
    log_rate = jnp.log(v["rate"])
    return (
        -0.5 * ((v["place"] - MEAN) / SD) ** 2
        - 0.5 * ((log_rate - LOG_MEAN) / LOG_SD) ** 2
        - log_rate
        - math.log(2 * math.pi * SD * LOG_SD)
        + 3.0
    )


TARGET = pg.Posterior(
    log_prob,
    {"rate": pg.positive(), "place": pg.real()},
    derived=lambda v: {"both": jnp.stack([v["rate"], v["place"]])},
)
RATE = stats.lognorm(LOG_SD, scale=math.exp(LOG_MEAN))
FLOW_MEAN, FLOW_SD = np.array([-0.3, 1.0]), np.array([0.4, 2.5])


def draws(seed, n=1000):
    """Weighted draws of a wider normal, whose weights are known."""
    x = FLOW_MEAN + FLOW_SD * np.random.default_rng(seed).normal(size=(n, 2))
    log_q = stats.norm.logpdf(x, FLOW_MEAN, FLOW_SD).sum(axis=1)
    log_p = stats.norm.logpdf(x, [LOG_MEAN, MEAN], [LOG_SD, SD]).sum(axis=1) + 3.0
    return {"x": x, "log_q": log_q, "log_weight": log_p - log_q}


def test_moments_and_quantiles_with_honest_errors():
    found = [pg.summarise(TARGET, draws(seed), (0.1, 0.5, 0.95)) for seed in range(40)]
    one = found[0]
    assert one.names == TARGET.names == ("rate", "place", "both[0]", "both[1]")
    exact = {
        "mean": np.array([RATE.mean(), MEAN, RATE.mean(), MEAN]),
        "sd": np.array([RATE.std(), SD, RATE.std(), SD]),
        "quantiles": np.array(
            [[of.ppf(p) for p in (0.1, 0.5, 0.95)] for of in 2 * (RATE, stats.norm(MEAN, SD))]
        ),
    }
    for name, value in exact.items():
        got, error = (np.array([getattr(s, name + end) for s in found]) for end in ("", "_err"))
        z = (got - value) / error
        assert np.abs(z.mean(axis=0)).max() < 4 / math.sqrt(40)
        assert np.all((z.std(axis=0) > 0.7) & (z.std(axis=0) < 1.35)), name
        assert np.abs(error / got.std(axis=0) - 1).mean() < 0.2
    row = one["place"]
    assert set(row) == {f"{n}{e}" for n in ("mean", "sd", "q10", "q50", "q95") for e in ("", "_err")}
    assert row["q95"] == one.quantiles[1, 2]
    assert len(one) == 4
    assert list(one.to_json()) == list(one)
    assert str(one).splitlines()[0].split() == ["parameter", "mean", "sd", "q10", "q50", "q95"]
    with pytest.raises(KeyError, match="no parameter 'theta'"):
        one["theta"]


def test_a_target_without_names_and_what_is_refused():
    plain = pg.LogDensity(lambda x: -0.5 * jnp.sum(x**2), (2,))
    assert pg.summarise(plain, draws(0)).names == ("x[0]", "x[1]")
    with pytest.raises(pg.ArgumentError, match="between 0 and 1"):
        pg.summarise(plain, draws(0), (0.0, 1.0))
    failed = draws(0) | {"log_weight": np.full(1000, np.nan)}
    with pytest.raises(pg.ArgumentError, match="NaN or infinite"):
        pg.summarise(plain, failed)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (1.23456, 0.0123, "1.235(12)"), (-1234.5, 56.7, "-1234(57)"), (0.5, 0.0, "0.5"),
        (4.0, 0.26, "4.00(26)"),
        (float("nan"), 1.0, "-"), (3.0, None, "3"), (12.3, 9.96, "12(10)"), (1.0, 0.0996, "1.00(10)"),
    ],
)  # fmt: skip
def test_numbers_as_text(value, error, text):
    assert written(value, error) == text


EVALUATION = pg.Evaluation(
    samples=1000, failed=0, ess=0.5, ess_err=0.01, forward_ess=None, elbo=2.6, kl=0.4, kl_err=0.01, log_z=3.0,
    log_z_err=0.02, khat=0.3, largest_weight=4.0, solver_shift=0.0, solver_shift_err=0.0, ess_shift=0.0,
    ess_shift_err=0.0, evaluations=0.0, rounding=1e-7,
)  # fmt: skip


def test_a_fit_speaks_of_its_parameters():
    """A fit whose flow is known, as if a warm start had found it."""
    to_target = pg.FullAffine(FLOW_MEAN, np.diag(FLOW_SD))
    found = pg.StartOutcome.CONVERGED
    fit = pg.TargetFit(
        flow=pg.Flow(pg.StandardNormal((2,)), [to_target]),
        target=TARGET,
        evaluation=EVALUATION,
        start=pg.WarmStart(to_target, 2.5, 0.1, pg.StartKind.FULL, found, (), 0.0, 1, 1.0, 1.0),
        plan=pg.Plan(None, 1, 1, 1, double=False, defended=False),
        rounds=[],
        history=[],
        shortfall=pg.Shortfall.NONE,
        seconds=1.0,
        key=jr.key(2),
    )
    drawn = fit._draws(1000)
    x = drawn["x"]
    log_q = stats.norm.logpdf(x, FLOW_MEAN, FLOW_SD).sum(axis=1)
    np.testing.assert_allclose(drawn["log_q"], log_q, rtol=1e-9)
    log_p = stats.norm.logpdf(x, [LOG_MEAN, MEAN], [LOG_SD, SD]).sum(axis=1) + 3.0
    np.testing.assert_allclose(drawn["log_weight"], log_p - log_q, atol=1e-9)
    row = fit.summary(1000, probabilities=(0.5,))["place"]
    assert abs(row["mean"] - MEAN) < 4 * row["mean_err"]
    assert row["mean_err"] < 0.15
    if importlib.util.find_spec("arviz"):
        made = fit.to_arviz(1000, weighted=True)
        assert made["posterior"].attrs["verdict"].startswith("good: k-hat 0.30")
        np.testing.assert_allclose(made["sample_stats"]["log_q"].values[0], log_q, rtol=1e-9)


# ArviZ has had two spellings: that of version 0, and that of version 1, whose data structures are a package
# of their own.
needs_old = pytest.mark.skipif(importlib.util.find_spec("arviz") is None, reason="ArviZ is not installed")
needs_new = pytest.mark.skipif(
    importlib.util.find_spec("arviz_base") is None, reason="arviz-base is not installed"
)


def read_back(made, path):
    made.to_netcdf(str(path))
    if type(made).__name__ == "InferenceData":
        return importlib.import_module("arviz").from_netcdf(str(path))
    return importlib.import_module("xarray").open_datatree(path, engine="h5netcdf")


@pytest.mark.parametrize(
    "module", [pytest.param("arviz", marks=needs_old), pytest.param("arviz_base", marks=needs_new)]
)
def test_draws_for_arviz_and_back_from_a_file(module, tmp_path, monkeypatch):
    find = importlib.util.find_spec
    if module == "arviz_base":
        monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "arviz" else find(n))
    given = draws(5)
    made = read_back(pg.to_arviz(TARGET, given, verdict="good: so far"), tmp_path / "draws.nc")
    posterior, sample = made["posterior"], made["sample_stats"]
    attributes = posterior.attrs
    weight = np.exp(given["log_weight"] - given["log_weight"].max())
    assert attributes["ess"] == pytest.approx(weight.sum() ** 2 / (weight**2).sum() / 1000, rel=1e-6)
    assert attributes["khat"] == pytest.approx(float(pg.metrics.khat(jnp.asarray(given["log_weight"]))))
    assert attributes["log_z"] == pytest.approx(3.0, abs=0.1)
    assert attributes["verdict"] == "good: so far"
    count = posterior.sizes["draw"]
    assert 0.3 < count / 1000 < 0.9  # as many as they are worth
    assert attributes["distinct_draws"] <= count
    place, rate = posterior["place"].values[0], posterior["rate"].values[0]
    assert abs(place.mean() - MEAN) < 4 * SD / math.sqrt(count)
    assert abs(np.log(rate).std() / LOG_SD - 1) < 0.15
    np.testing.assert_allclose(posterior["both"].values[0, :, 1], place)
    log_p = stats.norm.logpdf(np.stack([np.log(rate), place], 1), [LOG_MEAN, MEAN], [LOG_SD, SD]).sum(axis=1)
    np.testing.assert_allclose(sample["lp"].values[0], log_p + 3.0, rtol=1e-9)
    np.testing.assert_allclose(sample["log_weight"], sample["lp"] - sample["log_q"], atol=1e-9)
    with pytest.raises(pg.ArgumentError, match="no 'log_q'"):
        pg.to_arviz(TARGET, {"x": given["x"], "log_weight": given["log_weight"]})


@needs_old
def test_a_numpyro_model_adds_its_data():
    numpyro = pytest.importorskip("numpyro")
    dist = numpyro.distributions

    def model(y):
        place = numpyro.sample("place", dist.Normal(0, 2))
        numpyro.sample("y", dist.Normal(place, 1), obs=y)

    y = np.array([0.5, 1.5, -0.2])
    x = np.random.default_rng(0).normal(size=(40, 1))
    made = pg.to_arviz(
        pg.from_numpyro(model, y), {"x": x, "log_q": np.zeros(40), "log_weight": np.zeros(40)}, weighted=True
    )
    np.testing.assert_array_equal(made["observed_data"]["y"], y)
    expected = stats.norm.logpdf(y, x, 1)
    np.testing.assert_allclose(made["log_likelihood"]["y"].values[0], expected, rtol=1e-6)
    again = made["posterior_predictive"]["y"].values[0]
    assert abs(np.std(again - x) - 1) < 0.3
