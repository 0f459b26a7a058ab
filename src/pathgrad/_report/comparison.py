"""Who is ahead after the same number of steps, and after the same time of training."""

import itertools
import math
import re
import statistics
from typing import NamedTuple

from pathgrad._plots.elbo import unit_of

from .contents import Run
from .words import count, several

_BLOCKS = 6  # of a run alone, to see how they scatter


class Comparison(NamedTuple):
    """Two groups of runs that differ in their estimator: who is ahead, and by how much."""

    title: str
    sentences: list[str]


class Standing(NamedTuple):
    """Two groups at the same place, given by the run that ended first.

    `lead` is by how much the first is ahead, whether more or less of the number is better; `usual` the same
    of the medians of their last blocks, which a single bad block does not move; `error` how far chance alone
    may put them apart.
    """

    at: float
    one: list[float]
    other: list[float]
    lead: float
    usual: float
    error: float

    @property
    def decided(self) -> bool:
        """Whether the lead is more than chance explains."""
        return abs(self.lead) > 2 * self.error and self.lead * self.usual >= 0


def compare(one: list[Run], other: list[Run], equal_time: str) -> Comparison:
    """Compare two groups.

    Args:
        one: Runs of an estimator that differ by their seed only.
        other: The same of another estimator.
        equal_time: What `pathgrad compare` says of them after the same time, reservations included.
    """
    by_time, by_step = standing(one, other, "seconds"), None
    if (
        _optimizer(one) == _optimizer(other) or one[0].dataset
    ):  # steps of others have nothing in common
        by_step = standing(one, other, "step")
    if equal_time.endswith("different machines."):
        by_time = None
    sentences = [] if by_step is None else [_at_equal_steps(by_step, one[0])]
    title = _title((one[0].estimator, other[0].estimator), one[0], by_step, by_time)
    return Comparison(title + _which(one[0], other[0]), [*sentences, _without_head(equal_time)])


def _which(one: Run, other: Run) -> str:
    """Say which groups are meant, where an estimator has several."""
    details = [run.label.removeprefix(run.estimator).lstrip(", ") for run in (one, other)]
    return f" ({' against '.join(dict.fromkeys(details))})" if all(details) else ""


def standing(one: list[Run], other: list[Run], x: str) -> Standing | None:
    """Return how two groups stand where the first of their runs ended; `None` where a number is missing."""
    ends = [run.last.get(x) for run in (*one, *other)]
    if not ends or None in ends:
        return None
    at = min(end for end in ends if end is not None)
    values = [[value_at(run, x, at) for run in group] for group in (one, other)]
    known = [[v for v in group if v is not None] for group in values]
    if any(len(k) < len(v) or not k for k, v in zip(known, values, strict=True)):
        return None
    lead = statistics.mean(known[0]) - statistics.mean(known[1])
    error = math.hypot(*(_error(group, x, at) for group in (one, other)))
    if one[0].dataset:  # a validation is of many images, and less is better
        return Standing(at, known[0], known[1], -lead, -lead, error)
    medians = [
        statistics.mean(statistics.median(_last_sizes(run, x, at)) for run in group)
        for group in (one, other)
    ]
    return Standing(at, known[0], known[1], lead, medians[0] - medians[1], error)


def _last_sizes(run: Run, x: str, at: float) -> list[float]:
    """Return the ESS of the last few blocks until then."""
    rows = [row for row in run.rows if (place := row.get(x)) is not None and place <= at]
    return [size for row in rows[-_BLOCKS:] if (size := row.get("ess")) is not None]


def _error(group: list[Run], x: str, at: float) -> float:
    """Return the standard error of a group's mean: of its seeds; of a single run, of its last blocks."""
    values = [v for run in group if (v := value_at(run, x, at)) is not None]
    if len(values) > 1:
        return statistics.stdev(values) / math.sqrt(len(values))
    if group[0].dataset:
        return 0.0
    # A steady rise is no scatter; the difference of two blocks has twice the variance of one.
    rises = [b - a for a, b in itertools.pairwise(_last_sizes(group[0], x, at))]
    return statistics.stdev(rises) / math.sqrt(2) if len(rises) > 1 else 0.0


def value_at(run: Run, x: str, at: float) -> float | None:
    """Return the ESS of the last block until then; of an autoencoder the best validation until then."""
    rows = [row for row in run.rows if (place := row.get(x)) is not None and place <= at]
    if not run.dataset:
        return rows[-1].get("ess") if rows else None
    best = [v for row in rows if (v := row.get("validation")) is not None]
    return min(best, default=None)


def _optimizer(group: list[Run]) -> str:
    return str(group[0].training.get("optimizer", "adam"))


def _title(
    names: tuple[str, str], run: Run, by_step: Standing | None, by_time: Standing | None
) -> str:
    places = {"at equal steps": by_step, "at equal training time": by_time}
    ahead: dict[str, list[str]] = {}
    for place, found in places.items():
        if found is not None:
            who = names[found.lead < 0] if found.decided else ""
            ahead.setdefault(who, []).append(place)
    where = f" on {run.problem}" if run.problem else ""
    said = []
    for who, at in ahead.items():
        rival = names[1] if who == names[0] else names[0]
        ending = " and ".join(at)
        said.append(f"{who} is ahead of {rival} {ending}" if who else f"no clear winner {ending}")
    if not said:
        return f"{names[0]} against {names[1]}{where}"
    text = "; ".join(said)
    return text[0].upper() + text[1:] + where


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


def _without_head(equal_time: str) -> str:
    """Take the names of the rivals away: the title has them."""
    _, _, rest = equal_time.partition(", each ")
    rest = re.sub(r"(?<=\d)%", "\u00a0%", rest)  # as elsewhere on the page
    return f"At equal time, each {rest}" if rest else equal_time
