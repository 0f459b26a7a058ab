"""Estimators compared after the same time of training: the comparison that a dearer step has to stand."""

import itertools
import json
import statistics
from typing import Any, NamedTuple

from .summary import OWN, Summary, grouped
from .table import mean_and_deviation

# How long a run goes on may differ: a dearer step is often given fewer of them.
_MAY_DIFFER = {f"training.{name}" for name in ("optimizer", "estimator", "steps", "max_seconds")}
# Of autoencoders, optimisers are told apart like any other option.
_MAY_DIFFER_VAE = {
    f"training.{name}" for name in ("estimator", "epochs", "steps", "max_seconds", "patience")
}
_ORDER = {"gauss-newton": -1, "path": 0, "two-copy": 1, "total": 2}


class EqualTime(NamedTuple):
    """Two groups after the same time of training.

    Attributes:
        one: Runs of an estimator that differ by their seed only.
        other: The same of another.
        seconds: When the first of them ended; `None` where their times have nothing in common.
        reached: What they had reached there, in words.
        doubts: Sentences to know before it is believed.
    """

    one: list[Summary]
    other: list[Summary]
    seconds: float | None
    reached: str
    doubts: list[str]

    @property
    def body(self) -> str:
        """All of it but for the names of the rivals."""
        if self.seconds is None:
            return self.reached
        said = f"each after {self.seconds:.1f} s of training {self.reached}"
        return " ".join([said, *self.doubts])

    @property
    def text(self) -> str:
        """All of it."""
        first = self.one[0]
        head = f"{first.estimator} against {self.other[0].estimator}"
        head += f" at L = {first.size}" if first.size else ""
        head += f" on {first.dataset}" if first.dataset else ""
        return f"{head}{':' if self.seconds is None else ','} {self.body}"


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
        why = "not compared at equal time, the runs were made on different machines."
        return EqualTime(one, other, None, why, [])
    if any(not s.rows or s.rows[-1].get("seconds") is None for s in runs):
        return None
    seconds = min(s.rows[-1]["seconds"] for s in runs)
    found = _elbos(one, other, seconds) if one[0].dataset else _sizes(one, other, seconds)
    if found is None:
        return None
    reached, reservations = found
    doubts = []
    if any(s.config.get("options", {}).get("init_from") for s in runs):
        doubts.append("The training of the runs they began with is not counted.")
    costs = [statistics.mean(s.numbers["step_ms"] for s in group) for group in (one, other)]
    if costs[1] > 0:
        doubts.append(f"A step takes {_ratio(costs[0] / costs[1])}.")
    if len(one) == 1 or len(other) == 1:
        doubts.append("With a single run on a side, seeds may decide the difference.")
    return EqualTime(one, other, seconds, reached, doubts + reservations)


def _ratio(cost: float) -> str:
    """Say what a step costs in steps of the other side."""
    percents = round(100 * (cost - 1))
    if percents == 0:
        return "the same time"
    if cost >= 2:
        return f"{float(f'{cost:.2g}'):g} times as long"
    return f"{abs(percents)}% {'more' if percents > 0 else 'less'} time"


def _sizes(
    one: list[Summary], other: list[Summary], seconds: float
) -> tuple[str, list[str]] | None:
    """Compare the ESS of the last block until then; `None` where a run has none."""
    rows = [[_last_row(s, seconds) for s in group] for group in (one, other)]
    sizes = [[row["ess"] for row in each if row and row.get("ess") is not None] for each in rows]
    if any(len(found) < len(group) for found, group in zip(sizes, (one, other), strict=True)):
        return None
    means = [statistics.mean(found) for found in sizes]
    values = " against ".join(mean_and_deviation(found, "{:.2%}") for found in sizes)
    said = (
        "(when the first of them ended; last block of steps until then): "
        f"ESS {values}, a difference of {100 * (means[0] - means[1]):+.2f} points."
    )
    return said, _reservations(one, other, rows)


def _elbos(
    one: list[Summary], other: list[Summary], seconds: float
) -> tuple[str, list[str]] | None:
    """Compare the best validation until then; `None` where a run had not ended an epoch."""
    from pathgrad._plots import unit_of

    unit = unit_of(one[0].problem)
    best = [[_best_validation(s, seconds) for s in group] for group in (one, other)]
    found = [[value / unit.nats for value in each if value is not None] for each in best]
    if any(len(known) < len(group) for known, group in zip(found, (one, other), strict=True)):
        return None
    means = [statistics.mean(known) for known in found]
    values = " against ".join(mean_and_deviation(known, unit.form) for known in found)
    difference = unit.form.replace(":", ":+").format(means[0] - means[1])
    said = (
        f"(when the first of them ended): best negative ELBO of the validation until then {values} "
        f"{unit.name}, a difference of {difference} {unit.name} (lower is better)."
    )
    weights = [(_last_row(s, seconds) or {}).get("beta") for s in (*one, *other)]
    early = [beta for beta in weights if beta is not None and beta < 1]
    if not early:
        return said, []
    return said, [f"The KL warm-up was not over there: the KL term weighed {min(early):.2g}."]


def _best_validation(s: Summary, seconds: float) -> float | None:
    until = [row for row in s.rows if _is_until(row, seconds)]
    known = [row["validation"] for row in until if row.get("validation") is not None]
    return min(known, default=None)


def _machine(s: Summary) -> tuple[Any, Any]:
    known = s.config.get("provenance", {})
    return known.get("platform"), known.get("cpus")


def _last_row(s: Summary, seconds: float) -> dict[str, Any] | None:
    return next((row for row in reversed(s.rows) if _is_until(row, seconds)), None)


def _is_until(row: dict[str, Any], seconds: float) -> bool:
    at = row.get("seconds")
    return at is not None and at <= seconds


def _reservations(one: list[Summary], other: list[Summary], rows: list[list[Any]]) -> list[str]:
    """Return what a reader must know before believing the comparison."""
    said = []
    for group, there in zip((one, other), rows, strict=True):
        steps = [s.training.get("steps") for s in group]
        early = [
            (row["step"], n) for row, n in zip(there, steps, strict=True) if n and row["step"] < n
        ]
        falling = group[0].training.get("decay", "none") != "none"
        if early and falling and group[0].optimizer == "adam":
            step, of = min(early)
            said.append(
                f"{group[0].estimator} was still on its way, at step {step} of {of}, with its learning rate "
                "falling."
            )
        if any("below_bound" in row for row in there):
            said.append(
                f"{group[0].estimator} had a loss below -log Z there: its ESS is not to be trusted."
            )
    return said
