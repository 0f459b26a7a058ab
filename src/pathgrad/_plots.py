"""Pictures, from rows of metrics and arrays alone. Matplotlib is imported when one is drawn."""

from pathlib import Path
from typing import Any

import numpy as np

# Told apart by line style as well as by colour.
_STYLES = {"path": ("C0", "-"), "total": ("C1", "--"), "two-copy": ("C2", ":")}


def _figure(columns: int):
    from matplotlib.figure import Figure  # no pyplot: no window system, no global state

    figure = Figure(figsize=(4.2 * columns, 3.4), layout="constrained")
    return figure, figure.subplots(1, columns, squeeze=False)[0]


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=130)


def _curve(axes: Any, rows: list[dict[str, Any]], x: str, y: str, **how: Any) -> None:
    points = [(r[x], r[y]) for r in rows if r.get(x) is not None and r.get(y) is not None]
    if points:
        axes.plot(*zip(*points, strict=True), **how)


def plot_comparison(runs: list[tuple[str, str, list[dict[str, Any]]]], path: Path) -> None:
    """Draw ESS and gradient norm of several runs, given as (label, estimator, rows)."""
    figure, (by_step, by_time, norms) = _figure(3)
    for i, (label, estimator, rows) in enumerate(runs):
        colour, line = _STYLES.get(estimator, (f"C{3 + i % 6}", "-."))
        how = {"color": colour, "linestyle": line, "label": label, "alpha": 0.85}
        _curve(by_step, rows, "step", "ess", **how)
        _curve(by_time, rows, "seconds", "ess", **how)
        _curve(norms, rows, "step", "gradient_norm", **how)
    for axes, what in ((by_step, "step"), (by_time, "seconds of training")):
        axes.set(xlabel=what, ylabel="effective sample size", ylim=(0, 1.02))
        axes.grid(alpha=0.3)
    norms.set(xlabel="step", ylabel="gradient norm", yscale="log")
    norms.grid(alpha=0.3, which="both")
    norms.legend(fontsize="small")
    _save(figure, path)


def plot_evaluation(
    rows: list[dict[str, Any]], draws: dict[str, np.ndarray], log_prob: Any, path: Path
) -> None:
    """Draw the training curves, the log-weights, and the first two coordinates of the draws.

    `log_prob`, of a grid of points, adds the target's contours; `None` where there are none to show.
    """
    figure, (curves, weights, points) = _figure(3)
    _curve(curves, rows, "step", "ess", color="C0", label="ESS")
    curves.set(xlabel="step", ylabel="effective sample size", ylim=(0, 1.02))
    curves.grid(alpha=0.3)
    norms = curves.twinx()
    _curve(norms, rows, "step", "gradient_norm", color="C3", lw=1, ls="--", label="gradient norm")
    norms.set(ylabel="gradient norm (dashed)", yscale="log")
    log_weight = draws["log_weight"]
    finite = log_weight[np.isfinite(log_weight)]
    if finite.size:
        weights.hist(finite - np.median(finite), bins=80, log=True, color="C0")
    weights.set(xlabel="log-weight less its median", ylabel="draws")
    _draw_points(points, draws["x"].reshape(len(log_weight), -1), log_prob)
    _save(figure, path)


def _draw_points(axes: Any, x: np.ndarray, log_prob: Any) -> None:
    x = x[np.isfinite(x).all(axis=1)][:4000]
    if x.shape[1] == 1:
        axes.hist(x[:, 0], bins=80, density=True, color="C0")
        axes.set(xlabel="x", ylabel="density of the draws")
        return
    axes.scatter(x[:, 0], x[:, 1], s=2, alpha=0.35, lw=0, label="draws")
    axes.set(xlabel="first coordinate", ylabel="second coordinate")
    if log_prob is None or x.shape[1] != 2 or len(x) < 2:
        return
    (x0, y0), (x1, y1) = np.quantile(x, [0.001, 0.999], axis=0)
    across = np.meshgrid(np.linspace(x0, x1, 80), np.linspace(y0, y1, 80))
    height = np.asarray(log_prob(np.stack([a.ravel() for a in across], axis=1))).reshape(80, 80)
    top = np.nanmax(height)
    axes.contour(
        *across,
        height,
        levels=top - np.array([8, 4.5, 2, 0.5]),
        colors="k",
        linewidths=0.8,
        linestyles="solid",
    )
    axes.set_title("draws, and contours of the target", fontsize="medium")
