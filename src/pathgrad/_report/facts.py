"""Further numbers of runs, and the warnings that they raised."""

import statistics

from .contents import Run
from .words import count, duration, number, several, with_error


def collect_warnings(group: list[Run]) -> list[str]:
    """Return what was raised in training and evaluation, each once, with the runs it is about."""
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
    skipped = run.last.get("skipped")
    if skipped:
        said.append(
            f"{count(skipped)} steps of training were skipped, because their loss or gradient was not "
            "finite. A lower learning rate or more solver steps help."
        )
    below = sum(bool(row.get("below_bound")) for row in run.rows)
    if below:
        said.append(
            f"In {below} of {len(run.rows)} blocks the loss was below −log Z, which no density can reach: "
            "the solver was too coarse there. Take more `--solver-steps`."
        )
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
    return _all([run.last.get(name) for run in group])
