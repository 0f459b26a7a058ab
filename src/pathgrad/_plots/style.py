"""What all pictures share: fonts, colours, the axis of effective sample sizes, averages of curves."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from pathgrad._train.row import Number, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")
T = TypeVar("T")

# Keyword arguments of Matplotlib, which has too many kinds of them to tell apart.
How = dict[str, Any]
Values = np.ndarray | Sequence[Number] | Number
Points = tuple[np.ndarray, np.ndarray]  # x and y of a curve

_RC: dict[str, bool | float | str] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.handlelength": 2.8,  # a shorter one shows no dashes
    "lines.linewidth": 1.8,
    "pdf.fonttype": 42,  # letters stay letters: they can be searched and edited
    "svg.fonttype": "none",
    "svg.hashsalt": "pathgrad",  # the same numbers, the same file
}


class Look(NamedTuple):
    """How one kind of curve is drawn."""

    colour: str
    line: str | tuple[int, tuple[float, ...]]
    marker: str = "o"


# Colours of Okabe and Ito, told apart by the colour-blind. Lightness grows from the first to the third, and
# line styles differ, so that they are told apart in grey as well.
LOOKS = {
    "gauss-newton": Look("#CC3377", "-", "D"),
    "path": Look("#0072B2", "-", "o"),
    "two-copy": Look("#009E73", (0, (4, 1.5, 1, 1.5)), "^"),
    "total": Look("#E69F00", (0, (4, 1.8)), "s"),
}
OTHER = Look("#666666", (0, (1, 1.2)), "D")

_LINES = ("-", (0, (4, 1.8)), (0, (1, 1.2)), (0, (4, 1.5, 1, 1.5)))
_MARKERS = "os^DvPX"


def looks_of(estimators: Sequence[str]) -> list[Look]:
    """Return a look for each of several runs: the colour of its estimator, in shades if runs share it."""
    from matplotlib.colors import to_hex, to_rgb

    looks = []
    for i, estimator in enumerate(estimators):
        base = LOOKS.get(estimator, OTHER)
        before = estimators[:i].count(estimator)
        # Darker, lighter, darker, ...: towards black or white by a half, then by more.
        share = 1 - 0.55 ** ((before + 1) // 2)
        colour = (1 - share) * np.array(to_rgb(base.colour)) + share * (before % 2 == 0)
        alone = len(set(estimators)) == len(estimators)
        line, marker = _LINES[i % len(_LINES)], _MARKERS[i % len(_MARKERS)]
        looks.append(base if alone else Look(to_hex(tuple(colour.tolist())), line, marker))
    return looks


def styled(function: Callable[P, T]) -> Callable[P, T]:
    """Run a function under our Matplotlib settings, and leave those of the caller as they were."""

    @functools.wraps(function)
    def inside(*args: P.args, **kwargs: P.kwargs) -> T:
        import matplotlib as mpl

        with mpl.rc_context(_RC):  # pyright: ignore (its stub wants each key as a literal)
            return function(*args, **kwargs)

    return inside


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure; sizes in inches."""
    from matplotlib.figure import Figure  # no pyplot: no window system, no global state

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(wspace=0.06, hspace=0.06)  # pyright: ignore
    return figure


@styled  # ticks are made as late as here
def save(figure: "Figure", path: Path) -> None:
    """Write a figure; its format is that of the ending."""
    # A date would make each file another one.
    dates = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    figure.savefig(path, dpi=160, metadata=dates.get(path.suffix))


def column(rows: Sequence[Row], x: str, y: str) -> Points:
    """Return two columns of the rows that have both; a block in which all went wrong has neither."""
    return points_of([(row.value(x), row.value(y)) for row in rows])


