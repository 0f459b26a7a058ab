"""How far a run is, and how to resume it."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from .._numbers.quantity import number_in
from .._words.errors import named
from .._words.text import count, duration
from .experiment import AbstractExperiment

if TYPE_CHECKING:
    from .run import Run


class Status(NamedTuple):
    """How far a run is, with a `text` in which the arguments of commands are marked by `named`."""

    kind: Literal["running", "ended", "stopped", "empty"]
    text: str


def resume_command(experiment: AbstractExperiment, out: Path) -> str:
    """Return the command that resumes a run, its arguments marked by `named`."""
    return f"pathgrad {experiment.command} {named('out')} {shlex.quote(str(out))} {named('resume')}"


def status_of(run: "Run") -> Status:
    """Return how far a run is."""
    where = _how_far(run)
    if run.is_training:
        return Status("running", f"training now: {where}")
    why = _why_ended(run)
    if why:
        return Status("ended", f"ended: {where}, {why}")
    hint = "its checkpoints are not here, so it cannot continue"
    if run.has_checkpoints:
        hint = f"continue with `{resume_command(run.experiment, run.path)}`"
    if not run.rows:
        return Status("empty", f"stopped before its first block of steps ended: {hint}")
    return Status("stopped", f"stopped at {where}: {hint}")


def _how_far(run: "Run") -> str:
    if run.last is None:
        return "no block of steps has ended yet"
    unit, wanted = run.experiment.length(run.options)
    done = run.at_end(unit)
    if done is None:
        unit, done, wanted = "step", float(run.last.step), None
    text = f"{unit} {count(done)}" if unit == "step" else f"{unit} {done:,.4g}"
    return text + (f" of {count(wanted)}" if wanted else "")


def _why_ended(run: "Run") -> str | None:
    unit, wanted = run.experiment.length(run.options)
    done = run.at_end(unit)
    if done is not None and wanted is not None and done >= wanted:
        return f"all its {unit}s are done"
    if run.at_end("is_good"):
        return "fresh draws show that the flow is good"
    seconds, most = run.at_end("seconds"), number_in(run.training, "max_seconds")
    planned = run.at_end("planned_steps")
    if most is not None and planned is not None and run.last is not None and run.last.step >= planned:
        return f"the steps planned for its {duration(most)} of training are done"
    if seconds is not None and most is not None and seconds >= most:
        return f"its {duration(most)} of training are used up"
    waited = [row.waiting for row in run.rows if row.waiting is not None]
    patience = number_in(run.training, "patience")
    if waited and patience is not None and waited[-1] > patience:
        return f"no better validation for {count(waited[-1])} epochs"
    return None


def lost_checkpoints(run: "Run") -> str | None:
    """Return why a run that was trained has no checkpoint, and what to do; `None` if it has one."""
    if run.has_checkpoints or run.last is None:
        return None
    return (
        f"{run.path} was trained to step {run.last.step}, but its checkpoints are gone: they were removed, "
        f"or not copied with the rest. Put them back into {run.path / 'checkpoints'}."
    )
