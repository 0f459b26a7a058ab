"""Who is ahead after as many steps, and after as much time, and whether that is more than chance."""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Literal, NamedTuple

from scipy.special import stdtrit

from .._numbers.quantity import Quantity
from .._train.row import Row
from .._words.text import count
from .group import Group
from .look import rank_of
from .run import Run

Axis = Literal["step", "seconds"]

_BLOCKS = 6  # of a run alone, to see how they scatter
_FEWEST_RISES = 3  # between those, else too little is known of it


class Standing(NamedTuple):
    """Two groups at the same place, given by the run that ended first.

    Attributes:
        at: The place: a step, or seconds of training.
        one: What the runs of the first group had reached there; `other` is of the second.
        lead: By how much the first is ahead, whether more or less of the number is better.
        usual: The same of the medians of their last blocks, which a single bad block does not move.
        error: The standard error of the lead, infinite where nothing is known of it.
        freedom: How many degrees of freedom it is from.
        below_bound: Whether the one ahead had a loss there that no density can reach.
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
        """Whether the lead is more than chance explains in 95 of 100 cases."""
        # Of few seeds the scatter itself is hardly known, which two standard errors do not allow for.
        quantile = float(stdtrit(min(self.freedom, 1e6), 0.975))
        return self.lead * self.usual >= 0 and abs(self.lead) > quantile * self.error


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two groups of one problem whose methods differ.

    Attributes:
        quantity: By what they are compared.
        by_step: How they stand after as many steps; `None` where steps have nothing in common.
        by_time: How they stand after as much training time; `None` where clocks have nothing in common.
        cost: What a step of the first takes, in steps of the other.
        doubts: What to know before believing it.
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
        """The judgement."""
        names = (self.one.method, self.other.method)
        said: dict[str, list[str]] = {}
        for place, found in (("steps", self.by_step), ("training time", self.by_time)):
            if found is not None:
                said.setdefault(_judgement(names, found), []).append(f"at equal {place}")
        text = "; ".join(f"{result} {' and '.join(at)}" for result, at in said.items())
        text = text or f"{names[0]} against {names[1]}"
        details = [self.one.detail, self.other.detail]
        which = f" ({' against '.join(dict.fromkeys(details))})" if all(details) else ""
        return f"{text[0].upper()}{text[1:]} on {self.one.problem}{which}"

    @property
    def sentences(self) -> list[str]:
        """The numbers, and what to know about them."""
        said = []
        if self.by_step is not None:
            at = f"step {count(self.by_step.at)}, where the shortest of them ended"
            said.append(f"At equal steps ({at}): {self._numbers(self.by_step)}.")
        if self.by_time is not None:
            at = f"{self.by_time.at:.1f} s each, when the first of them ended"
            said.append(f"At equal training time ({at}): {self._numbers(self.by_time)}.")
            said += [f"A step takes {_ratio(self.cost)}."] if self.cost is not None else []
        return [*said, *self.doubts]

    def _numbers(self, found: Standing) -> str:
        write = self.quantity.write_several
        lead = found.lead * self.quantity.better
        best = "best " if self.quantity.best else ""
        lower = " (lower is better)" if self.quantity.better < 0 else ""
        return (
            f"{best}{self.quantity.title} {write(found.one)} against {write(found.other)}, a difference of "
            f"{self.quantity.write_difference(lead)}{lower}"
        )


def compare_groups(groups: Sequence[Group]) -> list[Comparison]:
    """Return a comparison of each two groups that differ in their method, and how long they trained."""
    ordered = sorted(groups, key=lambda group: rank_of(group.method))
    pairs = itertools.combinations(ordered, 2)
    found = [_compare(one, other) for one, other in pairs if _are_rivals(one.first, other.first)]
    return [each for each in found if each is not None]


def _are_rivals(one: Run, other: Run) -> bool:
    """Say whether the groups of two runs are worth a comparison.

    What only one of two methods makes use of, and so only one of them has, does not count.
    """
    if one.experiment is not other.experiment or one.method == other.method:
        return False
    both = (one.alike.keys() & other.alike.keys()) - set(one.experiment.rivalling)
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
        doubts.append("With a single run on a side, seeds may decide the difference.")
    if by_time is not None:
        both = [experiment.doubts(group.runs, by_time.at) for group in (one, other)]
        doubts += dict.fromkeys(itertools.chain(*both))
    costs = [[run.step_ms for run in group.runs if run.step_ms is not None] for group in (one, other)]
    cost = statistics.mean(costs[0]) / statistics.mean(costs[1]) if all(costs) else None
    return Comparison(one, other, quantity, by_step, by_time, cost, tuple(doubts))


def standing(one: Group, other: Group, quantity: Quantity, x: Axis) -> Standing | None:
    """Return how two groups stand where the first of their runs ended; `None` where a number is missing."""
    groups, sign = (one, other), quantity.better
    ends = [run.at_end(x) for group in groups for run in group.runs]
    at = min((end for end in ends if end is not None), default=math.nan)
    values = [[_value_at(run, quantity, x, at) for run in group.runs] for group in groups]
    lead = sign * (statistics.mean(values[0]) - statistics.mean(values[1]))
    if None in ends or math.isnan(lead):
        return None
    blocks = [[_last_values(run, quantity, x, at) for run in group.runs] for group in groups]
    scatters = [
        _scatter(each, own, known=group.has_other_seeds)
        for group, each, own in zip(groups, values, blocks, strict=True)
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
    """Return a number in the last row until a place, or the best until then if it counts; NaN if unknown."""
    values = [quantity.value(row.to_json()) for row in _rows_until(run, x, at)]
    if quantity.best:
        known = [value for value in values if value is not None]
        return (max if quantity.better > 0 else min)(known, default=math.nan)
    return math.nan if not values or values[-1] is None else values[-1]


def _last_values(run: Run, quantity: Quantity, x: Axis, at: float) -> list[float]:
    """Return a number of the last few blocks until a place; the best so far does not scatter."""
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
    """Return the variance of a mean over runs and its degrees of freedom; of one run, from its blocks.

    The same seed twice says nothing of how others scatter: then it is not `known`.
    """
    if len(values) > 1 and not known:
        return math.inf, 1
    if len(values) > 1:
        return statistics.variance(values) / len(values), len(values) - 1
    # A steady rise is no scatter; the difference of two blocks has twice the variance of one.
    rises = [b - a for a, b in itertools.pairwise(blocks[0])]
    if len(rises) < _FEWEST_RISES:
        return math.inf, 1
    return statistics.variance(rises) / 2, len(rises) - 1


def _judgement(names: tuple[str, str], found: Standing) -> str:
    first, second = names if found.lead >= 0 else names[::-1]
    if found.below_bound:
        return f"not comparable, as {first} had a loss below -log Z,"
    if found.is_decided:
        return f"{first} is ahead of {second}"
    if math.isinf(found.error) and found.lead * found.usual > 0:
        single = "these single runs" if len(found.one) == len(found.other) == 1 else "these runs"
        return f"{first} did better than {second} in {single}"
    return f"no clear winner between {first} and {second}"


def _ratio(cost: float) -> str:
    """Say what a step costs in steps of the other side."""
    percents = round(100 * (cost - 1))
    if percents == 0:
        return "the same time"
    if cost >= 2:
        return f"{float(f'{cost:.2g}'):g} times as long"
    return f"{abs(percents)} % {'more' if percents > 0 else 'less'} time"
