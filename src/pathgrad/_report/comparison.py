"""Who is ahead after the same number of steps, and after the same time of training."""

import itertools
import math
import statistics
from typing import NamedTuple

from pathgrad._plots.elbo import unit_of
from pathgrad._train.row import Row, best_row

from .contents import Run
from .words import count, sentence, several

_BLOCKS = 6  # of a run alone, to see how they scatter
_FEWEST_RISES = 3  # between those, else too little is known of it


class Comparison(NamedTuple):
    """Two groups of runs that differ in their estimator: who is ahead, and by how much."""

    title: str
    sentences: list[str]


class Standing(NamedTuple):
    """Two groups at the same place, given by the run that ended first.

    `lead` is by how much the first is ahead, whether more or less of the number is better; `usual` the same
    of the medians of their last blocks, which a single bad block does not move; `error` the standard error of
    the lead, infinite where nothing is known of it, from so many degrees of `freedom`; `below_bound` whether
    the one ahead had a loss there that no density can reach.
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
    def decided(self) -> bool:
        """Whether the lead is more than chance explains in 95 of 100 cases."""
        from scipy.special import stdtrit

        if math.isinf(self.error) or self.lead * self.usual < 0:
            return False
        # Of few seeds the scatter itself is hardly known, which two standard errors do not allow for.
        quantile = float(stdtrit(min(self.freedom, 1e6), 0.975))
        return abs(self.lead) > quantile * self.error


def compare(one: list[Run], other: list[Run], equal_time: str, *, timed: bool) -> Comparison:
    """Compare two groups.

    Args:
        one: Runs of an estimator that differ by their seed only.
        other: The same of another estimator.
        equal_time: What is to be said of them after the same time, reservations included.
        timed: Whether their times can be compared.
    """
    by_time, by_step = standing(one, other, "seconds") if timed else None, None
    if (
        _optimizer(one) == _optimizer(other) or one[0].dataset
    ):  # steps of others have nothing in common
        by_step = standing(one, other, "step")
    sentences = [] if by_step is None else [_at_equal_steps(by_step, one[0])]
    at_time = f"At equal time, {equal_time}" if timed else sentence(equal_time)
    title = _title((one[0].estimator, other[0].estimator), one[0], by_step, by_time)
    return Comparison(title + _which(one[0], other[0]), [*sentences, at_time])


def _which(one: Run, other: Run) -> str:
    """Say which groups are meant, where an estimator has several."""
    details = [run.label.removeprefix(run.estimator).lstrip(", ") for run in (one, other)]
    return f" ({' against '.join(dict.fromkeys(details))})" if all(details) else ""


def standing(one: list[Run], other: list[Run], x: str) -> Standing | None:
    """Return how two groups stand where the first of their runs ended; `None` where a number is missing."""
    ends = [run.at_end(x) for run in (*one, *other)]
    at = min((end for end in ends if end is not None), default=None)
    if at is None or None in ends:
        return None
    values = [[value_at(run, x, at) for run in group] for group in (one, other)]
    known = [[v for v in group if v is not None] for group in values]
    if any(len(k) < len(v) or not k for k, v in zip(known, values, strict=True)):
        return None
    lead = statistics.mean(known[0]) - statistics.mean(known[1])
    error, freedom = _error(*(_scatter(group, x, at) for group in (one, other)))
    if one[0].dataset:  # less is better
        return Standing(at, known[0], known[1], -lead, -lead, error, freedom)
    medians = [
        statistics.mean(statistics.median(_last_sizes(run, x, at)) for run in group)
        for group in (one, other)
    ]
    ahead = one if lead > 0 else other
    below = any(row.below_bound for run in ahead for row in _rows_until(run, x, at)[-1:])
    usual = medians[0] - medians[1]
    return Standing(at, known[0], known[1], lead, usual, error, freedom, below)


def _rows_until(run: Run, x: str, at: float) -> list[Row]:
    return [row for row in run.rows if (place := row.value(x)) is not None and place <= at]


def _last_sizes(run: Run, x: str, at: float) -> list[float]:
    """Return the ESS of the last few blocks until then."""
    rows = _rows_until(run, x, at)[-_BLOCKS:]
    return [size for row in rows if (size := row.value("ess")) is not None]


def _error(one: tuple[float, int], other: tuple[float, int]) -> tuple[float, float]:
    """Return the standard error of a difference and its degrees of freedom, by Welch's formula."""
    total = one[0] + other[0]
    if math.isinf(total) or total == 0:
        return total, math.inf
    share = sum((variance / total) ** 2 / freedom for variance, freedom in (one, other))
    return math.sqrt(total), 1 / share


