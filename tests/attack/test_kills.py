"""Kills inside file operations change nothing: a run that is resumed ends with the same bits.

The daily part dies in this process. `python -m tests.attack.kills` kills real processes, a hundred over all
experiments; the slow tests run some of them.
"""

import contextlib
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

import pathgrad as pg
from pathgrad._runs.checkpoint_folder import CheckpointFolder
from pathgrad._runs.rundir import RunDir
from pathgrad._train.row import Row
from pathgrad.experiments.options import FlowOptions, TrainOptions
from pathgrad.experiments.toy.experiment import TOY, ToyOptions

from ..docs_helpers import ROOT
from .killing import Killed, Moments

CONFIG = {"experiment": "toy", "options": {"training": {}}}
STEPS = 3
TINY = ToyOptions(
    flow=FlowOptions(width=4, depth=1, solver_steps=2), training=TrainOptions(steps=6, block=2, batch=4)
)


def work(path):
    """Do with files what a training does, from its last checkpoint on: its state is one array."""
    run = RunDir(path)
    if not (path / "config.toml").exists():
        run = RunDir.create(path, CONFIG)
    with run.locked():
        folder = CheckpointFolder(path / "checkpoints")
        newest = folder.newest()
        state = {"x": np.zeros(50)} if newest is None else folder.load_newest({"x": np.zeros(50)})
        step = int(state["x"][0])
        run.truncate_metrics(step)
        run.sweep()
        if newest is None:
            folder.save(state, step=0, meta={})
        for step in range(step + 1, STEPS + 1):
            run.append_metrics(Row.of({"step": step, "seconds": 0.0}))
            state = {"x": state["x"] + 1}
            folder.save(state, step=step, meta={})
        folder.save(state, step=STEPS, meta={})
        run.write_json("evaluation.json", {"step": STEPS})


def contents(path):
    files = {str(file.relative_to(path)): file for file in path.rglob("*") if file.is_file()}
    found = {name: file.read_bytes() for name, file in files.items() if name != "lock"}  # the process' number
    # A line that was cut off may remain in it.
    return found | {".outputs": sorted(set(found.get(".outputs", b"").decode().split()) & files.keys())}


def test_files_survive_a_kill_at_every_moment(tmp_path):
    with Moments(tmp_path, None).watched() as moments:
        work(tmp_path / "whole")
    whole = contents(tmp_path / "whole")
    assert moments.count > 70
    assert len(whole) == 6
    for at in range(moments.count):
        path = tmp_path / f"at{at}"
        with pytest.raises(Killed), Moments(path, at).watched():
            work(path)
        with Moments(path, None).watched():
            work(path)
        assert contents(path) == whole, at


def rows(run):
    return [row.to_json() | {"seconds": 0} for row in pg.Run.open(run).rows]


def payload(run):
    from pathgrad._runs.checkpoint import read_header

    header = read_header(max((run / "checkpoints").glob("*.safetensors")))
    return header.step, header.sha256


def train(path):
    is_new = not (path / "config.toml").exists()
    pg.train(TOY, TINY if is_new else None, out=path, resume=not is_new, checkpoint_seconds=0.0)


def test_a_training_killed_again_and_again_ends_with_the_same_bits(tmp_path):
    with Moments(tmp_path, None).watched() as moments:
        train(tmp_path / "whole")
    rng, out = np.random.default_rng(7), tmp_path / "broken"
    for at in rng.integers(20, moments.count // 2, size=2):
        with contextlib.suppress(Killed), Moments(tmp_path, int(at)).watched():
            train(out)
    train(out)
    assert payload(out) == payload(tmp_path / "whole")
    assert rows(out) == rows(tmp_path / "whole")
    assert contents(out).keys() == contents(tmp_path / "whole").keys()


def test_what_was_trained_is_kept_and_what_was_not_is_removed(tmp_path):
    run = tmp_path / "run"
    train(run)
    told = (run / "metrics.jsonl").read_bytes()
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(pg.UserError, match="trained to step 6, but its checkpoints are gone"):
        train(run)
    assert (run / "metrics.jsonl").read_bytes() == told
    with pytest.raises(RuntimeError), pg.session(TOY, TINY, tmp_path / "a" / "b"):
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["toy", "fit", "ladder", "evaluate", "two-processes"])
def test_processes_that_are_killed_change_nothing(what, tmp_path):
    record = tmp_path / "kills.json"
    words = ["--only", what, "--kills", "3", "--seed", "5", "--out", str(record)]
    subprocess.run([sys.executable, "-m", "tests.attack.kills", *words], check=True, cwd=ROOT)
    told = json.loads(record.read_text())
    assert told["kills"] >= 3
    assert told["differences"] == []
