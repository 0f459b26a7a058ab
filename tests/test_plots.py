"""Training curves, their averages and axes, from run directories made up here."""

import matplotlib as mpl
import numpy as np
import pytest

from pathgrad import _plots
from pathgrad._cli import compare
from pathgrad._cli.main import main
from pathgrad._plots import style
from pathgrad._train.row import Row

from .run_helpers import changed, four_runs, make_run, read, rows_of


@pytest.fixture
def four(tmp_path):
    return four_runs(tmp_path)


# Averages and axes


def test_rolling_mean_of_a_known_series():
    series = np.array([1.0, 2.0, 6.0, 3.0, 8.0])
    np.testing.assert_allclose(style.rolling_mean(series, 3), [1.5, 3, 11 / 3, 17 / 3, 5.5])
    np.testing.assert_allclose(style.rolling_mean(series, 1), series)
    # In the middle, a straight line stays one: the window is not behind its value.
    line = 3.0 * np.arange(20)
    np.testing.assert_allclose(style.rolling_mean(line, 5)[2:-2], line[2:-2])
    assert style.rolling_mean(np.empty(0), 3).shape == (0,)
    assert [style.usual_window(n) for n in (0, 1, 20, 100, 400)] == [1, 1, 3, 5, 21]


def test_mean_curve_interpolates_where_all_curves_are():
    slow = (np.array([2.0, 4.0, 6.0]), np.array([0.0, 2.0, 4.0]))
    quick = (np.array([1.0, 3.0, 5.0]), np.array([1.0, 3.0, 7.0]))
    x, y = style.mean_curve([slow, quick])
    np.testing.assert_allclose(x, [2, 3, 4, 5])
    np.testing.assert_allclose(y, [(0 + 2) / 2, (1 + 3) / 2, (2 + 5) / 2, (3 + 7) / 2])
    apart = (np.array([7.0, 8.0]), np.array([1.0, 1.0]))
    assert len(style.mean_curve([slow, apart])[0]) == 0


def test_the_ess_axis_gives_each_nine_the_same_room():
    np.testing.assert_allclose(style.ess_to_height([0, 0.9, 0.99, 0.999]), [0, 1, 2, 3], atol=1e-12)
    sizes = np.array([0.0, 0.3, 0.97, 0.9999])
    np.testing.assert_allclose(style.height_to_ess(style.ess_to_height(sizes)), sizes, atol=1e-12)
    assert np.isfinite(style.ess_to_height(1.0))
    figure = style.new_figure(4.0, 3.0)
    axes = figure.subplots()
    style.ess_axis(axes, np.array([0.05, 0.9993]))
    low, high = axes.get_ylim()
    assert low < 0.05 < 0.9993 < high
    figure.canvas.draw()
    pixels = axes.transData.transform([(0, e) for e in (0.9, 0.99, 0.999)])[:, 1]
    assert pixels[2] - pixels[1] == pytest.approx(pixels[1] - pixels[0], rel=1e-6)
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert {"50 %", "90 %", "97 %", "99 %", "99.9 %"} <= set(labels)


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.05), (0.2, 0.4), (0.972, 0.978), (0.9, 0.99999)])
def test_the_ess_axis_has_ticks_that_do_not_crowd(low, high):
    ticks = style.ess_ticks(low, high)
    heights = style.ess_to_height(ticks)
    bottom, top = style.ess_to_height([low, high])
    assert len(ticks) >= 3
    assert low <= min(ticks) <= max(ticks) <= high
    assert np.diff(heights).min() > 0.05 * (top - bottom)


# Training curves


def trainings(paths, tmp_path, monkeypatch):
    """The runs as `compare.plot` hands them to the figure."""
    seen = []
    monkeypatch.setattr(_plots, "plot_comparison", lambda runs, path: seen.extend(runs))
    compare.plot(read(paths), tmp_path / "x.png")
    return seen


