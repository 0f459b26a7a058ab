"""Training curves: a number of the rows against steps, epochs or time, whatever the number is."""

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
DOUBTFUL = "loss below its bound: not to be trusted"

_FAR = 20  # times as long: then the shorter curves would be a line at the left edge
_FEW = 12  # points are marked one by one
_DOT: How = {"ls": "none", "marker": "o", "ms": 5.5, "mec": PAPER, "zorder": 4}
_DIAMOND = _DOT | {"marker": "D", "zorder": 6}


class Training(NamedTuple):
    """The panels of one number: against what the training is counted in, and against its time."""

    quantity: Quantity
    by_length: Panel
    by_time: Panel
    length: Axis


def training_panels(groups: Sequence[Group]) -> list[Training]:
    """Return what there is to draw of the training of groups of one problem; what is followed comes first."""
    experiment, options = groups[0].first.experiment, groups[0].first.options
    length = length_of(groups[0].first)
    followed = experiment.followed(options)
    others = [(q, _values(groups, q)) for q in experiment.curves(options)]
    varied = [q for q, values in others if len(values) == 1 or len(set(values)) > 1]
    found = []
    for q in (followed, *varied):
        by_length, by_time = (curve_panel(q, axis, is_followed=q is followed) for axis in (length, "seconds"))
        found.append(Training(q, by_length, by_time, length))
    return found


def length_of(run: Run) -> Axis:
    """Return what a training is counted in."""
    return "epoch" if run.experiment.length(run.options)[0] == "epoch" else "step"


def constants(groups: Sequence[Group]) -> list[str]:
    """Say which numbers of groups of one problem never changed: no curve of them is worth drawing."""
    experiment, options = groups[0].first.experiment, groups[0].first.options
    pairs = [(q, _values(groups, q)) for q in experiment.curves(options)]
    same = [(q, values[0]) for q, values in pairs if len(values) > 1 and len(set(values)) == 1]
    return [f"{_title(q)}: {q.write(value)}, always and in every run." for q, value in same]


def _values(groups: Sequence[Group], quantity: Quantity) -> list[float]:
    rows = [row for group in groups for run in group.runs for row in run.rows]
    return (column(rows, "step", quantity.name)[1] / quantity.scale).tolist()


