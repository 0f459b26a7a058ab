"""How far groups of runs can be trusted, for a reader of the page."""

import dataclasses
import enum
import math
import statistics
from collections.abc import Iterable
from typing import NamedTuple

from ..._numbers.quantity import Quantity, number_in
from ..._numbers.verdict import Level
from ..._runs.group import Group
from ..._runs.run import Run
from ..._runs.warnings import last_finite
from ..._words.text import UNKNOWN, count, duration, listed


class Trust(enum.IntEnum):
    """How far a reader of the page may rely on runs; a higher number is worse."""

    OPEN = 0  # nothing has been measured properly yet
    GOOD = 1
    FAIR = 2
    BAD = 3

    @property
    def chip(self) -> str:
        """The level in a few words."""
        return ("provisional", "can be trusted", "use with care", "do not rely on it")[self]


_TRUST = {
    Level.GOOD: Trust.GOOD,
    Level.USABLE: Trust.FAIR,
    Level.UNKNOWN: Trust.FAIR,
    Level.UNRELIABLE: Trust.BAD,
    Level.UNUSABLE: Trust.BAD,
    None: Trust.FAIR,
}


class Judgement(NamedTuple):
    """What the page shows about a group of runs."""

    level: Trust
    chip: str  # the level in words
    name: str  # what the headline measures
    headline: str  # the one number
    sentences: list[str]  # what it means
    warnings: list[str]  # reasons not to trust it, each with a remedy
    facts: list[tuple[str, str]]  # further numbers, with their names


def judge_group(group: Group) -> Judgement:
    """Judge runs that differ only in their seed. The worst of them decides."""
    experiment, options, runs = group.first.experiment, group.first.options, group.runs
    result = experiment.result(options)
    lost = any(r.is_evaluated and result.value(r.evaluation) is None for r in runs)
    # Numbers from training and from evaluation must not be averaged together.
    measured = lost or all(run.is_evaluated for run in runs)
    shown = result if measured else experiment.followed(options)
    quantity = dataclasses.replace(shown, unit="")  # the unit is written below the headline
    values = [quantity.value(r.evaluation) if measured else last_value(r, quantity) for r in runs]
    known = [value for value in values if value is not None]
    warnings, spread = collect_warnings(group), []
    headline = quantity.of(runs[0].evaluation) if measured else quantity.write(known[0] if known else None)
    if len(known) > 1:
        headline = quantity.write_several(known)
        spread = [f"Mean and standard deviation of {len(known)} runs."]
    if lost:
        level, chip, headline = Trust.BAD, Trust.BAD.chip, UNKNOWN
        sentences = ["An evaluation gave no finite number.", *_words_of_evaluation(group)]
    elif measured:
        level = max([_level(run) for run in runs] + ([Trust.FAIR] if warnings else []))
        chip = level.chip
        sentences = [*experiment.explained(runs), *spread, *_words_of_evaluation(group)]
    elif known:
        level, chip = _so_far(group)
        sentences = [*experiment.explained(runs), *spread, _provisional(group)]
    else:
        level, chip = Trust.OPEN, "no numbers yet"
        sentences = ["There are no numbers yet: no block of training steps has ended."]
    name = ", ".join(filter(None, [shown.title, shown.unit])) + (f": {shown.means}" if shown.means else "")
    return Judgement(level, chip, name, headline, sentences, warnings, _facts(group))


def remedy(run: Run, does: str) -> str:
    """Return the command for an evaluation and what it `does`, or why there can be none."""
    if run.has_checkpoints or run.is_training:
        return f"`{run.evaluate_command}` {does}"
    return "its checkpoints are not here, so it cannot be evaluated"


def last_value(run: Run, quantity: Quantity) -> float | None:
    """Return the last finite value from training, or the best one if the best counts."""
    values = [v for row in run.rows if (v := quantity.value(row.to_json())) is not None]
    if not quantity.best:
        return values[-1] if values else None
    return (max if quantity.better > 0 else min)(values, default=None)


def _level(run: Run) -> Trust:
    return _TRUST[run.experiment.level(run)]


