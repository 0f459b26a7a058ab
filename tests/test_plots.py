"""Training curves and figures, from run directories made up here."""

import dataclasses
import math

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.text import Text

from pathgrad._runs.look import LOOKS
from pathgrad._runs.panel import MissingData
from pathgrad._runs.run import Run
from pathgrad._runs.series import rolling_mean, usual_window
from pathgrad._show import style
from pathgrad._show.curves import BEST, DOUBTFUL, EVALUATED, constants, curve_panel, training_panels
from pathgrad._show.figure import overview_figure, panel_figure, time_figure, training_figure

from .show_helpers import (
    COST,
    CURVES,
    EXPERIMENT,
    SHARE,
    draws,
    evaluate,
    four_runs,
    grouped,
    make_run,
    rows_of,
)


def drawn(panel, runs):
    """Return axes with a panel of runs, and what it says of itself."""
    axes = style.new_figure(4.0, 3.0).subplots()
    return axes, panel.draw(axes, grouped(runs))


def labelled(axes):
    return dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))


def points(line):
    """Return x and y of a curve."""
    return np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)


def finished(figure):
    """Draw a figure to its end, and return its axes that show something."""
    figure.canvas.draw()
    return [axes for axes in figure.axes if axes.axison]


def is_finite(axes):
    return np.isfinite([*axes.get_xlim(), *axes.get_ylim()]).all()


# Axes


def test_the_axis_of_shares_gives_each_nine_the_same_room():
    shares = np.array([0.0, 0.3, 0.97, 0.9999])
    back = style.height_to_share(style.share_to_height(shares))
    np.testing.assert_allclose(back, shares, atol=1e-12)
    assert np.isfinite(style.share_to_height(1.0))
    axes = style.new_figure(4.0, 3.0).subplots()
    style.share_axis(axes, np.array([0.05, np.nan, 0.9993]))
    low, high = axes.get_ylim()
    assert low < 0.05 < 0.9993 < high
    axes.figure.canvas.draw()
    pixels = axes.transData.transform([(0, e) for e in (0.9, 0.99, 0.999)])[:, 1]
    assert pixels[2] - pixels[1] == pytest.approx(pixels[1] - pixels[0], rel=1e-6)


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 0.02), (0.3, 0.31), (0.0, 0.999999), (0.9, 0.97), (0.99, 0.9999)]
)
def test_ticks_of_shares_do_not_crowd(low, high):
    ticks = style.share_ticks(low, high)
    assert len(ticks) >= 3
    assert low <= min(ticks) <= max(ticks) <= high
    heights = style.share_to_height(ticks)
    assert np.diff(heights).min() > 0.05 * (style.share_to_height(high) - style.share_to_height(low))


def test_numbers_of_axes():
    short = [style.short(v) for v in (0.25, -3.0, 1400.0, 25e3, 2e6)]
    assert short == ["0.25", "−3", "1,400", "25k", "2M"]
    assert [style.power_of_ten(v) for v in (1e-6, 0.05, 200.0, 1e7)] == ["10⁻⁶", "0.05", "200", "10⁷"]


def test_long_curves_are_thinned_to_their_extremes():
    x = np.arange(20_000.0)
    y = np.sin(x)
    y[12_345] = 9.0
    fewer, values = style.thinned(x, y)
    assert len(fewer) <= style.MOST_POINTS + 2
    assert (fewer[0], fewer[-1]) == (x[0], x[-1])
    assert 9.0 in values
    np.testing.assert_array_equal(values, y[fewer.astype(int)])


# Curves


def test_the_mean_of_seeds_is_thick_over_thin_ones(tmp_path):
    axes, said = drawn(curve_panel(SHARE, "step"), four_runs(tmp_path))
    curves = labelled(axes)
    assert list(curves) == ["path (mean of 2 runs)", "total (mean of 2 runs)"]
    for curve, method, end in zip(curves.values(), ("path", "total"), (0.97, 0.85), strict=True):
        np.testing.assert_allclose(points(curve), [[10, 20, 30], [0.2, 0.5, end]])
        assert curve.get_color() == LOOKS[method].colour
    thin = [each for each in axes.lines if each.get_linewidth() < 1]
    assert len(thin) == 4
    assert all(t.zorder < c.zorder for t in thin for c in curves.values())
    assert "97.00 %" in said
    assert "85.00 %" in said
    assert axes.get_yscale() == "function"


