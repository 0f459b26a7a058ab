"""Train an experiment in a run directory: checkpoints, interruptions, progress."""

import hashlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

import pathgrad as pg
from pathgrad._errors import as_options
from pathgrad._train.progress import report
from pathgrad._train.rundir import RunDir, provenance
from pathgrad.experiments import registry
from pathgrad.experiments.problem import keys

from .arguments import Where
from .processes import is_alone, is_first


def train(
    experiment: str, options: Any, where: Where, begin: Any = None, again: str | None = None
) -> int:
    """Train from the beginning or, with `where.resume`, from the last checkpoint. Return the exit code.

    `begin(flow)` returns the flow to start from, given the one that the options describe, and what the
    run should remember of where it came from. `again` is the command that goes on after an interruption.
    """
    out = where.out or Path("runs") / options.name
    if again is None:
        again = as_options(registry.resume_command(experiment, out))
    with where.together.together(f"Go on with all of them: {again}"):
        return _begin(experiment, options, where, out, begin, again)


def _begin(experiment: str, options: Any, where: Where, out: Path, begin: Any, again: str) -> int:
    """Make or open the run directory and train in it."""
    training = registry.build(experiment, options).training
    origin = {}
    model = training.model
    # A run that was killed before its first checkpoint has not begun.
    begun = where.resume and RunDir.open(out).checkpoints.newest() is not None
    if begin is not None and not begun:
        model, origin = begin(model)
    # Before anything is written: it may refuse.
    trainer = training.trainer(key=keys(options.training.seed)[1])
    state = trainer.init(model)
    if is_first() and trainer.devices < jax.device_count():
        print(
            f"pathgrad: {trainer.devices} of {jax.device_count()} devices are used: their number must divide "
            "the --batch, and gauss-newton uses one",
            file=sys.stderr,
        )
    run = RunDir.open(out) if where.resume else RunDir(out)
    written = registry.write_options(experiment, options)

    def make() -> None:
        if not where.resume:
            devices = {"devices": trainer.devices, "processes": jax.process_count()}
            made = {"provenance": provenance() | devices | origin}
            RunDir.create(out, written | made, overwrite=where.overwrite)

    with _held(run, make):
        if where.resume:
            state, trainer.seconds = load_state(run, state)
        if where.resume and is_first():
            run.truncate_metrics(int(state.step))
            run.write_config(run.config | written)
        elif is_first():
            # What a run begins with may be gone when it is resumed.
            run.checkpoints.save(state, step=0, meta={"seconds": 0.0})
        _check_same(state, written)
        length = Length(training.steps, options.training.max_seconds)
        code = _train(run, trainer, length, state, where.checkpoint_seconds, again)
        # All leave together: what comes next may read what the first one has written.
        pg.devices.any_process(False)
        return code


@contextmanager
def _held(run: RunDir, make: Callable[[], None]) -> Iterator[None]:
    """Hold a run directory. Of several processes the first makes and locks it, and all hear how that went."""
    with ExitStack() as stack:
        failure = None
        if is_first():
            try:
                make()
                stack.enter_context(run.locked())
            except pg.UserError as error:
                failure = error
        if pg.devices.any_process(failure is not None):
            raise failure or pg.UserError("the first process could not begin, and says why.")
        yield


def load_state(run: RunDir, state: Any) -> tuple[Any, float]:
    """Go back to the last checkpoint: the state, and the seconds trained."""
    from pathgrad._train.checkpoint import read_header

    newest = run.checkpoints.newest()
    if newest is None:  # killed before the first one: begin again
        return state, 0.0
    state = run.checkpoints.load_newest(state)
    return state, float(read_header(newest).meta["seconds"])


def _check_same(state: Any, written: dict[str, Any]) -> None:
    """Raise unless all processes begin with the same numbers and options."""
    if is_alone():
        return
    digest = hashlib.sha256(repr(sorted(written.items())).encode())
    for leaf in jax.tree.leaves(eqx.filter(state, eqx.is_array)):
        digest.update(np.asarray(leaf).tobytes())
    mine = int.from_bytes(digest.digest()[:3])
    if pg.devices.any_process(mine != pg.devices.of_first_process(mine)):
        raise pg.UserError(
            "The processes do not begin with the same flow and options. Start all of them by the same "
            "command, but for --process-id, on a file system that they share."
        )


class Length(NamedTuple):
    """How long a training may go on."""

    steps: int
    max_seconds: float | None


