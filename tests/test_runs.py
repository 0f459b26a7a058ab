"""A run as a Python user opens it: while it trains, killed, damaged; trained and evaluated by calls."""

import copy
import dataclasses
import json
import tomllib

import jax
import numpy as np
import pytest

import pathgrad as pg
from pathgrad._runs import rundir
from pathgrad.experiments.density.experiment import DensityOptions
from pathgrad.experiments.options import FlowOptions, TrainOptions
from pathgrad.experiments.toy.experiment import ToyOptions

from .run_helpers import GOOD, because, make_evaluation, make_run, rows_of

SMALL = ToyOptions(
    "ring",
    flow=FlowOptions(width=8, depth=1, solver_steps=3),
    training=TrainOptions(batch=16, steps=30, block=10),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "ring"
    pg.train("toy", SMALL, out=path)
    pg.Run.open(path).evaluate(samples=500)
    return pg.Run.open(path)


def test_a_run_says_what_it_is(run):
    assert run.label == "toy ring, path, seed 0"
    assert run.settings == SMALL
    assert [row.step for row in run.rows] == [10, 20, 30]
    assert run.status.kind == "ended"
    assert run.is_evaluated
    assert run.evaluation["samples"] == 500
    assert 0 <= run.evaluation["divergence_error"] < 1e-12  # checked, although the field is the library's
    assert run.arrays["x"].shape == (500, 2)
    assert run.numbers["ess"] == run.evaluation["ess"]
    assert run.step_ms == pytest.approx(1000 * run.rows[-1].seconds / 30)
    assert not run.troubles


def test_a_run_gives_its_flow_back(run):
    flow = run.flow()
    assert isinstance(flow, pg.Flow)
    draws = run.sample(50, seed=3)
    target = run.problem().target
    log_p = jax.vmap(target.log_prob)(draws["x"])
    np.testing.assert_allclose(log_p - draws["log_q"], draws["log_weight"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(flow.log_prob(draws["x"]), draws["log_q"], rtol=1e-3, atol=1e-3)
    again = run.sample(50, seed=3)
    assert (again["x"] == draws["x"]).all()


def test_training_goes_on_to_the_same_bits(run, tmp_path):
    short = dataclasses.replace(SMALL, training=dataclasses.replace(SMALL.training, steps=20))
    # The learning rate falls with the steps asked for: to be cut off, not shortened.
    with pg.session(pg.find_experiment("toy"), SMALL, tmp_path / "cut") as work:
        for row in work.rows(checkpoint_seconds=1e9):
            if row.step == short.training.steps:
                work.save()
                break
    cut = pg.Run.open(tmp_path / "cut")
    assert cut.status.kind == "stopped"
    assert "resume" in cut.status.text
    whole = pg.train("toy", out=tmp_path / "cut", resume=True)
    one, other = (jax.tree.leaves(each.flow()) for each in (whole, run))
    assert all((a == b).all() for a, b in zip(one, other, strict=True) if hasattr(a, "shape"))
    assert [row.step for row in pg.Run.open(whole.path).rows] == [10, 20, 30]


def test_a_resumed_run_reads_its_configuration_once(run, tmp_path, monkeypatch):
    pg.train("toy", SMALL, out=tmp_path / "once")
    read = []
    real = tomllib.loads
    monkeypatch.setattr(rundir.tomllib, "loads", lambda text: read.append(text) or real(text))
    pg.train("toy", out=tmp_path / "once", resume=True)
    assert len(read) == 1


def test_a_resumed_run_keeps_its_configuration(run, tmp_path):
    """Whoever resumes it: else it would go on with old weights under new options."""
    before = (run.path / "config.toml").read_bytes()
    other = dataclasses.replace(SMALL, target="banana")
    with pytest.raises(pg.ArgumentError, match=r"`target` ring -> banana"):
        pg.train("toy", other, out=run.path, resume=True)
    with pytest.raises(pg.UserError, match="is a run of 'toy', not 'density'"):
        pg.train("density", out=run.path, resume=True)
    assert (run.path / "config.toml").read_bytes() == before


def test_options_mean_the_same_from_any_place(tmp_path, monkeypatch):
    """Also when a run is resumed, and the path of its density is given again as it was typed."""
    (tmp_path / "mine.py").write_text("import jax.numpy as jnp\ndef f(x):\n    return -jnp.sum(x**4)\n")
    monkeypatch.chdir(tmp_path)
    options = DensityOptions("mine.py:f", 1, SMALL.flow, SMALL.training)
    whole = f"{tmp_path / 'mine.py'}:f"
    for resume in (False, True):
        pg.train("density", options, out="run", resume=resume)
        assert pg.Run.open("run").settings.density == whole
    monkeypatch.chdir("/")
    assert pg.Run.open(tmp_path / "run").sample(3)["x"].shape == (3, 1)


def test_what_stands_in_the_way_is_told(run, tmp_path):
    with pytest.raises(pg.UserError, match="does not exist"):
        pg.Run.open(tmp_path / "nowhere")
    with pytest.raises(pg.UserError, match="already holds a run"):
        pg.train("toy", SMALL, out=run.path)
    with pytest.raises(pg.UserError, match="Name its directory"):
        pg.train("toy", SMALL, resume=True)
    (tmp_path / "config.toml").write_text('experiment = "quartz"\n')
    with pytest.raises(pg.UserError, match="no experiment 'quartz'"):
        pg.Run.open(tmp_path)
    (tmp_path / "config.toml").write_text("port = 80\n")
    with pytest.raises(pg.UserError, match="was not written by pathgrad"):
        pg.Run.open(tmp_path)
    with pytest.raises(pg.ArgumentError, match="samples"):
        run.evaluate(samples=0)
    with pytest.raises(pg.ArgumentError, match="refine"):
        run.sample(5, refine=0)


def test_an_experiment_that_is_not_installed_can_be_brought(run):
    mine = copy.copy(pg.find_experiment("toy"))
    assert pg.Run.open(run.path, mine).experiment is mine


def test_damaged_files_count_as_not_there_and_are_named(tmp_path):
    folder = make_run(tmp_path / "a", rows_of([0.5]))
    make_evaluation(folder, step=10)
    path = tmp_path / "a"
    (path / "evaluation.json").write_text("{")
    (path / "evaluation.npz").write_bytes(b"PK\x03\x04")
    (path / "metrics.jsonl").write_text('{"step": 10}\nnonsense\n{"step": 20}\n')
    found = pg.Run.open(path)
    assert (found.evaluation, found.arrays, found.rows) == ({}, {}, [])
    lines, *results = found.troubles
    assert "Line 2" in lines
    assert [name in text for name, text in zip(("n.json", "n.npz"), results, strict=True)] == [True] * 2
    assert all(found.evaluate_command in text for text in results)
    assert (found.verdict, found.is_evaluated) == (None, False)


def test_lines_that_are_no_rows_are_passed_over(tmp_path):
    make_run(tmp_path / "a", rows_of([0.4]))
    with (tmp_path / "a" / "metrics.jsonl").open("a") as stream:
        stream.write(
            '{"step": 20, "ess": "good", "kl": NaN}\n{"ess": 0.5}\n{"step": 30, "ess"'
        )  # torn by a kill
    found = pg.Run.open(tmp_path / "a")
    assert [(row.step, row.ess) for row in found.rows] == [(10, 0.4), (20, None)]
    assert found.troubles == []


def test_arrays_of_objects_are_not_loaded(tmp_path):
    folder = make_run(tmp_path / "a", rows_of([0.5]))
    make_evaluation(folder, step=10)
    np.savez(tmp_path / "a" / "evaluation.npz", x=np.ones((4, 2)), words=np.array(["a", "b"]))
    found = pg.Run.open(tmp_path / "a")
    assert list(found.arrays) == ["x"]
    assert "words" in found.troubles[0]


def test_the_level_is_the_worse_of_size_and_verdict(tmp_path):
    folder = make_run(tmp_path / "a", rows_of([0.5, 0.5, 0.5]))

    def level(**numbers):
        make_evaluation(folder, **numbers)
        found = pg.Run.open(tmp_path / "a")
        return found.experiment.level(found)

    assert level(ess=0.95) is pg.Level.GOOD
    assert level(ess=0.3) is pg.Level.USABLE
    assert level(ess=0.05) is pg.Level.UNRELIABLE
    assert level(ess=0.95, verdict=because("HEAVY_TAIL")) is pg.Level.UNRELIABLE
    # A coarse solver that moves log Z alone leaves averages as they are.
    coarse = because("COARSE_SOLVER")
    still = {"ess_shift": 1e-4, "ess_err": 1e-3}
    assert level(ess=0.95, verdict=coarse, **still) is pg.Level.USABLE
    assert level(ess=0.95, verdict=coarse) is pg.Level.UNRELIABLE
    assert level(ess=None, verdict=GOOD) is pg.Level.UNUSABLE


def test_what_is_written_is_what_is_returned(run):
    stored = json.loads((run.path / "evaluation.json").read_text())
    assert stored == run.evaluation
    assert stored["verdict"] == run.verdict.to_json()
