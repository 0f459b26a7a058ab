"""The picture of an evaluated run: training, weights, draws."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pathgrad._train.row import Row

from .run import Arrays
from .style import LOOKS, column, ess_axis, new_figure, save, styled
from .training import line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LogProb = Callable[[np.ndarray], npt.ArrayLike]  # of many points at once

_BLUE = LOOKS["path"].colour


def plot_evaluation(rows: list[Row], draws: Arrays, log_prob: LogProb | None, path: Path) -> None:
    """Draw the training curves, the log-weights, and the first two coordinates of the draws.

    `log_prob`, of a grid of points, adds the target's contours; `None` where there are none to show.
    """
    save(evaluation_figure(rows, draws, log_prob), path)


@styled
def evaluation_figure(rows: list[Row], draws: Arrays, log_prob: LogProb | None) -> "Figure":
    """Return the figure of `plot_evaluation`."""
    figure = new_figure(11.5, 3.3)
    curves, weights, points = figure.subplots(1, 3)
    steps, sizes = column(rows, "step", "ess")
    line(curves, steps, sizes, color=_BLUE)
    curves.set_xlabel("training step")
    ess_axis(curves, sizes)
    norms = curves.twinx()
    norms.spines.right.set_visible(True)
    norms.grid(visible=False)
    line(norms, *column(rows, "step", "gradient_norm"), color="#D55E00", lw=1, ls="--")
    norms.set(ylabel="gradient norm (dashed)", yscale="log")
    log_weight = draws["log_weight"]
    finite = log_weight[np.isfinite(log_weight)]
    if finite.size:
        weights.hist(finite - np.median(finite), bins=80, log=True, color=_BLUE)
    weights.set(xlabel="log-weight less its median", ylabel="draws")
    _draw_points(points, draws["x"].reshape(len(log_weight), -1), log_prob)
    return figure


def _draw_points(axes: "Axes", x: np.ndarray, log_prob: LogProb | None) -> None:
    x = x[np.isfinite(x).all(axis=1)][:4000]
    if x.shape[1] == 1:
        axes.hist(x[:, 0], bins=80, density=True, color=_BLUE)
        axes.set(xlabel="x", ylabel="density of the draws")
        return
    axes.scatter(x[:, 0], x[:, 1], s=2, alpha=0.35, lw=0, color=_BLUE, label="draws")
    axes.set(xlabel="first coordinate", ylabel="second coordinate")
    if log_prob is None or x.shape[1] != 2 or len(x) < 2:
        return
    (x0, y0), (x1, y1) = np.quantile(x, [0.001, 0.999], axis=0)
    across = np.meshgrid(np.linspace(x0, x1, 80), np.linspace(y0, y1, 80))
    height = np.asarray(log_prob(np.stack([a.ravel() for a in across], axis=1))).reshape(80, 80)
    levels = np.nanmax(height) - np.array([8, 4.5, 2, 0.5])
    axes.contour(*across, height, levels=levels, colors="k", linewidths=0.8, linestyles="solid")
    axes.set_title("draws, and contours of the target")
