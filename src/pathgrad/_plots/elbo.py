"""Training curves of variational autoencoders: negative ELBO against epochs and time, field evaluations."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pathgrad._train.row import Row

from .style import (
    LOOKS,
    How,
    Points,
    column,
    mean_curve,
    new_figure,
    rolling_mean,
    save,
    say_empty,
    styled,
    time_unit,
    usual_window,
)
from .training import Training, choose_markers, legend, line, longest, look_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Unit(NamedTuple):
    """What a negative log-likelihood is read in.

    Attributes:
        name: For labels.
        nats: Per image, in one unit.
        form: How many digits are worth reading.
    """

    name: str
    nats: float
    form: str


_NATS = Unit("nats", 1.0, "{:.2f}")
# 28 × 20 pixels, each of 256 levels: for those, bits per pixel are usual.
_BITS = {"freyfaces": Unit("bits/dim", 28 * 20 * math.log(2), "{:.3f}")}

_TITLES = {
    "mnist": "MNIST",
    "omniglot": "Omniglot",
    "omniglot-rebuilt": "Omniglot, rebuilt",
    "caltech": "Caltech 101 silhouettes",
    "freyfaces": "Frey Faces",
}

# Negative ELBO on test images, in the unit of the data set: Vaitl et al. 2022, table 2.
PUBLISHED: dict[str, dict[str, float]] = {
    "mnist": {"path": 82.09, "total": 82.82},
    "omniglot": {"path": 96.61, "total": 98.33},
    "caltech": {"path": 101.93, "total": 104.03},
    "freyfaces": {"path": 4.35, "total": 4.39},
}


def unit_of(dataset: str) -> Unit:
    """Return what numbers of a data set are read in."""
    return _BITS.get(dataset, _NATS)


def title_of(dataset: str) -> str:
    """Return a data set's name for people."""
    return _TITLES.get(dataset, dataset)


def plot_elbo(runs: list[Training], path: Path) -> None:
    """Draw the validation against epoch and time, and field evaluations, of one or several runs."""
    save(elbo_figure(runs), path)


@styled
def elbo_figure(runs: list[Training]) -> "Figure":
    """Return the figure of `plot_elbo`: three axes for each data set (the `panel` of a run).

    They are side by side for a single data set, else below each other. Whatever the KL term weighed in
    training, the validation is the negative ELBO itself.
    """
    datasets = list(dict.fromkeys(run.panel for run in runs)) or [""]
    alone = len(datasets) == 1
    figure = new_figure(11.5, 3.3) if alone else new_figure(0.6 + 3.9 * len(datasets), 8.4)
    # Transposed, so that a row of `grid` is what belongs to one data set.
    grid = figure.subplots(1, 3, squeeze=False) if alone else figure.subplots(3, len(datasets)).T
    markers = choose_markers(runs)
    needed: set[str] = set()
    for dataset, axes in zip(datasets, grid, strict=True):
        here = [run for run in runs if run.panel == dataset]
        needed |= _draw_dataset(axes, dataset, here, markers)
        axes[0].set_title(title_of(dataset), loc="left", weight="bold")
    legend(figure, runs, markers, _further_handles(needed), letters=_letters(figure))
    return figure


@styled
def evaluations_figure(runs: list[Training]) -> "Figure":
    """Return the field evaluations against step alone, an axes for each data set."""
    datasets = list(dict.fromkeys(run.panel for run in runs)) or [""]
    figure = new_figure(max(5.0, 3.9 * len(datasets)), 3.3)
    markers = choose_markers(runs)
    grid = figure.subplots(1, len(datasets), squeeze=False)[0]
    for dataset, axes in zip(datasets, grid, strict=True):
        here = [run for run in runs if run.panel == dataset]
        _draw_groups_of_evaluations(axes, here, markers)
        axes.set_title(title_of(dataset), loc="left", weight="bold")
    legend(figure, runs, markers, letters=_letters(figure))
    return figure


def _letters(figure: "Figure") -> int:
    """Return how many letters of a legend fit across a figure."""
    return round(13 * figure.get_figwidth())


def _draw_dataset(
    axes: "Sequence[Axes]", dataset: str, runs: list[Training], markers: dict[str, str | None]
) -> set[str]:
    """Draw the three axes of a data set, and say which handles they need in the legend."""
    by_epoch, by_time, evaluations = axes
    unit = unit_of(dataset)
    seconds, name = time_unit(longest(runs))
    for label in dict.fromkeys(run.label for run in runs):
        group = [run for run in runs if run.label == label]
        for axis, x, scale in ((by_epoch, "epoch", 1.0), (by_time, "seconds", seconds)):
            curves = [_validation(run, x, scale, unit.nats) for run in group]
            _draw_curves(axis, [c for c in curves if len(c[0])], group[0], markers[label])
    needed = {"best"} if by_epoch.lines else set()
    needed |= {"warm-up"} if shade_warmup(by_epoch, [run.rows for run in runs]) else set()
    low, high = interesting([_validation(run, "epoch", 1.0, unit.nats) for run in runs])
    for axis, what in ((by_epoch, "epoch"), (by_time, f"{name} of training")):
        needed |= {"published"} if draw_published(axis, dataset, low, high) else set()
        axis.set(xlabel=what, ylabel=f"negative ELBO, validation ({unit.name})")
        if not axis.lines:
            say_empty(axis, "no epoch has ended yet")
    _draw_groups_of_evaluations(evaluations, runs, markers)
    return needed


