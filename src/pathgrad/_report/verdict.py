"""What runs are worth, in words that need no knowledge of the field."""

import statistics
from typing import NamedTuple

from pathgrad._plots.elbo import PUBLISHED, title_of, unit_of

from .contents import Run
from .facts import collect_warnings, facts
from .words import count, number, percent, plain, several, with_error

_ESS = "effective sample size"
LEVELS = ("good", "fair", "bad")  # the later, the worse
_CHIPS = {
    "good": "can be trusted",
    "fair": "use with care",
    "bad": "do not rely on it",
    "open": "provisional",
}
# Of the sentence that evaluation wrote.
_FIRST_WORDS = {
    "good": "good",
    "usable": "fair",
    "unknown": "fair",
    "unreliable": "bad",
    "unusable": "bad",
}


class Verdict(NamedTuple):
    """What is said of a group of runs that differ by their seed only.

    Attributes:
        level: `good`, `fair`, `bad`; or `open` where nothing has been measured properly yet.
        chip: The level in words.
        name: What the headline is.
        headline: The one number.
        sentences: What it means.
        warnings: What keeps it from being trusted, each with its remedy.
        facts: Further numbers, with their names.
    """

    level: str
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
    measured = all(run.evaluated and number(run.evaluation, "ess") is not None for run in group)
    sizes = [_size(run) for run in group]
    known = [size for size in sizes if size is not None]
    warnings = collect_warnings(group)
    if not known:
        said = ["Nothing is known about it yet: no block of training steps has ended."]
        return Verdict("open", "no numbers yet", _ESS, "–", said, warnings, facts(group))
    mean = statistics.mean(known)
    sentences = [worth(mean)]
    if len(known) > 1:
        headline = several([100 * size for size in known], "{:.2f}") + "\u00a0%"
        sentences[0] += f" (Mean and standard deviation of {len(known)} runs.)"
    else:
        error = number(group[0].evaluation, "ess_err") if measured else None
        headline = percent(mean, error)
    if not measured:
        sentences.append(_provisional(group))
        poor = mean < 0.1
        chip = f"{_CHIPS['open']}, and very poor" if poor else _CHIPS["open"]
        level = "bad" if poor else "open"
        return Verdict(level, chip, _ESS, headline, sentences, warnings, facts(group))
    level = _worst([_level(run) for run in group] + (["fair"] if warnings else []))
    if level == "bad" and mean >= 0.1:
        sentences[0] += " But the weights behind that number are in doubt: see the warnings."
    sentences += _words_of_evaluation(group)
    return Verdict(level, _CHIPS[level], _ESS, headline, sentences, warnings, facts(group))


def _size(run: Run) -> float | None:
    found = number(run.evaluation, "ess") if run.evaluated else None
    if found is not None:
        return found
    return next((row["ess"] for row in reversed(run.rows) if row.get("ess") is not None), None)


def _provisional(group: list[Run]) -> str:
    """Say that a number is of training, and how to get a better one."""
    late = [run for run in group if not run.evaluated]
    first = late[0] if late else group[0]
    step = number(first.evaluation, "step")
    if step is not None and not first.evaluated:
        why = f"The evaluation that is there is of step {count(step)}, before the run went on"
    else:
        why = "It has not been evaluated"
    more = f" (and {len(late) - 1} more of its seeds)" if len(late) > 1 else ""
    return (
        f"{why}, so this is of the last block of training, from few draws: {remedy(first)}{more}."
    )


def remedy(run: Run) -> str:
    """Return how to get an evaluation."""
    if run.kept or run.state.kind == "running":
        return f"`{run.evaluate}` measures it properly"
    return "its checkpoints are not here, so it cannot be evaluated"


def _level(run: Run) -> str:
    """Return the worse of what the effective sample size and the sentence of the evaluation say."""
    ess = number(run.evaluation, "ess") or 0.0
    by_size = "good" if ess >= 0.5 else "fair" if ess >= 0.1 else "bad"
    first = str(run.evaluation.get("verdict", "")).replace(",", ":").partition(":")[0].strip()
    return _worst([by_size, _FIRST_WORDS.get(first, by_size)])


def _worst(levels: list[str]) -> str:
    return max(levels, key=LEVELS.index)


def _words_of_evaluation(group: list[Run]) -> list[str]:
    said = []
    # The worst of the seeds speaks for all of them.
    levels = [_level(run) for run in group]
    worst = group[levels.index(_worst(levels))]
    text = worst.evaluation.get("verdict")
    if text:
        of = f" (Of {worst.name}, the worst of the runs.)" if len(set(levels)) > 1 else ""
        said.append(f"Error bars: {text}{of}")
    first = group[0]
    forward = number(first.evaluation, "forward_ess")
    if (
        forward is not None
        and len(group) == 1
        and forward >= 0.5 * (number(first.evaluation, "ess") or 0)
    ):
        said.append(
            f"Exact draws of the target are covered too (forward ESS {percent(forward)}): no large part "
            "of it is missed."
        )
    said += filter(None, [_about_log_z(first)] if len(group) == 1 else [])
    return said


def _about_log_z(run: Run) -> str | None:
    """Compare log Z with what is known of it."""
    value, error = (number(run.evaluation, name) for name in ("log_z", "log_z_err"))
    for name, word in (("log_z_exact", "exact value"), ("log_z_known", "published value")):
        known = number(run.evaluation, name)
        if known is None or value is None or error is None:
            continue
        total = (error**2 + (number(run.evaluation, f"{name}_err") or 0.0) ** 2) ** 0.5
        if total == 0:
            continue
        off = abs(value - known) / total
        agrees = "agrees with" if off < 3 else "is off"
        return f"log Z {agrees} the {word} {plain(known, '.6g')} ({off:.1f} standard errors apart)."
    return None


def _of_autoencoders(group: list[Run]) -> Verdict:
    unit = unit_of(group[0].dataset or "")
    warnings = collect_warnings(group)
    measured = all(r.evaluated and number(r.evaluation, "negative_elbo") is not None for r in group)
    of = "test images" if measured else "validation images"
    name = f"negative ELBO of the {of}, {unit.name}"
    values = [
        number(r.evaluation, "negative_elbo") if measured else r.best.get("validation")
        for r in group
    ]
    known = [v / unit.nats for v in values if v is not None]
    if not known:
        said = ["Nothing is known about it yet: no epoch has ended."]
        return Verdict("open", "no numbers yet", name, "–", said, warnings, facts(group))
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
        sentences.append(
            _provisional(group).replace(
                "the last block of training, from few draws", "the validation images"
            )
        )
    level = ("fair" if warnings else "good") if measured else "open"
    chip = {"good": "measured", "fair": "see the warnings"}.get(level, _CHIPS["open"])
    return Verdict(level, chip, name, headline, sentences, warnings, facts(group))


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
    """Say what the paper reached, and what keeps the two from being compared."""
    value = PUBLISHED.get(run.dataset or "", {}).get(run.estimator)
    said = []
    if value is not None:
        title, unit = title_of(run.dataset or ""), unit_of(run.dataset or "").name
        said.append(f"The paper reports {value} {unit} for {title} with this gradient.")
    beta = run.last.get("beta")
    if beta is not None and beta < 1:
        said.append(f"The KL warm-up is not over: the KL term weighs {beta:.2g} of 1.")
    return said