def _train(
    run: RunDir,
    trainer: pg.Trainer,
    length: Length,
    state: pg.TrainState,
    between_checkpoints: float,
    again: str,
) -> int:
    began = saved = time.monotonic()
    row: pg.Row | None = None
    below: list[pg.Row] = []
    ended = False
    try:
        with (
            _stop_signals() as stopped,
            report(length.steps, visible=is_first(), max_seconds=length.max_seconds) as tell,
        ):
            for state, row in trainer.blocks(state, length.steps, length.max_seconds):
                if row.below_bound is not None:
                    below.append(row)
                if len(below) == 1 and row is below[0] and is_first():
                    print(_alarm(row), file=sys.stderr)
                if is_first():
                    run.append_metrics(row)
                tell(row)
                # A signal may reach one process only, and all must stop at the same step.
                if ended := pg.devices.any_process(stopped()):
                    break
                if time.monotonic() - saved > between_checkpoints:
                    _save(run, state, trainer)
                    saved = time.monotonic()
    except pg.TrainingDiverged as failure:
        _save(run, failure.state, trainer)
        if is_first():
            text = as_options(failure.text)
            print(f"pathgrad: {text} They are saved in {run.path}.", file=sys.stderr)
        return 1
    _save(run, state, trainer)
    if ended:
        if is_first():
            print(
                f"pathgrad: stopped at step {int(state.step)} and saved. Go on with: {again}",
                file=sys.stderr,
            )
        return 130
    if not is_first():
        return 0
    _summarise(run, row, state, trainer, time.monotonic() - began)
    if below:
        print(
            f"Warning: {len(below)} rows of the metrics, the last at step {below[-1].step}, have a loss "
            "below -log Z: the densities of training are wrong by at least that much. `pathgrad "
            "evaluate` solves more finely and says what the flow is worth."
        )
    return 0


def _alarm(row: pg.Row) -> str:
    assert row.loss is not None
    assert row.below_bound is not None
    return (
        f"\npathgrad: warning: at step {row.step} the loss {row.loss:.4f} is {row.below_bound:.4f} below "
        f"-log Z = {row.loss + row.below_bound:.4f}, which no density can reach: the solver is too coarse "
        "for log q. Take more --solver-steps, or fewer --time-kernels; path gradients suffer from it least."
    )


def _save(run: RunDir, state: Any, trainer: Any) -> None:
    if is_first():
        run.checkpoints.save(state, step=int(state.step), meta={"seconds": trainer.seconds})


@contextmanager
def _stop_signals() -> Iterator[Any]:
    """Note Ctrl-C and SIGTERM, to stop after the block at hand; a second Ctrl-C stops at once."""
    seen: list[int] = []

    def note(number, frame):
        del frame
        if seen and number == signal.SIGINT:
            raise KeyboardInterrupt
        seen.append(number)
        if not is_first():
            return
        print("\npathgrad: stopping after this block (again to stop at once)", file=sys.stderr)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _summarise(
    run: RunDir, row: pg.Row | None, state: pg.TrainState, trainer: pg.Trainer, wall: float
) -> None:
    steps = int(state.step)
    why = "" if trainer.stopped is None else as_options(trainer.stopped.text)
    if row is None:
        print(f"{run.path} has nothing to do at step {steps}: {why}. (Give it more to go on.)")
        return
    if trainer.stopped not in (None, pg.Stop.STEPS_TAKEN):
        print(f"Stopped: {why}.")
    rate = trainer.seconds / steps * 1e3
    print(
        f"{steps} steps in {trainer.seconds:.1f} s ({rate:.2f} ms a step; compiling took "
        f"{trainer.compile_seconds:.1f} s, {wall:.1f} s in all on {trainer.devices} "
        f"{jax.default_backend()} device{'s' if trainer.devices > 1 else ''})."
    )
    names = {
        "ess": "ESS {:.2%}",
        "loss": "loss {:.5f}",
        "kl": "KL {:.5f}",
        "gradient_norm": "gradient norm {:.3g}",
        "epoch": "epoch {:.4g}",
        "validation": "validation {:.3f}",
        "best_validation": "best {:.3f}",
        "waiting": "{} without a better one",
        "skipped": "{} steps skipped in all",
    }
    known = [(form, row.value(name)) for name, form in names.items()]
    told = [form.format(value) for form, value in known if value is not None]
    print(f"Last block: {', '.join(told)}.")
    print(f"Saved in {run.path}. Next: pathgrad evaluate {run.path}")
