"""Training curves: effective sample size against steps and time, and the norm of the gradient."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pathgrad._train.row import Row

from .style import (
    LOOKS,
    OTHER,
    How,
    Look,
    Points,
    column,
    ess_axis,
    mean_curve,
    new_figure,
    plain_log_axis,
    rolling_mean,
    save,
    say_empty,
    shorten,
    styled,
    time_unit,
    usual_window,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Training(NamedTuple):
    """The training of one run.

    Attributes:
        label: Shared by runs that differ in their seed only: they get a mean, and one entry in the legend.
        estimator: Decides colour and line style.
        rows: Of `metrics.jsonl`; there may be none yet.
        panel: Runs of different panels (lattice sizes) are drawn in separate rows.
    """

    label: str
    estimator: str
    rows: list[Row]
    panel: str = ""


DOUBTFUL = "loss below its bound"

# Groups of one estimator share its colour and line; from the second on they have markers.
_MARKERS = (None, "o", "s", "^", "D", "v", "P", "X")


def plot_comparison(runs: list[Training], path: Path) -> None:
    """Draw ESS against step and time, and the gradient norm, of one or several runs."""
    save(comparison_figure(runs), path)


@styled
def comparison_figure(runs: list[Training]) -> "Figure":
    """Return the figure of `plot_comparison`: a row of three axes for each panel."""
    panels = list(dict.fromkeys(run.panel for run in runs)) or [""]
    figure = new_figure(11.5, 0.4 + 2.9 * len(panels))
    grid = figure.subplots(len(panels), 3, squeeze=False)
    markers = choose_markers(runs)
    for panel, axes in zip(panels, grid, strict=True):
        here = [run for run in runs if run.panel == panel]
        _draw_panel(axes, here, markers)
        if panel:
            axes[0].set_title(panel, loc="left", weight="bold")
    legend(figure, runs, markers)
    return figure


def plot_time(runs: list[Training], path: Path) -> None:
    """Draw ESS against training time on a logarithmic scale, panels side by side."""
    save(time_figure(runs), path)


@styled
def time_figure(runs: list[Training]) -> "Figure":
    """Return the figure of `plot_time`: for methods whose steps differ by thousands, time is what counts."""
    panels = list(dict.fromkeys(run.panel for run in runs)) or [""]
    figure = new_figure(max(5.0, 3.9 * len(panels)), 3.4)
    markers = choose_markers(runs)
    for panel, axes in zip(panels, figure.subplots(1, len(panels), squeeze=False)[0], strict=True):
        here = [run for run in runs if run.panel == panel]
        for label in dict.fromkeys(run.label for run in here):
            group = [run for run in here if run.label == label]
            look = look_of(group[0].estimator)
            how: How = {"color": look.colour, "linestyle": look.line, "marker": markers[label]}
            curves = [c for r in group if len((c := column(r.rows, "seconds", "ess"))[0])]
            draw_sizes(axes, curves, label, how)
            for run in group:
                mark_doubtful(axes, run.rows, "seconds")
        ess_axis(axes, np.concatenate([column(run.rows, "step", "ess")[1] for run in here]))
        axes.set(xscale="log", xlabel="seconds of training")
        axes.set_title(panel, loc="left", weight="bold")
    legend(figure, runs, markers)
    return figure


def longest(runs: Sequence[Training]) -> float:
    """Return the seconds of the run that trained for longest, as far as they are known."""
    return max((run.rows[-1].value("seconds") or 0.0 for run in runs if run.rows), default=0.0)


def _draw_panel(
    axes: "Sequence[Axes]", runs: list[Training], markers: dict[str, str | None]
) -> None:
    by_step, by_time, norms = axes
    unit, name = time_unit(longest(runs))
    for label in dict.fromkeys(run.label for run in runs):
        group = [run for run in runs if run.label == label]
        look = look_of(group[0].estimator)
        how = {"color": look.colour, "linestyle": look.line, "marker": markers[label]}
        for axis, x, scale in ((by_step, "step", 1.0), (by_time, "seconds", unit)):
            curves = [
                (c[0] / scale, c[1]) for r in group if len((c := column(r.rows, x, "ess"))[0])
            ]
            draw_sizes(axis, curves, label, how)
            for r in group:
                mark_doubtful(axis, r.rows, x, scale)
        curves = [c for r in group if len((c := column(r.rows, "step", "gradient_norm"))[0])]
        _draw_norms(norms, curves, label, how)
    sizes = np.concatenate([column(run.rows, "step", "ess")[1] for run in runs] or [np.empty(0)])
    for axis, what in ((by_step, "training step"), (by_time, f"{name} of training")):
        axis.set_xlabel(what)
        ess_axis(axis, sizes)
    finish_norms(norms)
    for axis in axes:
        if not axis.lines:
            say_empty(axis, "no rows yet")


def draw_sizes(axes: "Axes", curves: list[Points], label: str, how: How) -> None:
    """Draw the mean of curves of sizes, smoothed where there are many rows, over what it is the mean of."""
    x, mean = mean_curve(curves)
    # Few rows are read one by one; many are a band of noise, in which neither dashes nor a level are seen.
    window = len(x) // 40 | 1
    if len(curves) > 1 or window > 1:
        for curve in curves:
            line(axes, *curve, color=how["color"], lw=0.7, alpha=0.45)
    if window > 1:
        axes.set_ylabel("ESS (thick: rolling mean)")
    # Above the thin ones of all groups.
    line(axes, x, rolling_mean(mean, window), **how, label=label, lw=2.2, zorder=3)


def _draw_norms(axes: "Axes", curves: list[Points], label: str, how: How) -> None:
    for curve in curves:
        line(axes, *curve, color=how["color"], lw=0.6, alpha=0.4)
    x, mean = mean_curve(curves)
    line(axes, x, rolling_mean(mean, usual_window(len(x))), **how, label=label, lw=2.2, zorder=3)


def line(axes: "Axes", x: np.ndarray, y: np.ndarray, **how: Any) -> None:
    """Draw a curve; a single point, which no line shows, as a dot; and nothing if there is none."""
    if len(x) == 0:
        return
    if len(x) == 1:
        how |= {"marker": how.get("marker") or "o"}
    axes.plot(x, y, markersize=4.5, markevery=max(1, len(x) // 8), **how)


def finish_norms(axes: "Axes") -> None:
    """Label the axes of gradient norms."""
    axes.set(xlabel="training step", ylabel="gradient norm (thick: rolling mean)")
    drawn = [np.asarray(each.get_ydata(), float) for each in axes.lines]
    plain_log_axis(axes, np.concatenate(drawn) if drawn else np.empty(0))


def mark_doubtful(axes: "Axes", rows: list[Row], x: str, unit: float = 1.0) -> None:
    """Cross out sizes from blocks whose loss was below its bound: there, log q itself was wrong."""
    at, ess = column([row for row in rows if row.below_bound], x, "ess")
    if len(at):
        axes.plot(at / unit, ess, ls="none", marker="x", ms=4, color="k", zorder=4, label=DOUBTFUL)


def look_of(estimator: str) -> Look:
    """Return how curves of an estimator are drawn."""
    return LOOKS.get(estimator, OTHER)


def choose_markers(runs: list[Training]) -> dict[str, str | None]:
    """Return a marker for each label, `None` for the first of an estimator."""
    chosen: dict[str, str | None] = {}
    seen: dict[str, int] = {}
    for label, estimator in dict.fromkeys((run.label, run.estimator) for run in runs):
        chosen[label] = _MARKERS[seen.get(estimator, 0) % len(_MARKERS)]
        seen[estimator] = seen.get(estimator, 0) + 1
    return chosen


def legend(
    figure: "Figure",
    runs: list[Training],
    markers: dict[str, str | None],
    further: "Sequence[Artist]" = (),
    letters: int = 150,
) -> None:
    """Name the groups once for all axes, above them, where no curve is hidden.

    Args:
        figure: Grows by the height of the legend.
        runs: What is drawn.
        markers: Of `choose_markers`.
        further: Handles to add.
        letters: How many fit across the figure.
    """
    from matplotlib.lines import Line2D

    handles: list[Artist] = []
    for label, estimator in dict.fromkeys((run.label, run.estimator) for run in runs):
        group = [run for run in runs if run.label == label]
        look = look_of(estimator)
        text = shorten(label) + _count(group)
        handles.append(
            Line2D(
                [], [], color=look.colour, ls=look.line, marker=markers[label], label=text, ms=4.5
            )
        )
    if any(row.below_bound for run in runs for row in run.rows):
        text = f"{DOUBTFUL}: not to be trusted"
        handles.append(Line2D([], [], ls="none", marker="x", color="k", ms=4, label=text))
    handles += further
    if not handles:
        return
    width = 8 + max(len(str(handle.get_label())) for handle in handles)
    columns = max(1, min(len(handles), letters // width))
    figure.legend(handles=handles, loc="outside upper center", ncols=columns)
    figure.set_figheight(figure.get_figheight() + 0.18 * math.ceil(len(handles) / columns))


def _count(group: list[Training]) -> str:
    begun = [run.panel for run in group if run.rows]
    if not begun:
        return " (no rows yet)"
    numbers = sorted({begun.count(panel) for panel in begun})
    if numbers == [1]:
        return ""
    return f" (mean of {' to '.join(str(n) for n in numbers[:: len(numbers) - 1 or 1])} runs)"
