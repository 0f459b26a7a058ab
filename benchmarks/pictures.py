"""Draw the pictures of the documentation from the code of its pages.

A picture shows what the code of its page has computed: the Python blocks of the page are run, and what they
leave behind is drawn. So page and picture cannot drift apart. The tests draw them too.

    python -m benchmarks.pictures                # all of them, into docs/pictures
    python -m benchmarks.pictures first-fit --out /tmp
"""

import argparse
import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

import pathgrad as pg
from pathgrad._runs.look import look_of
from pathgrad._show.style import INK, new_figure, styled

DOCS = Path(__file__).parent.parent / "docs"
_DPI, _COLOURS = 130, 48  # sharp at the width of a page, and small enough for a phone
_SHOWN = 1500  # points; more hide the contours
_GRID, _LEVELS = 160, (-8.0, -4.5, -2.0, -0.5)  # contours, in nats below the highest point
_EDGES = np.linspace(-6.0, 12.0, 55)  # of histograms of log-weights, in nats
_COLOUR = look_of("path").colour

Names = Mapping[str, Any]  # what the code of a page leaves behind


def run_page(page: Path) -> dict[str, Any]:
    """Run the Python blocks of a page, one after the other, and return their names."""
    names: dict[str, Any] = {}
    for code in re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE):
        exec(compile(code, str(page), "exec"), names)
    return names


def _scatter(axes: Axes, x: Any, log_prob: Callable, limits: tuple[float, float, float, float]) -> None:
    """Draw points over contours of a density of the plane."""
    left, right, bottom, top = limits
    grid = np.meshgrid(np.linspace(left, right, _GRID), np.linspace(bottom, top, _GRID))
    flat = np.stack([part.ravel() for part in grid], axis=1)
    height = np.asarray(jax.vmap(log_prob)(flat)).reshape(_GRID, _GRID)
    axes.plot(*np.asarray(x)[:_SHOWN].T, ls="none", marker=".", ms=2.5, alpha=0.5, color=_COLOUR)
    levels = height.max() + np.array(_LEVELS)
    axes.contour(*grid, height, levels=levels, colors=INK, linewidths=0.8, linestyles="solid")
    axes.set(xlim=(left, right), ylim=(bottom, top))
    axes.grid(visible=False)


def _write(axes: Axes, result: pg.Evaluation) -> None:
    """Write into a corner what an evaluation found."""
    said = f"ESS {result.ess:.1%}, k-hat {result.khat:.2f}\n{result.verdict.level.name}"
    axes.text(0.03, 0.97, said, transform=axes.transAxes, va="top", fontsize=8, color=INK)


@styled
def first_fit(names: Names) -> Figure:
    """Draw samples before and after training over contours of the target."""
    figure = new_figure(7.2, 3.0)
    before, after = figure.subplots(1, 2, sharex=True, sharey=True)
    limits = (-4.8, 3.2, -4.3, 3.0)
    untrained = names["flow"].sample(key=names["test_key"], n=len(names["draws"]["x"]))
    _scatter(before, untrained, names["log_prob"], limits)
    _scatter(after, names["draws"]["x"], names["log_prob"], limits)
    _write(after, names["result"])
    before.set(title="Samples of the flow, before training", xlabel="x[0]", ylabel="x[1]")
    after.set(title="after 300 steps; lines: contours of the target", xlabel="x[0]")
    return figure


@styled
def verdicts(names: Names) -> Figure:
    """Draw samples and log-weights of the three flows of the page."""
    figure = new_figure(8.2, 4.6)
    above, below = figure.subplots(2, 3, sharex="row", sharey="row", height_ratios=[1, 0.9])
    target, key = names["target"], jax.random.key(0)
    for top, bottom, (name, flow) in zip(above, below, names["flows"].items(), strict=True):
        draws = pg.weighted_draws(flow, target, key=key, n=4096)
        result = pg.evaluate(flow, target, key=key, draws=draws)
        _scatter(top, draws["x"], names["log_prob"], (-9.2, 9.2, -5.5, 6.5))
        _write(top, result)
        top.set_title(name[0].upper() + name[1:])
        # The ends of the axis stand for what is further out.
        values = np.clip(draws["log_weight"] - np.median(draws["log_weight"]), _EDGES[0], _EDGES[-1])
        bottom.hist(values, _EDGES, color=_COLOUR)
        bottom.set(yscale="log", xlabel="log-weight less its median", ylim=(0.7, 4096))
    # The page judges the last one again, by samples of the target.
    said = f"{names['result'].verdict.level.name} by samples of the target"
    above[-1].text(0.03, 0.03, said, transform=above[-1].transAxes, fontsize=8, color=INK)
    above[0].set_ylabel("x[1]")
    below[0].set_ylabel("number of samples")
    return figure


@styled
def default_fit(names: Names) -> Figure:
    """Draw what the stages of a fit have found: a Gaussian, coordinates, a flow."""
    figure = new_figure(9.6, 3.1)
    first, within, last = figure.subplots(1, 3)
    target, inner, start = names["target"], names["inner"], names["start"]
    gaussian = pg.Flow(pg.StandardNormal((2,)), [start.map])
    key, limits = jax.random.key(0), (5.5, 17.5, -2.6, 0.3)
    _scatter(first, gaussian.sample(key=key, n=_SHOWN), target.log_prob, limits)
    trained = pg.Flow(names["whole"].base, names["whole"].transforms[:-1])
    _scatter(within, trained.sample(key=key, n=_SHOWN), inner.log_prob, (-4.5, 4.5, -4.5, 4.5))
    _scatter(last, names["fit"].sample(_SHOWN), target.log_prob, limits)
    first.set(title="Warm start: the nearest Gaussian", xlabel="height", ylabel="log rate")
    within.set(title="The flow, in its coordinates", xlabel="z[0]", ylabel="z[1]")
    last.set(title="The fit, in those of the target", xlabel="height", ylabel="log rate")
    _write(last, names["fit"].evaluation)
    return figure


def orchards(names: Names) -> Figure:
    """Return what ArviZ has drawn."""
    return names["axes"].ravel()[0].figure


PICTURES: dict[str, tuple[str, Callable[[Names], Figure]]] = {
    "first-fit": ("index.md", first_fit),
    "default-fit": ("default-fit.md", default_fit),
    "orchards": ("tutorial.md", orchards),
    "verdicts": ("verdict.md", verdicts),
}


def draw(name: str, names: Names, folder: Path) -> Path:
    """Draw one picture from the names of its page into a folder."""
    file, drawn = folder / f"{name}.png", io.BytesIO()
    folder.mkdir(parents=True, exist_ok=True)
    PICTURES[name][1](names).savefig(drawn, dpi=_DPI)
    # A palette makes the file a third as large, and shows no difference.
    Image.open(drawn).convert("RGB").quantize(_COLOURS).save(file, optimize=True)
    return file


def main() -> None:
    """Run the pages of the pictures that were asked for, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"which of {', '.join(PICTURES)}; all by default")
    parser.add_argument("--out", type=Path, default=DOCS / "pictures", help="folder of the pictures")
    given = parser.parse_args()
    if unknown := set(given.names) - set(PICTURES):
        parser.error(f"there is no picture {', '.join(sorted(unknown))}, only {', '.join(PICTURES)}")
    for name in given.names or PICTURES:
        print(draw(name, run_page(DOCS / PICTURES[name][0]), given.out))


if __name__ == "__main__":
    main()
