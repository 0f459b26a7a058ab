"""A run: the contents of its directory at this moment. JAX is imported only to work with its model."""

import dataclasses
import functools
import json
import math
import os
import shlex
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from .._numbers.quantity import number_in
from .._numbers.verdict import Verdict
from .._train.row import Number, Row, best_row
from .._words.arguments import path_of
from .._words.errors import UserError
from .experiment import AbstractExperiment, OptionsTable, build, find_experiment
from .rundir import RunDir, RunError
from .sources import Trust, allowed_again, check_sources, with_code
from .status import Status, status_of
from .warnings import warnings_of

if TYPE_CHECKING:
    from jaxtyping import PyTree

    from .problem import AbstractProblem, Tell

# Figures are made of numeric arrays with few axes. Anything else in the file is not for them.
_KINDS, _MOST_AXES = "fiub", 4
_MOST_BYTES = 2_000_000_000  # 16,384 draws of 30,000 numbers


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """One training and the files it has written, made by `Run.open`. Each file is read once, when needed.

    A run may be in progress, may have been killed, or may have lost some files: what cannot be read counts as
    missing, and `troubles` lists it. `config` holds the contents of config.toml, and `trust` what code of it
    may run.
    """

    path: Path
    config: dict[str, Any]
    experiment: AbstractExperiment
    trust: Trust = Trust.NEARBY

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        experiment: AbstractExperiment | None = None,
        *,
        trust: bool = False,
        density: str | None = None,
    ) -> "Run":
        """Open the run in a directory; a `UserError` explains why that fails.

        Args:
            path: The directory.
            experiment: The experiment, if it is not installed; a run of another one is refused.
            trust: Run its code even from outside the working directory, or changed since the training.
            density: Its code, named again: `FILE.py:NAME` or `MODULE:NAME`. Naming it is trusting it.
        """
        folder = RunDir(path_of("path", path))
        config = folder.config
        if not _is_ours(config):
            raise RunError(
                f"{folder.path / 'config.toml'} was not written by pathgrad, or was changed by hand: it must "
                "name an `experiment` and hold a table `options.training`, and `provenance` must be a table. "
                "Restore it."
            )
        experiment = experiment or find_experiment(config["experiment"])
        if config["experiment"] != experiment.name:
            kind = config["experiment"]
            raise RunError(f"{folder.path} is a run of {kind!r}, not {experiment.name!r}. Name another.")
        opened = cls(folder.path, config, experiment, Trust.ALL if trust else Trust.NEARBY)
        return opened if density is None else with_code(opened, density)

    def with_trust(self, trust: Trust) -> "Run":
        """Return this run with more trust, if it has less."""
        return dataclasses.replace(self, trust=trust) if trust.value > self.trust.value else self

    @property
    def directory(self) -> RunDir:
        """The run directory, for writing to it."""
        return RunDir(self.path)

    # Its options

    @property
    def options(self) -> OptionsTable:
        """The table of options, as in config.toml; `settings` adds types and defaults."""
        return self.config.get("options", {})

    @functools.cached_property
    def settings(self) -> Any:
        """The options as the experiment's dataclass."""
        return self.experiment.read(self.options, str(self.path / "config.toml"))

    @property
    def training(self) -> Mapping[str, Any]:
        """The options of the training."""
        return self.options.get("training", {})

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Versions, machine and command."""
        return self.config.get("provenance", {})

    @property
    def seed(self) -> object:
        """The seed of its random numbers."""
        return self.training.get("seed", "?")

    @property
    def method(self) -> str:
        """The gradient estimator, or whatever took its place."""
        return self.experiment.method(self.options)

    @property
    def label(self) -> str:
        """A short description: what was fitted, how, and with which seed."""
        return f"{self.experiment.title(self.options)}, {self.method}, seed {self.seed}"

    @functools.cached_property
    def alike(self) -> dict[str, Any]:
        """The options that it shares with runs of other seeds, by flat names."""
        return {"experiment": self.experiment.name} | self.experiment.alike(self.options)

    # Its files

    @functools.cached_property
    def _metrics(self) -> tuple[list[Row], str | None]:
        try:
            return self.directory.read_metrics(lenient=True), None
        except UserError as error:
            return [], error.text

    @property
    def rows(self) -> list[Row]:
        """The rows of its metrics, without a last one that was cut off when the process ended."""
        return self._metrics[0]

    @functools.cached_property
    def _evaluation(self) -> tuple[dict[str, Any], str | None]:
        return self._result("evaluation.json", lambda file: json.loads(file.read_text("utf-8")))

    @property
    def evaluation(self) -> dict[str, Any]:
        """The contents of evaluation.json; empty if it has not been evaluated."""
        return self._evaluation[0]

    @functools.cached_property
    def _arrays(self) -> tuple[dict[str, np.ndarray], str | None]:
        arrays, trouble = self._result("evaluation.npz", _arrays_in)
        odd = [n for n, a in arrays.items() if a.dtype.kind not in _KINDS or a.ndim > _MOST_AXES]
        if odd:
            file = self.path / "evaluation.npz"
            trouble = f"{file} holds something other than numbers in {', '.join(odd)}, which is not drawn."
        return {name: array for name, array in arrays.items() if name not in odd}, trouble

    def _result(self, name: str, read: Callable[[Path], Any]) -> tuple[dict[str, Any], str | None]:
        """Return the contents of a file written by an evaluation, or why it cannot be read."""
        file = self.path / name
        try:
            return dict(read(file)), None
        except FileNotFoundError:
            return {}, None
        except Exception as error:  # damage has many forms, and must not hide other runs
            return {}, f"{file} cannot be read ({error}). To write it again, run `{self.evaluate_command}`."

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of evaluation.npz; empty if there are none."""
        return self._arrays[0]

    @property
    def troubles(self) -> list[str]:
        """Files that exist but cannot be read, each with a remedy."""
        return [text for _, text in (self._metrics, self._evaluation, self._arrays) if text is not None]

    # Numbers derived from them

    @property
    def last(self) -> Row | None:
        """The last row."""
        return self.rows[-1] if self.rows else None

    @functools.cached_property
    def best(self) -> Row | None:
        """The row with the best validation, where there was one: the model of that step is kept."""
        return best_row(self.rows)

    def at_end(self, name: str) -> float | None:
        """Return a number from the last row by its name."""
        value = None if self.last is None else self.last.value(name)
        return None if value is None else float(value)

    @property
    def is_evaluated(self) -> bool:
        """Whether its evaluation is up to date."""
        return number_in(self.evaluation, "step") in {row.step for row in (self.last, self.best) if row}

    @property
    def verdict(self) -> Verdict | None:
        """How reliable its evaluation is; `None` without one."""
        return self.experiment.verdict(self.evaluation) if self.evaluation else None

    @property
    def step_ms(self) -> float | None:
        """Milliseconds per step."""
        step, seconds = self.at_end("step"), self.at_end("seconds")
        return 1000 * seconds / step if step and seconds is not None else None

    @functools.cached_property
    def numbers(self) -> dict[str, Number | None]:
        """The numbers of its last row, replaced by those of an up-to-date evaluation, and totals."""
        last = {} if self.last is None else self.last.to_json()
        numbers: dict[str, Number | None] = {name: number_in(last, name) for name in last}
        numbers |= {"step_ms": self.step_ms, "best_validation": self.best and self.best.validation}
        numbers["best_epoch"] = self.best and self.best.value("epoch")
        if self.is_evaluated:
            names = [q.name for q in self.experiment.measured(self.options)]
            numbers |= {name: number_in(self.evaluation, name) for name in names}
        return numbers | self.experiment.totals(self.rows)

    @functools.cached_property
    def seconds_before(self) -> float:
        """Training time of the earlier runs from which this one started."""
        return self.experiment.seconds_before(self)

    # Its progress

    @property
    def is_training(self) -> bool:
        """Whether a process is training in it now."""
        return self.directory.is_locked

    @property
    def has_checkpoints(self) -> bool:
        """Whether there is a checkpoint to evaluate or to resume from."""
        return any((self.path / "checkpoints").glob("step-*.*"))

    @functools.cached_property
    def status(self) -> Status:
        """How far it is, and how to resume it if it stopped."""
        return status_of(self)

    @functools.cached_property
    def warnings(self) -> list[str]:
        """Reasons not to trust it, each with a remedy."""
        return warnings_of(self)

    @property
    def evaluate_command(self) -> str:
        """The command that evaluates it."""
        return f"pathgrad evaluate {shlex.quote(str(self.path))}{self.named_again}"

    @property
    def named_again(self) -> str:
        """What to add to a command if what this run's reader has allowed will be asked for again."""
        return allowed_again(self)

    # What can be done with it

    def problem(self) -> "AbstractProblem":
        """Build what was trained; data are loaded when they are needed."""
        return self._problem

    @functools.cached_property
    def recorded(self) -> Mapping[str, Any]:
        """What its last checkpoint says about the training; empty if there is none."""
        meta: Any = _work().newest_meta(self) if self.has_checkpoints else None
        return meta if isinstance(meta, dict) else {}

    @functools.cached_property
    def notes(self) -> list[str]:
        """What to know about its sources before its model is used; raises if they are not to be trusted."""
        return check_sources(self)

    @functools.cached_property
    def _problem(self) -> "AbstractProblem":
        _ = self.notes  # before any code of it runs
        return build(self.experiment, self.settings)

    def flow(self) -> "PyTree":
        """Return the trained model: a `Flow`, or a model that contains flows."""
        return _work().trained(self).model

    def sample(self, n: int, *, seed: int = 1, refine: int | None = None) -> dict[str, np.ndarray]:
        """Draw from the model, as `pathgrad sample` does; a flow returns `x`, `log_q` and `log_weight`."""
        return _work().sample(self, n, seed=seed, refine=refine)

    def evaluate(
        self, how: Any = None, *, seed: int = 0, tell: "Tell | None" = None, **options: Any
    ) -> dict[str, Any]:
        """Evaluate it, write the results into its directory, and return them as they are in the file.

        Open the run again to read what is written now.

        Args:
            how: The experiment's `EvaluateOptions`; by default made from `options`, such as `samples`.
            seed: Seed of the draws, which are independent of those of training.
            tell: Progress callback: receives the current task, how much of it is done, and the total.
            **options: Fields of the experiment's `EvaluateOptions`.
        """
        how = self.experiment.EvaluateOptions(**options) if how is None else how
        return _work().evaluate(self, how, seed=seed, tell=tell)


