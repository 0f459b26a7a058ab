"""What runs are worth, in words that need no knowledge of the field."""

import enum
import statistics
from typing import NamedTuple

from pathgrad._errors import as_options
from pathgrad._plots.elbo import PUBLISHED, title_of, unit_of
from pathgrad._verdict import Level, Reason, ess_moves, read_verdict
from pathgrad.experiments.vae.options import preset
from pathgrad.experiments.vae.verdict import read_verdict as read_autoencoder_verdict

from .contents import Run
from .facts import FAR, collect_warnings, facts, last_sized, log_z_gap
from .words import count, listed, number, percent, plain, several, with_error

_ESS = "effective sample size"


class Trust(enum.IntEnum):
    """How far a reader of the page may rely on runs: the more, the worse.

    Attributes:
        chip: In a few words.
    """

    chip: str

    def __new__(cls, value: int, chip: str) -> "Trust":
        """Make a member of a number and words."""
        member = int.__new__(cls, value)
        member._value_, member.chip = value, chip
        return member

    OPEN = 0, "provisional"  # nothing has been measured properly yet
    GOOD = 1, "can be trusted"
    FAIR = 2, "use with care"
    BAD = 3, "do not rely on it"


_TRUST = {
    Level.GOOD: Trust.GOOD,
    Level.USABLE: Trust.FAIR,
    Level.UNKNOWN: Trust.FAIR,
    Level.UNRELIABLE: Trust.BAD,
    Level.UNUSABLE: Trust.BAD,
}


class Verdict(NamedTuple):
    """What is said of a group of runs that differ by their seed only.

    Attributes:
        level: How far they can be relied on.
        chip: The level in words.
        name: What the headline is.
        headline: The one number.
        sentences: What it means.
        warnings: What keeps it from being trusted, each with its remedy.
        facts: Further numbers, with their names.
    """

    level: Trust
    chip: str
    name: str
    headline: str
    sentences: list[str]
    warnings: list[str]
    facts: list[tuple[str, str]]


def verdict(group: list[Run]) -> Verdict:
    """Judge runs that differ by their seed only."""
    return _of_autoencoders(group) if group[0].dataset else _of_flows(group)


def grade(ess: float) -> str:
    """Say how good an effective sample size is."""
    for least, words in (
        (0.99, "nearly perfect"),
        (0.9, "very good"),
        (0.5, "good enough to work with"),
        (0.1, "poor, averages need many more draws"),
    ):
        if ess >= least:
            return words
    return "very poor, most draws count for nothing"


def worth(ess: float) -> str:
    """Say what an effective sample size means."""
    if ess >= 0.01:
        return f"100 weighted draws tell as much as {100 * ess:.3g} exact ones: {grade(ess)}."
    needed = count(1 / max(ess, 1e-9))
    return f"It takes about {needed} weighted draws to tell as much as a single exact one: {grade(ess)}."


def _of_flows(group: list[Run]) -> Verdict:
    warnings = collect_warnings(group)
    if found := _without(group, "ess"):
        bad = Trust.BAD
        return Verdict(bad, bad.chip, _ESS, "–", [found], warnings, facts(group))
    measured = all(run.evaluated for run in group)
    # Numbers of training and of evaluation have no mean in common.
    sizes = [number(run.evaluation, "ess") if measured else _last_size(run) for run in group]
    known = [size for size in sizes if size is not None]
    if not known:
        said = ["Nothing is known about it yet: no block of training steps has ended."]
        return Verdict(Trust.OPEN, "no numbers yet", _ESS, "–", said, warnings, facts(group))
    mean = statistics.mean(known)
    sentences = [worth(mean)]
    if len(known) > 1:
        headline = several([100 * size for size in known], "{:.2f}") + "\u00a0%"
        sentences[0] += f" (Mean and standard deviation of {len(known)} runs.)"
    else:
        error = number(group[0].evaluation, "ess_err") if measured else None
        headline = percent(mean, error)
    if measured:
        level = max([_level(run) for run in group] + ([Trust.FAIR] if warnings else []))
        chip = level.chip
        sentences += _words_of_evaluation(group)
    else:
        level, chip = _so_far(group, mean)
        sentences.append(_provisional(group, "the last block of training, from few draws"))
    if level is Trust.BAD and mean >= 0.1:
        sentences[0] += " But the weights behind that number are in doubt: see the warnings."
    return Verdict(level, chip, _ESS, headline, sentences, warnings, facts(group))


