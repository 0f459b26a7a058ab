"""What all figures share: fonts, colours, axes, and the layout of images."""

import io
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure  # no pyplot: no window system, no global state
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from .._runs.files import write_atomically
from .._runs.group import Group
from .._runs.look import look_of

# Keyword arguments of Matplotlib, which has too many kinds to give each a type.
How = dict[str, Any]

# Colours that belong to no method; a page replaces them with those of its theme.
INK, SOFT, RULE, PAPER = "#1b1f27", "#535b69", "#dde1e7", "#ffffff"

RC: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.formatter.useoffset": False,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.handlelength": 2.8,  # a shorter one would not show dashes
    "lines.linewidth": 1.8,
    "pdf.fonttype": 42,  # text stays text, to be searched and edited
    "svg.fonttype": "none",
    "svg.hashsalt": "pathgrad",  # the same numbers give the same file
}
styled = mpl.rc_context(RC)  # makes a function draw in our style, whatever the user's settings


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, with sizes in inches, for functions that are `styled`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(wspace=0.06, hspace=0.06)  # pyright: ignore
    return figure


@styled  # Matplotlib makes ticks only now
def save(figure: Figure, path: Path) -> None:
    """Write a figure, completely or not at all; the file's suffix decides the format."""
    # With a date, no two files would be the same.
    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:], dpi=160, metadata=dates.get(path.suffix))
    write_atomically(path, [drawn.getbuffer()])


def dashes(line: str | tuple[float, ...]) -> Any:
    """Return the line style of a `Look` in the form that Matplotlib expects."""
    return line if isinstance(line, str) else (0.0, line)


# Groups of one method share its colour and line; all but the first have markers.
# Circles already mark the points of short curves, and diamonds the results of evaluations.
_MARKERS = (None, "s", "^", "v", "P", "X", "p", "h")


def looks_of(groups: Sequence[Group]) -> list[How]:
    """Return the colour, line style and marker of each group's curve."""
    looks = []
    for i, group in enumerate(groups):
        look = look_of(group.method)
        marker = _MARKERS[sum(other.method == group.method for other in groups[:i]) % len(_MARKERS)]
        looks.append({"color": look.colour, "linestyle": dashes(look.line), "marker": marker})
    return looks


_SMALLEST_LOSS = 1e-7  # distance to 100 % below which single precision shows no difference
# Shares to label, the roundest first: 0, 90, 99 %, ..., then 50, 95 %, ..., where there is room.
_TICKS = [round(1 - lost / 10**nines, 9) for lost in (1, 5, 3, 2, 8, 7, 4, 1.5) for nines in range(7)]


def share_to_height(share: Any) -> np.ndarray:
    """Return -log10(1 - share): each unit up, the distance to 100 % is divided by ten."""
    return np.asarray(-np.log10(np.maximum(1 - np.asarray(share, dtype=float), _SMALLEST_LOSS)))


def height_to_share(height: Any) -> np.ndarray:
    """Return the share at a height."""
    return np.asarray(1 - 10.0 ** -np.asarray(height, dtype=float))


