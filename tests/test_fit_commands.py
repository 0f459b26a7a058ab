"""`pathgrad fit`: a density from a file is fitted with nothing chosen, and leaves a run like any other."""

import json
import shutil
import signal
import tomllib
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pathgrad as pg
from pathgrad._cli.main import main
from pathgrad._runs.checkpoint import read_header
from pathgrad._runs.rundir import RunDir
from pathgrad._train.row import Row
from pathgrad.experiments.fit.experiment import FIT
from pathgrad.experiments.fit.options import FitOptions, FitTrainOptions
from pathgrad.experiments.fit.problem import build

from .run_helpers import make_run, refused, rows_of

# A bent density far from the origin, with unlike scales and a large constant; its normaliser is known.
DENSITIES = """
import math
import jax.numpy as jnp
import numpy as np
import pathgrad as pg

def bent(x):
    u, v = (x[0] - 40.0) / 3.0, (x[1] + 7.0) / 0.02
    return -0.5 * (u**2 + (v + 2.0 * (u**2 - 1)) ** 2) - math.log(2 * math.pi * 0.06) + 900.0

known = pg.LogDensity(bent, (2,))

def flat(x):
    return -0.5 * x[0] ** 2

def with_numpy(x):
    return -0.5 * float(np.sum(np.square(x)))

def vector(x):
    return -(x**2)

def fails(x):
    raise RuntimeError("no luck\\nat all")

def beyond(x):
    return -0.5 * x[0] ** 2 - 0.5 * x[2] ** 2

class Named:
    shape = (2,)
    log_prob = staticmethod(vector)

named = Named()
"""
LOG_Z = 900.0
ROUNDS = 3
TRAINING = FitTrainOptions(max_seconds=1e4, batch=32, first=20, rounds=ROUNDS, look_draws=1000)
STEPS = 20 * (2**ROUNDS - 1)


@pytest.fixture(autouse=True)
def _above_the_densities(tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.getbasetemp())  # code from elsewhere is asked for


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("densities") / "mine.py"
    path.write_text(DENSITIES)
    return path


@pytest.fixture(scope="module")
def runs(file, tmp_path_factory):
    """A run, and its directory as kills would leave it: between two rounds, inside one, and at once."""
    folder = tmp_path_factory.mktemp("runs")
    options = FitOptions(f"{file}:known", flow="tied", training=TRAINING)
    with pg.session(FIT, options, folder / "whole") as work:
        for row in work.rows(0.0):
            # A row is written before the checkpoint of its block: a kill in between loses the block.
            if row.step in (50, 60):
                shutil.copytree(folder / "whole", folder / f"from-{last(folder / 'whole').step}")
    begun = Path(shutil.copytree(folder / "from-50", folder / "from-0"))
    (begun / "metrics.jsonl").unlink()
    shutil.rmtree(begun / "checkpoints")
    shutil.copytree(folder / "from-20", folder / "early")
    return folder


def last(run):
    return read_header(max((run / "checkpoints").glob("*.safetensors")))


