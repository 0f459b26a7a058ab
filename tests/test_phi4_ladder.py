"""The preset `best`: runs of growing lattices, each begun with the one below."""

import dataclasses
import re
import shutil
import signal
import types
from pathlib import Path

import pytest

import pathgrad as pg
from pathgrad._cli import train as train_command
from pathgrad._cli.main import main
from pathgrad._runs import session
from pathgrad._runs.options import changes
from pathgrad.experiments.phi4 import ladder
from pathgrad.experiments.phi4.experiment import PHI4
from pathgrad.experiments.phi4.options import LatticeFlowOptions

from . import run_helpers
from .test_phi4_training import with_flow, with_training

BEST = PHI4.defaults(preset="best")
SMALL = LatticeFlowOptions(time_kernels=3, time_bond=3, features=4, channels=2, solver_steps=4)
SHORT = {6: (SMALL, 2), 8: (dataclasses.replace(SMALL, features=5, channels=3), 2)}


@pytest.fixture
def short_ladder(monkeypatch):
    monkeypatch.setattr(ladder, "_RUNGS", SHORT)


def without_time(path):
    return [row.to_json() | {"seconds": 0} for row in pg.Run.open(path).rows]


def test_each_rung_begins_with_the_one_below(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = with_training(PHI4.Options(32, training=BEST.training), seed=3)
    plan = PHI4.planned(options, "best", Path("out"))
    assert [str(path) for path, _ in plan] == [f"out/L{size}" for size in (6, 8, 12, 20, 32)]
    assert [each.size for _, each in plan] == [6, 8, 12, 20, 32]
    assert {(e.training.optimizer, e.training.seed) for _, e in plan} == {("gauss-newton", 3)}
    channels = [each.flow.channels for _, each in plan]
    assert channels == sorted(channels)
    # By a path that means the same from anywhere.
    below = [None, *(str(tmp_path / path) for path, _ in plan[:-1])]
    assert [each.init_from for _, each in plan] == below
    assert [PHI4.settled(each)[0] for _, each in plan] == [each for _, each in plan]


def test_other_presets_are_one_run():
    options = PHI4.defaults(preset="paper")
    assert PHI4.planned(options, "paper", Path("out")) == [(Path("out"), options)]
    assert set(PHI4.presets) == {"fast", "paper", "best"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (with_flow(BEST, channels=9), ["channels"]),
        (with_training(BEST, steps=1500, max_seconds=3.0), ["steps", "max_seconds"]),
        (with_training(BEST, optimizer="adam"), ["optimizer"]),
        (PHI4.Options(8, init_from="a", training=BEST.training), ["init_from"]),
        (PHI4.Options(8, coupling=5.0, training=BEST.training), ["coupling"]),
    ],
)
def test_a_ladder_refuses_what_it_would_ignore(options, named):
    with pytest.raises(pg.ArgumentError) as caught:
        PHI4.planned(options, "best", Path("out"))
    ignored = caught.value.text.partition("got ")[2].partition(". Give only")[0]
    assert ignored == ", ".join(map(pg.named, named))


def test_a_ladder_has_rungs_of_some_sizes_only():
    with pytest.raises(pg.ArgumentError, match="must be one of 6, 8, 12, 20, 32"):
        PHI4.planned(PHI4.Options(10, training=BEST.training), "best", Path("out"))


