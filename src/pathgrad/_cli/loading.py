"""Open a trained run."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax.random as jr

import pathgrad as pg
from pathgrad._errors import UserError
from pathgrad._train.rundir import RunDir
from pathgrad.experiments import registry


class Trained(NamedTuple):
    """A run directory with everything that is in it; `model` is what the training has come to."""

    run: RunDir
    experiment: str
    options: Any
    problem: Any
    state: pg.TrainState
    model: Any


def load_run(path: Path, data: Path | None = None) -> Trained:
    """Rebuild the problem of a run and load its last checkpoint.

    `data` is where the images of an autoencoder are, if not where they were in training.
    """
    run = RunDir.open(path)
    experiment, options = registry.read_options(run.config, str(run.path / "config.toml"))
    if data is not None and experiment == "vae":
        options = dataclasses.replace(options, data=str(data))
    if run.checkpoints.newest() is None:
        raise UserError(
            f"{path} has no checkpoint yet: its training was stopped before the first one. "
            "Go on with the training command and --resume."
        )
    problem = registry.build(experiment, options)
    # Shapes are enough: the state of a large model with its optimiser is gigabytes.
    trainer = problem.training.trainer(key=jr.key(0))
    like = eqx.filter_eval_shape(trainer.init, problem.training.model)
    state = run.checkpoints.load_newest(like)
    return Trained(run, experiment, options, problem, state, trainer.result(state))
