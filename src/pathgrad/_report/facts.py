"""Further numbers of runs, and the warnings that they raised."""

import math
import statistics
from typing import Any, NamedTuple

from pathgrad._errors import named
from pathgrad._plots.elbo import warming_up
from pathgrad._plots.observables import WORDS
from pathgrad._train.row import Row

from .contents import Run
from .words import count, duration, listed, number, plain, several, with_error

FAR = 3.0  # standard errors; what is further off is not chance


class Gap(NamedTuple):
    """What is known of log Z, and how many standard errors it is off."""

    what: str
    known: float
    off: float


def collect_warnings(group: list[Run]) -> list[str]:
    """Return what was raised in training and evaluation, each once, with the runs it is about.

    Arguments of commands are marked by `named`; those of the evaluation are as it wrote them.
    """
    found: dict[str, list[str]] = {}
    for run in group:
        for text in _warnings_of(run):
            found.setdefault(text, []).append(run.name)
    return [
        text if len(names) == len(group) else f"{', '.join(names)}: {text}"
        for text, names in found.items()
    ]


def _warnings_of(run: Run) -> list[str]:
    said = list(run.troubles)
    listed = run.evaluation.get("warnings")
    if run.evaluated and isinstance(listed, list):
        said += [str(text) for text in listed]
    if run.evaluated:
        said += _far_off(run)
    skipped = run.at_end("skipped")
    if skipped:
        said.append(
            f"{count(skipped)} steps of training were skipped, because their loss or gradient was not "
            "finite. A lower learning rate or more solver steps help."
        )
    below = sum(bool(row.below_bound) for row in run.rows)
    if below:
        said.append(
            f"In {below} of {len(run.rows)} blocks the loss was below −log Z by more than four standard "
            "errors, which no density can reach: the solver was too coarse there. Take more "
            f"`{named('solver_steps')}`."
        )
    sized = last_sized(run)
    if sized is not None and sized is not run.last:
        since = next(i for i, row in enumerate(reversed(run.rows)) if row is sized)
        said.append(
            f"The last ESS of training is of step {count(sized.step)}; the {count(since)} blocks since "
            "have no finite number. Begin again with a lower learning rate or more solver steps."
        )
    if run.dataset and run.last is not None and warming_up(run.last):
        said.append(
            f"The KL warm-up is not over: the KL term weighs {run.last.value('beta'):.2g} of 1. Train for "
            f"more epochs, or with fewer `{named('warmup_epochs')}`."
        )
    return said


def last_sized(run: Run) -> Row | None:
    """Return the last row that has an effective sample size; `None` if there is none."""
    return next((row for row in reversed(run.rows) if row.value("ess") is not None), None)


def log_z_gap(run: Run) -> Gap | None:
    """Compare log Z with what is known of it."""
    value, error = (number(run.evaluation, name) for name in ("log_z", "log_z_err"))
    for name, word in (("log_z_exact", "exact value"), ("log_z_known", "known value")):
        known = number(run.evaluation, name)
        if known is None or value is None or error is None:
            continue
        total = math.hypot(error, number(run.evaluation, f"{name}_err") or 0.0)
        if total > 0:
            return Gap(word, known, abs(value - known) / total)
    return None


def observables_of(run: Run) -> dict[str, dict[str, Any]]:
    """Return what was measured on the fields of a lattice, beside what is known."""
    measured = run.evaluation.get("observables")
    if not isinstance(measured, dict):
        return {}
    every = {**measured, "ward_identity": run.evaluation.get("ward_identity")}
    return {name: row for name, row in every.items() if isinstance(row, dict)}


def observable_word(name: str) -> str:
    """Return an observable as people call it."""
    return WORDS.get(name, name.replace("_", " "))


def _far_off(run: Run) -> list[str]:
    """Say which measured numbers contradict what is known."""
    said, gap = [], log_z_gap(run)
    remedy = (
        f"Evaluate with twice the `{named('refine')}`; if it stays so, the flow misses a part of the target: "
        "train it for longer."
    )
    if gap is not None and gap.off >= FAR:
        known = plain(gap.known, ".6g")
        said.append(
            f"log Z is off the {gap.what} {known} ({gap.off:.1f} standard errors apart). {remedy}"
        )
    far = [
        f"{observable_word(name)} ({plain(off, '+.1f')} standard errors)"
        for name, row in observables_of(run).items()
        if (off := number(row, "deviation")) is not None and abs(off) > FAR
        if name != "log_z" or gap is None  # that has been told
    ]
    if far:
        said.append(f"Off what is known: {listed(far)}. {remedy}")
    return said


def facts(group: list[Run]) -> list[tuple[str, str]]:
    """Return further numbers of a group with their names, as far as all its runs have them."""
    first, alone = group[0], len(group) == 1
    told = []
    if not first.dataset and (values := _evaluated(group, "kl") or _last(group, "kl")):
        error = number(first.evaluation, "kl_err") if alone and first.evaluated else None
        text = with_error(values[0], error) if error else several(values, "{:.5f}")
        told.append(("reverse KL", text))
    if values := _evaluated(group, "khat"):
        told.append(("k-hat", several(values, "{:.2f}")))
    if values := _last(group, "gradient_snr"):
        told.append(("gradient SNR at the end", several(values, "{:.2g}")))
    for name, form in (("epoch", "{:.4g}"), ("step", "{:,.0f}")):
        if values := _last(group, name):
            same = len(set(values)) == 1
            told.append((f"{name}s", form.format(values[0]) if same else several(values, form)))
    seconds, steps = _last(group, "seconds"), _last(group, "step")
    if seconds:
        told.append(("training", duration(statistics.mean(seconds))))
    if seconds and steps and all(steps):
        cost = statistics.mean(1000 * a / b for a, b in zip(seconds, steps, strict=True))
        told.append(("a step", f"{cost:.3g} ms" if cost < 1000 else f"{cost / 1000:.3g} s"))
    told.append(
        ("seed" if alone else "seeds", ", ".join(str(r.training.get("seed", "?")) for r in group))
    )
    return told


def _all(values: list[float | None]) -> list[float]:
    """Return values if all are known: a mean over fewer runs than are named would mislead."""
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []


def _evaluated(group: list[Run], name: str) -> list[float]:
    return _all([number(run.evaluation, name) if run.evaluated else None for run in group])


def _last(group: list[Run], name: str) -> list[float]:
    return _all([run.at_end(name) for run in group])