def test_another_run_to_begin_with_is_refused_by_the_ladder(tmp_path):
    """Its defaults are the ladder's own, so that only what was given is named."""
    assert PHI4.defaults(preset="best", init_from=str(tmp_path / "nowhere")) == BEST


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--channels", "9"], "sets the model and training of its runs itself; got --channels."),
        (["--size", "10"], "--size of the preset"),
    ],
)
def test_the_command_says_what_a_ladder_takes(more, said, tmp_path, capsys):
    assert main(["train", "phi4", "--preset", "best", "--out", str(tmp_path / "x"), *more]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_a_ladder_of_another_version_is_not_mixed_up(short_ladder, tmp_path, capsys, monkeypatch):
    (path, first), _ = PHI4.planned(PHI4.Options(8, training=BEST.training), "best", tmp_path / "a")
    pg.train(PHI4, with_training(first, steps=1), out=path)
    monkeypatch.setattr(ladder, "_RUNGS", SHORT | {6: (dataclasses.replace(SMALL, features=6), 2)})
    words = ["train", "phi4", "--preset", "best", "--size", "8", "--out", str(tmp_path / "a")]
    assert main([*words, "--resume"]) == 2
    assert "--features 4 -> 6" in capsys.readouterr().err


def test_a_ladder_replaces_its_own_runs_alone(short_ladder, tmp_path, monkeypatch):
    """Of an older, higher ladder nothing is left; what else lies beside it stays."""
    monkeypatch.setattr(train_command, "train", lambda *given, **more: 130)  # stopped before it trains
    run_helpers.make_run(tmp_path / "L12", run_helpers.rows_of([0.2]))
    run_helpers.make_run(tmp_path / "L20", run_helpers.rows_of([0.2]))
    run_helpers.make_run(tmp_path / "L32", run_helpers.rows_of([0.2]), experiment="toy")
    run_helpers.make_run(tmp_path / "mine", run_helpers.rows_of([0.2]))
    (tmp_path / "L20" / "notes.txt").write_text("mine")
    words = ["train", "phi4", "--preset", "best", "--size", "8", "--out", str(tmp_path)]
    assert main([*words, "--overwrite"]) == 130
    assert sorted(path.name for path in tmp_path.iterdir()) == ["L20", "L32", "mine"]
    assert [path.name for path in (tmp_path / "L20").iterdir()] == ["notes.txt"]
    for name in ("L32", "mine"):
        assert (tmp_path / name / "metrics.jsonl").exists()


@pytest.mark.slow
def test_a_ladder_that_was_moved_goes_on(short_ladder, tmp_path):
    """Where its rungs began with is another path then, which is no other beginning."""
    options = PHI4.Options(8, training=BEST.training)
    (_, small), (path, large) = PHI4.planned(options, "best", tmp_path / "a")
    pg.train(PHI4, small, out=tmp_path / "a" / "L6")
    pg.train(PHI4, with_training(large, steps=1), out=path)
    shutil.move(tmp_path / "a", tmp_path / "b")
    stored = pg.Run.open(tmp_path / "b" / "L8").settings
    _, (path, large) = PHI4.planned(options, "best", tmp_path / "b")
    assert set(changes(stored, large)) == {"init_from", "training.steps"}
    assert set(changes(stored, large)) <= set(PHI4.may_change(stored))
    run = pg.train(PHI4, large, out=path, resume=True)
    assert run.last.step == 2
    assert run.seconds_before == pg.Run.open(tmp_path / "b" / "L6").last.seconds


@pytest.mark.slow
def test_a_ladder_is_one_command_and_resumes(short_ladder, tmp_path, capsys, monkeypatch):
    words = ["train", "phi4", "--preset", "best", "--seed", "3", "--out"]
    assert main([*words, str(tmp_path / "a"), "--size", "8"]) == 0
    said = capsys.readouterr().out
    assert "L6" in said
    assert "run    steps   seconds     total   last block" in said
    small, large = (pg.Run.open(tmp_path / "a" / name) for name in ("L6", "L8"))
    assert large.settings.init_from == str(small.path)
    assert large.provenance["init_from_step"] == 2
    assert small.seed == large.seed == 3
    assert (small.settings.flow.channels, large.settings.flow.channels) == (2, 3)
    # What was learnt at size 6 is there at size 8.
    assert large.rows[0].ess > small.rows[0].ess * 2

    # A ladder that exists is not touched; one that was moved, and had been killed before the first checkpoint
    # of its second rung, begins that anew with what the first has learnt.
    assert main([*words, str(tmp_path / "a"), "--size", "8"]) == 2
    assert "--resume" in capsys.readouterr().err
    before = without_time(tmp_path / "a" / "L8")
    shutil.move(tmp_path / "a", tmp_path / "b")
    shutil.rmtree(tmp_path / "b" / "L8" / "checkpoints")
    monkeypatch.chdir(tmp_path)
    assert main([*words, "b", "--size", "8", "--resume"]) == 0
    assert without_time(tmp_path / "b" / "L8") == before


def _interrupting(clock):
    """Return a clock that presses Ctrl-C when it is first read in training."""
    pressed = []

    def read():
        if not pressed and isinstance(signal.getsignal(signal.SIGINT), types.FunctionType):
            pressed.append(True)
            signal.raise_signal(signal.SIGINT)
        return clock()

    return read


@pytest.mark.slow
def test_an_interrupted_ladder_says_how_to_go_on(short_ladder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["train", "phi4", "--preset", "best", "--seed", "3", "--out", "b", "--size", "8"]
    assert main(words) == 0
    before = without_time(tmp_path / "b" / "L8")
    with monkeypatch.context() as patched:
        patched.setattr(session.time, "monotonic", _interrupting(session.time.monotonic))
        assert main([*words, "--overwrite"]) == 130
    (command,) = re.findall(r"Continue with: pathgrad (.*)", capsys.readouterr().err)
    assert not (tmp_path / "b" / "L8").exists()  # nothing of the old ladder is left
    # It goes on to the top, with the same seed.
    assert main(command.split()) == 0
    assert without_time(tmp_path / "b" / "L8") == before


def test_only_the_directories_of_a_ladder_are_replaced_with_it(tmp_path):
    planned = {path for path, _ in PHI4.planned(BEST, "best", tmp_path)}
    series = set(PHI4.series(tmp_path))
    assert planned <= series
    assert {path.name for path in series} == {"L6", "L8", "L12", "L20", "L32"}
