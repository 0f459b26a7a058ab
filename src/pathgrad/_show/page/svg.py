"""Panels as SVG in the page: drawn by Matplotlib, coloured by the style sheet."""

import hashlib
import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..._runs.group import Group
from ..._runs.look import LOOKS, OTHER
from ..._runs.panel import Panel
from ..style import INK, PAPER, RC, RULE, SOFT, How, dashes, new_figure
from .html import Html, fine, joined, listing, spoken

_FLAT = 0.83  # share of a panel's height: on the page its title is not part of the drawing
_DOTS = 200  # more markers than this become dots of one path: one element for each would be too large
_MOST_BYTES = 600_000  # of a drawing: the page should be small enough for mail

# Text is laid out at the size for phones; on larger screens the style sheet makes it smaller. A unit of the
# drawing is a point, so a drawing of the usual width has 331.
_PAGE: Any = RC | {
    "figure.dpi": 72,  # a pixel is a unit of the drawing
    "font.size": 11.3,
    "axes.grid.axis": "y",
    "axes.spines.left": False,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "image.composite_image": False,
}
_THEME = {look.colour.lower(): f"var(--{name})" for name, look in LOOKS.items()} | {
    OTHER.colour.lower(): "var(--other)",
    INK: "var(--text)",
    "#000000": "var(--text)",
    SOFT: "var(--soft)",
    RULE: "var(--rule)",
    PAPER: "var(--paper)",
}
_SCALES = {"linear": "linear", "log": "log", "function": "share"}
_KEPT = {"viewBox", "d", "x", "y", "width", "height", "transform", "href", "data-label"}
_NUMBERS = {"d", "x", "y"}


def chart(panel: Panel, groups: Sequence[Group]) -> tuple[Html, Html | None]:
    """Return the drawing of a panel, and its legend if there is one.

    Raises `MissingData` if the panel does.
    """
    with mpl.rc_context(_PAGE):
        figure = new_figure(panel.width, _FLAT * panel.height)
        axes = figure.subplots()
        described = panel.draw(axes, groups)
        names = ",".join(name for group in groups for name in group.names)
        return _drawing(figure, axes, described, names), _legend(axes)


def _drawing(figure: Figure, axes: Axes, described: str, names: str) -> Html:
    for part in figure.axes:
        if (legend := part.get_legend()) is not None:
            legend.remove()  # it is written in HTML instead
        part.patch.set_visible(False)
        for picture in part.images:
            picture.set_interpolation("none")  # one pixel for each number; the browser enlarges them
        for mesh in part.collections:
            mesh.set_rasterized(isinstance(mesh, QuadMesh) or mesh.get_rasterized())
    labels: dict[str, str] = {}
    for i, line in enumerate(axes.lines):
        if not str(line.get_label()).startswith("_") and line.get_linestyle() != "None":
            labels[f"curve-{i}"] = str(line.get_label())
            line.set_gid(f"curve-{i}")
    text = _rendered(figure)
    if len(text) > _MOST_BYTES:
        for part in figure.axes:
            for artist in (*part.lines, *part.collections, *part.patches):
                artist.set_rasterized(True)
        text = _rendered(figure)
    how = {"class": "chart", "role": "img", "aria-label": spoken(fine(described))}
    scales = [axis.get_scale() for axis in (axes.xaxis, axes.yaxis)]
    if labels and all(scale in _SCALES for scale in scales):
        # Kind, limits and ends of the axes, from which a script computes values under the pointer.
        box, top = axes.get_window_extent(), figure.bbox.height
        ends = (*axes.get_xlim(), box.x0, box.x1), (*axes.get_ylim(), top - box.y0, top - box.y1)
        for name, scale, numbers in zip("xy", scales, ends, strict=True):
            how[f"data-{name}"] = " ".join([_SCALES[scale], *(f"{number:.9g}" for number in numbers)])
    digest = hashlib.sha256((names + text).encode("utf-8", "replace")).hexdigest()[:8]
    return _ours(text, how, labels, digest)


def _rendered(figure: Figure) -> str:
    figure.patch.set_visible(False)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", dpi=144, metadata={"Date": None})
    return buffer.getvalue()