def test_time_has_a_unit_that_suits_it(tmp_path):
    run = make_run(tmp_path / "run", rows_of([0.2, 0.5, 0.9], seconds=1200.0))
    axes, _ = drawn(curve_panel(SHARE, "seconds"), [run])
    np.testing.assert_allclose(points(axes.lines[0])[0], [20, 40, 60])
    assert "minutes" in axes.get_xlabel()


def test_many_rows_are_smoothed_and_drawn_raw_behind(tmp_path):
    noise = np.random.default_rng(0).uniform(0.5, 2.0, size=200)
    rows = rows_of([0.5] * 200, gradient_norm=[*map(float, noise)])
    axes, _ = drawn(curve_panel(CURVES[0], "step"), [make_run(tmp_path / "run", rows)])
    raw, smooth = axes.lines
    np.testing.assert_allclose(points(raw)[1], noise)
    np.testing.assert_allclose(points(smooth)[1], rolling_mean(noise, usual_window(200)))
    assert axes.get_yscale() == "log"
    assert "rolling mean" in axes.get_xlabel()


def test_what_is_judged_by_its_best_is_marked_there_and_cut_where_it_fell(tmp_path):
    losses = [1000.0, *(100 + 3 * math.cos(i) for i in range(99))]
    rows = rows_of([0.5] * 100, validation=losses, epoch=[*map(float, range(100))])
    panel = curve_panel(COST, "epoch", is_followed=True)
    axes, _ = drawn(panel, [make_run(tmp_path / "run", rows, target="data")])
    dots = [points(each) for each in axes.lines if each.get_linestyle() == "None"]
    assert [(*x, *y) for x, y in dots if len(x)] == [(np.argmin(losses), min(losses))]
    assert BEST in labelled(axes)
    low, high = axes.get_ylim()
    assert low < min(losses) < max(losses[10:]) < high < 200
    # What others reached is drawn if it is near; here it is within the limits.
    published = next(line for label, line in labelled(axes).items() if "99.00" in label)
    assert published.get_ydata()[0] == 99.0


def test_evaluations_and_broken_bounds_are_marked(tmp_path):
    rows = rows_of([0.2, 0.5, 0.9], below_bound=[None, 0.3, None])
    run = evaluate(make_run(tmp_path / "run", rows), ess=0.8, step=20)
    axes, _ = drawn(curve_panel(SHARE, "seconds", is_followed=True), [run])
    marks = labelled(axes)
    assert {EVALUATED, DOUBTFUL} <= set(marks)
    assert (*marks[DOUBTFUL].get_xdata(), *marks[DOUBTFUL].get_ydata()) == (2.0, 0.5)
    diamonds = [points(each) for each in axes.lines if each.get_marker() == "D"]
    assert (2.0, 0.8) in [(*x, *y) for x, y in diamonds]
    # Of a step that no row has, nobody knows where it belongs.
    run = evaluate(run, ess=0.8, step=25)
    axes, _ = drawn(curve_panel(SHARE, "step", is_followed=True), [run])
    assert EVALUATED not in labelled(axes)


def test_lengths_that_differ_much_make_the_axis_logarithmic(tmp_path):
    short = make_run(tmp_path / "a", rows_of([0.5, 0.9]), method="gauss-newton")
    for count, scale in ((30, "linear"), (60, "log")):
        long = make_run(tmp_path / f"b{count}", rows_of([0.5] * count), method="path")
        axes, _ = drawn(curve_panel(SHARE, "step"), [short, long])
        assert axes.get_xscale() == scale
        low, high = axes.get_xlim()
        assert low <= 10 <= 10 * count <= high


def test_groups_of_one_method_have_markers(tmp_path):
    runs = [make_run(tmp_path / str(w), rows_of([0.5] * 40), width=w) for w in (8, 16, 32)]
    groups = grouped(runs)
    looks = style.looks_of(groups)
    assert len({how["color"] for how in looks}) == 1
    assert len({how["marker"] for how in looks}) == 3
    axes, _ = drawn(curve_panel(SHARE, "step"), runs)
    assert len(labelled(axes)) == 3


