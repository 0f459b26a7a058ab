"""What flows draw: histograms of their log-weights, points, fields of a lattice, images."""

import base64
import io
from pathlib import Path

import numpy as np

from pathgrad._plots.images import tiled
from pathgrad._plots.lattice import left_edge
from pathgrad._plots.style import LOOKS, OTHER
from pathgrad._plots.training import Training, choose_markers

from .chart import WIDTH, Curve, chart, colour_class, horizontal, margin, steps_of, vertical
from .contents import Run
from .curves import legend
from .html import Html, joined, tag
from .scale import Scale, fitting
from .words import count, number, percent, plain

_MOST_POINTS, _MOST_IMAGES = 3000, 36
_MOST_BYTES = 2_000_000  # of a picture: the page is to be sent by mail


def weights_chart(runs: list[Run]) -> Html | None:
    """Return histograms of log-weights of the first run of each group, on one axis."""
    shown = []
    for run in first_of_groups(runs, "log_weight"):
        values = np.asarray(run.arrays["log_weight"], float).ravel()
        values = values[np.isfinite(values)]
        if values.size:
            shown.append((run, values - values.mean()))
    if not shown:
        return None
    low, high = min(left_edge(v) for _, v in shown), max(float(v.max()) for _, v in shown)
    edges = np.linspace(low, high if high > low else low + 1, 61)
    markers = choose_markers([Training(run.label, run.estimator, []) for run, _ in shown])
    curves, said, most = [], [], 1.0
    for run, values in shown:
        counts, _ = np.histogram(values, edges)
        most = max(most, float(counts.max()))
        across, up = steps_of(counts, edges)
        curves.append(
            Curve(across, np.maximum(up, 0.1), run.estimator, run.label, markers[run.label], 1.8)
        )
        further = int(np.sum(values < low))
        said.append(
            f"{run.label}: {count(values.size)} draws, standard deviation {values.std():.3g}, largest "
            f"{values.max():+.3g}" + (f", {further} further left." if further else ".")
        )
    y = Scale("log", 0.6, 1.5 * most, *vertical())
    described = f"Histogram of log-weights less their mean. {' '.join(said)}"
    return tag(
        "figure",
        tag(
            "figcaption",
            tag("strong", "Log-weights"),
            tag("span", " less their mean", class_="against"),
            tag(
                "span",
                "number of draws; narrow is better, and a tail to the right is the danger",
                class_="means",
            ),
            legend([run for run, _ in shown], markers, alone=True),
        ),
        chart(
            curves,
            horizontal(low, edges[-1], "linear", margin(y)),
            y,
            described=described,
            x_label="log-weight less its mean, log p − log q",
        ),
    )


def two_point_chart(runs: list[Run]) -> Html | None:
    """Return the two-point functions of lattice runs along an axis, with their errors."""
    shown = first_of_groups(runs, "two_point")
    if not shown:
        return None
    markers = choose_markers([Training(run.label, run.estimator, []) for run in shown])
    curves, bars, said = [], [], []
    up = fitting("log", np.concatenate([run.arrays["two_point"] for run in shown]), *vertical())
    most = max(len(run.arrays["two_point"]) for run in shown) - 1
    across = horizontal(-0.3, most + 0.3, "linear", margin(up))
    for i, run in enumerate(shown):
        value = np.asarray(run.arrays["two_point"], float)
        error = np.asarray(run.arrays.get("two_point_err", ()), float)
        error = error if error.shape == value.shape else np.zeros_like(value)
        # A little beside each other, else equal points would hide each other.
        at = np.arange(len(value)) + 0.08 * (i - (len(shown) - 1) / 2)
        marker = markers[run.label] or LOOKS.get(run.estimator, OTHER).marker
        curves.append(Curve(at, value, run.estimator, run.label, marker, 1.2))
        ends = zip(across(at), up(value - error), up(value + error), strict=True)
        lines = "".join(f"M{x:.1f} {a:.1f}V{b:.1f}" for x, a, b in ends if np.isfinite(a))
        bars.append(tag("path", d=lines, class_=f"line {colour_class(run.estimator)}"))
        said.append(f"{run.label}: {value[0]:.4g} at distance 0, {value[-1]:.4g} at {most}.")
    described = f"Two-point function against distance. {' '.join(said)}"
    caption = tag(
        "figcaption",
        tag("strong", "Two-point function"),
        tag("span", " against distance along an axis", class_="against"),
        tag("span", "by weighted draws, summed across; bars are standard errors", class_="means"),
        legend(shown, markers, alone=True),
    )
    x_label = "distance, sites"
    drawing = chart(curves, across, up, described=described, x_label=x_label, more=joined(bars))
    return tag("figure", caption, drawing)


