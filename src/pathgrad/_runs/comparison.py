"""Which method is ahead at equal steps and at equal training time, and whether by more than chance."""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Literal, NamedTuple

from scipy.special import stdtrit

from .._numbers.quantity import Quantity
from .._train.row import Row
from .._words.arguments import shown
from .._words.errors import ArgumentError, named
from .._words.text import count
from .group import Group
from .look import rank_of
from .run import Run

Axis = Literal["step", "seconds"]

_BLOCKS = 6  # last blocks of a single run, from which its scatter is estimated
_FEWEST_RISES = 3  # differences between blocks without which the scatter is unknown


class Standing(NamedTuple):
    """Two groups compared at the step or time at which the first of their runs ended.

    Attributes:
        at: That step, or those seconds of training.
        one: Values that the runs of the first group had reached by then; `other` holds those of the second.
        lead: How far the first is ahead; positive means better, even where lower numbers are better.
        usual: The lead in the medians of their last blocks, which a single bad block does not move.
        error: Standard error of the lead; infinite if unknown.
        freedom: Degrees of freedom of that error.
        below_bound: Whether the group ahead had a loss there that no density can reach.
    """

    at: float
    one: list[float]
    other: list[float]
    lead: float
    usual: float
    error: float
    freedom: float = math.inf
    below_bound: bool = False

    @property
    def is_decided(self) -> bool:
        """Whether chance alone would produce such a lead in fewer than 5 of 100 cases."""
        # With few seeds the scatter itself is poorly known, which two standard errors would ignore.
        quantile = float(stdtrit(min(self.freedom, 1e6), 0.975))
        return self.lead * self.usual >= 0 and abs(self.lead) > quantile * self.error


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two groups of one problem whose methods differ.

    Attributes:
        quantity: The number by which they are compared.
        by_step: The result at equal steps; `None` where their steps cannot be compared.
        by_time: The result at equal training time; `None` where their clocks cannot be compared.
        cost: Time that a step of the first takes, in steps of the other.
        doubts: Caveats: what to know before believing the result.
    """

    one: Group
    other: Group
    quantity: Quantity
    by_step: Standing | None
    by_time: Standing | None
    cost: float | None
    doubts: tuple[str, ...]

    @property
    def title(self) -> str:
        """Who is ahead, in one sentence."""
        names = (self.one.method, self.other.method)
        judgements: dict[str, list[str]] = {}
        for place, result in (("steps", self.by_step), ("training time", self.by_time)):
            if result is not None:
                judgements.setdefault(_judgement(names, result), []).append(f"at equal {place}")
        text = "; ".join(f"{judgement} {' and '.join(at)}" for judgement, at in judgements.items())
        text = text or f"{names[0]} against {names[1]}"
        details = [self.one.detail, self.other.detail]
        which = f" ({' against '.join(dict.fromkeys(details))})" if all(details) else ""
        return f"{text[0].upper()}{text[1:]} on {self.one.problem}{which}"

    @property
    def sentences(self) -> list[str]:
        """The numbers, and the caveats."""
        sentences = []
        if self.by_step is not None:
            at = f"step {count(self.by_step.at)}, where the shortest of them ended"
            sentences.append(f"At equal steps ({at}): {self._numbers(self.by_step)}.")
        if self.by_time is not None:
            at = f"{self.by_time.at:.1f} s each, when the first of them ended"
            sentences.append(f"At equal training time ({at}): {self._numbers(self.by_time)}.")
            sentences += [f"A step takes {_ratio(self.cost)}."] if self.cost is not None else []
        return [*sentences, *self.doubts]

    def _numbers(self, result: Standing) -> str:
        write = self.quantity.write_several
        lead = result.lead * self.quantity.better
        best = "best " if self.quantity.best else ""
        lower = " (lower is better)" if self.quantity.better < 0 else ""
        return (
            f"{best}{self.quantity.title} {write(result.one)} against {write(result.other)}, a difference of "
            f"{self.quantity.write_difference(lead)}{lower}"
        )


def compare_groups(groups: Sequence[Group]) -> list[Comparison]:
    """Compare every two groups that differ only in their method and in how long they trained."""
    if not isinstance(groups, Sequence) or not all(isinstance(group, Group) for group in groups):
        raise ArgumentError(f"{named('groups')} must be a list of groups, got {shown(groups)}.")
    ordered = sorted(groups, key=lambda group: rank_of(group.method))
    pairs = itertools.combinations(ordered, 2)
    comparisons = [_compare(one, other) for one, other in pairs if _are_rivals(one.first, other.first)]
    return [comparison for comparison in comparisons if comparison is not None]


def _are_rivals(one: Run, other: Run) -> bool:
    """Return whether the groups of two runs are worth comparing.

    Options that only one of the two methods uses, and so only one of them has, do not count.
    """
    if one.experiment is not other.experiment or one.method == other.method:
        return False
    both = (one.alike.keys() & other.alike.keys()) - set(one.experiment.compared_options)
    return all(one.alike[name] == other.alike[name] for name in both)


def _compare(one: Group, other: Group) -> Comparison | None:
    """Compare two groups at the end of the run that ended first; `None` where a number is missing."""
    runs, experiment = [*one.runs, *other.runs], one.first.experiment
    quantity = experiment.followed(one.first.options)
    if not quantity.better:
        return None
    machines = {(run.provenance.get("platform"), run.provenance.get("cpus")) for run in runs}
    by_time = standing(one, other, quantity, "seconds") if len(machines) == 1 else None
    steps = experiment.has_common_steps(one.first.options, other.first.options)
    by_step = standing(one, other, quantity, "step") if steps else None
    if by_time is None and by_step is None and len(machines) == 1:
        return None
    doubts = []
    if len(machines) > 1:
        doubts.append("Not compared at equal time: the runs were made on different machines.")
    if len(one.runs) == 1 or len(other.runs) == 1:
        doubts.append("With a single run on one side, the difference may be due to the seed.")
    if by_time is not None:
        both = [experiment.doubts(group.runs, by_time.at) for group in (one, other)]
        doubts += dict.fromkeys(itertools.chain(*both))
    costs = [[run.step_ms for run in group.runs if run.step_ms is not None] for group in (one, other)]
    cost = statistics.mean(costs[0]) / statistics.mean(costs[1]) if all(costs) else None
    return Comparison(one, other, quantity, by_step, by_time, cost, tuple(doubts))


def standing(one: Group, other: Group, quantity: Quantity, x: Axis) -> Standing | None:
    """Compare two groups where the first of their runs ended; `None` where a number is missing."""
    groups, sign = (one, other), quantity.better
    ends = [run.at_end(x) for group in groups for run in group.runs]
    at = min((end for end in ends if end is not None), default=math.nan)
    values = [[_value_at(run, quantity, x, at) for run in group.runs] for group in groups]
    lead = sign * (statistics.mean(values[0]) - statistics.mean(values[1]))
    if None in ends or math.isnan(lead):
        return None
    blocks = [[_last_values(run, quantity, x, at) for run in group.runs] for group in groups]
    scatters = [
        _scatter(reached, last, known=group.has_other_seeds)
        for group, reached, last in zip(groups, values, blocks, strict=True)
    ]
    error, freedom = _error(*scatters)
    if quantity.best:
        return Standing(at, values[0], values[1], lead, lead, error, freedom)
    medians = [statistics.mean(map(statistics.median, group)) for group in blocks]
    ahead = one if lead > 0 else other
    below = any(row.below_bound for run in ahead.runs for row in _rows_until(run, x, at)[-1:])
    usual = sign * (medians[0] - medians[1])
    return Standing(at, values[0], values[1], lead, usual, error, freedom, below)


def _rows_until(run: Run, x: Axis, at: float) -> list[Row]:
    return [row for row in run.rows if (place := row.value(x)) is not None and place <= at]


def _value_at(run: Run, quantity: Quantity, x: Axis, at: float) -> float:
    """Return a number from the last row up to a place, or the best so far if that counts; NaN if unknown."""
    values = [quantity.value(row.to_json()) for row in _rows_until(run, x, at)]
    if quantity.best:
        known = [value for value in values if value is not None]
        return (max if quantity.better > 0 else min)(known, default=math.nan)
    return math.nan if not values or values[-1] is None else values[-1]


def _last_values(run: Run, quantity: Quantity, x: Axis, at: float) -> list[float]:
    """Return a number from the last few blocks up to a place; none for a best so far: it cannot scatter."""
    rows = [] if quantity.best else _rows_until(run, x, at)[-_BLOCKS:]
    return [v for row in rows if (v := quantity.value(row.to_json())) is not None]


def _error(one: tuple[float, int], other: tuple[float, int]) -> tuple[float, float]:
    """Return the standard error of a difference and its degrees of freedom, by Welch's formula."""
    total = one[0] + other[0]
    if math.isinf(total) or total == 0:
        return total, math.inf
    share = sum((variance / total) ** 2 / freedom for variance, freedom in (one, other))
    return math.sqrt(total), 1 / share