def test_curves_of_seeds_and_their_mean(four, tmp_path, monkeypatch):
    figure = _plots.comparison_figure(trainings(four, tmp_path, monkeypatch))
    by_step, by_time, norms = figure.axes
    thick = [line for line in by_step.lines if line.get_linewidth() > 2]
    assert [line.get_label() for line in thick] == ["path", "total"]
    np.testing.assert_allclose(thick[0].get_xydata(), [(10, 0.2), (20, 0.5), (30, 0.97)])
    np.testing.assert_allclose(thick[1].get_ydata(), [0.2, 0.5, 0.85])
    thin = [line.get_ydata()[-1] for line in by_step.lines if line.get_linewidth() < 1]
    np.testing.assert_allclose(thin, [0.96, 0.98, 0.80, 0.90])
    path, total = (line for line in by_time.lines if line.get_linewidth() > 2)
    np.testing.assert_allclose(path.get_xdata(), [5, 10, 15])
    np.testing.assert_allclose(total.get_xdata(), [4, 8, 12])
    # Told apart in grey too.
    assert path.get_linestyle() != total.get_linestyle()
    luminance = [
        np.dot(mpl.colors.to_rgb(each.get_color()), (0.3, 0.59, 0.11)) for each in (path, total)
    ]
    assert abs(luminance[0] - luminance[1]) > 0.2
    assert norms.get_yscale() == "log"
    (legend,) = figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts == ["path (mean of 2 runs)", "total (mean of 2 runs)"]


def test_norms_are_raw_and_smoothed():
    norms = np.array([8.0, 4, 2, 4, 1, 1, 3, 1, 1])
    run = _plots.Training("a", "path", rows_of([0.5] * 9, norm=norms))
    raw, smooth = _plots.comparison_figure([run]).axes[2].lines
    np.testing.assert_allclose(raw.get_ydata(), norms)
    # Of few rows the sizes are shown as they are.
    (sizes,) = _plots.comparison_figure([run]).axes[0].lines
    np.testing.assert_allclose(sizes.get_ydata(), 0.5)
    np.testing.assert_allclose(smooth.get_ydata()[[0, 1, 4, 8]], [6, 14 / 3, 2, 1])
    assert raw.get_linewidth() < smooth.get_linewidth()


def test_sizes_of_many_rows_are_smoothed_over_their_noise():
    noise = 0.05 * (-1.0) ** np.arange(200)
    run = _plots.Training("a", "path", rows_of(list(0.5 + noise)))
    axes = _plots.comparison_figure([run]).axes[0]
    raw, smooth = axes.lines
    assert "rolling mean" in axes.get_ylabel()
    np.testing.assert_allclose(raw.get_ydata(), 0.5 + noise)
    # Five rows: two of one sign, three of the other.
    np.testing.assert_allclose(np.abs(smooth.get_ydata()[2:-2] - 0.5), 0.01)


def test_groups_of_one_estimator_have_markers_and_sizes_have_rows(tmp_path, monkeypatch):
    for rate in (0.1, 0.01):
        make_run(tmp_path / f"r{rate}", rows_of([0.2, 0.5]), learning_rate=rate)
    runs = trainings([tmp_path / "r0.1", tmp_path / "r0.01"], tmp_path, monkeypatch)
    assert {run.label for run in runs} == {"path, learning rate 0.1", "path, learning rate 0.01"}
    first, second = _plots.comparison_figure(runs).axes[0].lines
    assert first.get_color() == second.get_color()
    assert first.get_marker() != second.get_marker()
    make_run(tmp_path / "large", rows_of([0.1, 0.2]), size=12)
    runs = trainings([tmp_path / "large", tmp_path / "r0.01"], tmp_path, monkeypatch)
    figure = _plots.comparison_figure(runs)
    assert len(figure.axes) == 6
    assert [figure.axes[i].get_title(loc="left") for i in (0, 3)] == ["L = 6", "L = 12"]
    np.testing.assert_allclose(figure.axes[3].lines[0].get_ydata(), [0.1, 0.2])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["path"]


def test_runs_that_have_hardly_begun(tmp_path):
    one, none = rows_of([0.5]), []
    failed = [Row(10, 1.0, skipped=10)]
    runs = [
        _plots.Training("one", "path", one),
        _plots.Training("none", "total", none),
        _plots.Training("failed", "strange", failed),
    ]
    figure = _plots.comparison_figure(runs)
    (dot,) = figure.axes[0].lines
    assert dot.get_marker() == "o"
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["one", "none (no rows yet)", "failed"]
    _plots.save(figure, tmp_path / "one.png")
    empty = _plots.comparison_figure(runs[1:])
    assert [text.get_text() for text in empty.axes[0].texts] == ["no rows yet"]
    _plots.plot_comparison([], tmp_path / "nothing.png")
    assert (tmp_path / "nothing.png").exists()