def _so_far(group: Group) -> tuple[Trust, str]:
    """Return level and chip of runs of which some are not evaluated: the worst that is known about any."""
    levels = [Trust.GOOD]
    for run in group.runs:
        if run.is_evaluated:
            levels += [_level(run)] + ([Trust.FAIR] if run.warnings else [])
        else:
            row = last_finite(run)
            is_broken = row is not run.last or (row is not None and row.below_bound)
            levels += [Trust.BAD] if is_broken or _level(run) is Trust.BAD else []
    level = max(levels)
    if level is Trust.GOOD:
        return Trust.OPEN, Trust.OPEN.chip
    return level, f"{Trust.OPEN.chip}, {level.chip}"


def _provisional(group: Group) -> str:
    """Return a sentence: this number is from training, and how to get a better one."""
    late = [run for run in group.runs if not run.is_evaluated]
    step = number_in(late[0].evaluation, "step")
    if len(late) < len(group.runs):
        why = f"Only {len(group.runs) - len(late)} of {len(group.runs)} runs are evaluated"
    elif step is not None:
        why = f"The evaluation is from step {count(step)}, and the run was trained further"
    else:
        why = "It has not been evaluated"
    more = f" (and {len(late) - 1} more of its seeds)" if len(late) > 1 else ""
    return f"{why}, so this number is from training: {remedy(late[0], 'measures it properly')}{more}."


def _words_of_evaluation(group: Group) -> list[str]:
    levels = [_level(run) if run.is_evaluated else Trust.OPEN for run in group.runs]
    i = levels.index(max(levels))
    verdict = group.runs[i].verdict
    if verdict is None:
        return []
    of = f" (This is for {group.names[i]}, the worst of the runs.)" if len(set(levels)) > 1 else ""
    if verdict.level is Level.GOOD:
        return [f"The evaluation is {verdict.sentence(group.runs[i].evaluation, str)}{of}"]
    # In brief: the warnings explain them in full.
    briefs = list(dict.fromkeys(r.brief for r in verdict.reasons if r.level > Level.GOOD))
    why = f", because of {listed(briefs)}: see the warnings." if briefs else "."
    return [f"The evaluation is {verdict.level.name.lower()}{why}{of}"]


def collect_warnings(group: Group) -> list[str]:
    """Return what is wrong with the runs, each warning once, with the names of the runs concerned."""
    warnings: dict[str, list[str]] = {}
    for run, name in zip(group.runs, group.names, strict=True):
        for text in run.warnings:
            warnings.setdefault(text, []).append(name)
    every = len(group.runs)
    return [t if len(names) == every else f"{', '.join(names)}: {t}" for t, names in warnings.items()]


def _facts(group: Group) -> list[tuple[str, str]]:
    """Return further numbers of a group with their names, where all its runs have them."""
    experiment, options, runs = group.first.experiment, group.first.options, group.runs
    measured = all(run.is_evaluated for run in runs)
    sources = [run.evaluation if measured else (run.last.to_json() if run.last else {}) for run in runs]
    facts = []
    for quantity in experiment.measured(options):
        values = _all(quantity.value(source) for source in sources)
        if values and quantity.compared and quantity.name != experiment.result(options).name:
            text = quantity.of(sources[0]) if len(runs) == 1 else quantity.write_several(values)
            facts.append((quantity.title, text))
    for name in dict.fromkeys((experiment.length(options)[0], "step")):
        if values := _all(run.at_end(name) for run in runs):
            values = values[:1] if len(set(values)) == 1 else values
            quantity = Quantity(name, "", "count" if name == "step" else "{:.4g}")
            facts.append((f"{name}s", quantity.write_several(values)))
    if values := _all(run.at_end("seconds") for run in runs):
        facts.append(("training", duration(statistics.mean(values))))
    if values := _all(run.step_ms for run in runs):
        cost = statistics.mean(values)
        facts.append(("time per step", f"{cost:.3g} ms" if cost < 1000 else f"{cost / 1000:.3g} s"))
    seeds = ", ".join(str(run.seed) for run in runs)
    return [*facts, ("seed" if len(runs) == 1 else "seeds", seeds)]


def _all(values: Iterable[float | None]) -> list[float]:
    """Return the values if all are known: a mean over only some of the named runs would mislead."""
    values = list(values)
    known = [value for value in values if value is not None and math.isfinite(value)]
    return known if len(known) == len(values) else []
