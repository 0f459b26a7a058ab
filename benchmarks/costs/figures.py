"""Figures of the cost of gradients: growth on logarithmic scales, and bar charts."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pathgrad._runs.look import LOOKS, Look
from pathgrad._show.style import How, dashes, log_axis, new_figure, save, say_empty, styled

from .records import Row, StudyRecord

Costs = Mapping[str, Row]  # in a row, by the name of the program

_LABELS = {
    "dim": "dimension",
    "solver_steps": "solver steps",
    "batch": "draws",
    "volume": "sites of the lattice",
}
_COSTS = (
    ("seconds", "seconds", 1.0),
    ("flops", "GFLOP", 1e9),
    ("temporary_bytes", "temporary memory, MB", 1e6),
)
_WORDS = {"seconds": "time", "flops": "FLOPs", "temporary_bytes": "temporary memory"}
# Further colours from the palette of Okabe and Ito.
_OTHERS = (Look("#56B4E9", "#56B4E9", (1, 1.2)), Look("#D55E00", "#D55E00", "-"))


def plot_costs(study: StudyRecord, path: Path) -> None:
    """Plot a study, in the form that is written to JSON."""
    save(costs_figure(study), path)


@styled
def costs_figure(study: StudyRecord) -> Figure:
    """Return the figure of a study: curves if it has a growing variable, else a bar chart."""
    variable = study["variable"]
    return _growth_figure(study, variable) if variable else _bars_figure(study)


def _growth_figure(study: StudyRecord, variable: str) -> Figure:
    figure = new_figure(9.0, 6.2)
    time, relative, flops, memory = figure.subplots(2, 2).ravel()
    series = list(dict.fromkeys(_series(study, row) for row in study["rows"]))
    for number, labels in enumerate(series):
        rows = [row for row in study["rows"] if _series(study, row) == labels]
        names = list(rows[0]["estimators"])
        for i, (name, look) in enumerate(zip(names, _looks(names), strict=True)):
            how = _how(look, "os^Dv"[i], number)
            for axes, (quantity, _, unit) in zip((time, flops, memory), _COSTS, strict=True):
                label = ", ".join([*labels, name]) + _exponent(study, labels, name, quantity)
                _draw_cost(axes, rows, variable, name, quantity, unit, label, how)
            _draw_relative(relative, rows, variable, name, _reference(names), how)
    for axes, (_, label, _) in zip((time, flops, memory), _COSTS, strict=True):
        axes.set_ylabel(label)
        drawn = [np.asarray(line.get_ydata(), float) for line in axes.lines]
        log_axis(axes, np.concatenate(drawn) if drawn else np.empty(0))
        if axes.lines:
            axes.legend()
        else:
            say_empty(axes, "not measured")
    relative.set_ylabel(f"time / time of {_reference(list(study['rows'][0]['estimators']))}")
    relative.axhline(1.0, color="0.4", lw=0.8, zorder=0)
    values = sorted({row[variable] for row in study["rows"]})
    for axes in (time, relative, flops, memory):
        axes.set(xscale="log", xlabel=_LABELS[variable])
        axes.set_xticks(values, [f"{v:g}" for v in values])
        axes.set_xticks([], minor=True)
    figure.suptitle(study["title"])
    return figure


def _series(study: StudyRecord, row: Row) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in study["series_by"])


def _looks(names: Sequence[str]) -> list[Look]:
    """Return the usual looks of estimators, and others for programs that are no estimators."""
    others = iter(_OTHERS)
    return [LOOKS[n] if n in LOOKS else next(others) for n in names]


def _how(look: Look, marker: str, number: int) -> How:
    """Return the style of a curve; from the second series on, with open markers."""
    inside = look.colour if number == 0 else "white"
    return {
        "color": look.colour,
        "linestyle": dashes(look.line),
        "marker": marker,
        "markersize": 4.5,
        "markerfacecolor": inside,
    }


def _reference(names: list[str]) -> str:
    return "total" if "total" in names else names[0]


def _exponent(study: StudyRecord, series: tuple[str, ...], name: str, quantity: str) -> str:
    for fit in study["growth"]:
        same = tuple(str(fit[by]) for by in study["series_by"]) == series
        if same and fit["estimator"] == name and fit["quantity"] == quantity:
            return f"  ~ x$^{{{fit['exponent']:.2f}}}$"
    return ""


def _draw_cost(
    axes: Axes, rows: list[Row], variable: str, name: str, quantity: str, unit: float, label: str, how: How
) -> None:
    measured = [row for row in rows if row["estimators"][name][quantity]]
    if not measured:
        return
    x = [row[variable] for row in measured]
    y = np.array([row["estimators"][name][quantity] for row in measured]) / unit
    axes.plot(x, y, label=label, **how)
    if quantity == "seconds":
        low, high = np.array([row["estimators"][name]["seconds_spread"] for row in measured]).T
        axes.vlines(x, low, high, color=how["color"], lw=1.0, alpha=0.6)


def _draw_relative(axes: Axes, rows: list[Row], variable: str, name: str, reference: str, how: How) -> None:
    if name == reference or not all(row["estimators"][name]["seconds_all"] for row in rows):
        return
    x = [row[variable] for row in rows]
    rounds = [_rounds(row["estimators"], name, reference) for row in rows]
    axes.plot(x, [statistics.median(r) for r in rounds], label=name, **how)
    axes.vlines(x, [min(r) for r in rounds], [max(r) for r in rounds], color=how["color"], lw=1.0, alpha=0.6)


def _rounds(costs: Costs, name: str, reference: str) -> list[float]:
    """Return the ratio of times in each round."""
    above, below = costs[name]["seconds_all"], costs[reference]["seconds_all"]
    return [a / b for a, b in zip(above, below, strict=True)]


def _relative(costs: Costs, name: str, reference: str, quantity: str) -> float | None:
    """Return a cost divided by that of the reference; `None` if either is missing."""
    if name not in costs or not costs.get(reference, {}).get(quantity):
        return None
    if quantity == "seconds":
        return statistics.median(_rounds(costs, name, reference))
    return costs[name][quantity] / costs[reference][quantity]


def _bars_figure(study: StudyRecord) -> Figure:
    """Plot costs relative to the reference, with a group of bars for each measurement."""
    groups = [group for row in study["rows"] for group in _groups(study, row)]
    names = list(dict.fromkeys(n for _, measured in groups for n in measured["estimators"]))
    figure = new_figure(10.5, 1.2 + (0.25 + 0.16 * len(names)) * len(groups))
    panels = figure.subplots(1, 3, sharey=True)
    reference = _reference(names)
    height = 0.8 / len(names)
    for axes, quantity in zip(panels, _WORDS, strict=True):
        for i, (name, look) in enumerate(zip(names, _looks(names), strict=True)):
            heights = [
                (place + (i - (len(names) - 1) / 2) * height, share)
                for place, (_, measured) in enumerate(groups)
                if (share := _relative(measured["estimators"], name, reference, quantity))
            ]
            at, widths = zip(*heights, strict=True) if heights else ((), ())
            drawn = axes.barh(at, widths, height, color=look.colour, label=name)
            axes.bar_label(drawn, fmt="%.2f", fontsize=7, padding=2)
        axes.axvline(1.0, color="0.4", lw=0.8)
        axes.set_xlabel(f"{_WORDS[quantity]} relative to {reference}")
        axes.margins(x=0.12)
    panels[0].set_yticks(range(len(groups)), [label for label, _ in groups])
    panels[0].invert_yaxis()
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(names))
    figure.suptitle(study["title"])
    return figure


def _groups(study: StudyRecord, row: Row) -> list[tuple[str, Row]]:
    label = ", ".join(f"L = {row[name]}" if name == "size" else str(row[name]) for name in study["series_by"])
    if "flow_alone" not in row:
        return [(label, row)]
    return [(f"{label},\nwhole step", row), (f"{label},\nflow alone", row["flow_alone"])]
