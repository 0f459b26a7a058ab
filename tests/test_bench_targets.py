"""`pathgrad bench targets`, with something quick in the place of the default fit."""

import json
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import pathgrad as pg
from benchmarks import targets as benchmark
from pathgrad._bench import fit_numbers, fit_worker
from pathgrad._bench.fit_tables import HEAD, remarks, row
from pathgrad._bench.fits import FitJob, jobs_for, run_jobs
from pathgrad._cli.main import main
from pathgrad._words.errors import UserError

from . import fit_stand_in
from .target_helpers import HERE, needs_data

STAND_IN = "tests.fit_stand_in:fit"


def job(tmp_path, target="banana", **options):
    return FitJob(target, 0, str(tmp_path / f"{target}-s0.json"), data=str(HERE), fit=STAND_IN, **options)


@pytest.fixture(scope="module")
def record():
    """Of the banana, fitted in this process."""
    return fit_worker.done(FitJob("banana", 0, "unused", 30.0, None, STAND_IN, "the command"))


def test_a_record_has_everything(record):
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    numbers = record["numbers"]
    # A normal distribution that has the moments of a banana: a bound that is not sharp, and honest errors.
    assert numbers["elbo"] + 5 * numbers["elbo_err"] < numbers["log_z"]
    assert abs(numbers["log_z"]) < 6 * numbers["log_z_err"] + 0.05
    assert 0.05 < numbers["ess"] < 0.9
    assert numbers["mean_error"] is None
    assert numbers["log_z_mae"] > numbers["log_z_mae_err"] > 0
    assert record["known"] == {"log_z": 0.0, "log_z_err": 0.0}
    assert record["gradients"] == 1000
    assert record["seconds"]["cpu"] > 0
    assert record["seconds"]["wall"] > 0
    assert record["seconds"]["compile"] > 0
    assert record["verdict"]["level"] in pg.Level.__members__
    assert record["provenance"]["command"] == "the command"
    assert "jax" in record["provenance"]


def test_numbers_of_a_flow_that_is_exact():
    """Against a target with a known shift: one standard deviation in one column."""
    one = pg.targets.load("two-modes")

    class Plain(pg.targets.AbstractDensity):
        @property
        def shape(self):
            return (2,)

        def log_prob(self, x):
            return jax.scipy.stats.norm.logpdf(x, jnp.array([1.0, 2.0])).sum() + 3.0

        def sample(self, *, key):
            return jnp.array([1.0, 2.0]) + jr.normal(key, (2,))

    target = eqx.tree_at(lambda t: t.density, one, Plain())
    known = pg.targets.BenchmarkTarget("plain", target.density, 3.0, 0.0)
    base = pg.FullNormal.from_covariance(jnp.array([1.0, 2.5]), jnp.eye(2))
    numbers: Any = fit_numbers.measured(pg.Flow(base, []), known, key=jr.key(0), draws=20_000)
    # log w = 3 + 1/8 - z / 2: its mean, ESS = E[w]^2 / E[w^2] = exp(-1/4), from either side.
    assert numbers["elbo"] == pytest.approx(3 - 0.125, abs=5 * 0.5 / math.sqrt(20_000))
    assert numbers["elbo_err"] == pytest.approx(0.5 / math.sqrt(20_000), rel=0.05)
    assert numbers["log_z"] == pytest.approx(3, abs=5 * numbers["log_z_err"])
    for name in ("ess", "forward_ess"):
        assert numbers[name] == pytest.approx(math.exp(-0.25), rel=0.05)
    # Ten batches; the error of one is about 0.53 / sqrt(2000), its absolute value sqrt(2 / pi) of that.
    expected = math.sqrt(2 / math.pi) * math.sqrt(math.expm1(0.25) / 2000)
    assert numbers["log_z_mae"] == pytest.approx(expected, abs=4 * numbers["log_z_mae_err"])


@needs_data
@pytest.mark.parametrize("name", ["arK", "one_comp_mm_elim_abs"])
def test_errors_of_means(name):
    target = pg.targets.load(name, HERE)
    exact = np.asarray(target.reference_points())
    with jax.enable_x64(True):
        none = fit_numbers.errors_of_means(target, exact, np.zeros(len(exact)))
        # sigma is the exponential of the last free coordinate; every column is close to normal.
        shifted = exact + np.eye(len(exact[0]))[0] * 0.5 * exact.std(axis=0)[0]
        moved = fit_numbers.errors_of_means(target, shifted, np.zeros(len(exact)))
        # Weights that give all mass to the first half.
        half = np.where(np.arange(len(exact)) < 5000, 0.0, -800.0)
        weighted = fit_numbers.errors_of_means(target, exact, half)
    assert none["mean_error"] < 1e-5
    assert moved["mean_error"] == pytest.approx(0.5, rel=0.1 if name == "arK" else 0.25)
    assert weighted["mean_error"] < 1e-5
    assert 0.001 < weighted["mean_error_weighted"] < 0.05


