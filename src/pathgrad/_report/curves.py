"""How the runs were trained: every number of their metrics against steps and against time."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from pathgrad._plots.elbo import interesting, unit_of
from pathgrad._plots.style import (
    Points,
    column,
    mean_curve,
    rolling_mean,
    time_unit,
    usual_window,
)
from pathgrad._plots.training import Training, choose_markers

from .chart import Curve, chart, horizontal, margin, swatch, vertical
from .contents import Run
from .html import Html, tag
from .scale import Scale, fitting
from .words import number, percent, plain

_FEW_LABELS = 4  # more are named once above the charts, instead of above each


class Quantity(NamedTuple):
    """A column of the metrics that gets a chart.

    Attributes:
        column: Its name there.
        title: Above the chart.
        means: What it says, in a few words.
        kind: Of the vertical axis.
        write: Writes a value.
    """

    column: str
    title: str
    means: str
    kind: str
    write: Callable[[float], str] = plain


_ESS = Quantity(
    "ess", "Effective sample size", "up is better; 100 % is a perfect flow", "ess", percent
)
_FLOW = (
    Quantity("kl", "Reverse KL divergence", "nats; down is better, 0 is a perfect flow", "log"),
    Quantity(
        "gradient_norm", "Gradient norm", "a path gradient shrinks as the flow becomes right", "log"
    ),
    Quantity("gradient_snr", "Signal-to-noise ratio of the gradient", "up is better", "log"),
    Quantity(
        "evaluations", "Field evaluations of a step", "what the ODE solver had to do", "linear"
    ),
)
_VAE = (
    Quantity("loss", "Loss of training", "nats per image; down is better", "linear"),
    Quantity("kl", "KL term", "nats per image that the latent code takes", "linear"),
    # Noise of the divergence, and a decoder that is trained too, keep it from vanishing.
    Quantity("gradient_norm", "Gradient norm", "of the flow and both networks together", "log"),
    *_FLOW[2:],
    Quantity(
        "evaluations_backward", "Field evaluations of the way back", "of the adjoint", "linear"
    ),
)


def training_charts(runs: list[Run]) -> Html:
    """Return all charts of runs of one problem: the main one twice, the others as the reader chooses."""
    labels = list(dict.fromkeys(run.label for run in runs))
    markers = choose_markers([Training(r.label, r.estimator, []) for r in runs])
    few = len(labels) <= _FEW_LABELS
    figures = []
    for quantity in _quantities(runs):
        if _constant(runs, quantity.column) is not None:
            continue
        for axis in ("step", "time"):
            names = legend(runs, markers, sizes=quantity.column == "ess") if few else None
            found = _figure(runs, quantity, axis, markers, names)
            # The main chart is there against both; of the others one is hidden by the style sheet.
            main = quantity.column in ("ess", "validation")
            figures.append(tag("div", found, class_=None if main else f"by-{axis}"))
    once = None if few else legend(runs, markers, sizes=not runs[0].dataset)
    if not figures:
        return tag("p", "No block of steps has ended yet, so there is no curve to draw.")
    return tag("div", once, tag("div", *figures, class_="charts"), _constants(runs))


def _quantities(runs: list[Run]) -> list[Quantity]:
    """Return what there is to draw."""
    dataset = runs[0].dataset
    if dataset:
        unit = unit_of(dataset)
        means = f"{unit.name}, negative ELBO; down is better"
        first = Quantity("validation", "Validation", means, "linear", unit.form.format)
        every = (first, *_VAE)
    else:
        every = (_ESS, *_FLOW)
    return [
        q for q in every if any(row.value(q.column) is not None for run in runs for row in run.rows)
    ]


def _constant(runs: list[Run], name: str) -> float | None:
    """Return the value of a column that is the same in all rows of all runs: no curve is worth drawing."""
    if not name.startswith("evaluations"):
        return None
    values = {row.value(name) for run in runs for row in run.rows} - {None}
    return values.pop() if len(values) == 1 else None


def _constants(runs: list[Run]) -> Html | None:
    said = []
    for name, of in (("evaluations", "A step"), ("evaluations_backward", "Its way back")):
        value = _constant(runs, name)
        if value is not None:
            said.append(f"{of} took {value:g} field evaluations, always and in every run.")
    return tag("p", " ".join(said), class_="note") if said else None


def _points(run: Run, quantity: Quantity, axis: str, seconds: float) -> Points:
    across = "seconds" if axis == "time" else "epoch" if run.dataset else "step"
    x, y = column(run.rows, across, quantity.column)
    nats = unit_of(run.dataset or "").nats if quantity.column == "validation" else 1.0
    return (x / seconds if axis == "time" else x), y / nats


def _figure(
    runs: list[Run],
    quantity: Quantity,
    axis: str,
    markers: dict[str, str | None],
    names: Html | None,
) -> Html:
    longest = max((run.at_end("seconds") or 0.0 for run in runs), default=0.0)
    seconds, unit = time_unit(longest)
    word = "epoch" if runs[0].dataset else "step"
    where = f"training time, {unit}" if axis == "time" else f"training {word}"
    curves: list[Curve] = []
    thick: list[Curve] = []
    said, smoothed = [], False
    for label in dict.fromkeys(run.label for run in runs):
        group = [run for run in runs if run.label == label]
        points = [p for run in group if len((p := _points(run, quantity, axis, seconds))[0])]
        if not points:
            continue
        faint, main = _group_curves(points, group[0], markers[label])
        smoothed |= bool(faint)
        curves += faint
        thick.append(main)
        said.append(_said(label, main, quantity, f"{unit}" if axis == "time" else word))
        marks = _evaluated(group, quantity, axis, seconds)
        thick += [marks] if len(marks.x) else []
        thick += _doubtful(group, quantity, axis, seconds)
    x, y = _axes([*curves, *thick], quantity)
    described = f"{quantity.title} against {where}. {' '.join(said)}"
    return tag(
        "figure",
        tag(
            "figcaption",
            tag("strong", quantity.title),
            tag("span", f" against {where}", class_="against"),
            tag(
                "span",
                quantity.means + ("; thick: rolling mean" if smoothed else ""),
                class_="means",
            ),
            names,
        ),
        chart([*curves, *thick], x, y, described=described, x_label=where),
    )


def _group_curves(
    points: list[Points], first: Run, marker: str | None
) -> tuple[list[Curve], Curve]:
    """Return what is drawn thin behind, and the mean of the runs, smoothed where there are many rows."""
    x, mean = mean_curve(points)
    window = usual_window(len(x)) if len(x) > 30 else 1
    faint = []
    if len(points) > 1 or window > 1:
        faint = [Curve(*p, first.estimator, width=1.0, faint=True) for p in points]
    marker = marker or ("o" if 1 < len(x) <= 12 else None)
    return faint, Curve(x, rolling_mean(mean, window), first.estimator, first.label, marker)


def _said(label: str, curve: Curve, quantity: Quantity, unit: str) -> str:
    """Put the ends of a curve into words."""
    if not len(curve.x):
        return f"{label}: no rows that all its runs have."
    ends = []
    for i in sorted({0, len(curve.x) - 1}):
        at = (
            f"{curve.x[i]:.3g} {unit}"
            if unit not in ("step", "epoch")
            else f"{unit} {curve.x[i]:g}"
        )
        ends.append(f"{quantity.write(float(curve.y[i]))} at {at}")
    return f"{label}: {', then '.join(ends)}."


def _evaluated(group: list[Run], quantity: Quantity, axis: str, seconds: float) -> Curve:
    """Return the ESS that evaluation found, with a finer solver and far more draws than a block has."""
    found = []
    for run in group:
        ess, at = number(run.evaluation, "ess"), number(run.evaluation, "step")
        row = next((row for row in run.rows if row.step == at), None)
        across = None if row is None else row.value("seconds" if axis == "time" else "step")
        if quantity.column == "ess" and ess is not None and across is not None:
            found.append((across / (seconds if axis == "time" else 1.0), ess))
    points = np.array(found, float).reshape(-1, 2)
    return Curve(
        points[:, 0], points[:, 1], group[0].estimator, f"{group[0].label}, evaluated", "D", 0.0
    )


def _doubtful(group: list[Run], quantity: Quantity, axis: str, seconds: float) -> list[Curve]:
    """Cross out sizes from blocks whose loss was below its bound."""
    if quantity.column != "ess":
        return []
    crosses = []
    for run in group:
        x, y = column(
            [row for row in run.rows if row.below_bound],
            "seconds" if axis == "time" else "step",
            "ess",
        )
        if len(x):
            x = x / seconds if axis == "time" else x
            crosses.append(Curve(x, y, "other", "loss below its bound", "x", 0.0))
    return crosses


def _axes(curves: Sequence[Curve], quantity: Quantity) -> tuple[Scale, Scale]:
    x = np.concatenate([c.x for c in curves] or [np.empty(0)])
    y = np.concatenate([c.y for c in curves] or [np.empty(0)])
    if quantity.column in ("loss", "validation"):
        low, high = interesting([(c.x, c.y) for c in curves])
        y = np.array([low, high]) if np.isfinite([low, high]).all() else y
    up = fitting(quantity.kind, y, *vertical())
    ends = [float(c.x.max()) for c in curves if len(c.x)]
    first = min((float(c.x.min()) for c in curves if len(c.x)), default=0.0)
    # Methods whose steps differ by thousands would be a line at the left edge.
    far = bool(ends) and first > 0 and max(ends) > 20 * min(ends)
    last = float(x.max()) if x.size else 1.0
    return horizontal(first if far else 0.0, last, "log" if far else "linear", margin(up)), up


def legend(
    runs: list[Run], markers: dict[str, str | None], *, alone: bool = False, sizes: bool = False
) -> Html:
    """Return the names of the groups beside pieces of their curves.

    Args:
        runs: What is drawn.
        markers: On the curves, by label.
        alone: Whether curves are of single runs, not means of groups.
        sizes: Whether the marks that only effective sample sizes have are explained too.
    """
    entries = []
    for label in dict.fromkeys(run.label for run in runs):
        group = [run for run in runs if run.label == label]
        text = label + (f" (mean of {len(group)} runs)" if len(group) > 1 and not alone else "")
        entries.append(tag("li", swatch(group[0].estimator, markers.get(label)), text))
    if sizes and any(number(run.evaluation, "ess") is not None for run in runs):
        entries.append(tag("li", swatch("other", "D", line=False), "evaluated"))
    if sizes and any(row.below_bound for run in runs for row in run.rows):
        text = "loss below its bound: not to be trusted"
        entries.append(tag("li", swatch("other", "x", line=False), text))
    return tag("ul", *entries, class_="legend")
