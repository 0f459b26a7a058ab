"""Pictures of an evaluated variational autoencoder: reconstructions, draws, and how it was trained."""

import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pathgrad._train.row import Row

from .elbo import (
    draw_evaluations,
    draw_published,
    finish_evaluations,
    interesting,
    shade_warmup,
    title_of,
    unit_of,
)
from .run import Arrays, MissingData, Result, number_of, point_of
from .style import (
    LOOKS,
    column,
    new_figure,
    points_of,
    rolling_mean,
    save,
    say_empty,
    styled,
    usual_window,
)
from .training import line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE = LOOKS["path"].colour
_MOST_PAIRS, _MOST_SAMPLES = 24, 64  # more would be too small to be seen
_MOST_IN_A_GRID = 400


def plot_images(rows: list[Row], arrays: Arrays, result: Result, path: Path) -> None:
    """Draw reconstructions, draws from the prior, negative ELBO and field evaluations of one run.

    Args:
        rows: Of `metrics.jsonl`.
        arrays: `originals`, as levels; `reconstructions` and `samples`, mean pixels in [0, 1]; `levels`, how
            many there are. What is missing leaves its panel empty.
        result: Of `evaluation.json`.
        path: File to write.
    """
    save(images_figure(rows, arrays, result), path)


@styled
def images_figure(rows: list[Row], arrays: Arrays, result: Result) -> "Figure":
    """Return the figure of `plot_images`: two rows of two axes."""
    figure = new_figure(11.5, 7.0)
    figure.suptitle(_headline(result), fontsize=10)
    # Two figures in one: else the room for labels below would be left free above too.
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(1.15, 1)).ravel()
    pairs, samples = above.subplots(1, 2, width_ratios=(1.5, 1))
    curve, evaluations = below.subplots(1, 2, width_ratios=(1.5, 1))
    for axes, draw, aspect in ((pairs, _draw_pairs, 1.9), (samples, _draw_samples, 1.25)):
        try:
            draw(axes, arrays, aspect)
        except MissingData as error:
            axes.set(xticks=[], yticks=[])
            say_empty(axes, textwrap.fill(str(error), 36))
    _draw_training(curve, rows, result)
    draw_evaluations(evaluations, [rows], {"color": _BLUE})
    finish_evaluations(evaluations)
    return figure


@styled
def pictures_figure(arrays: Arrays, result: Result) -> "Figure":
    """Return reconstructions and draws alone."""
    figure = new_figure(11.5, 4.2)
    figure.suptitle(_headline(result), fontsize=10)
    pairs, samples = figure.subplots(1, 2, width_ratios=(1.5, 1))
    _draw_pairs(pairs, arrays, 1.9)
    _draw_samples(samples, arrays, 1.25)
    return figure


@styled
def samples_figure(images: np.ndarray) -> "Figure":
    """Return a grid of images (m, H, W) with pixels in [0, 1]; of very many, the first."""
    shown = images[:_MOST_IN_A_GRID]
    whole = tiled(shown, 1.0)
    height, width = whole.shape
    # 40 pixels to an inch, or more where that would be too large.
    inch = max(40.0, height / 12, width / 12)
    figure = new_figure(max(1.5, width / inch), height / inch + 0.3)
    axes = figure.subplots()
    _show(axes, whole)
    of = f" of {len(images):,}" if len(shown) < len(images) else ""
    axes.set_title(f"{len(shown):,}{of} draws")
    return figure


def _headline(result: Result) -> str:
    """Return what evaluation found, in the unit of the data set."""
    dataset = result.get("dataset", "")
    unit = unit_of(dataset)
    words = []
    for name, text in (("negative_elbo", "negative ELBO"), ("nll", "negative log-likelihood")):
        value, error = number_of(result, name), number_of(result, f"{name}_err")
        if value is not None:
            words.append(f"{text} {unit.form.format(value / unit.nats)}")
            words[-1] += f" ± {unit.form.format(error / unit.nats)}" if error is not None else ""
            words[-1] += f" {unit.name}"
    parts = [("reconstruction", "reconstruction"), ("kl", "KL")]
    known = [
        f"{text} {value:.2f}"
        for name, text in parts
        if (value := number_of(result, name)) is not None
    ]
    if known:  # the parts of the first
        words[:1] = [" ".join([*words[:1], f"({' + '.join(known)} nats)"])]
    of = f"{result['images']:,} test images" if result.get("images") else "test images"
    return f"{title_of(dataset)}, {of}: {', '.join(words)}"


