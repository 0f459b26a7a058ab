"""Estimators compared after the same time of training: the comparison that a dearer step has to stand."""

import dataclasses
import itertools
import json
import statistics
from typing import Any, NamedTuple

from pathgrad._train.row import Row, best_row

from .summary import OWN, Summary, grouped
from .table import mean_and_deviation

# How long a run goes on may differ: a dearer step is often given fewer of them.
_MAY_DIFFER = {
    f"training.{name}"
    for name in ("optimizer", "estimator", "steps", "newton_steps", "max_seconds")
}
# Of autoencoders, optimisers are told apart like any other option.
_MAY_DIFFER_VAE = {
    f"training.{name}" for name in ("estimator", "epochs", "steps", "max_seconds", "patience")
}
_ORDER = {"path-gauss-newton": -2, "gauss-newton": -1, "path": 0, "two-copy": 1, "total": 2}


class Early(NamedTuple):
    """A group that was still on its way: at which step it was, and of how many."""

    estimator: str
    step: int
    of: int


@dataclasses.dataclass(frozen=True)
class EqualTime:
    """Two groups after the same time of training.

    Attributes:
        one: Runs of an estimator that differ by their seed only.
        other: The same of another.
        seconds: When the first of them ended; `None` where their clocks have nothing in common, as they ran
            on different machines. Then nothing else is known either.
        reached: What the runs of each group had reached there: the ESS of the last block, or the best
            negative ELBO of the validation in nats.
        cost: What a step of one group takes, in steps of the other.
        begun: Whether some began with other runs, whose time is not counted.
        beta: What the KL term of autoencoders weighed, if that was less than 1.
        early: Groups that were still on their way, with their learning rate falling.
        below_bound: Estimators that had a loss there which no density can reach.
    """

    one: list[Summary]
    other: list[Summary]
    seconds: float | None
    reached: tuple[list[float], list[float]] = ([], [])
    cost: float | None = None
    begun: bool = False
    beta: float | None = None
    early: tuple[Early, ...] = ()
    below_bound: tuple[str, ...] = ()

    def sentence(self, gap: str = "") -> str:
        """Say all of it, with a `gap` between a number and its per cent sign."""
        first = self.one[0]
        head = f"{first.estimator} against {self.other[0].estimator}"
        head += f" at L = {first.size}" if first.size else ""
        head += f" on {first.dataset}" if first.dataset else ""
        return f"{head}{':' if self.seconds is None else ','} {self.result(gap)}"

    def result(self, gap: str = "") -> str:
        """Say all of it but for the names of the rivals."""
        if self.seconds is None:
            return "not compared at equal time, the runs were made on different machines."
        reached = self._elbos() if self.one[0].dataset else self._sizes(gap)
        said = f"each after {self.seconds:.1f} s of training {reached}"
        return " ".join([said, *self._doubts(gap)])

    def _sizes(self, gap: str) -> str:
        shares = [[100 * share for share in group] for group in self.reached]
        values = " against ".join(mean_and_deviation(each, f"{{:.2f}}{gap}%") for each in shares)
        lead = statistics.mean(shares[0]) - statistics.mean(shares[1])
        return (
            f"(when the first of them ended; last block of steps until then): ESS {values}, a difference of "
            f"{lead:+.2f} points."
        )

    def _elbos(self) -> str:
        from pathgrad._plots import unit_of

        unit = unit_of(self.one[0].problem)
        found = [[nats / unit.nats for nats in group] for group in self.reached]
        values = " against ".join(mean_and_deviation(each, unit.form) for each in found)
        lead = unit.form.replace(":", ":+").format(
            statistics.mean(found[0]) - statistics.mean(found[1])
        )
        return (
            f"(when the first of them ended): best negative ELBO of the validation until then {values} "
            f"{unit.name}, a difference of {lead} {unit.name} (lower is better)."
        )

    def _doubts(self, gap: str) -> list[str]:
        """Return what a reader must know before believing the comparison."""
        said = []
        if self.begun:
            said.append("The training of the runs they began with is not counted.")
        if self.cost is not None:
            said.append(f"A step takes {_ratio(self.cost, gap)}.")
        if len(self.one) == 1 or len(self.other) == 1:
            said.append("With a single run on a side, seeds may decide the difference.")
        if self.beta is not None:
            said.append(f"The KL warm-up was not over there: the KL term weighed {self.beta:.2g}.")
        for name in (self.one[0].estimator, self.other[0].estimator):
            said += [
                f"{name} was still on its way, at step {step} of {of}, with its learning rate falling."
                for who, step, of in self.early
                if who == name
            ]
            if name in self.below_bound:
                said.append(f"{name} had a loss below -log Z there: its ESS is not to be trusted.")
        return said


