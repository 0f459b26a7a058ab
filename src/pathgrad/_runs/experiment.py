"""An experiment: all that one use of the library knows. No JAX here, but for what `build` returns."""

import abc
import contextlib
import dataclasses
import functools
import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from .._numbers.quantity import Numbers, Quantity, number_in
from .._numbers.verdict import Level, Verdict
from .._words.errors import ArgumentError, UserError
from .._words.text import Number
from .options import flat, from_mapping
from .panel import Panel

if TYPE_CHECKING:
    from jaxtyping import PyTree

    from .._train.row import Row
    from .problem import AbstractProblem
    from .run import Run

ENTRY_POINTS = "pathgrad.experiments"

OptionsTable = Mapping[str, Any]  # as in the table `options` of config.toml

# What a training took, and how its gradients were: the first and last columns of a table of runs.
_COSTS = (
    Quantity("step", "steps", "count"),
    Quantity("seconds", "training, s", "{:.1f}"),
    Quantity("step_ms", "ms/step", "{:.1f}"),
)
_GRADIENTS = (Quantity("gradient_norm", "gradient norm", "{:.3g}"), Quantity("skipped", "skipped", "count"))


class ResultTable(NamedTuple):
    """Further results of an evaluation, with a note below.

    Attributes:
        heads: Of its columns; the first names the rows.
        doubtful: Numbers of the rows that contradict what is known.
    """

    title: str
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]
    doubtful: tuple[int, ...] = ()
    note: str = ""