def share_ticks(low: float, high: float) -> list[float]:
    """Return shares to label between two shares, not too close to each other on the axis."""
    chosen: dict[float, float] = {}
    least = (share_to_height(high) - share_to_height(low)) / 12
    for tick in _TICKS:
        height = float(share_to_height(tick))
        if low <= tick <= high and all(abs(height - other) >= least for other in chosen.values()):
            chosen[tick] = height
    if len(chosen) >= 3:
        return sorted(chosen)
    # A narrow range is nearly linear.
    steps = MaxNLocator(nbins=5, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [float(t) for t in steps if low <= t <= high]


def share_axis(axes: Axes, values: np.ndarray) -> None:
    """Give an axis of shares, such as effective sample sizes, a scale that separates 99 % from 99.9 %."""
    axes.set_yscale("function", functions=(share_to_height, height_to_share))
    heights = share_to_height(values[np.isfinite(values)])
    bottom, top = (heights.min(), heights.max()) if heights.size else (0.0, 1.0)
    room = 0.06 * max(top - bottom, 0.2)
    low, high = height_to_share([max(bottom - room, -0.02), top + room])
    axes.set_ylim(low, high)
    ticks = share_ticks(low, high)
    axes.set_yticks(ticks, [f"{round(100 * t, 6):g} %" for t in ticks])
    axes.set_yticks([], minor=True)


def log_axis(axes: Axes, values: np.ndarray, which: Literal["x", "y"] = "y") -> None:
    """Make an axis logarithmic, and readable where it spans few powers of ten."""
    values = values[np.isfinite(values) & (values > 0)]
    if not values.size:
        return  # there is nothing to show
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    spread = np.log10(values.max() / values.min())
    if spread < (2.5 if which == "y" else 1.5):  # labels need more room on a horizontal axis
        subs = (1, 2, 5) if spread > 0.7 else (1, 1.5, 2, 3, 4, 5, 6, 8)
        axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: power_of_ten(value)))
    axis.set_minor_formatter(NullFormatter())


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power_of_ten(value: float) -> str:
    """Write a number for a logarithmic axis: 0.05, 200, or 10⁻⁶."""
    digits, exponent = f"{value:.2e}".split("e")
    if 1e-3 <= value < 1e5 or float(digits) != 1:
        return short(float(f"{value:.3g}"))
    return "10" + str(int(exponent)).translate(_SUPERSCRIPTS)


def short(value: float) -> str:
    """Write a number for an axis: 1,400 or 25k."""
    for least, size, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= least:
            return f"{value / size:g}{letter}".replace("-", "−")
    return (f"{value:,.0f}" if value == round(value) else f"{value:g}").replace("-", "−")


MOST_POINTS = 300  # points per curve; no panel has room to show more


def thinned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return fewer points of a long curve: the lowest and the highest of each of many short pieces."""
    if len(x) <= MOST_POINTS:
        return x, y
    pieces = np.array_split(np.arange(len(x)), MOST_POINTS // 2)
    ends = [(piece[y[piece].argmin()], piece[y[piece].argmax()]) for piece in pieces]
    kept = np.unique([0, len(x) - 1, *np.ravel(ends)])
    return x[kept], y[kept]


def line(axes: Axes, x: np.ndarray, y: np.ndarray, **how: Any) -> None:
    """Draw a curve; a single point becomes a dot, as a line would not show it."""
    if len(x) == 1:
        how |= {"marker": how.get("marker") or "o"}
    if len(x):
        x, y = thinned(x, y)
        axes.plot(x, y, **{"ms": 4.5, "markevery": max(1, len(x) // 8)} | how)


def say_empty(axes: Axes, text: str) -> None:
    """Write into a panel why it is empty."""
    how: How = {"transform": axes.transAxes, "ha": "center", "va": "center", "color": SOFT}
    axes.text(0.5, 0.5, textwrap.fill(text, 40), in_layout=False, parse_math=False, **how)
    axes.set(xticks=[], yticks=[])
    axes.grid(visible=False)


def tiled(images: np.ndarray, aspect: float, gap: int) -> np.ndarray:
    """Lay out images with gaps, in the number of columns that makes them largest for an aspect ratio."""
    images = np.pad(images.astype(float), ((0, 0), (0, gap), (0, gap)), constant_values=np.nan)
    count, height, width = images.shape
    columns = range(1, count + 1)
    across = max(columns, key=lambda n: min(aspect / (n * width), 1 / (math.ceil(count / n) * height)))
    down = math.ceil(count / across)
    filler = np.full((across * down - count, height, width), np.nan)
    grid = np.concatenate([images, filler]).reshape(down, across, height, width)
    return grid.swapaxes(1, 2).reshape(down * height, across * width)[:-gap, :-gap]
