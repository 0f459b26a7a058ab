"""Train in a run directory: checkpoints, rows of metrics, bit-identical resuming."""

import contextlib
import dataclasses
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import devices
from .._train.progress import at_first_use, report
from .._train.row import Row
from .._train.state import TrainState
from .._train.trainer import Trainer, TrainingDiverged
from .._words.arguments import instance, limit, path_of
from .._words.errors import ArgumentError, UserError, check_seconds, named
from .checkpoint import DamagedCheckpoint, read_header
from .experiment import AbstractExperiment, Decided, build, find_experiment
from .options import changes
from .problem import AbstractProblem, Trained, Training, run_keys
from .provenance import provenance
from .run import Run
from .rundir import RunDir, RunError
from .sources import Trust, recorded
from .status import lost_checkpoints


def train(
    experiment: str | AbstractExperiment,
    options: Any = None,
    *,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    checkpoint_seconds: float | None = None,
    trust: bool = False,
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
        trust: Resume even if that runs code from outside the working directory that only the run names, or
            code that has changed since.
        progress: Print the progress.

    Raises:
        TrainingDiverged: Too many steps in a row were not finite. The last good state is saved.
        UserError: The directory cannot be used, or the options are not valid.
    """
    if isinstance(experiment, str):
        experiment = find_experiment(experiment)
    instance("experiment", experiment, AbstractExperiment, "the name of an experiment, or an experiment")
    out = None if out is None else path_of("out", out)
    checkpoint_seconds = limit("checkpoint_seconds", checkpoint_seconds)
    if resume and out is None:
        raise UserError(f"No run to resume was given. Name its directory with {named('out')}.")
    stored = Run.open(out, experiment, trust=trust) if resume and out is not None else None
    if stored is not None and options is not None:
        stored = stored.with_trust(Trust.NAMED)
    seconds = experiment.checkpoint_seconds if checkpoint_seconds is None else checkpoint_seconds
    check_seconds(checkpoint_seconds=seconds)
    if options is None:
        options = experiment.defaults() if stored is None else stored.settings
    folder = Path("runs") / options.name if out is None else Path(out)
    with (
        at_first_use(visible=progress) as (tell, close),
        session(experiment, options, folder, resumed=stored, overwrite=overwrite, tell=tell) as work,
    ):
        close()
        with report(work.training.steps, visible=progress, max_seconds=work.max_seconds) as tell:
            for row in work.rows(seconds):
                tell(row)
        return work.run


@dataclasses.dataclass
class Session:
    """A training in progress, in a directory that it has locked; made by `session`.

    Attributes:
        run: The run that it writes to.
        state: The latest state. Its arrays are overwritten while `rows` continues.
        max_seconds: Training time after which it stops.
        recorded: What each checkpoint says of the sources and options of the run.
        last: The latest row of metrics, if this process has made any.
    """

    run: Run
    problem: AbstractProblem
    training: Training
    trainer: Trainer
    state: TrainState
    max_seconds: float | None
    recorded: dict[str, Any]
    last: Row | None = None

    def rows(self, checkpoint_seconds: float) -> Iterator[Row]:
        """Train to the end, and yield the row of each block. If you stop early, call `save`."""
        saved = time.monotonic()
        try:
            blocks = self.trainer.blocks(self.state, self.training.steps, self.max_seconds)
            for self.state, row in blocks:
                self.last = row
                if devices.is_first():
                    self.run.directory.append_metrics(row)
                yield row
                if time.monotonic() - saved > checkpoint_seconds:
                    self.save()
                    saved = time.monotonic()
        except TrainingDiverged as failure:
            self.state = failure.state
            self.save()
            if self.run.experiment.is_evaluated_at_end:  # what was best before
                self._conclude()
            raise
        self.save()
        self._conclude()

    def _conclude(self) -> None:
        """Write down what is decided once training is over. A run that is killed here decides it again."""
        options = self.run.settings
        trained = Trained(devices.on_one_device(self.trainer.result(self.state)), self.state)
        concluded = self.problem.concluded(options, trained, key=run_keys(options.training.seed)[2])
        if concluded != options:
            # The checkpoint first: if the process is killed in between, it goes with either configuration.
            self.recorded["concluded"] = recorded(self.run.experiment, concluded)["options"]
            self.save()
            config = self.run.config | {"options": dataclasses.asdict(concluded)}
            self.run = dataclasses.replace(self.run, config=config)
            if devices.is_first():
                self.run.directory.write_config(config)

    def save(self, rows: Sequence[Row] = ()) -> None:
        """Write a checkpoint, with rows of metrics that are not written yet."""
        if devices.is_first():
            step, meta = int(self.state.step), {"seconds": self.trainer.seconds} | self.recorded
            meta |= {"rows": [row.to_json() for row in rows]} if rows else {}
            self.run.directory.checkpoints.save(self.state, step=step, meta=meta)


@contextlib.contextmanager
def session(
    experiment: AbstractExperiment,
    options: Any,
    out: str | os.PathLike[str],
    *,
    resumed: Run | None = None,
    overwrite: bool = False,
    tell: Callable[[str, float], None] = lambda text, share: None,
    note: Callable[[str], None] = lambda text: None,
) -> Iterator[Session]:
    """Create a run directory, or open that of a run to resume, and lock it, ready to train.

    Before that the experiment may decide what is left open (`AbstractExperiment.decided`): `tell` receives
    its progress, and `note` what it found.
    """
    instance("experiment", experiment, AbstractExperiment, "an experiment")
    out = path_of("out", out)
    decided = Decided(_settled(experiment, options, resumed))
    before = recorded(experiment, decided.options)
    if resumed is None:
        if devices.is_alone():
            RunDir(out).check_free(overwrite=overwrite)  # deciding may take long
        decided = experiment.decided(decided.options, tell)
        for text in decided.notes:
            note(text)
    options, trainer, state, origin = decided.options, decided.trainer, decided.state, {}
    problem = build(experiment, options)
    training, about = problem.training, _unchanged(before, recorded(experiment, options))
    about |= _history(resumed, about["sources"]) if resumed else {}
    # It may raise, so before anything is written.
    trainer = trainer or training.trainer(key=run_keys(options.training.seed)[1])
    if resumed is None and state is None:
        model, origin = experiment.begin(options, training.model)
        state = trainer.init(model)
        trainer.prepare(state, training.steps)  # it may fail, too
    shared = {"devices": trainer.devices, "processes": jax.process_count()}
    config = {"experiment": experiment.name, "options": dataclasses.asdict(options)}
    kept = resumed.config if resumed else {"provenance": provenance() | shared | origin}
    run = Run(out, kept | config, experiment, resumed.trust if resumed else Trust.NAMED)
    with _held(run, overwrite=overwrite, is_new=resumed is None):
        newest, rows = run.directory.checkpoints.newest(), decided.rows
        if state is None and newest is not None:
            # Shapes are enough: the state of a large model with its optimiser is gigabytes.
            like = eqx.filter_eval_shape(trainer.init, training.model)
            state = training.loaded(run.directory.checkpoints.load_newest(like))
            trainer.seconds, rows = _told_by(newest)
            if resumed is not None and resumed.settings.training != options.training:
                state = dataclasses.replace(state, horizon=jnp.zeros((), jnp.int32))  # plan again
        elif state is None:  # killed before its first checkpoint: start from scratch
            state = trainer.init(experiment.begin(options, training.model)[0])
        limit = experiment.training_seconds(options)
        work = Session(run, problem, training, trainer, state, limit, about, *decided.rows[-1:])
        if newest is None:  # save, since the run that this one starts from may be gone when it is resumed
            work.save(decided.rows)
        if devices.is_first():
            _rewind(run, int(state.step), rows, is_new=resumed is None)
        _check_same(state, config)
        yield work
        # All processes leave together: what follows may read what the first one has written.
        devices.any_process(False)


def _told_by(checkpoint: Path) -> tuple[float, list[Row]]:
    """Return the seconds of training before a checkpoint, and the rows of metrics that it holds."""
    meta: Any = read_header(checkpoint).meta
    try:
        return float(meta["seconds"]), [Row.of(dict(row)) for row in meta.get("rows", ())]
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise DamagedCheckpoint(
            checkpoint, f"not as pathgrad writes it: what it tells of the training is odd ({error!r})"
        ) from error


def _settled(experiment: AbstractExperiment, options: Any, resumed: Run | None) -> Any:
    """Return options that mean the same in any directory; a resumed run may only change its length."""
    if resumed is None:
        return experiment.settled(options)[0]
    _ = resumed.notes  # raises before any code of the run runs
    if (problem := lost_checkpoints(resumed)) is not None:
        raise RunError(f"{problem} Or replace the run: {named('overwrite')} without {named('resume')}.")
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


def _unchanged(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    if before["sources"] != now["sources"]:
        raise UserError("The code or data to train on were changed while this began. Start again.")
    return now


def _history(resumed: Run, now: dict[str, Any]) -> dict[str, Any]:
    """Return the hashes of other code or data on which a run was trained before, if there were any."""
    then, before = resumed.recorded.get("sources", now), resumed.recorded.get("before", [])
    before = [*(before if isinstance(before, list) else ()), *([then] if then != now else ())]
    return {"before": before} if before else {}


def _rewind(run: Run, step: int, rows: Iterable[Row], *, is_new: bool) -> None:
    """Let the files of a run say what its state does: up to this step, with the rows that came before it."""
    if not is_new:
        run.directory.truncate_metrics(step)
        run.directory.write_config(run.config)
        run.directory.sweep()
    written = {row.step for row in run.directory.read_metrics()}
    for row in rows:
        if row.step not in written:
            run.directory.append_metrics(row)


@contextlib.contextmanager
def _held(run: Run, *, overwrite: bool, is_new: bool) -> Iterator[None]:
    """Lock a run directory. Of several processes the first creates and locks it; all fail if that fails.

    A new directory in which nothing was trained is removed after a failure.
    """
    absent = [folder for folder in (run.path, *run.path.parents) if not folder.exists()]
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
        try:
            yield
        except TrainingDiverged:  # its last good state is saved
            raise
        except BaseException:
            with contextlib.suppress(UserError, OSError):
                if is_new and devices.is_first() and not run.directory.read_metrics():
                    stack.close()
                    run.directory.remove()
                    for folder in absent[1:]:
                        folder.rmdir()
            raise


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