class AbstractExperiment(abc.ABC):
    """What can be chosen, how that becomes a problem, and how its runs are told apart, measured and drawn.

    The command line, the pictures and the report go through what it offers, and never ask which one it is. A
    package adds its own by an entry point of the group `pathgrad.experiments` that names an instance. To fit
    a flow to a target, subclass `AbstractFlowExperiment`, which needs `build` alone.

    Attributes:
        name: In config.toml and on the command line.
        summary: One line of help.
        Options: A frozen dataclass. It has a `name` for the run directory, and a table `training` with at
            least `seed` and `max_seconds`.
        EvaluateOptions: A frozen dataclass: what can be chosen about an evaluation.
        presets: Names of presets, the default first, and what each is for.
        checkpoint_seconds: How much work a killed run may lose by default.
        first_word: The option that may stand first on the command line without its name.
        silent: Options that say nothing about what was trained, laid flat.
        told: Options that `problem` and `method` tell, laid flat: labels need not say them again.
        rivalling: Options in which the two sides of a comparison may differ, laid flat.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    Options: ClassVar[type]
    EvaluateOptions: ClassVar[type]
    presets: ClassVar[Mapping[str, str]] = {}
    checkpoint_seconds: ClassVar[float] = 10.0
    first_word: ClassVar[str | None] = None
    silent: ClassVar[tuple[str, ...]] = ("training.seed",)
    told: ClassVar[tuple[str, ...]] = ("target", "training.estimator")
    rivalling: ClassVar[tuple[str, ...]] = ("training.estimator", "training.max_seconds")

    @property
    def command(self) -> str:
        """How it is trained from the command line, after `pathgrad`."""
        return f"train {self.name}"

    # From options to a problem

    def defaults(self, /, **given: str) -> Any:
        """Return the options to begin with, given the words of others (`preset`, ...) that are chosen."""
        return self.Options()

    def adapted(self, options: Any, /, **given: str) -> Any:
        """Return options of an earlier run with the defaults that go with words that are chosen now."""
        return options

    def settled(self, options: Any) -> tuple[Any, list[str]]:
        """Return options that mean the same from any place, and what their owner should be told."""
        return options, []

    def planned(self, options: Any, preset: str, out: Path) -> list[tuple[Path, Any]]:
        """Return the runs to be trained one after the other, with their directories."""
        return [(out, options)]

    def series(self, out: Path) -> list[Path]:
        """Return every directory below `out` that a plan of several runs may use."""
        return []

    @abc.abstractmethod
    def build(self, options: Any) -> "AbstractProblem":
        """Return the problem that the options describe."""

    def for_costs(self, options: Any) -> Any:
        """Return options of which `bench` measures the gradient: what costs nothing need not be known."""
        return options

    def begin(self, options: Any, model: "PyTree") -> "tuple[PyTree, dict[str, Any]]":
        """Return the model to begin with, given the untrained one, and what to remember of its origin."""
        return model, {}

    def may_change(self, options: Any) -> tuple[str, ...]:
        """Return which options may be given anew when a run is resumed, laid flat: how long it goes on."""
        return ("training.steps", "training.max_seconds")

    def read(self, options: OptionsTable, where: str) -> Any:
        """Return options out of the contents of a file, which is named in messages."""
        return from_mapping(self.Options, options, where)

    # What options say of a run

    def problem(self, options: OptionsTable) -> str:
        """Say in a word what is fitted; runs of different problems are not drawn into one picture."""
        return str(options.get("target", ""))

    def title(self, options: OptionsTable) -> str:
        """Say for people what is fitted."""
        return f"{self.name} {self.problem(options)}".strip()

    def method(self, options: OptionsTable) -> str:
        """Return the word that decides colour and line, and is compared with others: mostly the estimator."""
        return str(options.get("training", {}).get("estimator", self.name))

    def size(self, options: OptionsTable) -> float:
        """Return by what groups of runs are sorted."""
        return 0.0

    def length(self, options: OptionsTable) -> tuple[str, float | None]:
        """Return what a training is counted in, `step` or `epoch`, and how many it was asked for."""
        return "step", number_in(options.get("training"), "steps")

    def alike(self, options: OptionsTable) -> dict[str, Any]:
        """Return what runs have in common that belong to one group, laid flat: all but their seed."""
        # Options that older versions did not write are as they did without; those of a later one stay as is.
        with contextlib.suppress(UserError):
            options = dataclasses.asdict(self.read(options, ""))
        return {name: v for name, v in flat(options).items() if name not in self.silent}

    def has_common_steps(self, one: OptionsTable, other: OptionsTable) -> bool:
        """Say whether steps of two methods are alike enough to be counted against each other."""
        return True

    def seconds_before(self, run: "Run") -> float:
        """Return the training time of the runs that a run began with."""
        return 0.0

    def doubts(self, runs: "Sequence[Run]", seconds: float) -> list[str]:
        """Say what to know before a group is compared with another after so many seconds of training."""
        return []

    # What is measured, and what it is worth

    @abc.abstractmethod
    def followed(self, options: OptionsTable) -> Quantity:
        """Return the number of a row of metrics by which a training is followed and compared."""

    @abc.abstractmethod
    def result(self, options: OptionsTable) -> Quantity:
        """Return the one number that an evaluation comes to."""

    @abc.abstractmethod
    def curves(self, options: OptionsTable) -> Sequence[Quantity]:
        """Return the further numbers of the rows that are worth a curve."""

    @abc.abstractmethod
    def measured(self, options: OptionsTable) -> Sequence[Quantity]:
        """Return what an evaluation finds, in the order of its table."""

    def published(self, options: OptionsTable) -> Mapping[str, float]:
        """Return what others reached in the number that is followed, in its unit, by their method."""
        return {}

    def columns(self, options: OptionsTable) -> list[Quantity]:
        """Return the columns of a table of several runs."""
        return [*_COSTS, *(q for q in self.measured(options) if q.compared), *_GRADIENTS]

    def totals(self, rows: "Sequence[Row]") -> dict[str, Number | None]:
        """Return numbers of a training as a whole, beside those of its last row, for `columns`."""
        return {}

    @abc.abstractmethod
    def verdict(self, evaluation: Numbers) -> Verdict | None:
        """Return what the contents of an evaluation.json are worth, `None` where that cannot be said."""

    def level(self, run: "Run") -> Level | None:
        """Return how far a run can be relied on as it is now, all things considered; `None` if not known."""
        return run.verdict.level if run.is_evaluated and run.verdict is not None else None

    def tables(self, run: "Run") -> list[ResultTable]:
        """Return further results of its evaluation."""
        return []

    def explained(self, runs: "Sequence[Run]") -> list[str]:
        """Say what the result of a group of runs means, in words that need no knowledge of the field."""
        return []

    def warnings(self, run: "Run") -> list[str]:
        """Say what is wrong with a run beyond its verdict, each with a remedy."""
        return []

    # What is drawn

    def panels(self) -> Mapping[str, Panel]:
        """Return the pictures that can be drawn of runs, by their names on the command line."""
        return {}


@functools.cache
def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    points = importlib.metadata.entry_points(group=ENTRY_POINTS)
    # Of one name the library's own is meant, whoever else has it.
    return {p.name: p for p in sorted(points, key=lambda p: p.value.startswith("pathgrad."))}


def experiment_names() -> list[str]:
    """Return the names of all experiments that are installed, without loading them."""
    return list(_entry_points())


@functools.cache
def find_experiment(name: str) -> AbstractExperiment:
    """Return an experiment by its name."""
    points = _entry_points()
    if name not in points:
        raise UserError(
            f"There is no experiment {name!r}; there are {', '.join(points) or 'none'}. Is the package that "
            "provides it installed?"
        )
    where = f"The experiment {name!r} cannot be loaded from {points[name].value}"
    try:
        found = points[name].load()
    except Exception as error:  # of another package: whatever it is, the others shall work
        raise UserError(f"{where}: {type(error).__name__}: {error}.") from error
    if not isinstance(found, AbstractExperiment):
        kind = type(found).__name__
        raise UserError(f"{where}: it must be an instance of a subclass of AbstractExperiment, not {kind}.")
    lacking = [n for n in ("name", "summary", "Options", "EvaluateOptions") if not hasattr(found, n)]
    if lacking:
        raise UserError(f"{where}: it has no {' and no '.join(lacking)}.")
    if found.name != name:  # which is what its runs are found again by
        raise UserError(f"{where}: it calls itself {found.name!r}.")
    return found


def build(experiment: AbstractExperiment, options: Any) -> "AbstractProblem":
    """Return the problem that the options describe; bad values become a `UserError`."""
    try:
        return experiment.build(options)
    except ArgumentError:  # which it is already, with its arguments marked
        raise
    except ValueError as error:
        raise UserError(str(error)) from error