def _scatter(values: Sequence[float], blocks: Sequence[Sequence[float]], *, known: bool) -> tuple[float, int]:
    """Return the variance of a mean over runs and its degrees of freedom; for a single run, from its blocks.

    Runs with the same seed do not show how different seeds scatter: then it is not `known`.
    """
    if len(values) > 1 and not known:
        return math.inf, 1
    if len(values) > 1:
        return statistics.variance(values) / len(values), len(values) - 1
    # A steady rise is not scatter; the difference of two blocks has twice the variance of one.
    rises = [b - a for a, b in itertools.pairwise(blocks[0])]
    if len(rises) < _FEWEST_RISES:
        return math.inf, 1
    return statistics.variance(rises) / 2, len(rises) - 1


def _judgement(names: tuple[str, str], result: Standing) -> str:
    first, second = names if result.lead >= 0 else names[::-1]
    if result.below_bound:
        return f"not comparable, as {first} had a loss below -log Z,"
    if result.is_decided:
        return f"{first} is ahead of {second}"
    if math.isinf(result.error) and result.lead * result.usual > 0:
        single = "these single runs" if len(result.one) == len(result.other) == 1 else "these runs"
        return f"{first} did better than {second} in {single}"
    return f"no clear winner between {first} and {second}"


def _ratio(cost: float) -> str:
    """Return in words how long a step takes, compared with a step of the other side."""
    percents = round(100 * (cost - 1))
    if percents == 0:
        return "the same time"
    if cost >= 2:
        return f"{float(f'{cost:.2g}'):g} times as long"
    return f"{abs(percents)} % {'more' if percents > 0 else 'less'} time"
