"""Base of experiments that fit a flow. No JAX here: the command line imports this to print help."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pathgrad as pg
from pathgrad._numbers.measured import MEASURED
from pathgrad._numbers.verdict import read_verdict

from ..options import ADAM, method_of, unused_of
from . import words

_ESS = pg.Quantity(
    "ess", "ESS", "share", axis="share", better=1, means="effective sample size; 100 % is a perfect flow"
)
_CURVES = (
    pg.Quantity("kl", "reverse KL", axis="log", better=-1, means="nats; 0 is a perfect flow"),
    pg.Quantity(
        "gradient_norm",
        "gradient norm",
        axis="log",
        means="a path gradient shrinks as the flow nears its target",
    ),
    pg.Quantity("gradient_snr", "signal-to-noise ratio of the gradient", axis="log", means="up is better"),
    pg.Quantity("evaluations", "field evaluations of a step", means="work of the ODE solver"),
)
_KNOWN = pg.Quantity("log_z_known", "known log Z", "{:.5f}")

# Options that define a method, and options that only Adam uses.
_METHOD = ("training.optimizer", "training.estimator", "training.newton_steps")


@dataclasses.dataclass(frozen=True)
class FlowEvaluateOptions:
    """The evaluation."""

    samples: int = 65536
    """Number of draws."""
    refine: int | None = None
    """Take this many times the solver steps of training. By default as the experiment recommends."""
    mode_search: bool = True
    """Do not look for modes that the flow has lost. The search takes some seconds: chains start outside the
    flow's draws, with as many gradients of the target as there are samples, at most 64,512; where some end
    outside the flow, measuring what is there takes as many again."""
    draws: str | None = None
    """A file with draws of the target from elsewhere: one row for each (.npy or .csv), in the coordinates of
    the density, for named parameters the free ones; or a file of ArviZ (.nc) with parameters by name. They
    show what the flow has missed, and give an upper bound on log Z."""


class AbstractFlowExperiment(pg.AbstractExperiment):
    """An experiment that fits a flow to a target. It needs a name, `Options`, and `build`.

    `Options` has a field `training` of type `TrainOptions`; `build` returns a `FlowProblem`.
    """

    EvaluateOptions: ClassVar[type] = FlowEvaluateOptions
    shown_options: ClassVar[tuple[str, ...]] = ("target", "dim", *_METHOD)
    compared_options: ClassVar[tuple[str, ...]] = (*_METHOD, "training.steps", "training.max_seconds")

    def defaults(self, /, **given: str) -> Any:
        """Return the options of a preset, adapted to the optimiser."""
        return self.adapted(self.preset(**given), **given)

    def adapted(self, options: Any, /, **given: str) -> Any:
        """Return options with the defaults of an optimiser."""
        if given.get("optimizer") != "gauss-newton" or options.training.optimizer == "gauss-newton":
            return options
        training = dataclasses.replace(options.training, optimizer="gauss-newton", steps=30)
        return dataclasses.replace(options, training=training)

    def preset(self, /, **given: str) -> Any:
        """Return the options of a preset."""
        return self.Options()

    def unused(self, options: Any) -> Mapping[str, str]:
        """Return the options that others make void."""
        return unused_of(getattr(options, "flow", None)) | options.training.unused

    def may_change(self, options: Any) -> tuple[str, ...]:
        # With two stages, `steps` fixes where the second begins, so only the length of the second may change.
        ends = "newton_steps" if options.training.newton_steps else "steps"
        return f"training.{ends}", "training.max_seconds"

    def problem(self, options: pg.OptionsTable) -> str:
        """Return a short name of what is fitted."""
        dim = options.get("dim", 2)
        return f"{options.get('target', '')}" + (f" in {dim} dimensions" if dim != 2 else "")

    def method(self, options: pg.OptionsTable) -> str:
        """Return the gradient that was followed, or the optimiser that follows none."""
        training = options.get("training", {})
        words = training.get("optimizer", "adam"), training.get("estimator", "path")
        return method_of(*words, training.get("newton_steps"))

    def length(self, options: pg.OptionsTable) -> tuple[str, float | None]:
        """Return the number of steps requested, over all stages."""
        steps, more = (pg.number_in(options.get("training"), n) for n in ("steps", "newton_steps"))
        return "step", None if steps is None else steps + (more or 0.0)

    def alike(self, options: pg.OptionsTable) -> dict[str, Any]:
        """Return the options that runs of one group share, without those that their optimiser ignores."""
        shared, unused = super().alike(options), ()
        if shared.get("training.optimizer") == "gauss-newton":
            unused = (*ADAM, "estimator", "newton_steps")
        elif not shared.get("training.newton_steps"):
            unused = ("draws_per_parameter",)
        return {name: value for name, value in shared.items() if name.removeprefix("training.") not in unused}

    def has_common_steps(self, one: pg.OptionsTable, other: pg.OptionsTable) -> bool:
        """Return whether both runs take steps of the same kind."""
        optimizers = {o.get("training", {}).get("optimizer", "adam") for o in (one, other)}
        return len(optimizers) == 1

    def followed(self, options: pg.OptionsTable) -> pg.Quantity:
        """Return the effective sample size of a block's draws."""
        return _ESS

    def result(self, options: pg.OptionsTable) -> pg.Quantity:
        """Return the effective sample size."""
        return _ESS

    def curves(self, options: pg.OptionsTable) -> Sequence[pg.Quantity]:
        return _CURVES

    def measured(self, options: pg.OptionsTable) -> Sequence[pg.Quantity]:
        after = [quantity.name for quantity in MEASURED].index("log_z") + 1
        return (*MEASURED[:after], _KNOWN, *MEASURED[after:])

    def verdict(self, evaluation: pg.Numbers) -> pg.Verdict | None:
        """Return the verdict on the importance weights."""
        return read_verdict(evaluation)

    def doubts(self, runs: Sequence[pg.Run], seconds: float) -> list[str]:
        return words.doubts(runs, seconds)

    def level(self, run: pg.Run) -> pg.Level | None:
        return words.level(run)

    def explained(self, runs: Sequence[pg.Run]) -> list[str]:
        return words.explained(runs)

    def warnings(self, run: pg.Run) -> list[str]:
        return words.warnings(run)

    def panels(self) -> Mapping[str, pg.Panel]:
        from .figures import PANELS

        return PANELS
