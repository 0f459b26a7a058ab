"""Figures of evaluated lattice runs: fields, the two-point function, observables."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

import pathgrad as pg
from pathgrad._runs.look import look_of
from pathgrad._show.style import PAPER, RULE, SOFT, How, log_axis, tiled
from pathgrad._words.text import with_error

from .words import deviation, observables, word

_WIDTH, _HEIGHT = 3.8, 3.8  # size of the panel of fields, in inches
_MARKERS = "osD^vPX"
_FURTHEST = 6.0  # standard errors; larger deviations are drawn at the edge, with their value


def draw_fields(axes: Axes, groups: Sequence[pg.Group]) -> str:
    """Plot some fields on one colour scale centred at zero."""
    fields = np.asarray(groups[0].first.arrays["fields"], float)
    if fields.ndim != 3:
        raise pg.MissingData("the stored fields are not images.")
    finite = fields[np.isfinite(fields)]
    limit = float(np.max(np.abs(finite), initial=0.0)) or 1.0
    count, height, width = fields.shape
    image = tiled(fields, _WIDTH / _HEIGHT, gap=max(1, width // 12))
    axes.imshow(image, cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest")
    axes.set_axis_off()  # this hides axis labels, so the scale is plain text
    scale = f"blue {-limit:.2g}, white 0, red {limit:+.2g}"
    axes.text(0.5, -0.02, scale, transform=axes.transAxes, ha="center", va="top", color=SOFT)
    spread = f", standard deviation {finite.std():.3g}" if finite.size else ""
    return f"{count} draws of the field on {height} × {width} sites, as colours ({scale}){spread}."


def draw_two_point(axes: Axes, groups: Sequence[pg.Group]) -> str:
    """Plot two-point functions along an axis, and their decay according to the known mass."""
    heights, captions = [], []
    decays: dict[float, tuple[np.ndarray, np.ndarray]] = {}
    for i, group in enumerate(groups):
        arrays = group.first.arrays
        value = np.asarray(arrays["two_point"], float).ravel()
        error = np.asarray(arrays.get("two_point_err", np.full_like(value, np.nan)), float).ravel()
        if error.shape != value.shape:
            raise pg.MissingData("the two-point function and its errors have different lengths.")
        # Shifted a little, so that equal points do not hide each other.
        distance = np.arange(len(value)) + 0.07 * (i - (len(groups) - 1) / 2)
        how = _look(group, i)
        axes.errorbar(distance, value, error, lw=1.2, ms=4, capsize=2, label=group.label, **how)
        heights.append(value)
        if (mass := known_mass(group.first)) is not None and len(value) > 1 and value[-1] > 0:
            size = group.first.experiment.size(group.first.options)
            decays.setdefault(mass, decay(mass, size, value))
        errors = [float(e) if np.isfinite(e) else None for e in error]
        ends = [f"{with_error(value[t], errors[t])} at {t}" for t in (0, len(value) - 1)]
        captions.append(f"{group.label}: {', '.join(ends)}.")
    for i, curve in enumerate(decays.values()):
        label = None if i else "cosh with the known mass"
        axes.plot(*curve, color=SOFT, lw=1, ls="--", label=label, zorder=1)
    axes.set(xlabel="distance along an axis", ylabel="two-point function, summed across")
    log_axis(axes, np.concatenate(heights))
    axes.locator_params(axis="x", integer=True)
    known = f" Dashed: a cosh with the known mass {next(iter(decays)):.3g}." if decays else ""
    return f"Two-point function against distance along an axis. {' '.join(captions)}{known}"


def _look(group: pg.Group, i: int) -> How:
    """Return colour and marker of points; groups of one method share its colour."""
    return {"color": look_of(group.method).colour, "marker": _MARKERS[i % len(_MARKERS)], "ls": "none"}


def known_mass(run: pg.Run) -> float | None:
    """Return the known mass of the theory, in lattice units."""
    known = pg.number_in(observables(run.evaluation).get("mass_times_size"), "reference")
    return None if known is None else known / run.experiment.size(run.options)


def decay(mass: float, size: float, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return t and A cosh(m (t - L/2)), with A such that the curve meets the last value."""
    last = len(value) - 1
    t = np.linspace(0, last, 20 * last + 1)
    return t, value[-1] * np.cosh(mass * (t - size / 2)) / np.cosh(mass * (last - size / 2))


def draw_observables(axes: Axes, groups: Sequence[pg.Group]) -> str:
    """Plot how far observables are from their known values, in standard errors."""
    sets: list[tuple[str, dict[str, float], How]] = []
    for i, group in enumerate(groups):
        how, rows = _look(group, i), observables(group.first.evaluation)
        sets.append((group.label, _deviations(rows), how))
        chain = _deviations(rows, "mcmc_")
        if len(groups) == 1 and chain:  # with several runs, both would overfill the figure
            sets.append((f"{group.label}, Markov chain", chain, how | {"markerfacecolor": PAPER}))
    names = list(dict.fromkeys(name for _, deviations, _ in sets for name in deviations))
    if not names:
        raise pg.MissingData("no known values to compare these observables with.")
    axes.axvspan(-2, 2, color=RULE, lw=0)
    axes.axvline(0, color=SOFT, lw=0.8)
    for i, (label, deviations, how) in enumerate(sets):
        shift = 0.7 * ((i + 0.5) / len(sets) - 0.5)
        heights = [names.index(name) + shift for name in deviations]
        _draw_set(axes, list(deviations.values()), heights, label, how)
    axes.set_yticks(range(len(names)), [word(name) for name in names])
    axes.set_xticks(range(-6, 7, 2))
    axes.set(ylim=(len(names) - 0.4, -0.6), xlim=(-_FURTHEST - 0.5, _FURTHEST + 0.5))
    axes.set_xlabel("standard errors from the known value")
    axes.grid(visible=False, axis="y")
    lists = [(label, [f"{word(name)} {far:+.1f}" for name, far in row.items()]) for label, row, _ in sets]
    captions = [f"{label}: {', '.join(items)}." for label, items in lists]
    return f"How many standard errors observables are from their known values. {' '.join(captions)}"


def _deviations(rows: Mapping[str, pg.Numbers], chain: str = "") -> dict[str, float]:
    every = {name: deviation(row, chain) for name, row in rows.items()}
    return {name: far for name, far in every.items() if far is not None}


def _draw_set(axes: Axes, far: list[float], heights: list[float], label: str, how: How) -> None:
    shown = np.clip(far, -_FURTHEST, _FURTHEST)
    axes.hlines(heights, 0, shown, color=how["color"], lw=1)
    axes.plot(shown, heights, ms=4.5, label=label, **how)
    for number, at, height in zip(far, shown, heights, strict=True):
        if number != at:
            inwards, side = (-3, "right") if number > 0 else (3, "left")
            place: How = {"textcoords": "offset points", "ha": side, "va": "bottom", "fontsize": 7}
            axes.annotate(f"{number:+.0f}", (at, height), (inwards, 3), **place)


PANELS = {
    "fields": pg.Panel(
        "Fields",
        draw_fields,
        "draws side by side; patches of one colour are about as large as the correlation length",
        is_of_one=True,
        needs=("fields",),
        width=_WIDTH,
        height=_HEIGHT,
    ),
    "two-point": pg.Panel(
        "Two-point function",
        draw_two_point,
        "dashed: a cosh with the known mass, through the last point",
        needs=("two_point",),
        width=4.2,
    ),
    "observables": pg.Panel(
        "Observables",
        draw_observables,
        "filled: weighted draws; hollow: Markov chain; grey band: two standard errors",
        needs=("fields",),
        height=3.6,
    ),
}
