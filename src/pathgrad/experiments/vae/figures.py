"""Figures of autoencoders: images and their reconstructions, draws, latent numbers, and training curves."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

import pathgrad as pg
from pathgrad._runs import series
from pathgrad._show.curves import curve_panel
from pathgrad._show.style import INK, RULE, SOFT, How, line, tiled
from pathgrad._words.text import plain

from .words import warming_up

_MOST_PAIRS, _MOST_SAMPLES = 24, 64  # more would be too small to see


def draw_pairs(axes: Axes, groups: Sequence[pg.Group]) -> str:
    """Show test images, each with its reconstruction below."""
    arrays, label = groups[0].first.arrays, groups[0].label
    originals, means = _images(arrays["originals"]), _images(arrays["reconstructions"])
    if originals.shape[1:] != means.shape[1:]:
        raise pg.MissingData("test images and reconstructions differ in size.")
    shown = min(len(originals), len(means), _MOST_PAIRS)
    levels = int(arrays.get("levels", np.array(256)))
    originals, means = originals[:shown] / max(levels - 1, 1), means[:shown]
    between = np.full((shown, 1, means.shape[2]), np.nan)
    _show(axes, np.concatenate([originals, between, means], axis=1), gap=4)
    error = float(np.sqrt(np.mean((originals - means) ** 2)))
    return (
        f"{shown} test images, each above its reconstruction by {label}; root mean square difference of the "
        f"pixels {error:.3f} (on a scale from 0 to 1)."
    )


def draw_samples(axes: Axes, groups: Sequence[pg.Group]) -> str:
    images = _images(groups[0].first.arrays["samples"])[:_MOST_SAMPLES]
    _show(axes, images)
    mean = f"mean pixel {images.mean():.2f} (on a scale from 0 to 1)"
    return f"{len(images)} images drawn from the prior of {groups[0].label}; {mean}."


def draw_traversals(axes: Axes, groups: Sequence[pg.Group]) -> str:
    """Show an image whose latent numbers move one at a time: a row for each number."""
    arrays = groups[0].first.arrays
    images, moved, values = (arrays[name] for name in ("traversals", "traversed", "traversal_values"))
    if images.ndim != 4 or images.shape[:2] != (moved.size, values.size):
        raise pg.MissingData("the stored arrays are not images along latent numbers.")
    rows, columns, height, width = images.shape
    gap = 2
    cells = np.pad(images.astype(float), ((0, 0), (0, 0), (0, gap), (0, gap)), constant_values=np.nan)
    grid = cells.swapaxes(1, 2).reshape(rows * (height + gap), columns * (width + gap))
    axes.imshow(grid[:-gap, :-gap], cmap="gray", vmin=0, vmax=1)
    axes.set_anchor("N")
    axes.set_axis_off()
    change = np.sqrt(np.mean((images[:, -1] - images[:, 0]) ** 2, axis=(1, 2)))
    return (
        f"The first reconstruction by {groups[0].label}. In each row one latent number moves from "
        f"{values[0]:.3g} to {values[-1]:.3g}: those that change it most, numbers "
        f"{', '.join(map(str, moved))}. Root mean square change of the pixels {change[0]:.2f} in the first "
        f"row, {change[-1]:.2f} in the last."
    )


def _images(array: np.ndarray) -> np.ndarray:
    if array.ndim != 3:
        raise pg.MissingData("the stored arrays are not images.")
    return np.asarray(array, float)


def _show(axes: Axes, images: np.ndarray, gap: int = 2) -> None:
    room = axes.get_window_extent()
    axes.imshow(tiled(images, room.width / room.height, gap), cmap="gray", vmin=0, vmax=1)
    axes.set_anchor("N")  # align the tops of panels side by side
    axes.set_axis_off()


def draw_validation(axes: Axes, groups: Sequence[pg.Group]) -> str:
    """Plot the validation curve over epochs; for a single run, also the bounds of training and test images.

    All are the negative ELBO with the full KL term, whatever its weight in training.
    """
    runs, first = [run for group in groups for run in group.runs], groups[0].first
    quantity = first.experiment.followed(first.options)
    further = _draw_further(axes, runs[0], quantity) if len(runs) == 1 else []
    caption = ""
    if any(run.best for run in runs) or not axes.lines:  # without either, it reports what is missing
        caption = curve_panel(quantity, "epoch", is_followed=True).draw(axes, groups)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, series.interesting(further)[0] - 0.06 * (high - low)), high)
    _shade_warmup(axes, runs)
    axes.set(xlabel="epoch", ylabel=f"negative ELBO ({quantity.unit})")
    bests = [run.best for run in runs if run.best is not None]
    best = [f"{quantity.write(quantity.value(b.to_json()))} at epoch {plain(b.epoch)}" for b in bests]
    return f"{caption} At best: {', '.join(best) or 'not known yet'}.".strip()


def _draw_further(axes: Axes, run: pg.Run, quantity: pg.Quantity) -> list[series.Points]:
    """Plot the smoothed bound of the training images, and a diamond for that of the test images."""
    # Not the loss, which differs while the KL term has less than full weight.
    parts = [(row, row.value("reconstruction"), row.value("kl")) for row in run.rows]
    both = [(row.value("epoch"), a + b) for row, a, b in parts if a is not None and b is not None]
    x, values = series.points_of(both)
    smooth = x, series.rolling_mean(values, series.usual_window(len(values))) / quantity.scale
    line(axes, *smooth, color=SOFT, lw=1.2, label="training images (rolling mean)")
    bound = run.experiment.result(run.options).value(run.evaluation)
    test = series.points_of([(pg.number_in(run.evaluation, "epoch"), bound)])
    line(axes, *test, ls="none", marker="D", color=INK, label="test images", zorder=4)
    return [smooth, test]


def _shade_warmup(axes: Axes, runs: Sequence[pg.Run]) -> None:
    """Shade the epochs in which the KL term had less than full weight."""
    rows = [row for run in runs for row in run.rows if warming_up(row) is not None]
    early = [epoch for row in rows if (epoch := row.value("epoch")) is not None]
    if early:
        # With an edge, so that the patch is visible in the legend.
        how: How = {"facecolor": RULE, "edgecolor": SOFT, "lw": 0.5, "alpha": 0.55, "zorder": 0}
        axes.axvspan(0, max(early), label="KL warm-up", **how)


PANELS = {
    "images": pg.Panel(
        "Reconstructions",
        draw_pairs,
        "test images, each above its reconstruction (mean pixels)",
        is_of_one=True,
        needs=("originals", "reconstructions"),
        width=6.8,
    ),
    "samples": pg.Panel(
        "New images", draw_samples, "drawn from the prior (mean pixels)", is_of_one=True, needs=("samples",)
    ),
    "traversals": pg.Panel(
        "Latent numbers",
        draw_traversals,
        "a reconstruction with one latent number moved in each row, those with most effect first",
        is_of_one=True,
        needs=("traversals", "traversed", "traversal_values"),
    ),
    "validation": pg.Panel(
        "Negative ELBO",
        draw_validation,
        "down is better; a dot is the best validation, whose model is kept",
        width=6.8,
    ),
}
