"""What can be done with a trained run, beyond reading its files: this needs JAX."""

import io
import json
import os
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np

from .. import devices
from .._words.errors import UserError, check_at_least_one, check_at_most, named
from .checkpoint import read_header
from .problem import Tell, Trained, evaluation_key
from .provenance import provenance
from .run import Run
from .status import lost_checkpoints

_MOST_REFINED = 1000  # finer solves would show rounding


def newest_meta(run: Run) -> Any:
    """Return what the last checkpoint says about the training; `None` if there is none."""
    newest = run.directory.checkpoints.newest()
    return None if newest is None else read_header(newest).meta


def trained(run: Run) -> Trained:
    """Load the result of a training from its last checkpoint."""
    checkpoints = run.directory.checkpoints
    if checkpoints.newest() is None:
        if (problem := lost_checkpoints(run)) is not None:
            raise UserError(f"{problem} Or train again.")
        raise UserError(
            f"{run.path} has no checkpoint: its training was stopped before the first one. Repeat the "
            f"training command with {named('resume')}."
        )
    shell = run.problem().shell()
    trainer = shell.trainer(key=jr.key(0))
    # Shapes are enough: the state of a large model with its optimiser is gigabytes.
    state = shell.loaded(checkpoints.load_newest(eqx.filter_eval_shape(trainer.init, shell.model)))
    model = trainer.result(state)
    return Trained(model if shell.finish is None else shell.finish(model), state)


def sample(run: Run, n: int, *, seed: int, refine: int | None) -> dict[str, np.ndarray]:
    """Draw from a trained run."""
    check_at_least_one(n=n, refine=refine)
    check_at_most(_MOST_REFINED, refine=refine)
    key = evaluation_key(run.settings.training.seed, seed)
    return run.problem().sample(trained(run).model, key=key, n=n, refine=refine)


def evaluate(run: Run, how: Any, *, seed: int, tell: Tell | None = None) -> dict[str, Any]:
    """Evaluate a trained run, write the results into it, and return them as they are in the file."""
    refine = getattr(how, "refine", None)
    check_at_least_one(refine=refine)
    check_at_most(_MOST_REFINED, refine=refine)
    key = evaluation_key(run.settings.training.seed, seed)
    # Check before the long work, not after it.
    if not os.access(run.path, os.W_OK):
        raise UserError(f"{run.path} is not writable, and evaluation writes its results there.")
    outcome = trained(run)
    result: dict[str, Any] = {}
    for findings in run.problem().evaluate(outcome, how, key=key, tell=tell or (lambda *_: None)):
        result = {"experiment": run.experiment.name, "step": int(outcome.state.step)} | findings.numbers
        result |= {"seed": seed, "run": str(run.path), "provenance": provenance()}
        result = _written(run, result, findings.arrays)
    return result


def _written(run: Run, numbers: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Write results into the run, and return them as read back from the file: JSON without NaN."""
    if not devices.is_first():
        return numbers
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    run.directory.write("evaluation.npz", buffer.getbuffer())
    return json.loads(run.directory.write_json("evaluation.json", numbers).read_text("utf-8"))