def rows(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    # What a resumed run is, and not when it was.
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def options_of(run):
    return tomllib.loads((run / "config.toml").read_text())["options"]


@pytest.mark.parametrize(
    "step", [20, 50, 0], ids=["between rounds", "inside a round", "without a checkpoint"]
)
def test_a_killed_fit_resumes_to_the_same_bits(runs, step):
    assert last(runs / "whole").step == STEPS
    resumed = pg.train("fit", out=runs / f"from-{step}", resume=True)
    assert last(resumed.path).sha256 == last(runs / "whole").sha256
    assert options_of(resumed.path) == options_of(runs / "whole")
    mine, whole = rows(resumed.path), rows(runs / "whole")
    assert [row["step"] for row in whole] == [20, 50, 60, 100, 140]
    for one, other in zip(mine, whole, strict=True):
        # The first round was planned before the number of rounds was.
        assert {**one, "planned_steps": 0} == {**other, "planned_steps": 0}


def test_what_was_decided_is_in_the_options(runs):
    options = options_of(runs / "whole")
    assert (options["dim"], options["flow"], options["precision"]) == (2, "tied", "single")
    assert options["training"]["rounds"] == ROUNDS
    assert options["found"]["coordinates"] == "full"
    # The ELBO of the best Gaussian: below the normaliser, but not by much.
    assert LOG_Z - 5 < options["found"]["centre"] < LOG_Z
    whole = rows(runs / "whole")
    assert [row["round"] for row in whole] == [1, 2, 2, 3, 3]
    assert ["look_ess" in row for row in whole] == [True, False, True, False, True]


def test_the_flow_of_a_run_is_in_the_coordinates_of_the_density(runs):
    run = pg.Run.open(runs / "whole")
    flow = run.flow()
    x = np.asarray(flow.sample(key=jax.random.key(3), n=4000))
    assert abs(x[:, 0].mean() - 40.0) < 0.5
    assert abs(x[:, 1].mean() + 7.0) < 0.05
    assert 0.3 < x[:, 1].std() / 0.06 < 1.1  # it is 0.02 times the square root of 9
    drawn = run.sample(50)
    density = build(run.settings).inside.target.log_prob
    log_p = jax.vmap(density)(jnp.asarray(drawn["x"]))
    np.testing.assert_allclose(log_p - drawn["log_q"], drawn["log_weight"], atol=1e-6)
    # Backwards, two steps of the solver are not quite the inverse of two steps forwards.
    np.testing.assert_allclose(flow.log_prob(jnp.asarray(drawn["x"])), drawn["log_q"], atol=0.05)


def test_a_fit_is_evaluated_and_reported_like_any_run(runs, tmp_path, capsys):
    run, known = runs / "whole", tmp_path / "known.csv"
    u, w = np.random.default_rng(5).standard_normal((2, 3000))  # exact draws, in the units of the density
    exact = np.stack([40.0 + 3.0 * u, -7.0 + 0.02 * (w - 2.0 * (u**2 - 1))], axis=1)
    np.savetxt(known, exact, delimiter=",", header="a,b", comments="")
    assert main(["evaluate", str(run), "--samples", "4000", "--draws", str(known)]) == 0
    out = capsys.readouterr().out
    found = json.loads(out.splitlines()[-1])
    assert found["eubo"] > LOG_Z > found["elbo"]
    assert abs(found["log_z_both"] - LOG_Z) < 6 * found["log_z_both_err"] < 1.0
    x = pg.Run.open(run).arrays["x"]
    shift = (x.mean(axis=0) - exact.mean(axis=0)) / exact.std(axis=0)
    np.testing.assert_allclose(found["distances"]["mean_shift"], shift, atol=1e-3)
    assert found["chains"] == 24
    assert "EUBO" in out
    assert found["ess"] > 0.1
    assert abs(found["log_z"] - LOG_Z) < 6 * found["log_z_err"] + 0.1
    assert found["elbo"] < found["log_z"]
    arrays = pg.Run.open(run).arrays
    assert abs(np.median(arrays["x"][:, 0]) - 40.0) < 0.5
    assert arrays["grid"][0].min() < 40 < arrays["grid"][0].max()
    draws, page = tmp_path / "draws.npz", tmp_path / "report.html"
    assert main(["sample", str(run), "--n", "20", "--out", str(draws)]) == 0
    assert main(["report", str(run), "--out", str(page)]) == 0
    assert "known in 2 dimensions" in page.read_text()


def test_draws_from_elsewhere_must_be_numbers(runs, tmp_path, capsys):
    files = {
        "a.txt": "1",
        "empty.csv": "",
        "words.csv": "a,b\nc,d\n",
        "one.csv": "1\n" * 30,
        "few.csv": "1,2\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        said = refused(capsys, "evaluate", runs / "whole", "--samples", "50", "--draws", str(tmp_path / name))
        assert "--draws" in said


WORDS = ["--flow", "tied", "--batch", "32", "--first", "20", "--look-draws", "1000", "--max-seconds", "9999"]


def test_ctrl_c_stops_after_a_block_and_resuming_ends_with_a_verdict(file, tmp_path, capsys, monkeypatch):
    out = tmp_path / "run"
    append = RunDir.append_metrics

    def interrupted(self, row):
        append(self, row)
        if row.step == 50:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(RunDir, "append_metrics", interrupted)
    begin = ["fit", f"{file}:bent", "--dim", "2", *WORDS, "--rounds", "2", "--out", str(out)]
    assert main(begin) == 130
    said = capsys.readouterr()
    assert "warm start: a full Gaussian" in said.out
    assert f"stopped at step 50 and saved. Continue with: pathgrad fit --out {out} --resume" in said.err
    monkeypatch.setattr(RunDir, "append_metrics", append)
    assert main(["fit", "--out", str(out), "--resume"]) == 0
    said = capsys.readouterr().out
    assert "round 1, step 20: ESS" in said
    assert "round 2, step 60: ESS" in said
    assert "verdict" in said
    assert f"pathgrad fit --out {out} --resume --rounds 3" in said
    assert pg.Run.open(out).is_evaluated
    assert "--batch 32 -> 64" in refused(capsys, "fit", "--out", out, "--resume", "--batch", "64")


def test_a_fit_that_diverges_is_evaluated_with_what_was_best(runs, tmp_path, capsys, monkeypatch):
    out = Path(shutil.copytree(runs / "early", tmp_path / "run"))

    def diverge(state, *_):
        if int(state.step) > 20:
            raise pg.TrainingDiverged(
                "Training stopped: it went astray.", state, pg.Outcome.UPDATE_NOT_FINITE
            )

    monkeypatch.setattr("pathgrad._train.trainer._stop_if_diverged", diverge)
    assert main(["fit", "--out", str(out), "--resume"]) == 1
    said = capsys.readouterr()
    assert f"it went astray. They are saved in {out}." in said.err
    assert "The best flow from before that is evaluated." in said.out
    assert "verdict" in said.out
    assert "smooth the density" in said.out
    assert "--rounds" not in said.out
    run = pg.Run.open(out)
    assert run.evaluation["samples"] == TRAINING.look_draws
    assert eqx.tree_equal(run.flow(), pg.Run.open(runs / "early").flow())


def test_an_interrupted_decision_leaves_nothing(file, tmp_path, capsys, monkeypatch):
    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr("pathgrad._default.pipeline.Pipeline.choose", interrupt)
    assert main(["fit", f"{file}:known", "--out", str(tmp_path / "run")]) == 130
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["flat", "--dim", "2"], "no finite integral"),
        (["with_numpy", "--dim", "2"], "with_numpy cannot be compiled. The log density uses NumPy"),
        (["vector", "--dim", "2"], "vector: the log density of a point of shape (2,) must be a scalar"),
        (["named"], "The log density of a point of shape (2,) must be a scalar"),
        (["fails", "--dim", "2"], "failed on one point of 2 coordinates: RuntimeError: no luck."),
        (["beyond", "--dim", "2"], "reads index 2 of an axis with 2 entries"),
        (["bent"], "--dim, the number of coordinates of a point, must be given"),
        (["known", "--dim", "3"], "leave --dim out"),
        (
            ["known", "--width", "8", "--steps", "9"],
            "--width, --steps. To choose them, write `pathgrad train dens",
        ),
        (["known", "--max-seconds", "0"], "--max-seconds must be a positive number"),
        (["known", "--rounds", "0"], "--rounds must be at least 1"),
        (["known", "--seed", "-1"], "--seed must be from 0"),
    ],
)
def test_what_cannot_be_fitted_is_one_line_and_leaves_nothing(words, remedy, file, tmp_path, capsys):
    out = tmp_path / "run"
    assert remedy in refused(capsys, "fit", f"{file}:{words[0]}", *words[1:], "--out", out)
    assert not out.exists()