def _array(arrays: Arrays, name: str) -> np.ndarray:
    if name not in arrays or not len(arrays[name]):
        raise MissingData(f"the evaluation has no {name}.")
    return np.asarray(arrays[name], float)


def _draw_pairs(axes: "Axes", arrays: Arrays, aspect: float) -> None:
    """Draw originals, and below each its reconstruction."""
    originals, reconstructions = _array(arrays, "originals"), _array(arrays, "reconstructions")
    originals = originals / (int(arrays.get("levels", np.array(256))) - 1)
    count = min(len(originals), len(reconstructions), _MOST_PAIRS)
    between = np.full((count, 1, originals.shape[2]), np.nan)
    pairs = np.concatenate([originals[:count], between, reconstructions[:count]], axis=1)
    _show(axes, tiled(pairs, aspect, gap=4))
    axes.set_title(f"{count} test images, each above its reconstruction (mean pixels)")


def _draw_samples(axes: "Axes", arrays: Arrays, aspect: float) -> None:
    """Draw images of the prior."""
    samples = _array(arrays, "samples")[:_MOST_SAMPLES]
    _show(axes, tiled(samples, aspect))
    axes.set_title(f"{len(samples)} draws from the prior (mean pixels)")


def _show(axes: "Axes", image: np.ndarray) -> None:
    axes.imshow(image, cmap="gray", vmin=0, vmax=1)
    axes.set_anchor("N")  # titles of panels side by side at one height
    axes.set_axis_off()


def tiled(images: np.ndarray, aspect: float, gap: int = 2) -> np.ndarray:
    """Lay images out, with gaps, in as many columns as make them largest in a panel of an aspect ratio."""
    count, height, width = images.shape

    def size(across: int) -> float:
        down = math.ceil(count / across)
        return min(aspect / (across * (width + gap)), 1 / (down * (height + gap)))

    across = max(range(1, count + 1), key=size)
    down = math.ceil(count / across)
    whole = np.full((down * (height + gap) - gap, across * (width + gap) - gap), np.nan)
    for i, image in enumerate(images):
        top, left = (i // across) * (height + gap), (i % across) * (width + gap)
        whole[top : top + height, left : left + width] = image
    return whole


def _draw_training(axes: "Axes", rows: list[Row], result: Result) -> None:
    """Draw negative ELBOs against epoch: of training, validation, and the evaluation."""
    dataset = result.get("dataset", "")
    unit = unit_of(dataset)
    x_training, training = points_of([(row.value("epoch"), _negative_elbo(row)) for row in rows])
    smooth = rolling_mean(training, usual_window(len(training))) / unit.nats
    line(axes, x_training, smooth, color="0.55", lw=1.2, label="training images (rolling mean)")
    x, validation = column(rows, "epoch", "validation")
    validation = validation / unit.nats
    line(axes, x, validation, color=_BLUE, label="validation")
    if len(x):
        best = int(np.argmin(validation))
        text = f"best validation: {unit.form.format(validation[best])}, epoch {x[best]:g}"
        axes.axvline(x[best], color=_BLUE, lw=0.8, ls=":")
        axes.plot(x[best], validation[best], "o", color=_BLUE, mec="white", label=text, zorder=4)
    at, test = point_of(result, "epoch", "negative_elbo")
    test = test / unit.nats
    line(axes, at, test, ls="none", marker="D", color="k", label="test images", zorder=4)
    shade_warmup(axes, [rows])
    axes.set(xlabel="epoch", ylabel=f"negative ELBO ({unit.name})")
    if not axes.lines:
        say_empty(axes, "no rows yet")
        return
    low, high = interesting([(x, validation), (x_training, smooth)])
    # `fmin` and `fmax` pass over what is not known.
    low, high = (
        float(f([edge, *test])) for f, edge in ((np.fmin.reduce, low), (np.fmax.reduce, high))
    )
    draw_published(axes, dataset, low, high)
    # On white, else what explains the shading would not be seen on it.
    axes.legend(loc="upper right", frameon=True, framealpha=0.9, edgecolor="none")


def _negative_elbo(row: Row) -> float | None:
    """Return that of training: the loss is another number where the KL term does not weigh in full."""
    reconstruction, kl = row.value("reconstruction"), row.value("kl")
    return None if reconstruction is None or kl is None else reconstruction + kl