def first_of_groups(runs: list[Run], name: str) -> list[Run]:
    """Return of each group the first run that has an array."""
    found: dict[str, Run] = {}
    for run in runs:
        if name in run.arrays and run.arrays[name].size:
            found.setdefault(run.group, run)
    return list(found.values())


def draws_figures(runs: list[Run]) -> list[Html]:
    """Return a figure of the draws of each group that has kept some."""
    figures = []
    for run in first_of_groups(runs, "x"):
        x = np.asarray(run.arrays["x"], float).reshape(len(run.arrays["x"]), -1)
        x = x[np.isfinite(x).all(axis=1)]
        figures.append(_points(run, x) if x.shape[1] > 1 else _density(run, x[:, 0]))
    fields = first_of_groups(runs, "fields")
    limit = max((_largest(run.arrays["fields"]) for run in fields), default=1.0)
    figures += [_fields(run, limit) for run in fields]
    figures += [
        _pairs(run) for run in first_of_groups(runs, "reconstructions") if _paired(run.arrays)
    ]
    figures += [_samples(run) for run in first_of_groups(runs, "samples")]
    return [figure for figure in figures if figure]


def _points(run: Run, x: np.ndarray) -> Html | None:
    """Draw the first two coordinates of points; dots of one path, as each on its own would be heavy."""
    if len(x) < 2:
        return None
    shown = x[:_MOST_POINTS]
    # Few far draws must not squeeze the others: they are cut off.
    low, high = np.quantile(shown[:, :2], [0.001, 0.999], axis=0)
    up = fitting("linear", np.array([low[1], high[1]]), *vertical(), room=0.08)
    across = fitting("linear", np.array([low[0], high[0]]), margin(up), WIDTH - 12.0, room=0.08)
    places = np.stack([across(shown[:, 0]), up(shown[:, 1])], axis=1)
    dots = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in places)
    path = tag("path", d=dots, class_=f"dots {colour_class(run.estimator)}")
    mean, spread = x.mean(axis=0), x.std(axis=0)
    each = "; ".join(
        f"coordinate {i + 1}: mean {plain(m, '.3g')}, standard deviation {plain(s, '.3g')}"
        for i, (m, s) in enumerate(zip(mean[:2], spread[:2], strict=True))
    )
    described = f"Scatter plot of {count(len(shown))} draws of {run.label}. {each}."
    dims = f"; the first two of {x.shape[1]} coordinates" if x.shape[1] > 2 else ""
    return _figure(
        f"{count(len(shown))} draws",
        run,
        chart([], across, up, described=described, x_label="first coordinate", more=path),
        f"second coordinate upwards{dims}",
    )


def _density(run: Run, x: np.ndarray) -> Html | None:
    """Draw a histogram of draws on a line."""
    if len(x) < 2:
        return None
    counts, edges = np.histogram(x, 60, density=True)
    outline = Curve(*steps_of(counts, edges), run.estimator, run.label, width=1.8)
    up = Scale("linear", 0.0, 1.08 * float(counts.max()), *vertical())
    described = (
        f"Histogram of {count(len(x))} draws of {run.label}: mean {x.mean():.3g}, standard deviation "
        f"{x.std():.3g}."
    )
    across = horizontal(float(edges[0]), float(edges[-1]), "linear", margin(up))
    drawn = chart([outline], across, up, described=described, x_label="x")
    return _figure(f"{count(len(x))} draws", run, drawn, "density of the draws")


