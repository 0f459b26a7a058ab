"""Pictures of evaluated lattice runs: fields, two-point function, weights, observables."""

import math
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pathgrad._train.row import Row

from .observables import draw_observables
from .run import Arrays, Evaluated, MissingData, Result, array_of, looks_for, number_of, point_of
from .style import (
    LOOKS,
    How,
    Points,
    column,
    ess_axis,
    new_figure,
    plain_log_axis,
    rolling_mean,
    save,
    say_empty,
    styled,
    usual_window,
)
from .training import draw_sizes, finish_norms, line, mark_doubtful

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE = LOOKS["path"].colour


def plot_lattice(rows: list[Row], arrays: Arrays, result: Result, path: Path) -> None:
    """Draw training, fields, two-point function, weights and observables of one run.

    Args:
        rows: Of `metrics.jsonl`.
        arrays: `log_weight`; `fields`, some draws; `two_point` and `two_point_err` for distances 0 to L/2
            along an axis. What is missing leaves its panel empty.
        result: Of `evaluation.json`.
        path: File to write.
    """
    save(lattice_figure(rows, arrays, result), path)


@styled
def lattice_figure(rows: list[Row], arrays: Arrays, result: Result) -> "Figure":
    """Return the figure of `plot_lattice`: two rows of three axes, and a colour bar."""
    figure = new_figure(11.5, 6.4)
    # Two figures in one: else the room for labels in one row would be left free in the other too.
    above, below = figure.subfigures(2, 1, squeeze=False).ravel()
    sizes, norms, weights = above.subplots(1, 3)
    fields, correlation, observables = below.subplots(1, 3)
    _draw_training(sizes, norms, rows, result)
    run = [Evaluated("", rows, arrays, result)]
    for axes, draw in (
        (weights, draw_weights),
        (fields, draw_fields),
        (correlation, draw_two_point),
        (observables, draw_observables),
    ):
        try:
            draw([axes], run)
        except MissingData as error:
            axes.set(xticks=[], yticks=[])
            say_empty(axes, textwrap.fill(str(error), 36))
    return figure


@styled
def single_figure(kind: str, runs: list[Evaluated]) -> "Figure":
    """Return one of the figures in `KINDS` alone, for one or several runs."""
    draw, width, height = KINDS[kind]
    if kind == "fields":  # each run has its own panel
        across = len(runs) if len(runs) <= 3 else math.ceil(math.sqrt(len(runs)))
        down = math.ceil(len(runs) / across)
        figure = new_figure(0.9 + width * across, height * down)
        axes = list(figure.subplots(down, across, squeeze=False).ravel())
        for unused in axes[len(runs) :]:
            unused.set_axis_off()
        draw(axes[: len(runs)], runs)
    else:
        # Observables are drawn below each other.
        more = 0.9 * (len(runs) - 1) if kind == "observables" else 0.0
        figure = new_figure(width, height + more)
        draw([figure.subplots()], runs)
    return figure


def _draw_training(sizes: "Axes", norms: "Axes", rows: list[Row], result: Result) -> None:
    steps, ess = column(rows, "step", "ess")
    draw_sizes(sizes, [(steps, ess)], "of training", {"color": _BLUE})
    mark_doubtful(sizes, rows, "step")
    # Measured with a finer solver, so it can differ from the end of the curve.
    final = point_of(result, "step", "ess")
    how: How = {"ls": "none", "marker": "D", "clip_on": False}
    line(sizes, *final, color="k", label="evaluated", **how)
    sizes.set_xlabel("training step")
    ess_axis(sizes, np.concatenate([ess, final[1]]))
    if sizes.lines:
        sizes.legend(loc="lower right")
    steps, norm = column(rows, "step", "gradient_norm")
    line(norms, steps, norm, color=_BLUE, lw=0.6, alpha=0.5)
    line(norms, steps, rolling_mean(norm, usual_window(len(norm))), color=_BLUE, lw=2.2)
    finish_norms(norms)
    for axes in (sizes, norms):
        if not axes.lines:
            say_empty(axes, "no rows yet")


def draw_weights(axes: "list[Axes]", runs: list[Evaluated]) -> None:
    """Draw histograms of log-weights less their mean, with ESS and number of draws."""
    (axis,) = axes
    centred = []
    for run in runs:
        log_weight = array_of(run, "log_weight")
        finite = log_weight[np.isfinite(log_weight)]
        if not finite.size:
            raise MissingData(f"{run.label or 'the run'} has no draw with a finite weight.")
        centred.append(finite - finite.mean())
    low, high = min(map(left_edge, centred)), max(c.max() for c in centred)
    bins = np.linspace(low, high, 81) if high > low else 5
    for run, look, values in zip(runs, looks_for(runs), centred, strict=True):
        text, more = _describe_weights(run, values, low)
        if len(runs) == 1:
            axis.hist(values, bins=bins, color=_BLUE)
            axis.set_title("\n".join(filter(None, [text, more])))
            continue
        text = ", ".join(filter(None, [text, more]))
        how: How = {"histtype": "step", "color": look.colour, "linestyle": look.line, "lw": 1.4}
        axis.hist(values, bins=bins, label=f"{run.short}: {text}", **how)
    axis.set(xlabel="log-weight less its mean", ylabel="draws", yscale="log")
    if len(runs) > 1:
        # Below the axes: above the histograms there is no room for lines this long.
        axis.figure.legend(loc="outside lower center")