@needs_data
def test_numbers_of_a_posterior():
    """The best normal distribution for this posterior is 0.0184 nats away from it."""
    record = fit_worker.done(FitJob("arK", 1, "unused", None, str(HERE), STAND_IN))
    assert record["numbers"]["elbo"] == pytest.approx(57.8944 - 0.0184, abs=0.01)
    assert record["numbers"]["log_z"] == pytest.approx(57.8944, abs=0.01)
    assert record["numbers"]["forward_ess"] == pytest.approx(record["numbers"]["ess"], abs=0.1)
    assert record["numbers"]["mean_error"] < 0.05


def test_fits_in_new_processes_are_recorded_once(tmp_path, capfd):
    """And one that fails leaves the others alone."""
    said = []
    jobs = [job(tmp_path, max_seconds=13.0), job(tmp_path, "ring")]
    [record], failed = run_jobs(jobs, said.append)
    assert failed == jobs[:1]
    assert record["target"] == "ring"
    assert "banana, seed 0: thirteen seconds are unlucky" in capfd.readouterr().err
    path = tmp_path / "ring-s0.json"
    assert list(tmp_path.iterdir()) == [path]
    before = path.stat().st_mtime_ns
    again, _ = run_jobs(jobs[1:], said.append)
    assert again == [record]
    assert path.stat().st_mtime_ns == before
    assert said[-1] == "ring, seed 0: kept"
    with pytest.raises(UserError, match=r"ring-s0.json was made with another max_seconds\. .*`overwrite`"):
        run_jobs([job(tmp_path, "ring", max_seconds=5.0)], said.append)
    path.write_text("{")
    with pytest.raises(UserError, match="cannot be read as the record of a fit"):
        run_jobs(jobs[1:], said.append)


def test_tables_stand_beside_what_was_published(record, capsys, tmp_path):
    cells = dict(zip(HEAD, row(record), strict=True))
    assert cells["target"] == "banana"
    assert cells["known log Z"] == "0 (exact)"
    assert cells["best published"] == cells["error of means"] == "-"
    funnel = record | {
        "target": "funnel-10",
        "published": [
            {"value": 0.00218, "error": 0.00051, "what": "error of log Z", "method": "FAB", "source": "S"}
        ],
    }
    [line] = remarks([record, funnel])
    assert line.startswith("funnel-10: error of log Z 0.00218 ± 0.00051 (FAB; S); here 0.0")
    sonar = record | {"published": [{"value": -108.83, "what": "ELBO", "error": None} | dict.fromkeys("ab")]}
    assert row(sonar)[HEAD.index("best published")] == "-108.83"
    # As the command prints them, from records that are there.
    (tmp_path / "banana-s0.json").write_text(json.dumps(record | {"fit": "pathgrad:fit"}))
    words = ["bench", "targets", "banana", "--out", str(tmp_path), "--max-seconds", "30"]
    assert main(words) == 0
    assert "banana" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["numbers"] == record["numbers"]


def test_markdown_of_the_benchmark(record, tmp_path, capsys):
    (tmp_path / "banana-s0.json").write_text(json.dumps(record))
    words = ["banana", "--out", str(tmp_path), "--max-seconds", "30", "--fit", STAND_IN]
    assert benchmark.main(words) == 0
    text = (tmp_path / "targets.md").read_text()
    assert "| banana | 0 |" in text
    assert f"`python -m benchmarks.targets banana --out {tmp_path}" in text
    assert benchmark.main(["bananas", "--out", str(tmp_path)]) == 2
    assert "no target 'bananas'" in capsys.readouterr().err


def test_wrong_words_are_told_before_anything_is_done(tmp_path, capsys):
    for words, said in (
        (["nothing"], "no target 'nothing'"),
        (["banana", "--seeds", "0"], "--seeds must be at least 1"),
        (["banana", "--max-seconds", "0"], "--max-seconds must be positive"),
    ):
        assert main(["bench", "targets", *words, "--out", str(tmp_path)]) == 2
        assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    jobs = jobs_for(["ring", "banana", "ring"], pg.targets.NAMES, 2, tmp_path)
    assert [(j.target, j.seed) for j in jobs] == [("ring", 0), ("ring", 1), ("banana", 0), ("banana", 1)]
    assert len(jobs_for([], pg.targets.NAMES, 1, tmp_path)) == len(pg.targets.NAMES)
    with pytest.raises(UserError, match=r"no 'tests\.fit_stand_in:nothing'"):
        fit_worker.found("tests.fit_stand_in:nothing")
    assert fit_worker.found(STAND_IN) is fit_stand_in.fit


def test_help_names_every_target(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["bench", "targets", "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert [name for name in pg.targets.NAMES if name not in text] == []
