"""An experiment: everything specific to one use of the library. Only what `build` returns needs JAX."""

import abc
import contextlib
import dataclasses
import functools
import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from .._numbers.quantity import Numbers, Quantity, number_in
from .._numbers.verdict import Level, Verdict
from .._words.arguments import instance
from .._words.errors import ArgumentError, UserError
from .._words.text import Number
from .options import flat, from_mapping
from .panel import Panel
from .sources import Source

if TYPE_CHECKING:
    from jaxtyping import PyTree

    from .._train.row import Row
    from .._train.state import TrainState
    from .._train.trainer import Trainer
    from .problem import AbstractProblem
    from .run import Run

ENTRY_POINTS = "pathgrad.experiments"

OptionsTable = Mapping[str, Any]  # as in the table `options` of config.toml

# The cost of a training and the size of its gradients: the first and last columns of a table of runs.
_COSTS = (
    Quantity("step", "steps", "count"),
    Quantity("seconds", "training, s", "{:.1f}"),
    Quantity("step_ms", "ms/step", "{:.1f}"),
)
_GRADIENTS = (Quantity("gradient_norm", "gradient norm", "{:.3g}"), Quantity("skipped", "skipped", "count"))


class ResultTable(NamedTuple):
    """Further results of an evaluation, with a note below.

    Attributes:
        heads: Headings of the columns; the first column names the rows.
        doubtful: Indices of the rows that contradict known values.
    """

    title: str
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]
    doubtful: tuple[int, ...] = ()
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Decided:
    """What an experiment has decided for a new run, and the training that it did to find out.

    Attributes:
        options: The options, all that was left open replaced by what was decided.
        trainer: The trainer of these options, and `state` and `rows` what it has reached with the keys of the
            run: the run goes on from there. `None` to begin at the beginning.
        notes: Sentences for the user.
    """

    options: Any
    trainer: "Trainer | None" = None
    state: "TrainState | None" = None
    rows: "Sequence[Row]" = ()
    notes: Sequence[str] = ()