def curve_panel(
    quantity: Quantity, axis: Axis, *, is_followed: bool = False, whole_time: bool = False
) -> Panel:
    """Return a panel with a curve for each group: the mean of its seeds, smoothed where rows are many.

    Args:
        quantity: What is drawn, by its name in the rows.
        axis: Against what.
        is_followed: Whether evaluations, losses below their bound and published values are marked too.
        whole_time: Count the time of the runs that a run began with, and draw it logarithmically: for methods
            whose steps differ by thousands.
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

        curves, said, smooth = [], [], False
        for group, how in zip(groups, looks_of(groups), strict=True):
            own = [points(run, run.rows, quantity.name) for run in group.runs]
            own = [each for each in own if len(each[0])]
            curves += own
            if own:
                label = group.label + (f" (mean of {len(own)} runs)" if len(own) > 1 else "")
                mean = _draw_group(axes, own, quantity, label, how)
                smooth |= _window(quantity, len(mean[0])) > 1
                said.append(_said(group.label, mean, quantity, words))
            elif not any(run.rows for run in group.runs):
                axes.plot([], [], label=f"{group.label} (no rows yet)", **how)
        if not curves:
            raise MissingData(NO_CURVE)
        if is_followed:
            _mark(axes, groups, quantity, points)
        _limit_y(axes, curves, quantity, groups[0].first if is_followed else None)
        _limit_x(axes, curves, is_log=whole_time)
        axes.set_xlabel(words + (" (thick: rolling mean)" if smooth else ""))
        return f"{_title(quantity)} against {words}. {' '.join(said)}"

    return Panel(_title(quantity), draw, quantity.means)


def _title(quantity: Quantity) -> str:
    unit = f", {quantity.unit}" if quantity.unit else ""
    return quantity.title[:1].upper() + quantity.title[1:] + unit


def _window(quantity: Quantity, count: int) -> int:
    # What is judged by its best is no mean over few draws: it has no noise to be taken out.
    return 1 if quantity.best else usual_window(count)


def _draw_group(axes: Axes, curves: list[Points], quantity: Quantity, label: str, how: How) -> Points:
    """Draw seeds thin and their mean thick; return the mean, smoothed where it is drawn so."""
    x, y = mean_curve(curves)
    window = _window(quantity, len(x))
    if len(curves) > 1 or window > 1:
        for curve in curves:
            # Many rows are a band of noise, which must not hide the means in it.
            line(axes, *curve, color=how["color"], lw=0.7, alpha=0.45 if window == 1 else 0.25)
    mean = x, rolling_mean(y, window)
    marker = how["marker"] or ("o" if 1 < len(x) <= _FEW else None)
    every = 1 if len(x) <= _FEW else max(1, min(len(x), MOST_POINTS) // 8)
    more: How = {"label": label, "marker": marker, "markevery": every, "mec": PAPER, "ms": 5.5}
    line(axes, *mean, **how | more, zorder=3)  # above the thin ones of all groups
    if quantity.best:
        for at, values in curves:
            best = int(np.argmax(quantity.better * values))
            axes.plot(at[best], values[best], **_DOT, color=how["color"])
    return mean


def _said(label: str, mean: Points, quantity: Quantity, words: str) -> str:
    """Put the ends of a curve into words."""
    x, y = mean
    if not len(x):
        return f"{label}: no rows that all its runs have."
    ends = [f"{quantity.write(float(y[i]))} at {x[i]:.5g}" for i in sorted({0, len(x) - 1})]
    return f"{label}: {', then '.join(ends)} ({words})."


def _mark(axes: Axes, groups: Sequence[Group], quantity: Quantity, points: Callable[..., Points]) -> None:
    """Mark what evaluations found, and cross out blocks whose loss was below its bound."""
    evaluated, crosses = 0, []
    for group in groups:
        for run in group.runs:
            crosses.append(points(run, [row for row in run.rows if row.below_bound], quantity.name))
            found, step = quantity.value(run.evaluation), number_in(run.evaluation, "step")
            at = [row for row in run.rows if row.step == step and found is not None]
            x, _ = points(run, at, "step")
            evaluated += len(x)
            axes.plot(x, np.full(len(x), found, float), **_DIAMOND, color=look_of(group.method).colour)
    x, y = np.concatenate(crosses, axis=1)
    if len(x):
        axes.plot(x, y, ls="none", marker="x", ms=4.5, color=INK, zorder=5, label=DOUBTFUL)
    if evaluated:
        axes.plot([], [], **_DIAMOND, color=SOFT, label=EVALUATED)
    if quantity.best:
        axes.plot([], [], **_DOT, color=SOFT, label=BEST)


def _limit_y(axes: Axes, curves: list[Points], quantity: Quantity, followed: Run | None) -> None:
    """Scale the axis; of a run whose number is followed, draw what others have published of it."""
    values = np.concatenate([np.asarray(each.get_ydata(), float) for each in axes.lines])
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
    # Else they would squeeze the curves to a line.
    if published and all(low - room < v < high + room for v in published.values()):
        for method, value in published.items():
            colour, text = look_of(method).colour, f"published, {method}: {quantity.write(value)}"
            axes.axhline(value, lw=1.0, ls=(0, (1, 2)), zorder=1, color=colour, label=text)
        low, high = min(low, *published.values()), max(high, *published.values())
        room = high - low
    axes.set_ylim(low - 0.06 * room, high + 0.06 * room)


def _limit_x(axes: Axes, curves: list[Points], *, is_log: bool) -> None:
    first, ends = min(x[0] for x, _ in curves), [x[-1] for x, _ in curves]
    # Methods whose steps differ by thousands would be a line at the left edge.
    if first > 0 and (is_log or max(ends) > _FAR * min(ends)):
        log_axis(axes, np.array([first, max(ends)]), "x")
    else:
        axes.set_xlim(min(0.0, first), 1.02 * max(ends) or 1.0)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