def _scatter(group: list[Run], x: str, at: float) -> tuple[float, int]:
    """Return the variance of a group's mean and its degrees of freedom.

    Of several seeds it is theirs, of a single run that of its last blocks. A validation is always of the
    same images, so how it goes on says nothing of how another seed would do.
    """
    values = [v for run in group if (v := value_at(run, x, at)) is not None]
    if len(values) > 1:
        return statistics.variance(values) / len(values), len(values) - 1
    if group[0].dataset:
        return math.inf, 1
    # A steady rise is no scatter; the difference of two blocks has twice the variance of one.
    rises = [b - a for a, b in itertools.pairwise(_last_sizes(group[0], x, at))]
    if len(rises) < _FEWEST_RISES:
        return math.inf, 1
    return statistics.variance(rises) / 2, len(rises) - 1


def value_at(run: Run, x: str, at: float) -> float | None:
    """Return the ESS of the last block until then; of an autoencoder the best validation until then."""
    rows = _rows_until(run, x, at)
    if not run.dataset:
        return rows[-1].value("ess") if rows else None
    best = best_row(rows)
    return None if best is None else best.validation


def _optimizer(group: list[Run]) -> str:
    return str(group[0].training.get("optimizer", "adam"))


def _title(
    names: tuple[str, str], run: Run, by_step: Standing | None, by_time: Standing | None
) -> str:
    places = {"at equal steps": by_step, "at equal training time": by_time}
    said: dict[str, list[str]] = {}
    for place, found in places.items():
        if found is not None:
            said.setdefault(_result(names, found), []).append(place)
    where = f" on {run.problem}" if run.problem else ""
    if not said:
        return f"{names[0]} against {names[1]}{where}"
    text = "; ".join(f"{result} {' and '.join(at)}" for result, at in said.items())
    return text[0].upper() + text[1:] + where


def _result(names: tuple[str, str], found: Standing) -> str:
    first, second = names if found.lead >= 0 else names[::-1]
    if found.below_bound:
        return f"not comparable, as {first} had a loss below −log Z,"
    if found.decided:
        return f"{first} is ahead of {second}"
    if math.isinf(found.error) and found.lead * found.usual > 0:
        single = "these single runs" if len(found.one) == len(found.other) == 1 else "these runs"
        return f"{first} did better than {second} in {single}"
    return "no clear winner"


def _at_equal_steps(found: Standing, run: Run) -> str:
    if run.dataset:
        unit = unit_of(run.dataset)
        values = [
            several([v / unit.nats for v in group], unit.form) for group in (found.one, found.other)
        ]
        lead = unit.form.replace(":", ":+").format(-found.lead / unit.nats).replace("-", "−")
        what = f"best validation until then {values[0]} against {values[1]} {unit.name}"
        ending = f"a difference of {lead} {unit.name} (lower is better)"
    else:
        values = [
            several([100 * v for v in group], "{:.2f}") + "\u00a0%"
            for group in (found.one, found.other)
        ]
        what = f"ESS {values[0]} against {values[1]}"
        ending = f"a difference of {100 * found.lead:+.2f} points".replace("-", "−")
    return f"At equal steps (step {count(found.at)}, where the shortest of them ended): {what}, {ending}."