def _work() -> ModuleType:
    """Import the code that needs JAX, only now: without it, runs are read in a tenth of the time."""
    from . import work

    return work


def _arrays_in(file: Path) -> dict[str, np.ndarray]:
    with file.open("rb") as stream:
        with zipfile.ZipFile(stream) as stored:
            # A small file can claim to be large, and memory would be taken before it is read.
            claimed = sum(max(part.file_size, _claimed(stored, part)) for part in stored.infolist())
        if claimed > _MOST_BYTES:
            raise ValueError(f"it claims to hold {claimed / 1e9:.3g} GB")
        stream.seek(0)
        with np.load(stream) as stored:
            return {name: stored[name] for name in stored.files}


def _claimed(stored: zipfile.ZipFile, part: zipfile.ZipInfo) -> int:
    """Return how many bytes the header of an array asks for."""
    with stored.open(part) as stream:
        read = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
        shape, _, dtype = read[np.lib.format.read_magic(stream)[0]](stream)
    return math.prod(shape) * dtype.itemsize


def _is_ours(config: Mapping[str, Any]) -> bool:
    """Return whether the entries that identify a run have the types that pathgrad writes."""
    options = config.get("options", {})
    training = options.get("training", {}) if isinstance(options, dict) else None
    if not isinstance(training, dict) or not isinstance(config.get("provenance", {}), dict):
        return False
    words = [config.get("experiment"), *(training.get(n, "") for n in ("estimator", "optimizer"))]
    return all(isinstance(word, str) for word in words)
