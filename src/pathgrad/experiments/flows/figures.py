"""Figures of any evaluated flow: its weights, and its draws."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

import pathgrad as pg
from pathgrad._runs.look import look_of
from pathgrad._show.style import INK, dashes
from pathgrad._words.text import count

_BINS, _MOST_POINTS = 60, 3000


def draw_weights(axes: Axes, groups: Sequence[pg.Group]) -> str:
    """Plot histograms of the log-weights minus their mean, for the first run of each group."""
    shown = []
    for group in groups:
        values = np.asarray(group.first.arrays.get("log_weight", ()), float).ravel()
        values = values[np.isfinite(values)]
        if values.size:
            shown.append((group, values - values.mean()))
    if not shown:
        raise pg.MissingData("no draw with a finite weight was stored.")
    low, high = min(left_edge(v) for _, v in shown), max(float(v.max()) for _, v in shown)
    edges = np.linspace(low, high if high > low else low + 1, _BINS + 1)
    captions = []
    for group, values in shown:
        look, counts = look_of(group.method), np.histogram(values, edges)[0]
        axes.stairs(counts, edges, color=look.colour, linestyle=dashes(look.line), lw=1.8, label=group.label)
        further = int(np.sum(values < low))
        captions.append(
            f"{group.label}: {count(values.size)} draws, standard deviation {values.std():.3g}, largest "
            f"{values.max():+.3g}" + (f", {further} further left." if further else ".")
        )
    axes.set(xlabel="log-weight minus its mean, log p - log q", ylabel="draws", yscale="log")
    axes.set_ylim(bottom=0.6)
    return f"Histogram of log-weights minus their mean. {' '.join(captions)}"


def left_edge(values: np.ndarray) -> float:
    """Return the left end of the axis: one draw of tiny weight must not squeeze all others into a line.

    On the right, where the large weights are, everything is shown.
    """
    low, high = np.quantile(values, [0.16, 0.84])
    return float(max(values.min(), -12 * (high - low)))


def draw_points(axes: Axes, groups: Sequence[pg.Group]) -> str:
    """Plot the first two coordinates of the draws over contours of the target; in 1D, a histogram."""
    run, look = groups[0].first, look_of(groups[0].method)
    x = np.asarray(run.arrays["x"], float).reshape(len(run.arrays["x"]), -1)
    x = x[np.isfinite(x).all(axis=1)]
    if len(x) < 2:
        raise pg.MissingData("there are fewer than two finite draws.")
    moments = "; ".join(
        f"coordinate {i + 1}: mean {x[:, i].mean():.3g}, standard deviation {x[:, i].std():.3g}"
        for i in range(min(2, x.shape[1]))
    )
    if x.shape[1] == 1:
        counts, edges = np.histogram(x[:, 0], _BINS, density=True)
        axes.stairs(counts, edges, color=look.colour, lw=1.8, fill=True, alpha=0.6)
        axes.set(xlabel="x", ylabel="density of the draws")
        return f"Histogram of {count(len(x))} draws. {moments}."
    shown = x[:_MOST_POINTS, :2]
    axes.plot(*shown.T, ls="none", marker=".", ms=2, alpha=0.6, color=look.colour, rasterized=True)
    # Cut off the few farthest draws, which would squeeze the others together.
    low, high = np.quantile(shown, [0.001, 0.999], axis=0)
    left, right = low - 0.08 * (high - low), high + 0.08 * (high - low)
    axes.set(xlim=(left[0], right[0]), ylim=(left[1], right[1]))
    of = f" of {x.shape[1]}" if x.shape[1] > 2 else ""
    axes.set(xlabel=f"first coordinate{of}", ylabel=f"second coordinate{of}")
    return f"Scatter plot of {count(len(shown))} draws{_contours(axes, run.arrays)}. {moments}."


def _contours(axes: Axes, arrays: Mapping[str, np.ndarray]) -> str:
    grid, height = arrays.get("grid"), arrays.get("grid_log_prob")
    if grid is None or height is None or not np.isfinite(height).any():
        return ""
    levels = np.nanmax(height[np.isfinite(height)]) - np.array([8, 4.5, 2, 0.5])
    axes.contour(*grid, height, levels=levels, colors=INK, linewidths=0.8, linestyles="solid")
    return " over contours of the target"


PANELS = {
    "weights": pg.Panel(
        "Log-weights",
        draw_weights,
        "number of draws; narrow is better, and a long tail to the right is a warning sign",
        needs=("log_weight",),
    ),
    "draws": pg.Panel("Draws", draw_points, "lines: contours of the target", is_of_one=True, needs=("x",)),
}
