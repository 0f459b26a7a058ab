"""Lattice runs: trained, begun with smaller lattices, resumed; and options that are refused."""

import dataclasses
import shutil

import numpy as np
import pytest

import pathgrad as pg
from pathgrad._cli.main import main
from pathgrad._cli.train import _alarm
from pathgrad._runs.rundir import RunDir
from pathgrad.experiments.phi4.experiment import PHI4
from pathgrad.experiments.phi4.options import LatticeFlowOptions, Phi4Options
from pathgrad.experiments.phi4.problem import solver_steps

SMALL = LatticeFlowOptions(time_bond=2, features=5, channels=3)


def with_training(options, **training):
    return dataclasses.replace(options, training=dataclasses.replace(options.training, **training))


def with_flow(options, **flow):
    return dataclasses.replace(options, flow=dataclasses.replace(options.flow, **flow))


def briefly(options, steps=2):
    return with_training(options, steps=steps, block=steps, batch=16)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    options = Phi4Options(size=4, coupling=6.975, flow=SMALL)
    options = with_training(options, steps=80, block=20, batch=32)
    return pg.train("phi4", options, out=tmp_path_factory.mktemp("phi4") / "L4")


def begun_with(run, **given):
    """The options that begin with a run, as the command line has them: what is not given is the run's."""
    options = PHI4.defaults(init_from=str(run.path), **{n: str(v) for n, v in given.items()})
    return dataclasses.replace(options, init_from=str(run.path), **given)


def test_training_improves_and_is_recorded(trained):
    first, *_, last = trained.rows
    assert last.step == 80
    assert last.loss < first.loss - 0.5
    assert last.loss_err > 0
    assert last.below_bound is None
    assert trained.experiment is PHI4
    assert (trained.settings.coupling, trained.settings.flow.features) == (6.975, 5)
    assert trained.settings.training.beta1 == 0.8


def test_larger_lattice_from_a_smaller_one(trained, tmp_path):
    """The model is that of the smaller run unless something larger is asked for."""
    options = briefly(with_flow(begun_with(trained, size=6), channels=4))
    warm = pg.train(PHI4, options, out=tmp_path / "warm")
    assert (warm.settings.flow.features, warm.settings.flow.channels) == (5, 4)
    assert warm.settings.coupling is None
    cold = pg.train(PHI4, briefly(Phi4Options(6, flow=SMALL)), out=tmp_path / "cold")
    assert warm.last.loss < cold.last.loss - 0.5
    assert warm.seconds_before == trained.last.seconds
    origin = {n: v for n, v in warm.provenance.items() if n.startswith("init_from")}
    commit = trained.provenance.get("commit", "")
    seconds = pytest.approx(trained.last.seconds)
    assert origin == {"init_from_step": 80, "init_from_seconds": seconds, "init_from_commit": commit}
    labels = [group.label for group in pg.group_runs([warm, cold])]
    assert ["begun from L = 4" in labels[0], "begun from scratch" in labels[1]] == [True, True]


def test_what_is_begun_with_is_what_the_checkpoint_holds(trained, tmp_path):
    """A killed run may have written rows of later steps."""
    path = tmp_path / "killed"
    shutil.copytree(trained.path, path)
    RunDir(path).append_metrics(pg.Row(1000, seconds=99.0))
    options = begun_with(pg.Run.open(path))
    flow, origin = PHI4.begin(options, PHI4.build(options).training.model)
    assert origin["init_from_step"] == 80
    assert origin["init_from_seconds"] < 99
    x = np.random.default_rng(0).normal(size=(3, 4, 4))
    np.testing.assert_allclose(flow.log_prob(x), trained.flow().log_prob(x))


def test_killed_transfer_begins_with_what_it_was_given(trained, tmp_path):
    """Even before its first checkpoint after the beginning, and with the smaller run gone."""
    source, out = tmp_path / "source", tmp_path / "run"
    shutil.copytree(trained.path, source)
    options = with_training(begun_with(pg.Run.open(source), size=6), steps=2, block=1, batch=16)
    first = pg.train(PHI4, options, out=out).rows
    for checkpoint in (out / "checkpoints").iterdir():
        if "step-000000000." not in checkpoint.name:
            checkpoint.unlink()
    (out / "metrics.jsonl").write_text("")
    shutil.rmtree(source)
    again = pg.train(PHI4, out=out, resume=True)
    assert [row.loss for row in again.rows] == [row.loss for row in first]
    assert again.provenance["init_from_step"] == 80