def test_a_run_in_the_way_is_found_before_the_work(runs, file, capsys, monkeypatch):
    monkeypatch.setattr("pathgrad._default.pipeline.Pipeline.choose", None)  # not even tried
    said = refused(capsys, "fit", f"{file}:known", "--out", runs / "whole")
    assert "--overwrite" in said


def test_a_run_of_an_older_version_is_named(tmp_path, capsys):
    old = tmp_path / "old"
    old.mkdir()
    (old / "config.toml").write_text(
        'experiment = "fit"\n[options.flow]\nwidth = 8\n[options.training]\nseed = 0\n'
    )
    assert 'Write `experiment = "density"` there.' in refused(capsys, "evaluate", old)


def test_an_undecided_fit_cannot_be_built(file):
    with pytest.raises(pg.UserError, match="decisions are not made"):
        build(FitOptions(f"{file}:known"))


def test_a_defence_is_decided_when_training_is_over(runs, tmp_path, monkeypatch):
    out = Path(shutil.copytree(runs / "whole", tmp_path / "run"))
    monkeypatch.setattr("pathgrad.experiments.fit.problem.gains_by_defence", lambda *_, **__: True)
    pg.train("fit", out=out, resume=True)
    assert options_of(out)["found"]["defended"]
    run, plain = pg.Run.open(out), pg.Run.open(runs / "whole")
    assert isinstance(run.flow().base, pg.DefensiveNormal)
    # Most draws stay what they were.
    x, same = (one.sample(2000)["x"] for one in (run, plain))
    assert abs(np.mean(np.all(np.isclose(x, same), axis=1)) - 0.9) < 0.03


def test_a_run_that_ended_because_it_is_good_says_so(tmp_path):
    training = {"first": 10, "rounds": 4}
    end = [
        *rows_of([0.9, 0.99]),
        Row.of({"step": 30, "seconds": 3.0, "ess": 0.995, "is_good": 1, "round": 2}),
    ]
    make_run(tmp_path, end, experiment="fit", density="mine.py:bent", dim=2, size=0, training=training)
    assert (
        pg.Run.open(tmp_path).status.text == "ended: step 30 of 150, fresh draws show that the flow is good"
    )