def equal_times(summaries: list[Summary]) -> list[EqualTime]:
    """Return each two groups that differ in their estimator, and how long they trained."""
    rivals: dict[str, list[list[Summary]]] = {}
    for group in grouped(summaries):
        may = _MAY_DIFFER_VAE if group[0].dataset else _MAY_DIFFER | OWN
        same = _same(group[0].alike, may)
        rivals.setdefault(same, []).append(group)
    found = []
    for groups in rivals.values():
        groups = sorted(groups, key=lambda group: _ORDER.get(group[0].estimator, 9))
        for one, other in itertools.combinations(groups, 2):
            if one[0].estimator != other[0].estimator and _fair(one[0], other[0]):
                found.append(_compare(one, other))
    return [each for each in found if each is not None]


def _fair(one: Summary, other: Summary) -> bool:
    """Say whether nothing else differs that both make use of."""
    if one.optimizer != other.optimizer or one.dataset:  # of the latter it has been seen to
        return True
    return _same(one.alike, _MAY_DIFFER) == _same(other.alike, _MAY_DIFFER)


def _same(alike: dict[str, Any], without: set[str]) -> str:
    """Return the options but for some, also of the runs that these began with."""

    def left(options: dict[str, Any]) -> dict[str, Any]:
        return {
            name: left(value) if isinstance(value, dict) else value
            for name, value in options.items()
            if name not in without
        }

    return json.dumps(left(alike), sort_keys=True, default=str)


def _compare(one: list[Summary], other: list[Summary]) -> EqualTime | None:
    """Compare two groups at the end of the run that ended first; `None` where a number is missing."""
    runs = [*one, *other]
    if len({_machine(s) for s in runs}) > 1:
        return EqualTime(one, other, None)
    ends = [s.numbers.get("seconds") for s in runs]
    known = [end for end in ends if end is not None]
    if len(known) < len(ends):
        return None
    seconds = min(known)
    reached = [[_reached(s, seconds) for s in group] for group in (one, other)]
    first, second = ([value for value in group if value is not None] for group in reached)
    if len(first) < len(one) or len(second) < len(other):
        return None
    costs = [
        statistics.mean(s.numbers.get("step_ms") or 0.0 for s in group) for group in (one, other)
    ]
    lattices = [] if one[0].dataset else [one, other]
    early = [found for group in lattices if (found := _early(group, seconds)) is not None]
    below = [
        group[0].estimator
        for group in lattices
        if any(row.below_bound for row in _last_rows(group, seconds))
    ]
    weights = [row.value("beta") for row in _last_rows(runs, seconds) if one[0].dataset]
    return EqualTime(
        one,
        other,
        seconds,
        (first, second),
        cost=costs[0] / costs[1] if costs[1] > 0 else None,
        begun=any(s.config.get("options", {}).get("init_from") for s in runs),
        beta=min((beta for beta in weights if beta is not None and beta < 1), default=None),
        early=tuple(early),
        below_bound=tuple(below),
    )


def _ratio(cost: float, gap: str) -> str:
    """Say what a step costs in steps of the other side."""
    percents = round(100 * (cost - 1))
    if percents == 0:
        return "the same time"
    if cost >= 2:
        return f"{float(f'{cost:.2g}'):g} times as long"
    return f"{abs(percents)}{gap}% {'more' if percents > 0 else 'less'} time"


def _machine(s: Summary) -> tuple[Any, Any]:
    known = s.config.get("provenance", {})
    return known.get("platform"), known.get("cpus")


def _reached(s: Summary, seconds: float) -> float | None:
    """Return the ESS of the last block until then, or the best validation of an autoencoder."""
    until = [row for row in s.rows if row.seconds <= seconds]
    if not s.dataset:
        return until[-1].value("ess") if until else None
    best = best_row(until)
    return None if best is None else best.validation


def _last_rows(runs: list[Summary], seconds: float) -> list[Row]:
    """Return the last row of each run until then."""
    found = [[row for row in s.rows if row.seconds <= seconds][-1:] for s in runs]
    return [row for rows in found for row in rows]


def _early(group: list[Summary], seconds: float) -> Early | None:
    """Return how far the slowest of a group was, if its learning rate was to fall further."""
    first = group[0]
    if first.optimizer != "adam" or first.training.get("decay", "none") == "none":
        return None
    places = zip(_last_rows(group, seconds), group, strict=True)
    ends = [(row.step, s.training.get("steps")) for row, s in places]
    late = [(step, of) for step, of in ends if of and step < of]
    return Early(first.estimator, *min(late)) if late else None