def test_a_number_that_never_changes_is_told_instead_of_drawn(tmp_path):
    groups = grouped([make_run(tmp_path / "run", rows_of([0.2, 0.5]))])
    drawn_ = [each.quantity.name for each in training_panels(groups)]
    assert drawn_ == ["ess", "gradient_norm", "kl"]
    (said,) = constants(groups)
    assert "32" in said


def test_whole_time_counts_the_runs_it_began_with(tmp_path, monkeypatch):
    run = make_run(tmp_path / "run", rows_of([0.2, 0.5]))
    monkeypatch.setattr(type(EXPERIMENT), "seconds_before", lambda self, run: 100.0)
    axes, _ = drawn(curve_panel(SHARE, "seconds", whole_time=True), [Run.open(run.path, EXPERIMENT)])
    np.testing.assert_allclose(points(axes.lines[0])[0], [101, 102])
    assert axes.get_xscale() == "log"


# Figures


def test_figures_have_a_row_for_each_problem_and_one_legend(tmp_path):
    runs = four_runs(tmp_path)
    runs += [make_run(tmp_path / "big", rows_of([0.3, 0.6, 0.9]), target="larger tins")]
    groups = grouped(runs)
    every = finished(training_figure(groups))
    assert len(every) == 2 * 4
    assert all(is_finite(axes) and axes.get_xlabel() and axes.get_title("left") for axes in every)
    figure = time_figure(groups)
    assert len(finished(figure)) == 2
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "path (mean of 2 runs)",
        "total (mean of 2 runs)",
        "path",
    ]


def test_runs_that_have_hardly_begun_are_drawn(tmp_path):
    runs = [make_run(tmp_path / "none", []), make_run(tmp_path / "one", rows_of([0.3]), width=8)]
    odd = rows_of([0.3, 0.6])
    runs += [make_run(tmp_path / "zero", [dataclasses.replace(r, gradient_norm=0.0) for r in odd])]
    for shown in (runs, runs[:1], runs[1:2], runs[2:]):
        assert all(is_finite(axes) for axes in finished(training_figure(grouped(shown))))
    (legend,) = training_figure(grouped(runs[:2])).legends
    assert any("no rows yet" in text.get_text() for text in legend.get_texts())


def test_labels_with_dollars_are_no_formulas(tmp_path):
    runs = [
        make_run(tmp_path / str(i), rows_of([0.5, 0.6]), target=f"$\\bad{i}", width=f"$x_{i}")
        for i in range(2)
    ]
    groups = grouped(runs)
    finished(training_figure(groups))
    texts = [text.get_text() for text in training_figure(groups).findobj(Text)]
    assert r"fairground $\bad0" in texts


def test_a_panel_alone_and_of_each_group(tmp_path):
    runs = [evaluate(run, arrays=draws(i)) for i, run in enumerate(four_runs(tmp_path))]
    panels, groups = EXPERIMENT.panels(), grouped(runs)
    assert len(finished(panel_figure(panels["spread"], groups))) == 1
    assert len(finished(panel_figure(panels["shots"], groups))) == 2
    # Of runs that were not evaluated there is none, and the message says what to do.
    for run in runs:
        (run.path / "evaluation.npz").unlink()
    bare = grouped([Run.open(run.path, EXPERIMENT) for run in runs])
    with pytest.raises(MissingData, match="pathgrad evaluate"):
        panel_figure(panels["spread"], bare)
    with pytest.raises(MissingData, match="never anything"):
        panel_figure(panels["never"], groups)


def test_the_overview_says_what_is_missing_in_its_place(tmp_path):
    arrays = draws()
    del arrays["tins"]
    run = evaluate(make_run(tmp_path / "run", rows_of([0.2, 0.5, 0.9])), arrays=arrays)
    every = [axes for axes in finished(overview_figure(run)) if axes.get_title("left")]
    assert {axes.get_title("left") for axes in every} >= {"Spread of the shots", "Shots", "Never"}
    assert "Tins" not in {axes.get_title("left") for axes in every}
    never = next(axes for axes in every if axes.get_title("left") == "Never")
    assert "never anything" in never.texts[0].get_text().replace("\n", " ")


def test_drawing_leaves_the_settings_of_matplotlib_alone(tmp_path):
    before = dict(mpl.rcParams)
    groups = grouped(four_runs(tmp_path))
    for name in ("a.svg", "b.svg"):
        style.save(training_figure(groups), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert dict(mpl.rcParams) == before