def points_of(pairs: Sequence[tuple[Number | None, Number | None]]) -> Points:
    """Return the pairs of which both numbers are known."""
    known = [(x, y) for x, y in pairs if x is not None and y is not None]
    table = np.array(known, dtype=float).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def rolling_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Return means over a window around each value (an odd number of them), cut off at both ends."""
    half = window // 2
    sums = np.concatenate([[0.0], np.cumsum(values)])
    index = np.arange(len(values))
    first, last = np.maximum(index - half, 0), np.minimum(index + half + 1, len(values))
    return (sums[last] - sums[first]) / (last - first)


def usual_window(count: int) -> int:
    """Return a window for so many values: a twentieth of them, or three where they are few."""
    return max(min(3, count // 3), count // 20) | 1


def mean_curve(curves: Sequence[Points]) -> Points:
    """Return the mean of curves (x, y), interpolated, where all of them have begun and none has ended.

    Beyond the end of the shortest it would jump to the mean of fewer.
    """
    if not curves or any(len(x) == 0 for x, _ in curves):
        return np.empty(0), np.empty(0)
    first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    grid = np.unique(np.concatenate([x for x, _ in curves]))
    grid = grid[(grid >= first) & (grid <= last)]
    return grid, np.mean([np.interp(grid, x, y) for x, y in curves], axis=0).reshape(grid.shape)


_SMALLEST_LOSS = 1e-7  # of the ESS; beyond it single precision knows no difference to 100 %


def ess_to_height(ess: Values) -> np.ndarray:
    """Return -log10(1 - ESS): each unit up, a tenth of what is missing to 100 %."""
    return np.asarray(-np.log10(np.maximum(1 - np.asarray(ess, dtype=float), _SMALLEST_LOSS)))


def height_to_ess(height: Values) -> np.ndarray:
    """Return the ESS at a height."""
    return np.asarray(1 - 10.0 ** -np.asarray(height, dtype=float))


# The plainest first; others come in where there is room.
_TICKS = (
    (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999),
    (0.7, 0.97, 0.997, 0.9997, 0.99997),
    (0.2, 0.8, 0.95, 0.98, 0.995, 0.998, 0.9995, 0.9998),
    (0.3, 0.6, 0.85, 0.96, 0.985, 0.9985),
)


def ess_ticks(low: float, high: float) -> list[float]:
    """Return sizes to label between two, not too close to each other on the axis."""
    bottom, top = ess_to_height([low, high])
    chosen: list[float] = []
    for rank in _TICKS:
        for tick in rank:
            height = ess_to_height(tick)
            free = all(abs(height - ess_to_height(c)) >= (top - bottom) / 12 for c in chosen)
            if bottom <= height <= top and free:
                chosen.append(tick)
    if len(chosen) >= 3:
        return sorted(chosen)
    # A narrow range is as good as linear.
    from matplotlib.ticker import MaxNLocator

    steps = MaxNLocator(nbins=5, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [float(t) for t in steps if low <= t <= high]


def ess_axis(axes: "Axes", values: np.ndarray) -> None:
    """Give an axis of effective sample sizes a scale that tells 99 % from 99.9 %."""
    axes.set_yscale("function", functions=(ess_to_height, height_to_ess))
    axes.set_ylabel(axes.get_ylabel() or "effective sample size")
    values = values[np.isfinite(values)]
    low, high = (values.min(), values.max()) if values.size else (0.0, 0.9)
    bottom, top = ess_to_height([low, high])
    room = 0.06 * max(top - bottom, 0.2)
    low, high = height_to_ess([max(bottom - room, -0.02), top + room])
    axes.set_ylim(low, high)
    ticks = ess_ticks(low, high)
    axes.set_yticks(ticks, [f"{round(100 * t, 6):g} %" for t in ticks])
    axes.set_yticks([], minor=True)


def plain_log_axis(axes: "Axes", heights: np.ndarray) -> None:
    """Make the y-axis logarithmic, and readable where it spans few powers of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.set_yscale("log", nonpositive="mask")
    heights = heights[np.isfinite(heights) & (heights > 0)]
    spread = np.log10(heights.max() / heights.min()) if heights.size else 9
    if spread < 2.5:
        subs = (1, 2, 5) if spread > 0.7 else (1, 1.5, 2, 3, 4, 5, 6, 8)
        axes.yaxis.set_major_locator(LogLocator(subs=subs))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())


def time_unit(seconds: float) -> tuple[float, str]:
    """Return the number of seconds in a unit that suits a duration, and its name."""
    if seconds > 3 * 3600:
        return 3600.0, "hours"
    return (60.0, "minutes") if seconds > 600 else (1.0, "seconds")


def say_empty(axes: "Axes", text: str) -> None:
    """Write into a panel why it is empty."""
    how: How = {"transform": axes.transAxes, "ha": "center", "va": "center", "color": "0.4"}
    axes.text(0.5, 0.5, text, in_layout=False, **how)
    axes.grid(visible=False)


def shorten(text: str, length: int = 44) -> str:
    """Take the middle out of a long label; what tells runs apart is mostly at the ends."""
    if len(text) <= length:
        return text
    return f"{text[: length // 2]}…{text[len(text) - length // 2 + 1 :]}"
