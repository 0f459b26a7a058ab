"""Figures made of panels: what `pathgrad compare`, `plot` and `evaluate` draw."""

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

_LETTERS = 13  # letters per inch of a legend
_LONGEST = 44  # letters in the longest label
_ACROSS = 4  # parts of a figure side by side; further ones start a new row
_SIZE = (3.7, 2.9)  # width and height, in inches, of one panel among others

_Part = tuple[str, list[Panel], list[Group]]  # a title, its panels, and the groups drawn in them


def by_problem(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Sort groups by problem: different problems are not drawn on the same axes."""
    problems: dict[str, list[Group]] = {}
    for group in groups:
        problems.setdefault(group.problem, []).append(group)
    return problems


@styled
def training_figure(groups: Sequence[Group]) -> Figure:
    """Draw the followed number against steps or epochs and time, and more curves; a row for each problem."""
    parts = []
    for problem, members in by_problem(groups).items():
        first, *further = training_panels(members)
        panels = [first.by_length, first.by_time, *(curve.by_length for curve in further[:2])]
        parts.append((problem, panels, members))
    return _draw(parts, max(len(panels) for _, panels, _ in parts))


@styled
def time_figure(groups: Sequence[Group]) -> Figure:
    """Draw the followed number against total training time, on a log scale, with a panel for each problem."""
    parts = []
    for problem, members in by_problem(groups).items():
        followed = members[0].first.experiment.followed(members[0].first.options)
        panel = curve_panel(followed, "seconds", is_followed=True, whole_time=True)
        parts.append((problem, [panel], members))
    return _draw(parts, across=_ACROSS)


@styled
def panel_figure(panel: Panel, groups: Sequence[Group]) -> Figure:
    """Draw a single panel: for each group if it shows one run, else for each problem.

    Raises:
        MissingData: No run has the data that it shows.
    """
    kept = panel.drawable(groups)
    if not kept:
        run = groups[0].first
        why = "lacks the data for this figure" if run.evaluation else "has not been evaluated"
        raise MissingData(f"{run.path} {why}. Run `{run.evaluate_command}`.")
    problems = by_problem(kept)
    parts = [(problem, [panel], members) for problem, members in problems.items()]
    if panel.is_of_one:
        several = len(problems) > 1
        parts = [(f"{g.problem}, {g.label}" if several else g.label, [panel], [g]) for g in kept]
    return _draw(parts, across=_ACROSS, size=(panel.width, panel.height), is_strict=True)


@styled
def overview_figure(run: Run) -> Figure:
    """Draw everything about one run: its training, and the panels of its experiment."""
    group = Group((run,), (run.path.name,), run.method)
    panels = [curve.by_length for curve in training_panels([group])[:2]]
    panels += [panel for panel in run.experiment.panels().values() if panel.can_draw(run)]
    result = run.experiment.result(run.options)
    value = f": {result.title} {result.of(run.evaluation)}" if run.is_evaluated else ""
    parts = [(f"{run.label}{value}", panels, [group])]
    return _draw(parts, 2 if len(panels) == 4 else min(len(panels), 3))


def _draw(
    parts: Sequence[_Part],
    columns: int = 1,
    across: int = 1,
    size: tuple[float, float] = _SIZE,
    *,
    is_strict: bool = False,
) -> Figure:
    """Draw the parts of a figure, some side by side, each with its panels in columns."""
    across = min(len(parts), across)
    down = math.ceil(len(parts) / across)
    rows = [math.ceil(len(panels) / columns) for _, panels, _ in parts]
    title_height = 0.25 * down if len(parts) > 1 else 0.0
    high = size[1] * sum(rows[:down]) + title_height  # parts side by side have one row each
    figure = new_figure(max(5.0, size[0] * columns * across), high)
    places = figure.subfigures(down, across, squeeze=False, height_ratios=rows[:down]).ravel()
    for (title, panels, groups), place, count in zip(parts, places, rows, strict=False):
        if len(parts) > 1:
            head = place.suptitle(title, x=0.01, ha="left", weight="bold", size=10)
            head.set_parse_math(False)  # a title may hold any character, such as $
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
        say_empty(axes, f"the saved data do not fit together\n({error})")


def _legend(figure: Figure) -> None:
    """Draw one legend for all axes, above them, where it hides no curve."""
    handles: dict[str, Artist] = {}
    for axes in figure.axes:
        if axes.get_legend() is None:  # otherwise the panel has its own
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
    """Cut the middle out of a long label; runs usually differ at the ends."""
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]}…{text[1 - half :]}"
