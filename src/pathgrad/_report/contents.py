"""What a run directory holds at this moment: the run may be going on, killed, or have lost some files."""

import contextlib
import dataclasses
import json
import shlex
import zipfile
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from pathgrad._errors import UserError
from pathgrad._plots.elbo import title_of
from pathgrad._train.row import Row, best_row
from pathgrad._train.rundir import RunDir
from pathgrad.experiments.registry import resume_command

from .words import count, duration, number

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

# Arrays of `evaluation.npz` that are drawn, and how many axes they may have.
_DIMENSIONS = {
    "log_weight": (1,),
    "x": (1, 2, 3),
    "fields": (3,),
    "two_point": (1,),
    "two_point_err": (1,),
    "originals": (3,),
    "reconstructions": (3,),
    "samples": (3,),
    "levels": (0,),
}


class Broken(NamedTuple):
    """A run of which not even the configuration can be read; `why` is the text of a `UserError`."""

    path: Path
    why: str


class State(NamedTuple):
    """How far a run is; `text` says it in words, with the arguments of commands marked by `named`."""

    kind: Literal["running", "ended", "stopped", "empty"]
    text: str


@dataclasses.dataclass(frozen=True)
class Run:
    """One run, as the page shows it.

    Attributes:
        path: Its directory.
        config: As in `config.toml`.
        rows: Of its metrics.
        evaluation: As in `evaluation.json`; empty if it has not been evaluated.
        arrays: Of `evaluation.npz`.
        picture: The bytes of `evaluation.png`.
        state: How far it is.
        troubles: Files that are there and cannot be read, with the remedy.
        name: Tells it from the other runs.
        problem: What was fitted, in a word: other problems have charts of their own.
        estimator: Decides colour and line.
        label: Of its group in legends.
        group: Equal for runs that differ by their seed only.
    """

    path: Path
    config: dict[str, Any]
    rows: list[Row]
    evaluation: dict[str, Any]
    arrays: dict[str, np.ndarray]
    picture: bytes | None
    state: State
    troubles: tuple[str, ...] = ()
    name: str = ""
    problem: str = ""
    estimator: str = "?"
    label: str = ""
    group: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """Options of the experiment."""
        return self.config.get("options", {})

    @property
    def training(self) -> dict[str, Any]:
        """Options of the training."""
        return self.options.get("training", {})

    @property
    def dataset(self) -> str | None:
        """The images of a variational autoencoder, where it is one."""
        vae = self.config.get("experiment") == "vae"
        return str(self.options.get("dataset", "?")) if vae else None

    @property
    def what(self) -> str:
        """What was fitted, for people."""
        problem = title_of(self.dataset) if self.dataset else self.problem
        return f"{self.config['experiment']} {problem}".strip()

    @property
    def last(self) -> Row | None:
        """The last row."""
        return self.rows[-1] if self.rows else None

    def at_end(self, name: str) -> float | None:
        """Return a number of the last row by its name."""
        value = None if self.last is None else self.last.value(name)
        return None if value is None else float(value)

    @property
    def best(self) -> Row | None:
        """The row with the best validation of an autoencoder: that is the model which is kept."""
        return best_row(self.rows)

    @property
    def evaluated(self) -> bool:
        """Whether the evaluation is of the run as it is now."""
        current = {row.step for row in (self.last, self.best) if row is not None}
        return number(self.evaluation, "step") in current

    @property
    def kept(self) -> bool:
        """Whether there are checkpoints to evaluate or to go on from."""
        return any((self.path / "checkpoints").glob("step-*.ckpt"))

    @property
    def evaluate(self) -> str:
        """The command that evaluates it."""
        return f"pathgrad evaluate {shlex.quote(str(self.path))}"


def read_run(path: Path) -> Run:
    """Read a run; a `UserError` says so if its configuration cannot be read."""
    run = RunDir(path)
    config = run.config
    if not _is_ours(config):
        raise UserError(
            f"{path / 'config.toml'} is not one of pathgrad's, or was changed by hand: it must name an "
            "`experiment` and hold a table `options.training`, and `provenance` must be a table. Restore it."
        )
    troubles: list[str] = []
    rows: list[Row] = []
    try:
        rows = run.read_metrics(lenient=True)
    except UserError as error:
        troubles.append(error.text)
    evaluation = _read_json(path, troubles)
    arrays = _read_arrays(path, troubles)
    picture = None
    with contextlib.suppress(OSError):
        picture = (path / "evaluation.png").read_bytes()
    found = Run(path, config, rows, evaluation, arrays, picture, State("empty", ""))
    return dataclasses.replace(found, state=_state(found), troubles=tuple(troubles))