def test_same_lattice_goes_on_with_everything_but_the_training(trained, tmp_path):
    options = begun_with(trained)
    assert (options.size, options.coupling, options.flow) == (4, 6.975, SMALL)
    again = pg.train(PHI4, briefly(options, steps=1), out=tmp_path / "again")
    assert again.rows[0].loss < trained.rows[0].loss - 0.5


def test_what_cannot_be_grown_is_refused(trained, tmp_path):
    out = tmp_path / "c"
    for options, said in (
        (with_flow(begun_with(trained, size=6), channels=2), "not shrink"),
        (begun_with(trained, size=2, coupling=1.0), "from size 4 to 2"),
        (Phi4Options(init_from=str(tmp_path / "nowhere")), "nowhere"),
    ):
        with pytest.raises(pg.UserError, match=said):
            pg.train(PHI4, options, out=out)
        assert not out.exists()


def test_a_transfer_is_typed_like_this(trained, tmp_path, capsys):
    """The end of it through the command line; `--init_from` is the same option."""
    words = ["train", "phi4", "--init_from", str(trained.path), "--steps", "1", "--block", "1"]
    assert main([*words, "--batch", "16", "--size", "6", "--out", str(tmp_path / "a")]) == 0
    run = pg.Run.open(tmp_path / "a")
    assert (run.settings.size, run.settings.flow, run.settings.coupling) == (6, SMALL, None)
    assert run.settings.init_from == str(trained.path)
    # Resumed, it keeps its configuration.
    resume = ["train", "phi4", "--out", str(run.path), "--resume"]
    capsys.readouterr()
    assert main([*resume, "--channels", "4"]) == 2
    assert "--channels 3 -> 4" in capsys.readouterr().err
    assert main([*resume, "--steps", "2"]) == 0
    assert pg.Run.open(run.path).last.step == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--size", "7"], "give --coupling"),
        (["--time-kernels", "4"], "odd"),
        (["--time-kernels", "21", "--solver-steps", "8"], "at least 20"),
        (["--base-mass-squared", "-1"], "must be positive"),
        (["--coupling", "-1"], "no lower bound"),
        (["--base", "unit", "--base-mass-squared", "1"], "--base free"),
        (["--time-kernels", "1", "--solver-steps", "0"], "at least 1"),
        (["--beta2", "1"], "--beta2"),
    ],
)
def test_bad_options_are_one_line(words, said, tmp_path, capsys):
    assert main(["train", "phi4", *words, "--out", str(tmp_path / "d")]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def test_steps_resolve_the_fastest_time_kernel():
    assert solver_steps(LatticeFlowOptions(time_kernels=1)) == 6
    assert solver_steps(LatticeFlowOptions(time_kernels=3)) == 6
    assert solver_steps(LatticeFlowOptions(time_kernels=21)) == 40
    assert solver_steps(LatticeFlowOptions(time_kernels=21, solver_steps=20)) == 20


def test_paper_preset_is_the_published_one():
    options = PHI4.defaults(preset="paper")
    flow, training = options.flow, options.training
    assert (flow.time_kernels, flow.time_bond, flow.features, flow.channels) == (21, 20, 50, 20)
    assert (flow.base, flow.solver_steps, flow.adjoint) == ("unit", 50, "backsolve")
    assert (training.batch, training.learning_rate) == (5000, 5e-4)
    assert (training.beta1, training.beta2, training.decay) == (0.9, 0.999, "none")
    assert PHI4.build(options).training.model.shape == (12, 12)


def test_a_known_log_z_is_the_bound_of_the_loss():
    """With its error, where it has one; the trainer marks rows below it, and the door tells of the first."""
    objective = PHI4.build(Phi4Options()).training.objective
    assert objective.lower_bound == (pytest.approx(-6.984948), 1e-6)
    assert PHI4.build(Phi4Options(12)).training.objective.lower_bound[1] > 0
    assert PHI4.build(Phi4Options(5, 4.0)).training.objective.lower_bound is None
    told = _alarm(pg.Row(3, loss=-7.3, below_bound=0.315))
    assert "the loss -7.3000 is 0.3150 below -log Z = -6.9850" in told
    assert "--solver-steps" in told


def test_unknown_size_has_no_default_coupling():
    with pytest.raises(pg.UserError, match="6, 8, 10, 12, 14, 20, 32, 64"):
        _ = Phi4Options(size=9).action_coupling
