"""Whole figures, made of panels: what `pathgrad compare`, `plot` and `evaluate` draw."""

import math
from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .._runs.group import Group
from .._runs.panel import UNFIT, MissingData, Panel
from .._runs.run import Run
from .._words.errors import as_options
from .curves import curve_panel, training_panels
from .style import new_figure, say_empty, styled

_LETTERS = 13  # of a legend, in an inch
_LONGEST = 44  # letters of a label
_BESIDE = 4  # parts of a figure; more are below each other
_SIZE = (3.7, 2.9)  # of a panel beside others, in inches

_Part = tuple[str, list[Panel], list[Group]]  # a title, and panels of groups below it


def by_problem(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Return groups by what was fitted: those of different problems are not drawn on the same axes."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.problem, []).append(group)
    return found


@styled
def training_figure(groups: Sequence[Group]) -> Figure:
    """Draw what is followed against steps or epochs and time, and further curves; a row for each problem."""
    parts = []
    for problem, here in by_problem(groups).items():
        first, *further = training_panels(here)
        panels = [first.by_length, first.by_time, *(each.by_length for each in further[:2])]
        parts.append((problem, panels, here))
    return _draw(parts, max(len(panels) for _, panels, _ in parts))


@styled
def time_figure(groups: Sequence[Group]) -> Figure:
    """Draw what is followed against all training time, on a logarithmic scale, a panel for each problem."""
    parts = []
    for problem, here in by_problem(groups).items():
        followed = here[0].first.experiment.followed(here[0].first.options)
        panel = curve_panel(followed, "seconds", is_followed=True, whole_time=True)
        parts.append((problem, [panel], here))
    return _draw(parts, beside=_BESIDE)


@styled
def panel_figure(panel: Panel, groups: Sequence[Group]) -> Figure:
    """Draw one panel alone: of one run for each group side by side, else for each problem.

    Raises:
        MissingData: No run has what it shows.
    """
    kept = panel.drawable(groups)
    if not kept:
        run = groups[0].first
        why = "holds too little for this picture" if run.evaluation else "has not been evaluated"
        raise MissingData(f"{run.path} {why}: `{run.evaluate_command}`.")
    problems = by_problem(kept)
    parts = [(problem, [panel], here) for problem, here in problems.items()]
    if panel.is_of_one:
        several = len(problems) > 1
        parts = [(f"{g.problem}, {g.label}" if several else g.label, [panel], [g]) for g in kept]
    return _draw(parts, beside=_BESIDE, size=(panel.width, panel.height), is_strict=True)


@styled
def overview_figure(run: Run) -> Figure:
    """Draw what is to be seen of one run: its training, and the panels of its experiment."""
    group = Group((run,), (run.path.name,), run.method)
    panels = [each.by_length for each in training_panels([group])[:2]]
    panels += [panel for panel in run.experiment.panels().values() if panel.can_draw(run)]
    result = run.experiment.result(run.options)
    found = f": {result.title} {result.of(run.evaluation)}" if run.is_evaluated else ""
    parts = [(f"{run.label}{found}", panels, [group])]
    return _draw(parts, 2 if len(panels) == 4 else min(len(panels), 3))


def _draw(
    parts: Sequence[_Part],
    columns: int = 1,
    beside: int = 1,
    size: tuple[float, float] = _SIZE,
    *,
    is_strict: bool = False,
) -> Figure:
    """Draw parts of a figure, some of them beside each other, each with its panels in columns."""
    beside = min(len(parts), beside)
    down = math.ceil(len(parts) / beside)
    rows = [math.ceil(len(panels) / columns) for _, panels, _ in parts]
    title_height = 0.25 * down if len(parts) > 1 else 0.0
    high = size[1] * sum(rows[:down]) + title_height  # those beside each other have a row each
    figure = new_figure(max(5.0, size[0] * columns * beside), high)
    places = figure.subfigures(down, beside, squeeze=False, height_ratios=rows[:down]).ravel()
    for (title, panels, groups), place, count in zip(parts, places, rows, strict=False):
        if len(parts) > 1:
            head = place.suptitle(title, x=0.01, ha="left", weight="bold", size=10)
            head.set_parse_math(False)  # it may hold anything
        grid = place.subplots(count, columns, squeeze=False).ravel()
        for axes, panel in zip(grid, panels, strict=False):
            _draw_panel(axes, panel, groups, is_strict=is_strict)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
    _legend(figure)
    return figure


def _draw_panel(axes: Axes, panel: Panel, groups: list[Group], *, is_strict: bool) -> None:
    axes.set_title(panel.title)
    try:
        panel.draw(axes, groups)
    except MissingData as missing:
        if is_strict:
            raise
        say_empty(axes, as_options(missing.text))
    except UNFIT as error:
        say_empty(axes, f"what was kept does not fit together\n({error})")


def _legend(figure: Figure) -> None:
    """Name what is drawn once for all axes, above them, where no curve is hidden."""
    handles: dict[str, Artist] = {}
    for axes in figure.axes:
        if axes.get_legend() is None:  # else it has named its own
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
    if not handles:
        return
    names = [_shortened(label) for label in handles]
    fitting = round(_LETTERS * figure.get_figwidth()) // (8 + max(map(len, names)))
    columns = max(1, min(len(names), fitting))
    legend = figure.legend(list(handles.values()), names, loc="outside upper center", ncols=columns)
    for text in legend.get_texts():
        text.set_parse_math(False)
    figure.set_figheight(figure.get_figheight() + 0.18 * math.ceil(len(names) / columns))


def _shortened(text: str) -> str:
    """Take the middle out of a long label; what tells runs apart is mostly at the ends."""
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]}…{text[1 - half :]}"
