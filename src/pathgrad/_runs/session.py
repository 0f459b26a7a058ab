"""Train in a run directory: checkpoints, rows of metrics, bit-identical resuming."""

import contextlib
import dataclasses
import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import devices
from .._train.progress import report
from .._train.row import Row
from .._train.state import TrainState
from .._train.trainer import Trainer, TrainingDiverged
from .._words.errors import ArgumentError, UserError, named
from .checkpoint import read_header
from .experiment import AbstractExperiment, build, find_experiment
from .options import changes
from .problem import Training, run_keys
from .provenance import provenance
from .run import Run
from .rundir import RunDir


def train(
    experiment: str | AbstractExperiment,
    options: Any = None,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    checkpoint_seconds: float | None = None,
    progress: bool = False,
) -> Run:
    """Train in a run directory, as `pathgrad train` does, and return the run.

    If the process is killed, the same call with `resume=True` continues the run and gives the same bits.

    Args:
        experiment: What to train, by name (`toy`, `phi4`, ...) or your own.
        options: The experiment's `Options`; by default its defaults, or those of the resumed run.
        out: The directory; by default one in runs/, named after experiment, method and seed.
        resume: Continue the run in `out` from its last checkpoint.
        overwrite: Replace the run in `out`. Without this, nothing that exists is touched.
        checkpoint_seconds: Time between checkpoints: a killed run loses at most this much work and the
            current block. By default what suits the experiment.
        progress: Print the progress.

    Raises:
        TrainingDiverged: Too many steps in a row were not finite. The last good state is saved.
        UserError: The directory cannot be used, or the options are not valid.
    """
    if isinstance(experiment, str):
        experiment = find_experiment(experiment)
    if resume and out is None:
        raise UserError(f"No run to resume was given. Name its directory with {named('out')}.")
    stored = Run.open(out, experiment) if resume and out is not None else None
    if options is None:
        options = experiment.defaults() if stored is None else stored.settings
    folder = Path("runs") / options.name if out is None else Path(out)
    with session(experiment, options, folder, resumed=stored, overwrite=overwrite) as work:
        with report(work.training.steps, visible=progress, max_seconds=work.max_seconds) as tell:
            for row in work.rows(checkpoint_seconds or experiment.checkpoint_seconds):
                tell(row)
        return work.run


@dataclasses.dataclass
class Session:
    """A training in progress, in a directory that it has locked; made by `session`.

    Attributes:
        run: The run that it writes to.
        state: The latest state. Its arrays are overwritten while `rows` continues.
        max_seconds: Training time after which it stops.
    """

    run: Run
    training: Training
    trainer: Trainer
    state: TrainState
    max_seconds: float | None

    def rows(self, checkpoint_seconds: float) -> Iterator[Row]:
        """Train to the end, and yield the row of each block. If you stop early, call `save`."""
        saved = time.monotonic()
        try:
            blocks = self.trainer.blocks(self.state, self.training.steps, self.max_seconds)
            for self.state, row in blocks:
                if devices.is_first():
                    self.run.directory.append_metrics(row)
                yield row
                if time.monotonic() - saved > checkpoint_seconds:
                    self.save()
                    saved = time.monotonic()
        except TrainingDiverged as failure:
            self.state = failure.state
            self.save()
            raise
        self.save()

    def save(self) -> None:
        """Write a checkpoint."""
        if devices.is_first():
            step, meta = int(self.state.step), {"seconds": self.trainer.seconds}
            self.run.directory.checkpoints.save(self.state, step=step, meta=meta)


@contextlib.contextmanager
def session(
    experiment: AbstractExperiment,
    options: Any,
    out: Path,
    *,
    resumed: Run | None = None,
    overwrite: bool = False,
) -> Iterator[Session]:
    """Create a run directory, or open that of a run to resume, and lock it, ready to train."""
    options = _settled(experiment, options, resumed)
    training = build(experiment, options).training
    # It may raise, so before anything is written.
    trainer = training.trainer(key=run_keys(options.training.seed)[1])
    state, origin = None, {}
    if resumed is None:
        model, origin = experiment.begin(options, training.model)
        state = trainer.init(model)
    shared = {"devices": trainer.devices, "processes": jax.process_count()}
    config = {"experiment": experiment.name, "options": dataclasses.asdict(options)}
    recorded = resumed.config if resumed else {"provenance": provenance() | shared | origin}
    run = Run(out, recorded | config, experiment)
    with _held(run, overwrite=overwrite, is_new=resumed is None):
        newest = run.directory.checkpoints.newest()
        if state is None and newest is not None:
            # Shapes are enough: the state of a large model with its optimiser is gigabytes.
            like = eqx.filter_eval_shape(trainer.init, training.model)
            state = training.loaded(run.directory.checkpoints.load_newest(like))
            trainer.seconds = float(read_header(newest).meta["seconds"])
            if resumed is not None and resumed.settings.training != options.training:
                state = dataclasses.replace(state, horizon=jnp.zeros((), jnp.int32))  # plan again
        elif state is None:  # killed before its first checkpoint: start from scratch
            state = trainer.init(experiment.begin(options, training.model)[0])
        work = Session(run, training, trainer, state, options.training.max_seconds)
        if resumed is not None and devices.is_first():
            run.directory.truncate_metrics(int(state.step))
            run.directory.write_config(run.config)
        if newest is None:
            work.save()  # the run that this one starts from may be gone when it is resumed
        _check_same(state, config)
        yield work
        # All processes leave together: what follows may read what the first one has written.
        devices.any_process(False)


def _settled(experiment: AbstractExperiment, options: Any, resumed: Run | None) -> Any:
    """Return options that mean the same in any directory; a resumed run may only change its length."""
    if resumed is None:
        return experiment.settled(options)[0]
    stored, free = resumed.settings, experiment.may_change(resumed.settings)
    if options == stored:
        return stored
    before, after = (experiment.settled(chosen)[0] for chosen in (stored, options))
    changed = {name: both for name, both in changes(before, after).items() if name not in free}
    if changed:

        def marked(name: str) -> str:
            return named(name.rpartition(".")[2])

        listed = ", ".join(f"{marked(name)} {old} -> {new}" for name, (old, new) in changed.items())
        raise ArgumentError(
            f"A resumed run keeps its configuration, only {' and '.join(map(marked, free))} may change; got "
            f"{listed}. Leave these out, or start a new run with another {named('out')}."
        )
    return after


@contextlib.contextmanager
def _held(run: Run, *, overwrite: bool, is_new: bool) -> Iterator[None]:
    """Lock a run directory. Of several processes the first creates and locks it; all fail if that fails."""
    with contextlib.ExitStack() as stack:
        failure = None
        if devices.is_first():
            try:
                if is_new:
                    RunDir.create(run.path, run.config, overwrite=overwrite)
                stack.enter_context(run.directory.locked())
            except UserError as error:
                failure = error
        if devices.any_process(failure is not None):
            raise failure or UserError("The first process could not start. Read its message.")
        yield


def _check_same(state: TrainState, config: dict[str, Any]) -> None:
    """Raise unless all processes start with the same numbers and options."""
    if devices.is_alone():
        return
    digest = hashlib.sha256(repr(sorted(config.items())).encode())
    for leaf in jax.tree.leaves(eqx.filter(state, eqx.is_array)):
        digest.update(np.asarray(leaf).tobytes())
    mine = int.from_bytes(digest.digest()[:3])
    if devices.any_process(mine != devices.of_first_process(mine)):
        raise UserError(
            "The processes do not start with the same model and options. Start all of them with the same "
            "command, except for the process id, on a file system that they share."
        )
