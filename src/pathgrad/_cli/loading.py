"""Open a trained run."""

from pathlib import Path
from typing import Any, NamedTuple

from pathgrad._errors import UserError
from pathgrad._train.rundir import RunDir
from pathgrad.experiments import registry


class Trained(NamedTuple):
    """A run directory with everything that is in it."""

    run: RunDir
    experiment: str
    options: Any
    problem: Any
    state: Any


def load_run(path: Path) -> Trained:
    """Rebuild the problem of a run and load its last checkpoint."""
    run = RunDir.open(path)
    experiment, options = registry.read_options(run.config, str(run.path / "config.toml"))
    if run.checkpoints.newest() is None:
        raise UserError(
            f"{path} has no checkpoint yet: its training was stopped before the first one. "
            "Go on with the training command and --resume."
        )
    problem = registry.build(experiment, options)
    state = run.checkpoints.load_newest(problem.initial_state())
    return Trained(run, experiment, options, problem, state)