def _without(group: list[Run], name: str) -> str | None:
    """Say what an evaluation says that did not come to its main number, as where draws failed."""
    for run in group:
        if run.evaluated and number(run.evaluation, name) is None:
            of = f"{run.name}: its" if len(group) > 1 else "Its"
            said = _words_of_verdict(run) or "see the warnings."
            return f"{of} evaluation came to no finite number: {said}"
    return None


def _last_size(run: Run) -> float | None:
    row = last_sized(run)
    return None if row is None else row.ess


def _so_far(group: list[Run], mean: float) -> tuple[Trust, str]:
    """Return level and chip of runs of which some are not evaluated: the worst that is known of any."""
    if mean < 0.1:
        return Trust.BAD, f"{Trust.OPEN.chip}, and very poor"
    evaluated = [run for run in group if run.evaluated]
    levels = [Trust.GOOD, *[_level(run) for run in evaluated]]
    levels += [Trust.FAIR] if collect_warnings(evaluated) else []
    for run in group:
        row = last_sized(run)
        broken = row is not run.last or (row is not None and row.below_bound)
        levels += [Trust.BAD] if broken and not run.evaluated else []
    level = max(levels)
    if level is Trust.GOOD:
        return Trust.OPEN, Trust.OPEN.chip
    return level, f"{Trust.OPEN.chip}, {level.chip}"


def _provisional(group: list[Run], of: str) -> str:
    """Say that a number is of training, and how to get a better one."""
    late = [run for run in group if not run.evaluated]
    first = late[0]
    step = number(first.evaluation, "step")
    if len(late) < len(group):
        why = f"{len(group) - len(late)} of {len(group)} runs evaluated"
    elif step is not None:
        why = f"The evaluation that is there is of step {count(step)}, before the run went on"
    else:
        why = "It has not been evaluated"
    more = f" (and {len(late) - 1} more of its seeds)" if len(late) > 1 else ""
    return f"{why}, so this is of {of}: {remedy(first, 'measures it properly')}{more}."


def remedy(run: Run, does: str) -> str:
    """Say how to get an evaluation, which `does` something; or that there is no way."""
    if run.kept or run.state.kind == "running":
        return f"`{run.evaluate}` {does}"
    return "its checkpoints are not here, so it cannot be evaluated"


def _level(run: Run) -> Trust:
    """Return the worse of what the effective sample size and the verdict of the evaluation say."""
    ess = number(run.evaluation, "ess") or 0.0
    by_size = Trust.GOOD if ess >= 0.5 else Trust.FAIR if ess >= 0.1 else Trust.BAD
    found = read_verdict(run.evaluation)
    if found is None:
        return by_size
    return max(by_size, Trust.FAIR if _log_z_alone(run) else _TRUST[found.level])


def _log_z_alone(run: Run) -> bool:
    """Say whether a coarse solver is all that is wrong, and moves the ESS by no more than its error."""
    found = read_verdict(run.evaluation)
    grave = [] if found is None else [r for r in found.reasons if r.level > Level.GOOD]
    if grave != [Reason.COARSE_SOLVER]:
        return False
    names = ("ess_shift", "ess_err", "ess_shift_err", "rounding")
    return ess_moves({name: number(run.evaluation, name) for name in names}) is False


def _words_of_verdict(run: Run) -> str | None:
    """Sum up the verdict of an evaluation, `None` where there is none to be had."""
    read = read_autoencoder_verdict if run.dataset else read_verdict
    found = read(run.evaluation)
    if found is None:
        return None
    word = found.level.name.lower()
    briefs = list(dict.fromkeys(r.brief for r in found.reasons if r.level > Level.GOOD))
    # What the warnings have in full need not be told twice. (Older evaluations warned of grave things only.)
    if briefs and (found.level >= Level.UNRELIABLE or run.evaluation.get("warnings")):
        return f"{word}, because of {listed(briefs)}: see the warnings."
    try:
        return found.sentence(run.evaluation, as_options)
    except (KeyError, TypeError, ValueError, OverflowError):  # of a file that somebody changed
        return f"{word}."


