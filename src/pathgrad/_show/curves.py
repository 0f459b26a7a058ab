"""Training curves: any logged number against steps, epochs or time."""

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from .._numbers.quantity import Quantity, number_in
from .._runs.group import Group
from .._runs.look import look_of
from .._runs.panel import MissingData, Panel
from .._runs.run import Run
from .._runs.series import Points, column, interesting, mean_curve, rolling_mean, time_unit, usual_window
from .._train.row import Row
from .style import INK, MOST_POINTS, PAPER, SOFT, How, line, log_axis, looks_of, share_axis, short

Axis = Literal["step", "epoch", "seconds"]

NO_CURVE = "No block of steps has ended yet, so there is no curve to draw."
EVALUATED, BEST = "evaluated", "best of a run"
DOUBTFUL = "loss below its bound: do not trust"

_FAR = 20  # times as long as others: on a linear axis the shorter curves would be a line at the left edge
_FEW = 12  # up to so many points are marked one by one
_DOT: How = {"ls": "none", "marker": "o", "ms": 5.5, "mec": PAPER, "zorder": 4}
_DIAMOND = _DOT | {"marker": "D", "zorder": 6}


class Training(NamedTuple):
    """The panels of one number: against its steps or epochs, and against training time."""

    quantity: Quantity
    by_length: Panel
    by_time: Panel
    length: Axis


def training_panels(groups: Sequence[Group]) -> list[Training]:
    """Return the panels for the training of groups of one problem; the followed number comes first."""
    experiment, options = groups[0].first.experiment, groups[0].first.options
    length = length_of(groups[0].first)
    followed = experiment.followed(options)
    others = [(q, _values(groups, q)) for q in experiment.curves(options)]
    varied = [q for q, values in others if len(values) == 1 or len(set(values)) > 1]
    panels = []
    for q in (followed, *varied):
        by_length, by_time = (curve_panel(q, axis, is_followed=q is followed) for axis in (length, "seconds"))
        panels.append(Training(q, by_length, by_time, length))
    return panels


def length_of(run: Run) -> Axis:
    """Return the unit in which the length of a training is counted."""
    return "epoch" if run.experiment.length(run.options)[0] == "epoch" else "step"


def constants(groups: Sequence[Group]) -> list[str]:
    """Return sentences about numbers that never changed in groups of one problem, so need no curve."""
    experiment, options = groups[0].first.experiment, groups[0].first.options
    pairs = [(q, _values(groups, q)) for q in experiment.curves(options)]
    same = [(q, values[0]) for q, values in pairs if len(values) > 1 and len(set(values)) == 1]
    return [f"{_title(q)}: {q.write(value)} throughout, in every run." for q, value in same]


def _values(groups: Sequence[Group], quantity: Quantity) -> list[float]:
    rows = [row for group in groups for run in group.runs for row in run.rows]
    return (column(rows, "step", quantity.name)[1] / quantity.scale).tolist()


def curve_panel(
    quantity: Quantity, axis: Axis, *, is_followed: bool = False, whole_time: bool = False
) -> Panel:
    """Return a panel with a curve for each group: the mean over its seeds, smoothed if there are many rows.

    Args:
        quantity: The logged number to draw.
        axis: What to draw it against.
        is_followed: Whether to mark evaluations, losses below their bound and published values too.
        whole_time: Include the time of earlier runs from which a run started, on a logarithmic axis: for
            methods whose numbers of steps differ by thousands.
    """

    def draw(axes: Axes, groups: Sequence[Group]) -> str:
        unit, words = 1.0, f"training {axis}"
        if axis == "seconds":
            ends = [run.at_end("seconds") or 0.0 for group in groups for run in group.runs]
            unit, name = time_unit(0.0 if whole_time else max(ends))
            words = f"{name} of training"

        def points(run: Run, rows: Sequence[Row], name: str) -> Points:
            x, y = column(rows, axis, name)
            return (x + (run.seconds_before if whole_time else 0.0)) / unit, y / quantity.scale

        curves, sentences, smooth = [], [], False
        for group, how in zip(groups, looks_of(groups), strict=True):
            seeds = [points(run, run.rows, quantity.name) for run in group.runs]
            seeds = [curve for curve in seeds if len(curve[0])]
            curves += seeds
            if seeds:
                label = group.label + (f" (mean of {len(seeds)} runs)" if len(seeds) > 1 else "")
                mean = _draw_group(axes, seeds, quantity, label, how)
                smooth |= _window(quantity, len(mean[0])) > 1
                sentences.append(_in_words(group.label, mean, quantity, words))
            elif not any(run.rows for run in group.runs):
                axes.plot([], [], label=f"{group.label} (no rows yet)", **how)
        if not curves:
            raise MissingData(NO_CURVE)
        if is_followed:
            _mark(axes, groups, quantity, points)
        _limit_y(axes, curves, quantity, groups[0].first if is_followed else None)
        _limit_x(axes, curves, is_log=whole_time)
        axes.set_xlabel(words + (" (thick: rolling mean)" if smooth else ""))
        return f"{_title(quantity)} against {words}. {' '.join(sentences)}"

    return Panel(_title(quantity), draw, quantity.means)


