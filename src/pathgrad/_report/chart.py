"""Charts as SVG that takes its colours from the page, so that one drawing serves light, dark and print."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from pathgrad._plots.style import LOOKS, OTHER

from .html import Html, joined, tag
from .scale import Scale

# Small, so that letters stay readable where a phone shows it at three quarters of its size.
WIDTH, HEIGHT = 440.0, 270.0
_TOP, _RIGHT, _BOTTOM = 10.0, 12.0, 40.0
_MOST_POINTS = 240

_MARKERS = {
    "o": "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
    "s": "M-3.2 -3.2h6.4v6.4h-6.4z",
    "^": "M0 -4.4l4.2 7.4h-8.4z",
    "v": "M0 4.4l4.2 -7.4h-8.4z",
    "D": "M0 -4.8l4.8 4.8l-4.8 4.8l-4.8 -4.8z",
    "P": "M-1.5 -4.4h3v2.9h2.9v3h-2.9v2.9h-3v-2.9h-2.9v-3h2.9z",
    "X": "M-4 -2l2 -2l2 2l2 -2l2 2l-2 2l2 2l-2 2l-2 -2l-2 2l-2 -2l2 -2z",
    "x": "M-3.5 -3.5l7 7M-3.5 3.5l7 -7",
}


@dataclasses.dataclass(frozen=True)
class Curve:
    """Points of one colour, joined by a line or each marked by itself.

    Attributes:
        x: Where they are.
        y: Where they are; what is not finite leaves a gap.
        estimator: Decides colour and dashes.
        label: Shown when a pointer comes near; empty for what is only a background.
        marker: A letter as Matplotlib's, drawn on some of the points.
        width: Of the line; zero for marks alone.
        faint: Whether it is a background.
    """

    x: np.ndarray
    y: np.ndarray
    estimator: str = "other"
    label: str = ""
    marker: str | None = None
    width: float = 2.4
    faint: bool = False


def colour_class(estimator: str) -> str:
    """Return the class of the style sheet that gives an estimator's colour."""
    return estimator if estimator in LOOKS else "other"


def dashes(estimator: str, width: float) -> str | None:
    """Return the dashes of an estimator's line, `None` for a solid one."""
    line = LOOKS.get(estimator, OTHER).line
    if isinstance(line, str):
        return None
    return " ".join(f"{width * length:.3g}" for length in line[1])


def margin(scale: Scale) -> float:
    """Return how much room the numbers beside a vertical axis take."""
    return 14.0 + 7.6 * max((len(scale.label(t)) for t in scale.ticks), default=0)


def chart(
    curves: Sequence[Curve],
    x: Scale,
    y: Scale,
    *,
    described: str,
    x_label: str,
    more: Html | None = None,
) -> Html:
    """Return a drawing of curves on two axes made by `axes`.

    Args:
        curves: From the back to the front.
        x: Horizontal axis.
        y: Vertical axis.
        described: What it shows, in words and numbers, for those who do not see it.
        x_label: Below the axis.
        more: Drawn behind the curves, in pixels of the chart.
    """
    left, right, top, bottom = x.start, x.end, y.end, y.start
    # An inner picture cuts off what leaves the axes, without a name that must be unique on the page.
    inside = tag(
        "svg",
        more,
        *[part for curve in curves for part in _draw(curve, x, y)],
        x=0,
        y=f"{top:g}",
        width=f"{WIDTH:g}",
        height=f"{bottom - top:g}",
        viewBox=f"0 {top:g} {WIDTH:g} {bottom - top:g}",
    )
    name = tag(
        "text", x_label, x=f"{(left + right) / 2:g}", y=f"{HEIGHT - 5:g}", class_="name middle"
    )
    return tag(
        "svg",
        _grid(x, y),
        inside,
        name,
        class_="chart",
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
        role="img",
        aria_label=described,
        data_x=_described_axis(x),
        data_y=_described_axis(y),
    )


def horizontal(low: float, high: float, kind: str, left: float) -> Scale:
    """Return a horizontal axis that leaves `left` pixels for the numbers of the vertical one."""
    return Scale(kind, low, high if high > low else low + 1.0, left, WIDTH - _RIGHT)


def vertical() -> tuple[float, float]:
    """Return where a vertical axis starts and ends."""
    return HEIGHT - _BOTTOM, _TOP