class AbstractExperiment(abc.ABC):
    """The options of an experiment, the problem they describe, and how its runs are measured and drawn.

    The command line, the figures and the report use this interface only, and never ask which experiment it
    is. A package adds its own through an entry point in the group `pathgrad.experiments` that names an
    instance. To fit a flow to a target, subclass `AbstractFlowExperiment`, which needs only `build`.

    Attributes:
        name: Name of the experiment in config.toml and on the command line.
        summary: One line of help.
        Options: A frozen dataclass with a `name` for the run directory, and a table `training` with at least
            `seed` and `max_seconds`.
        EvaluateOptions: A frozen dataclass with the options of an evaluation.
        presets: Names of presets, the default first, and what each is for.
        checkpoint_seconds: Seconds of work that a killed run may lose by default.
        cpu_devices: How many devices a CPU with as many cores counts as by default. Two share a batch faster
            than one device with two threads if most of the work is in many small operations.
        is_evaluated_at_end: Whether `pathgrad` evaluates a run as soon as it is trained.
        first_word: Option that may come first on the command line without its name.
        incidental_options: Options that do not describe what is trained; flat names like `training.seed`.
        shown_options: Options that `problem` and `method` already show, so that labels omit them; flat names.
        compared_options: Options in which the two sides of a comparison may differ; flat names.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    Options: ClassVar[type]
    EvaluateOptions: ClassVar[type]
    presets: ClassVar[Mapping[str, str]] = {}
    checkpoint_seconds: ClassVar[float] = 10.0
    cpu_devices: ClassVar[int] = 1
    is_evaluated_at_end: ClassVar[bool] = False
    first_word: ClassVar[str | None] = None
    incidental_options: ClassVar[tuple[str, ...]] = ("training.seed",)
    shown_options: ClassVar[tuple[str, ...]] = ("target", "training.estimator")
    compared_options: ClassVar[tuple[str, ...]] = ("training.estimator", "training.max_seconds")

    @property
    def command(self) -> str:
        """The command that trains it, without `pathgrad`."""
        return f"train {self.name}"

    # From options to a problem

    def defaults(self, /, **given: str) -> Any:
        """Return the default options that go with the choices given (`preset`, ...)."""
        return self.Options()

    def adapted(self, options: Any, /, **given: str) -> Any:
        """Return the options of an earlier run, with the defaults that go with the choices given now."""
        return options

    def settled(self, options: Any) -> tuple[Any, list[str]]:
        """Return options that mean the same in any working directory, and notes for the user."""
        return options, []

    def planned(self, options: Any, preset: str, out: Path) -> list[tuple[Path, Any]]:
        """Return the runs to train one after the other, with their directories."""
        return [(out, options)]

    def series(self, out: Path) -> list[Path]:
        """Return every directory below `out` that a plan of several runs may use."""
        return []

    @abc.abstractmethod
    def build(self, options: Any) -> "AbstractProblem":
        """Return the problem that the options describe."""

    def decided(self, options: Any, tell: Callable[[str, float], None]) -> Decided:
        """Decide what depends on clocks and measurements, for a new run, before anything is written.

        A resumed run takes the decisions from its options, and so repeats them to the same bits. `tell`
        receives what is being done, and the share of it that is done.
        """
        return Decided(options)

    def for_costs(self, options: Any) -> Any:
        """Return the options for `bench`: what does not affect the cost of a gradient may be filled in."""
        return options

    def sources(self, options: Any) -> Sequence[Source]:
        """Return the code and the data outside the run that the options name.

        Before code runs that is not below the working directory, or has changed since a run was trained, the
        reader of the run is asked.
        """
        return ()

    def begin(self, options: Any, model: "PyTree") -> "tuple[PyTree, dict[str, Any]]":
        """Return the model to start from, given the untrained one, and what to record about its origin."""
        return model, {}

    def unused(self, options: Any) -> Mapping[str, str]:
        """Return options that have no effect beside the others, by their names, and why: they are refused."""
        return {}

    def training_seconds(self, options: Any) -> float | None:
        """Return the training time after which a run stops; `None` for no limit."""
        return options.training.max_seconds

    def may_change(self, options: Any) -> tuple[str, ...]:
        """Return the options that may change when a run is resumed, by flat names: those of its length."""
        return ("training.steps", "training.max_seconds")

    def read(self, options: OptionsTable, where: str) -> Any:
        """Return the options in the contents of a file, which error messages call `where`."""
        return from_mapping(self.Options, options, where)

    # Describing a run by its options

    def problem(self, options: OptionsTable) -> str:
        """Return a short name of what is fitted; runs of different problems never share a figure."""
        return str(options.get("target", ""))

    def title(self, options: OptionsTable) -> str:
        """Return a readable title of what is fitted."""
        return f"{self.name} {self.problem(options)}".strip()

    def method(self, options: OptionsTable) -> str:
        """Return the name that decides colour, line and comparisons: usually the estimator."""
        return str(options.get("training", {}).get("estimator", self.name))

    def size(self, options: OptionsTable) -> float:
        """Return the number by which groups of runs are sorted."""
        return 0.0

    def length(self, options: OptionsTable) -> tuple[str, float | None]:
        """Return the unit of a training's length, `step` or `epoch`, and how many were asked for."""
        return "step", number_in(options.get("training"), "steps")

    def alike(self, options: OptionsTable) -> dict[str, Any]:
        """Return the options that runs of one group share, by flat names: all but their seed."""
        # Options that an older version did not write get their defaults; those of a newer one stay as is.
        with contextlib.suppress(UserError):
            options = dataclasses.asdict(self.read(options, ""))
        return {name: v for name, v in flat(options).items() if name not in self.incidental_options}

    def has_common_steps(self, one: OptionsTable, other: OptionsTable) -> bool:
        """Return whether steps of two methods are alike enough to be compared one by one."""
        return True

    def seconds_before(self, run: "Run") -> float:
        """Return the training time of the earlier runs from which a run started."""
        return 0.0

    def doubts(self, runs: "Sequence[Run]", seconds: float) -> list[str]:
        """Return caveats about comparing a group with another after so many seconds of training."""
        return []

    # What is measured, and how reliable it is

    @abc.abstractmethod
    def followed(self, options: OptionsTable) -> Quantity:
        """Return the logged number by which a training is followed and compared."""

    @abc.abstractmethod
    def result(self, options: OptionsTable) -> Quantity:
        """Return the one number that sums up an evaluation."""

    @abc.abstractmethod
    def curves(self, options: OptionsTable) -> Sequence[Quantity]:
        """Return the other logged numbers that are worth a curve."""

    @abc.abstractmethod
    def measured(self, options: OptionsTable) -> Sequence[Quantity]:
        """Return the numbers of an evaluation, in the order of its table."""

    def published(self, options: OptionsTable) -> Mapping[str, float]:
        """Return published values of the number that is followed, in its unit, by method."""
        return {}

    def columns(self, options: OptionsTable) -> list[Quantity]:
        """Return the columns of a table of several runs."""
        return [*_COSTS, *(q for q in self.measured(options) if q.compared), *_GRADIENTS]

    def totals(self, rows: "Sequence[Row]") -> dict[str, Number | None]:
        """Return numbers of the entire training, in addition to those of its last row, for `columns`."""
        return {}

    @abc.abstractmethod
    def verdict(self, evaluation: Numbers) -> Verdict | None:
        """Return how reliable the contents of an evaluation.json are, `None` where that is unknown."""

    def level(self, run: "Run") -> Level | None:
        """Return how far a run can be trusted as it is now; `None` if unknown."""
        return run.verdict.level if run.is_evaluated and run.verdict is not None else None

    def story(self, run: "Run") -> list[str]:
        """Return what to tell of a training that has just ended, before its evaluation."""
        return []

    def first_evaluation(self, options: OptionsTable) -> Any:
        """Return the `EvaluateOptions` for a run that is evaluated as soon as it is trained."""
        return self.EvaluateOptions()

    def advice(self, run: "Run") -> Sequence[str]:
        """Return what to do next, after training and evaluation, with the names of arguments marked."""
        return []

    def tables(self, run: "Run") -> list[ResultTable]:
        """Return further results of a run's evaluation."""
        return []

    def explained(self, runs: "Sequence[Run]") -> list[str]:
        """Explain what the result of a group of runs means, in words for readers from outside the field."""
        return []

    def warnings(self, run: "Run") -> list[str]:
        """Return what is wrong with a run beyond its verdict, each with a remedy."""
        return []

    # What is drawn

    def panels(self) -> Mapping[str, Panel]:
        """Return the figures that can be drawn from runs, by their names on the command line."""
        return {}


