"""What an effective sample size means, in words that need no knowledge of the field. No JAX here."""

import math
import statistics
from collections.abc import Sequence

import pathgrad as pg
from pathgrad._numbers.verdict import ess_moves, read_verdict
from pathgrad._words.text import count, percent

FAR = 3.0  # standard errors; what is further off is not chance

REMEDY = (
    f"Evaluate with twice the `{pg.named('refine')}`; if it stays so, the flow misses a part of the target: "
    "train it for longer."
)


def worth(ess: float) -> str:
    """Say what an effective sample size means."""
    grades = (
        (0.99, "nearly perfect"),
        (0.9, "very good"),
        (0.5, "good enough to work with"),
        (0.1, "poor, averages need many more draws"),
    )
    grade = next((g for least, g in grades if ess >= least), "very poor, most draws count for nothing")
    if ess >= 0.01:
        return f"100 weighted draws tell as much as {100 * ess:.3g} exact ones: {grade}."
    needed = count(1 / max(ess, 1e-9))
    return f"It takes about {needed} weighted draws to tell as much as a single exact one: {grade}."


def level(run: pg.Run) -> pg.Level | None:
    """Return the worse of what the effective sample size and the verdict of an evaluation say."""
    ess = pg.number_in(run.evaluation if run.is_evaluated else run.numbers, "ess")
    if ess is None:
        return pg.Level.UNUSABLE if run.is_evaluated else None
    by_size = pg.Level.GOOD if ess >= 0.5 else pg.Level.USABLE if ess >= 0.1 else pg.Level.UNRELIABLE
    found = read_verdict(run.evaluation) if run.is_evaluated else None
    if found is None:
        return by_size
    return max(by_size, pg.Level.USABLE if _log_z_alone(run) else found.level)


def _log_z_alone(run: pg.Run) -> bool:
    """Say whether a coarse solver is all that is wrong, and moves the ESS by no more than its error."""
    found = read_verdict(run.evaluation)
    grave = [] if found is None else [r for r in found.reasons if r.level > pg.Level.GOOD]
    if grave != [pg.Reason.COARSE_SOLVER]:
        return False
    names = ("ess_shift", "ess_err", "ess_shift_err", "rounding")
    return ess_moves({name: pg.number_in(run.evaluation, name) for name in names}) is False


def explained(runs: Sequence[pg.Run]) -> list[str]:
    """Say what the effective sample size of evaluated runs means, and what else was found."""
    measured = all(run.is_evaluated for run in runs)
    every = [pg.number_in(run.evaluation, "ess") if measured else run.at_end("ess") for run in runs]
    sizes = [size for size in every if size is not None]
    if not sizes or len(sizes) < len(runs):
        return []
    said = [worth(statistics.mean(sizes))]
    if not measured:
        return said
    if statistics.mean(sizes) >= 0.1 and max(level(run) or 0 for run in runs) >= pg.Level.UNRELIABLE:
        said[0] += " But the weights behind that number are in doubt: see the warnings."
    if any(map(_log_z_alone, runs)):
        said.append(
            "log Z is less accurate than its error bar, because of a coarse solver. The ESS does not move "
            "with the solver, so averages, from which a common factor of the weights cancels, should not."
        )
    at_least, at_most = ("", "") if len(runs) == 1 else ("at least ", "at most ")
    forward = [pg.number_in(run.evaluation, "forward_ess") or 0.0 for run in runs]
    if all(f >= max(0.5, 0.5 * size) for f, size in zip(forward, sizes, strict=True)):
        said.append(
            f"Exact draws of the target are covered too (forward ESS {at_least}{percent(min(forward))}): no "
            "large part of it is missed."
        )
    gaps = [gap for run in runs if (gap := _log_z_gap(run)) is not None]
    # What is further off is among the warnings.
    off, known = max(gaps, default=(FAR, 0.0))
    if len(gaps) == len(runs) and off < FAR:
        said.append(
            f"log Z agrees with the known value {known:.6g} ({at_most}{off:.1f} standard errors apart)."
        )
    return said


def standard_errors(
    value: float | None, error: float | None, known: float | None, known_error: float | None
) -> float | None:
    """Return (value - known) / error, both errors added; `None` where one of them is missing."""
    if value is None or error is None or known is None:
        return None
    total = math.hypot(error, known_error or 0.0)
    return (value - known) / total if total > 0 else None


def _log_z_gap(run: pg.Run) -> tuple[float, float] | None:
    """Return how many standard errors log Z is off what is known of it, and that."""
    # Before 0.2 an exact value had another name.
    names = ("log_z", "log_z_err", "log_z_known", "log_z_known_err", "log_z_exact")
    value, error, known, known_error, exact = (pg.number_in(run.evaluation, name) for name in names)
    known = exact if known is None else known
    off = standard_errors(value, error, known, known_error)
    return None if off is None or known is None else (abs(off), known)


def warnings(run: pg.Run) -> list[str]:
    """Say whether log Z contradicts what is known."""
    off, known = (_log_z_gap(run) if run.is_evaluated else None) or (0.0, 0.0)
    apart = f"{off:.1f} standard errors apart"
    return [f"log Z differs from the known value {known:.6g} ({apart}). {REMEDY}"] if off >= FAR else []


def doubts(runs: Sequence[pg.Run], seconds: float) -> list[str]:
    """Say what to know before a group is compared with another after so many seconds of training."""
    rows = [row for run in runs for row in [row for row in run.rows if row.seconds <= seconds][-1:]]
    first, said = runs[0], []
    _, wanted = first.experiment.length(first.options)
    is_adam, decay = first.training.get("optimizer", "adam") == "adam", first.training.get("decay")
    slowest = min((row.step for row in rows), default=0)
    if is_adam and decay not in (None, "none") and wanted and slowest < wanted:
        said.append(
            f"{first.method} was still on its way, at step {count(slowest)} of {count(wanted)}, with its "
            "learning rate falling."
        )
    if any(row.below_bound for row in rows):
        said.append(f"{first.method} had a loss below -log Z there: its ESS is not to be trusted.")
    return said