def _words_of_evaluation(group: list[Run]) -> list[str]:
    said = []
    # The worst of the seeds speaks for all of them.
    levels = [_level(run) for run in group]
    worst = group[levels.index(max(levels))]
    text = _words_of_verdict(worst)
    if _log_z_alone(worst):
        text = (
            "log Z is less accurate than its error bar, because of a coarse solver. The ESS does not move "
            "with the solver, so averages, from which a common factor of the weights cancels, should not."
        )
    if text:
        of = f" (Of {worst.name}, the worst of the runs.)" if len(set(levels)) > 1 else ""
        said.append(f"Error bars: {text}{of}")
    at_least, at_most = ("", "") if len(group) == 1 else ("at least ", "at most ")
    pairs = [[number(run.evaluation, name) for run in group] for name in ("forward_ess", "ess")]
    forward = [size or 0.0 for size in pairs[0]]
    if all(f >= max(0.5, 0.5 * (ess or 0.0)) for f, ess in zip(forward, pairs[1], strict=True)):
        said.append(
            f"Exact draws of the target are covered too (forward ESS {at_least}{percent(min(forward))}): no "
            "large part of it is missed."
        )
    gaps = [gap for run in group if (gap := log_z_gap(run)) is not None]
    # What is further off is among the warnings.
    if len(gaps) == len(group) and max(gap.off for gap in gaps) < FAR:
        what, known, off = max(gaps, key=lambda gap: gap.off)
        said.append(
            f"log Z agrees with the {what} {plain(known, '.6g')} ({at_most}{off:.1f} standard errors apart)."
        )
    return said


def _of_autoencoders(group: list[Run]) -> Verdict:
    unit = unit_of(group[0].dataset or "")
    warnings = collect_warnings(group)
    measured = all(run.evaluated for run in group)
    of = "test images" if measured else "validation images"
    name = f"negative ELBO of the {of}, {unit.name}"
    if found := _without(group, "negative_elbo"):
        bad = Trust.BAD
        return Verdict(bad, bad.chip, name, "–", [found], warnings, facts(group))
    values = [
        number(r.evaluation, "negative_elbo") if measured else r.best and r.best.validation
        for r in group
    ]
    known = [v / unit.nats for v in values if v is not None]
    if not known:
        said = ["Nothing is known about it yet: no epoch has ended."]
        return Verdict(Trust.OPEN, "no numbers yet", name, "–", said, warnings, facts(group))
    error = (
        number(group[0].evaluation, "negative_elbo_err") if measured and len(group) == 1 else None
    )
    headline = several(known, unit.form)
    if error is not None:
        headline = with_error(known[0], error / unit.nats)
    per = "bits to describe a pixel" if unit.name != "nats" else "nats to describe an image"
    mean = statistics.mean(known)
    sentences = [
        f"It takes at most {unit.form.format(mean)} {per} with this model: lower is better."
    ]
    if len(known) > 1:
        sentences[0] += f" (Mean and standard deviation of {len(known)} runs.)"
    sentences += _likelihood(group[0]) if measured and len(group) == 1 else []
    sentences += _published(group[0])
    if not measured:
        sentences.append(_provisional(group, "the validation images"))
    level = max(map(_level_of_autoencoder, group)) if measured else Trust.OPEN
    if level is Trust.GOOD and warnings:
        level = Trust.FAIR
    chip = {Trust.GOOD: "measured", Trust.FAIR: "see the warnings"}.get(level, level.chip)
    return Verdict(level, chip, name, headline, sentences, warnings, facts(group))


def _level_of_autoencoder(run: Run) -> Trust:
    found = read_autoencoder_verdict(run.evaluation)
    return Trust.GOOD if found is None else _TRUST[found.level]


def _likelihood(run: Run) -> list[str]:
    found = run.evaluation
    nll, images = number(found, "nll"), number(found, "nll_images")
    if nll is None or not images:
        return []
    unit = unit_of(run.dataset or "")
    text = with_error(
        nll / unit.nats, (number(found, "nll_err") or 0.0) / unit.nats or None, unit.name
    )
    draws = count(number(found, "nll_samples"))
    said = f"Negative log-likelihood {text}, from {count(images)} images with {draws} draws each"
    same = number(found, "nll_images_negative_elbo")
    return [
        said
        + (
            f" (their negative ELBO: {unit.form.format(same / unit.nats)})."
            if same is not None
            else "."
        )
    ]


def _published(run: Run) -> list[str]:
    """Say what the paper reached, and with which model if that was another."""
    dataset = run.dataset or ""
    value = PUBLISHED.get(dataset, {}).get(run.estimator)
    if value is None:
        return []
    paper, flow = preset("paper", dataset), run.options.get("flow")
    pairs = [(name, getattr(paper, name), run.options) for name in ("latent", "channels")]
    for name in ("cnfs", "width", "depth", "rank", "activation", "end_time"):
        pairs.append((name, getattr(paper.flow, name), flow if isinstance(flow, dict) else {}))
    other = [
        f"{name} {its}, not {options[name]}"
        for name, its, options in pairs
        if options.get(name, its) != its
    ]
    said = f"The paper reports {value} {unit_of(dataset).name} for {title_of(dataset)} with this gradient"
    return [said + (f", of another model: {'; '.join(other)}." if other else ".")]