@functools.cache
def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    points = importlib.metadata.entry_points(group=ENTRY_POINTS)
    # If two experiments have the same name, the library's own comes last and wins.
    return {p.name: p for p in sorted(points, key=lambda p: p.value.startswith("pathgrad."))}


def experiment_names() -> list[str]:
    """Return the names of all installed experiments, without loading them."""
    return list(_entry_points())


def find_experiment(name: str) -> AbstractExperiment:
    """Return an experiment by its name."""
    instance("name", name, str, "the name of an experiment")
    return _found(name)


@functools.cache
def _found(name: str) -> AbstractExperiment:
    points = _entry_points()
    if name not in points:
        raise UserError(
            f"There is no experiment {name!r}; installed are {', '.join(points) or 'none'}. Check the name, "
            "or install the package that provides it."
        )
    where = f"The experiment {name!r} cannot be loaded from {points[name].value}"
    try:
        experiment = points[name].load()
    except (Exception, SystemExit) as error:  # a broken package must not stop the other experiments
        raise UserError(f"{where}: {type(error).__name__}: {error}.") from error
    if not isinstance(experiment, AbstractExperiment):
        kind = type(experiment).__name__
        raise UserError(f"{where}: it must be an instance of a subclass of AbstractExperiment, not {kind}.")
    missing = [n for n in ("name", "summary", "Options", "EvaluateOptions") if not hasattr(experiment, n)]
    if missing:
        raise UserError(f"{where}: it has no {' and no '.join(missing)}.")
    if experiment.name != name:  # its runs are found again by this name
        raise UserError(f"{where}: its `name` is {experiment.name!r}. Make the two names equal.")
    return experiment


def build(experiment: AbstractExperiment, options: Any) -> "AbstractProblem":
    """Return the problem that the options describe; bad values become a `UserError`."""
    try:
        return experiment.build(options)
    except ArgumentError:  # a `UserError` already, with its arguments marked
        raise
    except ValueError as error:
        raise UserError(str(error)) from error