def _is_ours(config: dict[str, Any]) -> bool:
    """Say whether what runs are told apart by is of the types that pathgrad writes."""
    options = config.get("options", {})
    training = options.get("training", {}) if isinstance(options, dict) else None
    if not isinstance(training, dict) or not isinstance(options.get("size", 0), int):
        return False
    if not isinstance(config.get("provenance", {}), dict):
        return False
    words = [config.get("experiment"), *(training.get(n, "") for n in ("estimator", "optimizer"))]
    return all(isinstance(word, str) for word in words)


def _read_json(path: Path, troubles: list[str]) -> dict[str, Any]:
    file = path / "evaluation.json"
    try:
        return dict(json.loads(file.read_text("utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, TypeError, ValueError) as error:
        again = f"`pathgrad evaluate {shlex.quote(str(path))}`"
        troubles.append(f"{file} cannot be read ({error}): {again} makes it anew.")
        return {}


def _read_arrays(path: Path, troubles: list[str]) -> dict[str, np.ndarray]:
    file = path / "evaluation.npz"
    try:
        with file.open("rb") as stream, np.load(stream) as stored:
            found = {name: stored[name] for name in _DIMENSIONS if name in stored}
    except FileNotFoundError:
        return {}
    except (OSError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
        again = f"`pathgrad evaluate {shlex.quote(str(path))}`"
        troubles.append(f"{file} cannot be read ({error}): {again} makes it anew.")
        return {}
    kept = {
        name: array
        for name, array in found.items()
        if array.dtype.kind in "fiub" and array.ndim in _DIMENSIONS[name]
    }
    if len(kept) < len(found):
        odd = ", ".join(name for name in found if name not in kept)
        troubles.append(f"{file} holds something else than expected as {odd}: it is not drawn.")
    return kept


def is_training(path: Path) -> bool:
    """Say whether a process trains in a run directory, without disturbing it."""
    if fcntl is None:
        return False
    try:
        # Not to be made if it is not there. A shared lock fails where an exclusive one is held, and is gone
        # again at once where none is.
        with (path / "lock").open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no such file, or a file system without locks
        return False
    return False


def _state(run: Run) -> State:
    """Say how far a run is, and how to go on with one that stopped."""
    where = _how_far(run)
    if is_training(run.path):
        return State("running", f"training now: {where}")
    why = _why_ended(run)
    if why:
        return State("ended", f"ended: {where}, {why}")
    again = f"`{resume_command(run.config['experiment'], run.path)}`"
    on = f"go on with {again}" if run.kept else "its checkpoints are not here, so it cannot go on"
    if not run.rows:
        return State("empty", f"stopped before its first block of steps ended: {on}")
    return State("stopped", f"stopped at {where}: {on}")


def _how_far(run: Run) -> str:
    if run.last is None:
        return "no block of steps has ended yet"
    unit = "epoch" if run.dataset else "step"
    done, wanted = run.at_end(unit), _wanted(run, unit)
    if done is None:
        unit, done, wanted = "step", run.last.step, None
    said = f"{unit} {done:,.4g}" if unit == "epoch" else f"{unit} {count(done)}"
    return said + (f" of {count(wanted)}" if wanted else "")


def _wanted(run: Run, unit: str) -> float | None:
    """Return how many epochs or steps, of all stages, the run was asked for."""
    wanted = number(run.training, f"{unit}s")
    if wanted is None or unit == "epoch":
        return wanted
    return wanted + (number(run.training, "newton_steps") or 0.0)


def _why_ended(run: Run) -> str | None:
    unit = "epoch" if run.dataset else "step"
    done, wanted = run.at_end(unit), _wanted(run, unit)
    if done is not None and wanted is not None and done >= wanted:
        return f"all its {unit}s are done"
    seconds, most = run.at_end("seconds"), number(run.training, "max_seconds")
    if seconds is not None and most is not None and seconds >= most:
        return f"its {duration(most)} of training are used up"
    waited = [row.waiting for row in run.rows if row.waiting is not None]
    patience = number(run.training, "patience")
    if waited and patience is not None and waited[-1] > patience:
        return f"no better validation for {count(waited[-1])} epochs"
    return None