def _validation(run: Training, x: str, scale: float = 1.0, nats: float = 1.0) -> Points:
    at, values = column(run.rows, x, "validation")
    return at / scale, values / nats


def _draw_curves(axes: "Axes", curves: list[Points], first: Training, marker: str | None) -> None:
    """Draw seeds thin, their mean thick, and a dot where each is at its lowest."""
    look = look_of(first.estimator)
    if len(curves) > 1:
        for curve in curves:
            line(axes, *curve, color=look.colour, lw=0.7, alpha=0.45)
    how: How = {"color": look.colour, "linestyle": look.line, "marker": marker}
    line(axes, *mean_curve(curves), **how, label=first.label, lw=1.8, zorder=3)
    for x, y in curves:
        best = int(np.argmin(y))
        axes.plot(x[best], y[best], **_BEST, color=look.colour)


_BEST: How = {"ls": "none", "marker": "o", "ms": 5, "mec": "white", "zorder": 4}


def interesting(curves: Sequence[Points]) -> tuple[float, float]:
    """Return between which values curves are worth seeing.

    From the lowest to the highest after the first tenth; and where they stay low for long, not much further
    up than they mostly are: else the first fall would fill the panel, and differences at the end not be seen.
    """
    end = max((x[-1] for x, _ in curves if len(x)), default=0.0)
    values = np.concatenate([*(y[x > 0.1 * end] for x, y in curves), np.empty(0)])
    values = values[np.isfinite(values)]
    if not values.size:
        return math.nan, math.nan
    low, mostly = float(values.min()), float(np.quantile(values, 0.75))
    return low, min(float(values.max()), low + 3 * (mostly - low) or math.inf)


def draw_published(axes: "Axes", dataset: str, low: float, high: float) -> bool:
    """Set the limits of y to between two values; draw the paper's too if they are not far from there."""
    if not math.isfinite(low):
        return False
    room = max(high - low, 1e-3 * abs(high))
    known = PUBLISHED.get(dataset, {})
    # Else they would squeeze the curves to a line.
    near = [v for v in known.values() if low - room < v < high + room]
    drawn = len(near) == len(known) > 0
    if drawn:
        for estimator, value in known.items():
            text = f"published, {estimator}: {value}"
            axes.axhline(value, **_REFERENCE, color=LOOKS[estimator].colour, label=text)
        low, high = min(low, *near), max(high, *near)
        room = high - low
    axes.set_ylim(low - 0.06 * room, high + 0.06 * room)
    return drawn


_REFERENCE: How = {"lw": 1.0, "ls": (0, (1, 2)), "zorder": 1}


def shade_warmup(axes: "Axes", trainings: list[list[Row]]) -> bool:
    """Shade the epochs in which the KL term did not weigh in full, and say whether there were any."""
    early = [
        epoch
        for rows in trainings
        for row in rows
        if (epoch := row.value("epoch")) is not None and warming_up(row)
    ]
    if early:
        axes.axvspan(0, max(early), **_WARMUP)
    return bool(early)


def warming_up(row: Row) -> bool:
    """Say whether the KL term of an autoencoder did not weigh in full yet."""
    beta = row.value("beta")
    return beta is not None and beta < 1


_WARMUP: How = {"color": "0.93", "lw": 0, "zorder": 0, "label": "KL warm-up"}


def _draw_groups_of_evaluations(
    axes: "Axes", runs: list[Training], markers: dict[str, str | None]
) -> None:
    for label in dict.fromkeys(run.label for run in runs):
        group = [run for run in runs if run.label == label]
        look = look_of(group[0].estimator)
        how: How = {"color": look.colour, "linestyle": look.line, "label": label}
        draw_evaluations(axes, [run.rows for run in group], how | {"marker": markers[label]})
    finish_evaluations(axes)


def draw_evaluations(axes: "Axes", trainings: list[list[Row]], how: How) -> None:
    """Draw the evaluations of a step, mean of seeds: those of the forward solves thick, backward thin."""
    for name, width in (("evaluations", 2.0), ("evaluations_backward", 0.9)):
        curves = [c for rows in trainings if len((c := column(rows, "step", name))[0])]
        x, mean = mean_curve(curves)
        line(axes, x, rolling_mean(mean, usual_window(len(mean))), lw=width, **how)


def finish_evaluations(axes: "Axes") -> None:
    """Label the axes of field evaluations."""
    axes.set_xlabel("training step")
    axes.set_ylabel("field evaluations per step\n(thick: forward, thin: backward)")
    if not axes.lines:
        say_empty(axes, "no rows yet")


def _further_handles(needed: set[str]) -> "list[Artist]":
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    text = "published, on test images"
    handles: dict[str, Artist] = {
        "best": Line2D([], [], **_BEST, color="0.4", label="best of a run"),
        "published": Line2D([], [], **_REFERENCE, color="0.4", label=text),
        "warm-up": Patch(**_WARMUP),
    }
    return [handle for name, handle in handles.items() if name in needed]
