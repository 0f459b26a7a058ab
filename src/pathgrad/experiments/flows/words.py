"""Explain an effective sample size in words for non-experts. No JAX here."""

import math
import statistics
from collections.abc import Sequence

import pathgrad as pg
from pathgrad._numbers.verdict import ess_moves, read_verdict
from pathgrad._words.text import count, percent

FAR = 3.0  # standard errors; a larger difference is not chance

REMEDY = (
    f"Evaluate with twice the `{pg.named('refine')}`; if the difference remains, the flow misses part of the "
    "target: train it for longer."
)


def worth(ess: float) -> str:
    """Return a sentence that explains an effective sample size."""
    grades = (
        (0.99, "nearly perfect"),
        (0.9, "very good"),
        (0.5, "good enough to use"),
        (0.1, "poor; averages need many more draws"),
    )
    grade = next((g for least, g in grades if ess >= least), "very poor; most draws contribute nothing")
    if ess >= 0.01:
        return f"100 weighted draws are worth {100 * ess:.3g} exact ones: {grade}."
    needed = count(1 / max(ess, 1e-9))
    return f"About {needed} weighted draws are worth one exact draw: {grade}."


def level(run: pg.Run) -> pg.Level | None:
    """Return the worse of two levels: by the effective sample size, and by the verdict of the evaluation."""
    ess = pg.number_in(run.evaluation if run.is_evaluated else run.numbers, "ess")
    if ess is None:
        return pg.Level.UNUSABLE if run.is_evaluated else None
    by_size = pg.Level.GOOD if ess >= 0.5 else pg.Level.USABLE if ess >= 0.1 else pg.Level.UNRELIABLE
    verdict = read_verdict(run.evaluation) if run.is_evaluated else None
    if verdict is None:
        return by_size
    return max(by_size, pg.Level.USABLE if _only_log_z_is_off(run) else verdict.level)


def _only_log_z_is_off(run: pg.Run) -> bool:
    """Return whether a coarse solver is the only problem and moves the ESS by no more than its error."""
    verdict = read_verdict(run.evaluation)
    grave = [] if verdict is None else [r for r in verdict.reasons if r.level > pg.Level.GOOD]
    if grave != [pg.Reason.COARSE_SOLVER]:
        return False
    names = ("ess_shift", "ess_err", "ess_shift_err", "rounding")
    return ess_moves({name: pg.number_in(run.evaluation, name) for name in names}) is False


def explained(runs: Sequence[pg.Run]) -> list[str]:
    """Return sentences on what the effective sample size of runs means, and on further findings."""
    measured = all(run.is_evaluated for run in runs)
    every = [pg.number_in(run.evaluation, "ess") if measured else run.at_end("ess") for run in runs]
    sizes = [size for size in every if size is not None]
    if not sizes or len(sizes) < len(runs):
        return []
    sentences = [worth(statistics.mean(sizes))]
    if not measured:
        return sentences
    if statistics.mean(sizes) >= 0.1 and max(level(run) or 0 for run in runs) >= pg.Level.UNRELIABLE:
        sentences[0] += " But the weights behind this number are in doubt: see the warnings."
    if any(map(_only_log_z_is_off, runs)):
        sentences.append(
            "log Z is less accurate than its error bar, because of a coarse solver. The ESS does not change "
            "with the solver, so averages, where a common factor of the weights cancels, should not either."
        )
    at_least, at_most = ("", "") if len(runs) == 1 else ("at least ", "at most ")
    forward = [pg.number_in(run.evaluation, "forward_ess") or 0.0 for run in runs]
    if all(f >= max(0.5, 0.5 * size) for f, size in zip(forward, sizes, strict=True)):
        sentences.append(
            f"The flow also covers exact samples of the target (forward ESS {at_least}"
            f"{percent(min(forward))}): it misses no large part of it."
        )
    gaps = [gap for run in runs if (gap := _log_z_gap(run)) is not None]
    # A larger difference is reported as a warning.
    off, known = max(gaps, default=(FAR, 0.0))
    if len(gaps) == len(runs) and off < FAR:
        sentences.append(
            f"log Z agrees with the known value {known:.6g} ({at_most}{off:.1f} standard errors apart)."
        )
    return sentences


def standard_errors(
    value: float | None, error: float | None, known: float | None, known_error: float | None
) -> float | None:
    """Return (value - known) / error, with both errors combined; `None` if a number is missing."""
    if value is None or error is None or known is None:
        return None
    total = math.hypot(error, known_error or 0.0)
    return (value - known) / total if total > 0 else None


def _log_z_gap(run: pg.Run) -> tuple[float, float] | None:
    """Return how many standard errors log Z is from its known value, and that value."""
    # Versions before 0.2 wrote the known value as `log_z_exact`.
    names = ("log_z", "log_z_err", "log_z_known", "log_z_known_err", "log_z_exact")
    value, error, known, known_error, exact = (pg.number_in(run.evaluation, name) for name in names)
    known = exact if known is None else known
    off = standard_errors(value, error, known, known_error)
    return None if off is None or known is None else (abs(off), known)


def warnings(run: pg.Run) -> list[str]:
    """Return a warning if log Z contradicts its known value."""
    off, known = (_log_z_gap(run) if run.is_evaluated else None) or (0.0, 0.0)
    apart = f"{off:.1f} standard errors apart"
    return [f"log Z differs from the known value {known:.6g} ({apart}). {REMEDY}"] if off >= FAR else []


def doubts(runs: Sequence[pg.Run], seconds: float) -> list[str]:
    """Return caveats for comparing a group of runs with another after so many seconds of training."""
    rows = [row for run in runs for row in [row for row in run.rows if row.seconds <= seconds][-1:]]
    first, caveats = runs[0], []
    _, requested = first.experiment.length(first.options)
    is_adam, decay = first.training.get("optimizer", "adam") == "adam", first.training.get("decay")
    slowest = min((row.step for row in rows), default=0)
    if is_adam and decay not in (None, "none") and requested and slowest < requested:
        caveats.append(
            f"{first.method} was still training, at step {count(slowest)} of {count(requested)}, with its "
            "learning rate still decaying."
        )
    if any(row.below_bound for row in rows):
        caveats.append(f"{first.method} had a loss below -log Z at that point: do not trust its ESS.")
    return caveats
