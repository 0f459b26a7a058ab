"""Draws of a target from elsewhere by name: dictionaries, objects and files of ArviZ."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg
from pathgrad._named.given import points_of
from pathgrad.experiments.flows.draws import read_draws

TARGET = pg.Posterior(
    lambda v: -2 * v["rate"] - 0.5 * jnp.sum(v["place"] ** 2),
    {"rate": pg.positive(), "place": pg.real(2)},
    derived=lambda v: {"both": v["rate"] * v["place"]},
)
RNG = np.random.default_rng(0)
RATE, PLACE = RNG.exponential(0.5, (2, 500)), RNG.standard_normal((2, 500, 2))  # two chains of exact draws
FREE = np.concatenate([np.log(RATE).reshape(-1, 1), PLACE.reshape(-1, 2)], axis=1)
DRAWS = {"place": PLACE, "rate": RATE, "both": RATE[..., None] * PLACE, "lp": RATE}


def as_object(module):
    groups = {"posterior": DRAWS, "sample_stats": {"lp": RATE}}
    from_dict = pytest.importorskip(module).from_dict
    return from_dict(**groups) if module == "arviz" else from_dict(groups)


def test_a_file_of_something_else(tmp_path):
    xarray = pytest.importorskip("xarray")
    (tmp_path / "draws.nc").write_text("no draws")
    with pytest.raises(pg.UserError, match=r"`draws` .*draws.nc"):
        read_draws(str(tmp_path / "draws.nc"), (3,), TARGET)
    xarray.Dataset({"a": np.zeros(2)}).to_netcdf(tmp_path / "other.nc", engine="h5netcdf")
    with pytest.raises(pg.UserError, match="no group `posterior`"):
        read_draws(str(tmp_path / "other.nc"), (3,), TARGET)
    with pytest.raises(pg.UserError, match="cannot be read"):
        read_draws(str(tmp_path / "none.nc"), (3,), TARGET)


@pytest.mark.parametrize("form", ["arviz", "arviz_base", "chains", "draws"])
def test_they_become_points(form):
    given = DRAWS if form in ("chains", "draws") else as_object(form)
    if form == "draws":
        given = {name: array.reshape(-1, *array.shape[2:]) for name, array in DRAWS.items()}
    np.testing.assert_allclose(points_of(TARGET, given, "target_draws"), FREE, rtol=1e-12)


@pytest.mark.parametrize("module", ["arviz", "arviz_base"])
def test_a_file_of_arviz(module, tmp_path):
    as_object(module).to_netcdf(str(tmp_path / "draws.nc"))
    found = read_draws(str(tmp_path / "draws.nc"), (3,), TARGET)
    np.testing.assert_allclose(found, FREE, rtol=1e-12)


def test_an_evaluation_compares_parameters_by_name():
    flow = pg.Flow(pg.DiagonalNormal(jnp.array([-1.3, 0.5, 0.0]), jnp.log(jnp.array([1.3, 1.0, 1.0]))))
    found, flat = (
        pg.evaluate(flow, TARGET, key=jr.key(0), n=1000, target_draws=draws) for draws in (DRAWS, FREE)
    )
    assert found == flat
    assert found.distances is not None
    assert found.distances.names == ["rate", "place[0]", "place[1]", "both[0]", "both[1]"]
    assert found.distances.mean_shift[1] == pytest.approx(0.5, abs=0.1)
    assert found.distances.mean_shift[2] == pytest.approx(0.0, abs=0.1)
    assert found.eubo is not None
    assert found.elbo < found.log_z < found.eubo


PLAIN = pg.LogDensity(lambda x: -0.5 * jnp.sum(x**2), (3,))
REFUSED = {
    "other names": (TARGET, {"mu": RATE}, "have mu, but the target's parameters are rate, place, both"),
    "one is missing": (TARGET, {"rate": RATE}, "'place' is missing"),
    "shape": (
        TARGET,
        DRAWS | {"place": PLACE[..., 0]},
        r"'place' must have the shape \(2,\) after its draws",
    ),
    "lengths": (TARGET, DRAWS | {"rate": RATE[:1]}, "as many draws of one parameter as of another"),
    "no names": (PLAIN, DRAWS, "the target has no names"),
    "outside": (TARGET, DRAWS | {"rate": RATE - 0.5}, "not finite or outside the support"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case):
    target, draws, text = REFUSED[case]
    flow = pg.Flow(pg.DiagonalNormal.standard((3,)))
    with pytest.raises(pg.ArgumentError, match=f"`target_draws`.*{text}|{text}"):
        pg.evaluate(flow, target, key=jr.key(0), n=100, target_draws=draws)


def test_a_warm_start_from_names():
    found = pg.warm_start(TARGET, key=jr.key(0), start={"rate": 0.5, "place": [0.0, 1.0]}, draws=DRAWS)
    assert found.outcome is pg.StartOutcome.CONVERGED
    places = {"rate": -0.5, "place": [0.0, 0.0]}, {"rate": 0.0, "place": [0.0, 0.0]}, np.array([np.nan, 0, 0])
    for outside in places:
        with pytest.raises(pg.ArgumentError, match="`start` must be finite, and inside the support"):
            pg.warm_start(TARGET, key=jr.key(0), start=outside)
    with pytest.raises(pg.ArgumentError, match="`start` is by name"):
        pg.warm_start(PLAIN, key=jr.key(0), start={"x": 0.0})


def test_a_target_without_names_takes_what_was_written_of_it():
    np.testing.assert_array_equal(points_of(PLAIN, {"x": FREE}, "target_draws"), FREE)


def test_draws_of_a_numpyro_model():
    numpyro = pytest.importorskip("numpyro")
    dist = numpyro.distributions

    def model(y):
        scale = numpyro.sample("scale", dist.HalfNormal(2))
        place = numpyro.sample("Place", dist.Normal(0, scale).expand([2]).to_event(1))
        numpyro.deterministic("sum", place.sum())
        numpyro.sample("y", dist.Normal(place, 1), obs=y)

    target = pg.from_numpyro(model, np.zeros(2))
    found = points_of(target, {"scale": RATE, "Place": PLACE, "sum": PLACE.sum(axis=-1)}, "target_draws")
    expected = np.concatenate([PLACE.reshape(-1, 2), np.log(RATE).reshape(-1, 1)], axis=1)  # sorted by name
    np.testing.assert_allclose(found, expected, rtol=1e-9)