def _described_axis(scale: Scale) -> str:
    numbers = (scale.low, scale.high, scale.start, scale.end)
    return " ".join([scale.kind, *(f"{n:.9g}" for n in numbers)])


def _grid(x: Scale, y: Scale) -> Html:
    """Draw lines at the ticks of the vertical axis, and numbers at both."""
    parts = []
    for tick, at in zip(y.ticks, y(np.array(y.ticks, float)), strict=True):
        parts.append(tag("path", d=f"M{x.start:g} {at:.1f}H{x.end:g}", class_="grid"))
        parts.append(
            tag("text", y.label(tick), x=f"{x.start - 7:g}", y=f"{at + 4:.1f}", class_="tick end")
        )
    for tick, at in zip(x.ticks, x(np.array(x.ticks, float)), strict=True):
        label, place, anchor = x.label(tick), float(at), "middle"
        if place + 4.5 * len(label) > WIDTH:  # half of it would be cut off
            place, anchor = WIDTH - 1, "end"
        parts.append(tag("path", d=f"M{at:.1f} {y.start:g}v4", class_="axis"))
        how = {"x": f"{place:.1f}", "y": f"{y.start + 17:g}", "class": f"tick {anchor}"}
        parts.append(tag("text", label, **how))
    parts.append(tag("path", d=f"M{x.start:g} {y.start:g}H{x.end:g}", class_="axis"))
    return joined(parts)


def pixels(curve: Curve, x: Scale, y: Scale) -> list[np.ndarray]:
    """Return the points of a curve on the page, in pieces between which something is not finite."""
    points = np.stack([x(curve.x), y(curve.y)], axis=1)
    good = np.isfinite(points).all(axis=1)
    ends = np.flatnonzero(np.diff(good.astype(int))) + 1
    return [
        p
        for p, g in zip(np.split(points, ends), np.split(good, ends), strict=True)
        if len(g) and g[0]
    ]


def thinned(points: np.ndarray, most: int = _MOST_POINTS) -> np.ndarray:
    """Return fewer points: of each of many short pieces, the lowest and the highest."""
    if len(points) <= most:
        return points
    kept = []
    for piece in np.array_split(np.arange(len(points)), most // 2):
        heights = points[piece, 1]
        kept += sorted({int(piece[heights.argmin()]), int(piece[heights.argmax()])})
    return points[kept]


def _draw(curve: Curve, x: Scale, y: Scale) -> list[Html]:
    parts = []
    look = f"{colour_class(curve.estimator)}{' faint' if curve.faint else ''}"
    for piece in pixels(curve, x, y):
        shown = thinned(piece)
        if curve.width and len(shown) > 1:
            parts.append(
                tag(
                    "polyline",
                    points=" ".join(f"{a:.1f},{b:.1f}" for a, b in shown),
                    class_=f"line {look}",
                    stroke_width=f"{curve.width:g}",
                    stroke_dasharray=None if curve.faint else dashes(curve.estimator, curve.width),
                    data_label=curve.label or None,
                )
            )
        # A single point is not seen as a line.
        marker = curve.marker or ("o" if len(shown) == 1 else None)
        if marker:
            every = max(1, len(shown) // 8) if curve.width and len(shown) > 12 else 1
            parts += [mark(marker, a, b, look) for a, b in shown[::every]]
    return parts


def mark(marker: str, x: float, y: float, look: str) -> Html:
    """Return a marker at a place."""
    kind = "cross" if marker == "x" else "mark"
    return tag(
        "path", d=_MARKERS[marker], class_=f"{kind} {look}", transform=f"translate({x:.1f} {y:.1f})"
    )


def swatch(estimator: str, marker: str | None, *, line: bool = True) -> Html:
    """Return a short piece of a curve, for legends."""
    look = colour_class(estimator)
    stroke = tag(
        "path",
        d="M1 6H33",
        class_=f"line {look}",
        stroke_width=2.4,
        stroke_dasharray=dashes(estimator, 2.4),
    )
    parts = [stroke if line else None, mark(marker, 17.0, 6.0, look) if marker else None]
    return tag("svg", *parts, class_="swatch", viewBox="0 0 34 12", aria_hidden="true")


def steps_of(counts: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the outline of a histogram, from the axis up and back to it."""
    return np.repeat(edges, 2), np.concatenate([[0.0], np.repeat(counts, 2), [0.0]])