def _title(quantity: Quantity) -> str:
    unit = f", {quantity.unit}" if quantity.unit else ""
    return quantity.title[:1].upper() + quantity.title[1:] + unit


def _window(quantity: Quantity, count: int) -> int:
    # A number of which the best counts is not a mean over few draws: there is no noise to smooth.
    return 1 if quantity.best else usual_window(count)


def _draw_group(axes: Axes, curves: list[Points], quantity: Quantity, label: str, how: How) -> Points:
    """Draw thin curves for the seeds and a thick one for their mean; return the mean as it is drawn."""
    x, y = mean_curve(curves)
    window = _window(quantity, len(x))
    if len(curves) > 1 or window > 1:
        for curve in curves:
            # Many rows make a band of noise, which must not hide the means in it.
            line(axes, *curve, color=how["color"], lw=0.7, alpha=0.45 if window == 1 else 0.25)
    mean = x, rolling_mean(y, window)
    marker = how["marker"] or ("o" if 1 < len(x) <= _FEW else None)
    every = 1 if len(x) <= _FEW else max(1, min(len(x), MOST_POINTS) // 8)
    more: How = {"label": label, "marker": marker, "markevery": every, "mec": PAPER, "ms": 5.5}
    line(axes, *mean, **how | more, zorder=3)  # above the thin curves of all groups
    if quantity.best:
        for at, values in curves:
            best = int(np.argmax(quantity.better * values))
            axes.plot(at[best], values[best], **_DOT, color=how["color"])
    return mean


def _in_words(label: str, mean: Points, quantity: Quantity, words: str) -> str:
    """Describe the two ends of a curve in words."""
    x, y = mean
    if not len(x):
        return f"{label}: no row that all its runs share."
    ends = [f"{quantity.write(float(y[i]))} at {x[i]:.5g}" for i in sorted({0, len(x) - 1})]
    return f"{label}: {', then '.join(ends)} ({words})."


def _mark(axes: Axes, groups: Sequence[Group], quantity: Quantity, points: Callable[..., Points]) -> None:
    """Mark the results of evaluations, and cross out blocks whose loss was below its bound."""
    evaluated, crosses = 0, []
    for group in groups:
        for run in group.runs:
            crosses.append(points(run, [row for row in run.rows if row.below_bound], quantity.name))
            value, step = quantity.value(run.evaluation), number_in(run.evaluation, "step")
            at = [row for row in run.rows if row.step == step and value is not None]
            x, _ = points(run, at, "step")
            evaluated += len(x)
            axes.plot(x, np.full(len(x), value, float), **_DIAMOND, color=look_of(group.method).colour)
    x, y = np.concatenate(crosses, axis=1)
    if len(x):
        axes.plot(x, y, ls="none", marker="x", ms=4.5, color=INK, zorder=5, label=DOUBTFUL)
    if evaluated:
        axes.plot([], [], **_DIAMOND, color=SOFT, label=EVALUATED)
    if quantity.best:
        axes.plot([], [], **_DOT, color=SOFT, label=BEST)


def _limit_y(axes: Axes, curves: list[Points], quantity: Quantity, followed: Run | None) -> None:
    """Scale the axis; given the run whose number is followed, draw published values of that number too."""
    values = np.concatenate([np.asarray(curve.get_ydata(), float) for curve in axes.lines])
    if quantity.axis == "share":
        share_axis(axes, values)
    elif quantity.axis == "log":
        log_axis(axes, values)
    if quantity.axis != "linear" or quantity.better >= 0:
        return
    low, high = interesting(curves)
    if not math.isfinite(low):
        return
    room = max(high - low, 1e-3 * abs(high)) or 1.0
    published = {} if followed is None else followed.experiment.published(followed.options)
    # Published values far away would squeeze the curves to a line.
    if published and all(low - room < v < high + room for v in published.values()):
        for method, value in published.items():
            colour, text = look_of(method).colour, f"published, {method}: {quantity.write(value)}"
            axes.axhline(value, lw=1.0, ls=(0, (1, 2)), zorder=1, color=colour, label=text)
        low, high = min(low, *published.values()), max(high, *published.values())
        room = high - low
    axes.set_ylim(low - 0.06 * room, high + 0.06 * room)


def _limit_x(axes: Axes, curves: list[Points], *, is_log: bool) -> None:
    first, ends = min(x[0] for x, _ in curves), [x[-1] for x, _ in curves]
    # On a linear axis, methods with far fewer steps would be a line at the left edge.
    if first > 0 and (is_log or max(ends) > _FAR * min(ends)):
        log_axis(axes, np.array([first, max(ends)]), "x")
    else:
        axes.set_xlim(min(0.0, first), 1.02 * max(ends) or 1.0)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
