"""Fit a user's own log density with nothing chosen. No JAX here: the command line imports this for help."""

import dataclasses
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pathgrad as pg
from pathgrad._numbers.written import table_of
from pathgrad._runs.status import resume_command
from pathgrad._words.paths import expanded
from pathgrad._words.text import duration, percent

from ..density.experiment import absolute
from ..flows.experiment import AbstractFlowExperiment
from .options import MOST_ROUNDS, FitOptions, Found

# Options of `pathgrad fit` before it chose the flow itself.
_MOVED = (
    *("base", "width", "depth", "solver", "solver_steps", "tolerance", "divergence", "probes", "adjoint"),
    *("optimizer", "estimator", "steps", "newton_steps", "draws_per_parameter", "learning_rate", "beta1"),
    *("beta2", "decay", "clip", "average", "block"),
)
_SHOWN = 40  # rows of the table of parameters
_GOOD_ESS = 0.95  # below which more training is advised


class FitExperiment(AbstractFlowExperiment):
    """Fit a user's own log density with nothing chosen."""

    name: ClassVar[str] = "fit"
    summary: ClassVar[str] = "fit your own JAX log density, with nothing to choose"
    Options: ClassVar[type] = FitOptions
    first_word: ClassVar[str | None] = "density"
    is_evaluated_at_end: ClassVar[bool] = True
    shown_options: ClassVar[tuple[str, ...]] = (*AbstractFlowExperiment.shown_options, "density")
    # What is decided by measurement may differ between seeds.
    incidental_options: ClassVar[tuple[str, ...]] = (
        *("training.seed", "training.batch", "training.first", "training.rounds", "precision"),
        *("found.centre", "found.defended"),
    )

    @property
    def command(self) -> str:
        return self.name

    def adapted(self, options: Any, /, **given: str) -> Any:
        """Return the options as they are, once none of those that have moved is given."""
        if moved := [name for name in _MOVED if name in given]:
            raise pg.UserError(
                f"`pathgrad fit` chooses flow and training itself: leave out "
                f"{', '.join(map(pg.named, moved))}. To choose them, write `pathgrad train density` instead."
            )
        return options

    def read(self, options: pg.OptionsTable, where: str) -> Any:
        """Return the options in a file; say what to do about one of an older version."""
        if not isinstance(options.get("flow", ""), str):
            raise pg.UserError(
                f"{where} was written by pathgrad 0.2 or older, when `fit` was what `train density` is now. "
                'Write `experiment = "density"` there.'
            )
        return super().read(options, where)

    def problem(self, options: pg.OptionsTable) -> str:
        """Return the name of the function and its dimension."""
        function = str(options.get("density", "")).rpartition(":")[2]
        return f"{function} in {options.get('dim', '?')} dimensions"

    def length(self, options: pg.OptionsTable) -> tuple[str, float | None]:
        """Return the number of steps in all rounds."""
        first, rounds = (pg.number_in(options.get("training"), name) for name in ("first", "rounds"))
        if first is None or rounds is None or not 0 <= rounds <= MOST_ROUNDS:
            return "step", None
        return "step", first * (2**rounds - 1)

    def alike(self, options: pg.OptionsTable) -> dict[str, Any]:
        return super(AbstractFlowExperiment, self).alike(options)

    def unused(self, options: FitOptions) -> Mapping[str, str]:
        """Return what the fit finds itself."""
        return dict.fromkeys((f.name for f in dataclasses.fields(Found)), "the fit finds it itself")

    def may_change(self, options: FitOptions) -> tuple[str, ...]:
        return ("training.rounds",)

    def training_seconds(self, options: FitOptions) -> float | None:
        """Return no limit: the time has become a number of rounds, so that a resumed run repeats it."""
        return None

    def settled(self, options: FitOptions) -> tuple[FitOptions, list[str]]:
        """Make the path of a file absolute, so that the run can be evaluated from any directory."""
        data = None if options.data is None else str(expanded(options.data).absolute())
        return dataclasses.replace(options, density=absolute(options.density), data=data), []

    def sources(self, options: FitOptions) -> Sequence[pg.Source]:
        """Return the code of the density or model, and the data of a model."""
        data = () if options.data is None else (pg.Source("data", options.data, is_code=False),)
        return (pg.Source("density", options.density), *data)

    def decided(self, options: FitOptions, tell: Callable[[str, float], None]) -> pg.Decided:
        """Find coordinates, compare flows, and see how many rounds fit into the time."""
        from .deciding import decide

        return decide(options, tell)

    def build(self, options: FitOptions) -> Any:
        from .problem import build

        return build(options)

    def begin(self, options: FitOptions, model: Any) -> tuple[Any, dict[str, Any]]:
        """Return the untrained flow in the coordinates of a warm start."""
        from .deciding import begin

        return begin(options, model), {}

    def story(self, run: pg.Run) -> list[str]:
        """Return what the rounds of training led to."""
        lines = []
        for row in run.rows:
            if row.value("is_good") is None:
                continue
            ess, khat = row.value("look_ess"), row.value("look_khat")
            tail = "" if khat is None else f", k-hat {khat:.2f}"
            lines.append(
                f"round {row.value('round'):.0f}, step {row.step}: ESS {percent(ess)}{tail} "
                f"({duration(row.seconds)} of training)"
            )
        return lines

    def first_evaluation(self, options: pg.OptionsTable) -> Any:
        """Return an evaluation as long as a look, since the time for it was planned."""
        samples = pg.number_in(options.get("training"), "look_draws")
        return self.EvaluateOptions() if samples is None else self.EvaluateOptions(samples=int(samples))

    def advice(self, run: pg.Run) -> Sequence[str]:
        """Return how to draw from the flow, or how to train for longer if it is not good."""
        ess, is_good = pg.number_in(run.evaluation, "ess"), run.last and run.last.value("is_good")
        if is_good or ess is None or ess > _GOOD_ESS or run.last is None:
            draws = f"{pg.named('n')} 10000 {pg.named('out')} draws.npz"
            return [f"Next: pathgrad sample {shlex.quote(str(run.path))}{run.named_again} {draws}"]
        if run.last.value("is_good") is None:  # training ended inside a round: one more would diverge too
            return ["To raise the ESS, smooth the density, or transform its parameters: it must be finite."]
        rounds = int(pg.number_in(run.training, "rounds") or 0)
        more = duration(2 * run.last.seconds)  # a round is as long as all before it, and a little longer
        again = f"{resume_command(self, run.path)}{run.named_again} {pg.named('rounds')}"
        return [
            f"To raise the ESS, train one more round, which takes about {more}: {again} {rounds + 1}",
            f"Or try another {pg.named('flow')}, or transform the parameters of the density.",
        ]

    def tables(self, run: pg.Run) -> list[pg.ResultTable]:
        """Return a summary of the parameters, if they have names."""
        stored = run.evaluation.get("parameters")
        if not isinstance(stored, Mapping) or not stored:
            return []
        heads, rows = table_of(dict(list(stored.items())[:_SHOWN]))
        total = int(pg.number_in(run.evaluation, "parameters_in_all") or len(stored))
        note = f"The first {len(rows)} of {total} numbers." if total > len(rows) else ""
        return [pg.ResultTable("Parameters, with the errors of the last digits", heads, rows, note=note)]


FIT = FitExperiment()