def left_edge(values: np.ndarray) -> float:
    """Return where to begin: a lone draw of next to no weight must not squeeze all others into a line.

    To the right, where the large weights are that matter, everything is shown.
    """
    low, high = np.quantile(values, [0.16, 0.84])
    return float(max(values.min(), -12 * (high - low)))


def _describe_weights(run: Evaluated, values: np.ndarray, low: float) -> tuple[str, str]:
    """Return ESS and number of draws, and what of them is not seen."""
    kept = len(run.arrays["log_weight"])
    ess, drawn = number_of(run.result, "ess"), number_of(run.result, "samples") or kept
    size = "ESS unknown" if ess is None else f"ESS {ess:.2%}"
    further, infinite = int(np.sum(values < low)), kept - len(values)
    more = [f"{kept:,} shown"] if kept < drawn else []
    more += [f"{further:,} further left"] if further else []
    more += [f"{infinite:,} not finite"] if infinite else []
    return f"{size} of {drawn:,} draws", ", ".join(more)


def draw_fields(axes: "list[Axes]", runs: list[Evaluated]) -> None:
    """Draw some fields of each run, on one colour scale with zero in its middle."""
    fields = [array_of(run, "fields") for run in runs]
    limit = max(float(np.max(np.abs(f[np.isfinite(f)]), initial=0.0)) for f in fields) or 1.0
    images = []
    for axis, run, some in zip(axes, runs, fields, strict=True):
        how: How = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit, "origin": "lower"}
        images.append(axis.imshow(_mosaic(some), **how))
        axis.set_axis_off()
        size = some.shape[-1]
        text = f"{len(some)} draws, {size} × {size} sites"
        axis.set_title(f"{run.short}: {text}" if len(runs) > 1 else text)
    bar = axes[0].figure.colorbar(images[0], ax=axes, shrink=0.8, label="field φ")
    bar.outline.set_visible(False)
    bar.ax.grid(visible=False)


def _mosaic(fields: np.ndarray) -> np.ndarray:
    """Lay fields out in a square, with gaps between them."""
    count, height, width = fields.shape
    across = math.ceil(math.sqrt(count))
    gap = max(1, width // 12)
    whole = np.full(
        (math.ceil(count / across) * (height + gap) - gap, across * (width + gap) - gap), np.nan
    )
    for i, field in enumerate(fields):
        top, left = (i // across) * (height + gap), (i % across) * (width + gap)
        whole[top : top + height, left : left + width] = field
    return whole


def draw_two_point(axes: "list[Axes]", runs: list[Evaluated]) -> None:
    """Draw two-point functions along an axis, and how the reference says that they decay."""
    (axis,) = axes
    heights, curves = [], {}
    for i, (run, look) in enumerate(zip(runs, looks_for(runs), strict=True)):
        value, error = array_of(run, "two_point"), run.arrays.get("two_point_err")
        # A little beside each other, else equal points would hide each other.
        distance = np.arange(len(value)) + 0.07 * (i - (len(runs) - 1) / 2)
        how: How = {
            "color": look.colour,
            "marker": look.marker,
            "ls": "none",
            "ms": 4,
            "capsize": 2,
        }
        label = run.short if len(runs) > 1 else "weighted draws"
        axis.errorbar(distance, value, error, label=label, lw=1.2, **how)
        heights.append(value)
        curve = reference_decay(run)
        if curve is not None:
            curves.setdefault((len(value), round(curve[1][0] / curve[1][-1], 6)), (run, curve))
    for i, (run, curve) in enumerate(curves.values()):
        of = f" of {run.short}" if len(runs) > 1 and len(curves) == 1 else ""
        text = f"cosh with the reference mass,\nmatched at the last point{of}" if i == 0 else None
        axis.plot(*curve, color="0.35", lw=1, ls="--", label=text, zorder=1)
    axis.set(xlabel="distance along an axis", ylabel="two-point function, summed across")
    plain_log_axis(axis, np.concatenate(heights))
    axis.locator_params(axis="x", integer=True)
    axis.legend()


def reference_decay(run: Evaluated) -> Points | None:
    """Return A cosh(m (t - L/2)) with the known mass m, and A such that it meets the last point."""
    known = (run.result.get("observables") or {}).get("mass_times_size") or {}
    value = run.arrays["two_point"]
    if known.get("reference") is None or len(value) < 2 or not value[-1] > 0:
        return None
    last = len(value) - 1
    size = run.arrays["fields"].shape[-1] if "fields" in run.arrays else 2 * last
    mass = known["reference"] / size
    t = np.linspace(0, last, 20 * last + 1)
    return t, value[-1] * np.cosh(mass * (t - size / 2)) / np.cosh(mass * (last - size / 2))


# The figures there are, with the size in inches of one alone.
KINDS: "dict[str, tuple[Callable[[list[Axes], list[Evaluated]], None], float, float]]" = {
    "fields": (draw_fields, 3.6, 3.6),
    "two-point": (draw_two_point, 4.2, 3.4),
    "weights": (draw_weights, 4.6, 3.4),
    "observables": (draw_observables, 4.6, 3.6),
}
