"""Models with names on the command line: what is refused, what is printed, and what is written."""

import json
from typing import Any

import numpy as np
import pytest

import pathgrad as pg
from pathgrad._cli.main import main
from pathgrad.experiments.fit.experiment import FIT
from pathgrad.experiments.fit.options import FitOptions
from pathgrad.experiments.fit.target import read_data, target_of

from .run_helpers import make_run, rows_of

pytest.importorskip("numpyro", reason="NumPyro is not installed")

MODELS = """
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pathgrad as pg

def model(size, y=None):
    place = numpyro.sample("place", dist.Normal(0, 2))
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    double = numpyro.deterministic("double", 2 * place)
    numpyro.sample("y", dist.Normal(place, scale).expand([size]), obs=y)

named = pg.Posterior(lambda v: -v["a"] - 0.5 * v["b"] ** 2, {"a": pg.positive(), "b": pg.real()})
"""
Y = [0.2, 1.4, 0.9]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    (path / "mine.py").write_text(MODELS)
    (path / "data.json").write_text(json.dumps({"size": 3, "y": Y}))
    return path


def test_the_target_that_options_name(folder):
    options = FitOptions(f"{folder}/mine.py:model", numpyro=True, data=f"{folder}/data.json")
    target = target_of(options)
    assert isinstance(target, pg.NumpyroTarget)
    assert target.names == ("place", "scale", "double")
    np.testing.assert_array_equal(target.observed["y"], Y)
    named: Any = target_of(FitOptions(f"{folder}/mine.py:named"))
    assert named.shape == (2,)
    settled, _ = FIT.settled(FitOptions("m.py:model", data="data.json"))
    assert settled.data.startswith("/")
    data = read_data(folder / "data.json")
    assert data["size"] == 3
    assert isinstance(data["y"], np.ndarray)


REFUSED = {
    "without data": ("", "--numpyro", "failed with no arguments: TypeError: model() missing"),
    "no observations": ('{"size": 3}', "--numpyro", "observed as the argument `y`, which was not given"),
    "other names": ('{"n": 3}', "--numpyro", "failed with the arguments n: TypeError"),
    "missing value": ('{"size": 3, "y": [1, null, 2]}', "--numpyro", "'y' in"),
    "ragged": ('{"size": 3, "y": [[1], [2, 3]]}', "--numpyro", "'y' in"),
    "no JSON": ("size: 3", "--numpyro", "are not JSON"),
    "a list": ("[1, 2]", "--numpyro", "must be a JSON object"),
    "no model": ('{"size": 3}', "", "--data are the arguments of a NumPyro model: give --numpyro"),
    "dimension": ('{"size": 3, "y": [1, 2, 3]}', "--numpyro --dim 2", "leave --dim out"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_leaves_nothing(case, folder, tmp_path, capsys):
    data, flags, text = REFUSED[case]
    words = ["fit", f"{folder}/mine.py:model", *flags.split(), "--out", str(tmp_path / "run")]
    if data:
        (tmp_path / "data.json").write_text(data)
        words += ["--data", str(tmp_path / "data.json")]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert text in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_parameters_are_a_table_of_the_evaluation(tmp_path):
    run = make_run(tmp_path / "run", rows_of([0.5]), experiment="fit", density="m.py:model", numpyro=True)
    numbers = {"mean": 1.2345, "mean_err": 0.012, "sd": None, "sd_err": None}
    stored = {"place": numbers, "scale[0]": numbers}
    run.write_json("evaluation.json", {"step": 10, "parameters": stored, "parameters_in_all": 7})
    [table] = FIT.tables(pg.Run.open(run.path))
    assert table.heads == ("parameter", "mean", "sd")
    assert table.rows == [("place", "1.234(12)", "-"), ("scale[0]", "1.234(12)", "-")]
    assert table.note == "The first 2 of 7 numbers."
    run.write_json("evaluation.json", {"step": 10})
    assert FIT.tables(pg.Run.open(run.path)) == []


@pytest.mark.slow
def test_from_a_model_to_a_file_for_arviz(folder, tmp_path, capsys, monkeypatch):
    arviz = pytest.importorskip("arviz")
    monkeypatch.chdir(folder)
    out = tmp_path / "run"
    few = ["--flow", "couplings", "--batch", "64", "--first", "50", "--rounds", "1", "--look-draws", "2000"]
    model = [f"{folder}/mine.py:model", "--numpyro", "--data", f"{folder}/data.json", "--max-seconds", "9999"]
    assert main(["fit", *model, *few, "--out", str(out)]) == 0
    assert main(["evaluate", str(out), "--samples", "2000"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in ("parameter", "place", "scale", "double"))
    found = json.loads(said.splitlines()[-1])["parameters"]
    assert found["double"]["mean"] == pytest.approx(2 * found["place"]["mean"])
    assert 0.3 < found["place"]["mean"] < 1.3
    assert main(["sample", str(out), "--n", "500", "--out", str(tmp_path / "draws.npz")]) == 0
    with np.load(tmp_path / "draws.npz") as arrays:
        assert set(arrays) == {"x", "log_q", "log_weight", "place", "scale", "double"}
        np.testing.assert_allclose(arrays["double"], 2 * arrays["place"])
    file = tmp_path / "draws.nc"
    assert main(["sample", str(out), "--n", "500", "--out", str(file)]) == 0
    assert "resampled from 500" in capsys.readouterr().out
    kept = arviz.from_netcdf(str(file))
    assert kept.posterior.attrs["verdict"].partition(":")[0] in ("good", "usable", "poor")
    assert set(kept.observed_data) == {"y"}
    assert kept.posterior["place"].shape[1] > 100
    assert main(["sample", str(out), "--n", "500", "--out", str(file)]) == 2  # it is there already