def _fields(run: Run, limit: float) -> Html | None:
    fields = np.asarray(run.arrays["fields"], float)
    size = fields.shape[-1]
    values = fields[np.isfinite(fields)]
    if not values.size:
        return None
    described = (
        f"{len(fields)} fields drawn by {run.label}, {size} × {size} sites each, red where φ is positive and "
        f"blue where it is negative, between {plain(values.min(), '.3g')} and {plain(values.max(), '.3g')}; "
        f"mean of φ² {plain(float(np.mean(values**2)), '.3g')}."
    )
    image = _image(
        tiled(fields, 1.0, gap=max(1, size // 8)), described, run, "RdBu_r", (-limit, limit)
    )
    return _figure(
        f"{len(fields)} fields", run, image, f"red φ > 0, blue φ < 0; full colour at {limit:.2g}"
    )


def _pairs(run: Run) -> Html:
    originals = np.asarray(run.arrays["originals"], float)
    originals = originals / max(int(run.arrays.get("levels", np.array(256))) - 1, 1)
    means = np.asarray(run.arrays["reconstructions"], float)
    shown = min(len(originals), len(means), _MOST_IMAGES)
    between = np.full((shown, 1, originals.shape[2]), np.nan)
    pairs = np.concatenate([originals[:shown], between, means[:shown]], axis=1)
    error = float(np.sqrt(np.mean((originals[:shown] - means[:shown]) ** 2)))
    described = (
        f"{shown} test images, each above its reconstruction by {run.label}; root mean square difference of "
        f"the pixels {error:.3f} of 1."
    )
    image = _image(tiled(pairs, 1.6, gap=4), described, run, "gray", (0.0, 1.0))
    return _figure(f"{shown} reconstructions", run, image, "test images above, mean pixels below")


def _paired(arrays: dict[str, np.ndarray]) -> bool:
    """Say whether originals and reconstructions are images of one size."""
    found = arrays.get("originals"), arrays.get("reconstructions")
    return (
        found[0] is not None and found[1] is not None and found[0].shape[1:] == found[1].shape[1:]
    )


def _samples(run: Run) -> Html:
    images = np.asarray(run.arrays["samples"], float)[:_MOST_IMAGES]
    mean = f"mean pixel {images.mean():.2f} of 1"
    described = f"{len(images)} images that {run.label} draws from its prior; {mean}."
    return _figure(
        f"{len(images)} new images",
        run,
        _image(tiled(images, 1.6), described, run, "gray", (0.0, 1.0)),
        "drawn from the prior, mean pixels",
    )


def _largest(fields: np.ndarray) -> float:
    finite = np.abs(fields[np.isfinite(fields)])
    return float(np.quantile(finite, 0.999)) if finite.size else 1.0


def _figure(title: str, run: Run, picture: Html, means: str) -> Html:
    size = number(run.evaluation, "ess")
    note = f"{run.name}" + (f", ESS {percent(size)}" if size is not None else "")
    return tag(
        "figure",
        tag(
            "figcaption",
            tag("strong", title),
            tag("span", f" of {note}", class_="against"),
            tag("span", means, class_="means"),
        ),
        picture,
    )


def _image(
    pixels: np.ndarray, described: str, run: Run, colours: str, limits: tuple[float, float]
) -> Html:
    """Return a picture, one pixel for each number; what is not finite is transparent."""
    from matplotlib.image import imsave

    buffer = io.BytesIO()
    imsave(buffer, pixels, cmap=colours, vmin=limits[0], vmax=limits[1], format="png")
    height, width = pixels.shape
    how = {"width": width, "height": height, "class_": "pixels"}
    return picture(buffer.getvalue(), described, run.path / "evaluation.npz", **how)


def picture(png: bytes, described: str, file: Path, **more: object) -> Html:
    """Return a picture whose bytes are part of the page; of one too large for that, where it is found."""
    if len(png) > _MOST_BYTES:
        size = f"It is too large for this page ({len(png) / 1e6:.1f} MB): see "
        return tag("p", size, tag("code", str(file)), ".", class_="note")
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return tag("img", src=source, alt=described, **more)


def is_png(data: bytes | None) -> bool:
    """Say whether bytes are a PNG file."""
    return data is not None and data.startswith(b"\x89PNG\r\n\x1a\n")