def test_sizes_that_cannot_be_trusted_are_crossed_out():
    rows = changed(rows_of([0.2, 0.9, 0.99]), 1, below_bound=0.3)
    figure = _plots.comparison_figure([_plots.Training("a", "total", rows)])
    (crosses,) = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    np.testing.assert_allclose(crosses.get_xydata(), [(20, 0.9)])
    assert "not to be trusted" in figure.legends[0].get_texts()[-1].get_text()


def test_long_labels_and_many_runs_fit(tmp_path):
    runs = [
        _plots.Training(f"{'a long name ' * 9}{i}", ["path", "total"][i % 2], rows_of([0.1, 0.5]))
        for i in range(14)
    ]
    figure = _plots.comparison_figure(runs)
    _plots.save(figure, tmp_path / "many.png")
    legend = figure.legends[0].get_window_extent()
    assert legend.x0 >= 0
    assert legend.x1 <= figure.bbox.x1
    assert all(axes.get_window_extent().y1 < legend.y0 for axes in figure.axes)
    assert all(axes.get_window_extent().height > 100 for axes in figure.axes)


def test_time_has_a_unit_that_suits_it():
    hours = _plots.Training("a", "path", rows_of([0.1, 0.2], seconds=7200.0))
    axes = _plots.comparison_figure([hours]).axes[1]
    assert axes.get_xlabel() == "hours of training"
    np.testing.assert_allclose(axes.lines[0].get_xdata(), [2, 4])
    assert style.time_unit(601.0)[1] == "minutes"


def test_drawing_leaves_the_settings_of_matplotlib_alone():
    before = dict(mpl.rcParams)
    _plots.comparison_figure([_plots.Training("a", "path", rows_of([0.1, 0.2]))])
    assert dict(mpl.rcParams) == before


def test_time_alone_has_a_panel_for_each_problem_and_a_logarithmic_axis(tmp_path):
    rows = {"gauss-newton": rows_of([0.5, 0.99], 20.0), "path": rows_of([0.3, 0.6, 0.9], 10.0)}
    runs = [
        _plots.Training(method, method, rows[method], panel)
        for panel in ("L = 6", "L = 12")
        for method in rows
    ]
    figure = _plots.time_figure(runs)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["L = 6", "L = 12"]
    for axes in figure.axes:
        assert axes.get_xscale() == "log"
        second, first = axes.lines
        np.testing.assert_allclose(second.get_xdata(), [20, 40])
        np.testing.assert_allclose(second.get_ydata(), [0.5, 0.99])
        np.testing.assert_allclose(first.get_xdata(), [10, 20, 30])
        assert second.get_color() != first.get_color()
    make_run(tmp_path / "run", rows["path"])
    assert (
        main(["plot", str(tmp_path / "run"), "--figure", "time", "--out", str(tmp_path / "t.png")])
        == 0
    )
    assert (tmp_path / "t.png").stat().st_size > 5000


def test_time_alone_counts_the_runs_it_began_with(tmp_path, monkeypatch):
    make_run(tmp_path / "small", rows_of([0.5, 0.6], 7.0))
    make_run(tmp_path / "middle", rows_of([0.5], 5.0), size=8, init_from=str(tmp_path / "small"))
    make_run(tmp_path / "large", rows_of([0.7], 3.0), size=12, init_from=str(tmp_path / "middle"))
    (summary,) = read([tmp_path / "large"])
    assert summary.seconds_before == 14 + 5
    seen = []
    monkeypatch.setattr(_plots, "plot_time", lambda runs, path: seen.extend(runs))
    compare.plot([summary], tmp_path / "x.png", time_alone=True)
    assert seen[0].rows[0].seconds == 14 + 5 + 3
    assert seen[0].label == "path, from a smaller lattice"
    assert summary.rows[0].seconds == 3