def _ours(text: str, how: dict[str, str], labels: dict[str, str], prefix: str) -> Html:
    """Turn Matplotlib's SVG into ours: without unused parts, in the colours of the page.

    Curves get their labels by id; the prefix keeps the ids of two drawings apart.
    """
    root = ET.fromstring(text)
    every = list(root.iter())
    for node in every:
        node.tag = node.tag.rpartition("}")[2]
        node.attrib = {key.rpartition("}")[2]: value for key, value in node.attrib.items()}
    shapes = {f"#{node.get('id')}": node for node in root.iter("path") if node.get("id")}
    for node in every:
        if node.tag in ("svg", "defs"):  # of the definitions, only clip paths are needed
            node[:] = [child for child in node if child.tag in ("g", "defs", "clipPath")]
        if label := labels.get(node.get("id", "")):
            for path in node.findall("path"):
                path.set("data-label", label)
        uses = node.findall("use")
        if len(uses) > _DOTS:
            node[:] = [_dots(uses, shapes), *(child for child in node if child.tag != "use")]
        else:
            for use in uses:
                _draw_marker(use, shapes)
    for node in root.iter():
        node.attrib = dict(_attributes(node, prefix))
        node.text, node.tail = (node.text or "").strip(), (node.tail or "").strip()
    root.attrib = {"viewBox": root.get("viewBox", "")} | how
    return Html(ET.tostring(root, "unicode"))


def _attributes(node: ET.Element, prefix: str) -> Iterator[tuple[str, str]]:
    digits = 2 if node.get("transform", "").startswith("translate") else 1  # markers are small
    for key, value in node.items():
        if key == "clip-path":
            yield key, value.replace("#", f"#{prefix}-")
        elif key == "id" and node.tag == "clipPath":
            yield key, f"{prefix}-{value}"
        elif key == "style":
            yield key, themed(value)
        elif key in _KEPT and not value.startswith("rotate(-0 "):
            yield key, _rounded(value, digits) if key in _NUMBERS else value
    if node.tag == "image":  # fill the box: an image scaled to fit it could be too flat to see
        yield "preserveAspectRatio", "none"


def _draw_marker(use: ET.Element, shapes: dict[str, ET.Element]) -> None:
    """Replace the use of a marker by its shape."""
    shape = shapes[use.get("href", "")]
    style = f"{use.get('style', '')}; {shape.get('style', '')}"
    place = f"translate({use.get('x', 0)} {use.get('y', 0)})"
    use.tag, use.attrib = "path", {"d": shape.get("d", ""), "transform": _rounded(place, 1), "style": style}


def _dots(uses: list[ET.Element], shapes: dict[str, ET.Element]) -> ET.Element:
    """Return many markers as dots of one path."""
    shape = shapes[uses[0].get("href", "")]
    size = 2 * max(abs(float(n)) for n in re.findall(r"-?[\d.]+", shape.get("d", "0")))
    style = dict(re.findall(r"([\w-]+): ([^;]+)", uses[0].get("style", "")))
    how = f"fill: none; stroke: {style.get('fill', INK)}; stroke-width: {max(size, 1.5):.3g}; "
    how += f"stroke-linecap: round; opacity: {style.get('fill-opacity', '1')}"
    return ET.Element("path", d="".join(f"M{u.get('x', 0)} {u.get('y', 0)}h0" for u in uses), style=how)


def _rounded(text: str, digits: int) -> str:
    """Write numbers with as many digits as can be seen."""
    text = re.sub(r"-?\d+\.\d+", lambda n: f"{round(float(n[0]), digits):g}", text)
    return re.sub(r"\s*([MLCQVHhz])\s*", r"\1", text)


def themed(style: str) -> str:
    """Replace colours with those of the theme, and leave fonts to the style sheet."""
    parts = [part.strip() for part in style.split(";") if part.strip()]
    kept = [part for part in parts if not part.startswith("font")]
    text = ";".join(part.replace(": ", ":") for part in dict.fromkeys(kept))
    return re.sub(r"#[0-9a-f]{6}", lambda match: _THEME.get(match[0], match[0]), text)


def _legend(axes: Axes) -> Html | None:
    handles, labels = axes.get_legend_handles_labels()
    named = zip(handles, labels, strict=True)
    return listing([joined([_swatch(handle), fine(label)]) for handle, label in named], "legend")


_swatches: dict[str, Html] = {}


def swatch_of(method: str) -> Html:
    """Return a short piece of a method's curve."""
    look = LOOKS.get(method, OTHER)
    with mpl.rc_context(_PAGE):
        return _swatch(Line2D([], [], color=look.colour, linestyle=dashes(look.line)))


def _swatch(handle: Artist) -> Html:
    """Return a short piece of a curve or marker, as Matplotlib shows it in legends."""
    names = ("color", "facecolor", "edgecolor", "linestyle", "marker", "alpha")
    key = " ".join(str(getattr(handle, f"get_{name}", str)()) for name in names)
    if key not in _swatches:
        figure = Figure(figsize=(30 / 72, 10 / 72))
        how: How = {"borderpad": 0, "borderaxespad": 0, "handletextpad": 0, "frameon": False}
        figure.legend([handle], [""], loc="center", fontsize=9, handlelength=3, **how)
        _swatches[key] = _ours(_rendered(figure), {"class": "swatch", "aria-hidden": "true"}, {}, "")
    return _swatches[key]
