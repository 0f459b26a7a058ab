"""Tables and figures, from run directories made up here: what they show is known."""

import json
import math
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from pathgrad import _plots
from pathgrad._cli import compare
from pathgrad._cli.compare.equal_time import equal_times
from pathgrad._cli.compare.summary import grouped, labels_of, names_of, summarise
from pathgrad._cli.compare.table import make_table
from pathgrad._cli.main import main
from pathgrad._plots import style
from pathgrad._plots.lattice import reference_decay
from pathgrad._plots.observables import deviations
from pathgrad._train.rundir import RunDir

SIZE = 6


def rows_of(ess, seconds=1.0, norm=0.5, **more):
    """Rows of a training in blocks of ten steps, each of so many seconds."""
    norms = np.broadcast_to(norm, len(ess))
    return [
        {"step": 10 * (i + 1), "seconds": seconds * (i + 1), "ess": e, "kl": -math.log(e) / 2}
        | {"gradient_norm": float(norms[i]), "skipped": 0}
        | more
        for i, e in enumerate(ess)
    ]


def make_run(path, rows, *, estimator="path", seed=0, steps=None, provenance=None, **options):
    """Write a run; `options` beside those of training are of the lattice experiment."""
    training = {"estimator": estimator, "steps": steps or 10 * len(rows), "seed": seed}
    training |= {"learning_rate": options.pop("learning_rate", 0.01), "decay": "cosine"}
    config = {"experiment": "phi4", "options": {"size": SIZE, **options, "training": training}}
    config["provenance"] = provenance or {"platform": "Linux", "cpus": 2, "command": str(path)}
    run = RunDir.create(path, config)
    for row in rows:
        run.append_metrics(row)
    return run


def make_evaluation(run, *, step=30, ess=0.9, bias=0.0, arrays=True, **more):
    """Write what `pathgrad evaluate` writes: two observables are known, and one is `bias` errors off."""
    observables = {
        "phi_2": {"value": 0.16 + bias * 0.005, "error": 0.003, "reference": 0.16},
        "mass_times_size": {"value": 3.9, "error": 0.05, "reference": 4.0},
        "binder": {"value": 0.2, "error": 0.1, "reference": None},
    }
    observables["phi_2"] |= {"reference_error": 0.004, "mcmc_value": 0.17, "mcmc_error": 0.003}
    result = {"step": step, "samples": 500, "ess": ess, "kl": 0.05, "khat": 0.2}
    result |= {"warnings": [], "observables": observables} | more
    run.write_json("evaluation.json", result)
    rng = np.random.default_rng(1)
    t = np.arange(SIZE // 2 + 1)
    kept = {
        "log_weight": 7 + 0.3 * rng.normal(size=500),
        "fields": rng.normal(size=(16, SIZE, SIZE)),
        "two_point": 0.3 * np.cosh(4 / SIZE * (t - SIZE / 2)),
        "two_point_err": 0.01 * np.ones(len(t)),
    }
    if arrays:
        np.savez(run.output("evaluation.npz"), **kept)
    return kept, result


@pytest.fixture
def four(tmp_path):
    """Two estimators, two seeds each; the total gradient is quicker by a fifth."""
    ends = {("path", 0): 0.96, ("path", 1): 0.98, ("total", 0): 0.80, ("total", 1): 0.90}
    for (estimator, seed), end in ends.items():
        rows = rows_of([0.2, 0.5, end], seconds=5.0 if estimator == "path" else 4.0)
        make_run(tmp_path / f"{estimator}{seed}", rows, estimator=estimator, seed=seed)
    return [tmp_path / f"{estimator}{seed}" for estimator, seed in ends]


def read(paths):
    return [summarise(path) for path in paths]


def refused(capsys, *words):
    assert main([*map(str, words)]) == 2
    err = capsys.readouterr().err
    assert len(err.strip().splitlines()) == 1
    return err


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


# The table


def test_seeds_are_summed_up_and_other_options_told_apart(four, tmp_path):
    other = tmp_path / "fast"
    make_run(other, rows_of([0.7]), learning_rate=0.1, seed=7)
    summaries = read([*four, other])
    assert [len(group) for group in grouped(summaries)] == [2, 2, 1]
    heads, runs, means = make_table(summaries)
    assert heads == ["run", "estimator", "steps", "train s", "ms/step", "ESS", "KL", "grad norm"]
    assert [row[0] for row in runs] == ["path0", "path1", "total0", "total1", "fast"]
    assert runs[0][2:6] == ["30", "15.0", "500.0", "96.00%*"]
    # sd of 0.96 and 0.98 is 0.02 / sqrt 2; of 0.8 and 0.9, 0.1 / sqrt 2
    path, total = means
    assert path[0].startswith("mean of 2 seeds")
    assert "learning rate 0.01" in path[0]
    assert path[1:6] == ["path", "30", "15.0 ± 0.0", "500.0 ± 0.0", "97.00% ± 1.41%*"]
    assert total[5] == "85.00% ± 7.07%*"
    kl = [-math.log(e) / 2 for e in (0.96, 0.98)]
    assert path[6] == f"{np.mean(kl):.5f} ± {np.std(kl, ddof=1):.5f}*"


def test_what_evaluation_found_comes_first_if_it_is_of_the_same_step(four):
    make_evaluation(RunDir.open(four[0]), step=30, ess=0.951, warnings=["k-hat is 0.9."])
    make_evaluation(RunDir.open(four[1]), step=20, ess=0.3, warnings=["stale"])
    summaries = read(four)
    heads, runs, means = make_table(summaries)
    at = heads.index("ESS")
    assert runs[0][at] == "95.10%"
    assert runs[1][at] == "98.00%*"
    assert means[0][at].endswith("*")
    assert heads.index("k-hat") == at + 2
    assert (runs[0][at + 2], runs[1][at + 2], means[0][at + 2]) == ("0.20", "-", "-")
    assert summaries[0].warnings == ("k-hat is 0.9.",)
    assert summaries[1].warnings == ()


def test_lattice_sizes_get_a_column_and_skipped_steps_only_if_there_are_any(tmp_path):
    make_run(tmp_path / "large", rows_of([0.5], skipped=3), size=12)
    make_run(tmp_path / "small", rows_of([0.5]))
    heads, runs, _ = make_table(read([tmp_path / "large", tmp_path / "small"]))
    assert (heads[1], heads[-1]) == ("L", "skipped")
    assert [(row[1], row[-1]) for row in runs] == [("12", "3"), ("6", "0")]
    # What must differ between sizes, as the coupling does, tells no groups apart.
    assert set(labels_of(read([tmp_path / "large", tmp_path / "small"])).values()) == {"path"}


def test_the_same_seed_twice_is_not_two_seeds(tmp_path, capsys):
    for name in ("here/run", "there/run"):
        make_run(tmp_path / name, rows_of([0.5]))
    summaries = read([tmp_path / "here/run", tmp_path / "there/run"])
    assert names_of(summaries) == ["here/run", "there/run"]
    assert make_table(summaries)[2][0][0] == "mean of 2 runs"
    assert main(["compare", *[str(tmp_path / "here/run")] * 2]) == 0
    assert "mean" not in capsys.readouterr().out


def test_seeds_that_began_with_seeds_belong_together(tmp_path):
    for seed in (0, 1):
        small = tmp_path / f"small{seed}"
        make_run(small, rows_of([0.5]), seed=seed)
        make_run(tmp_path / f"big{seed}", rows_of([0.5]), seed=seed, size=8, init_from=str(small))
    other = tmp_path / "other"
    make_run(other, rows_of([0.5, 0.6]))
    make_run(tmp_path / "big2", rows_of([0.5]), seed=2, size=8, init_from=str(other))
    summaries = read([tmp_path / f"big{seed}" for seed in (0, 1, 2)])
    assert [len(group) for group in grouped(summaries)] == [2, 1]
    assert sorted(labels_of(summaries).values()) == [
        "path, init from other",
        "path, init from small0",
    ]


def test_markdown_holds_the_same_cells(four, capsys):
    assert main(["compare", "--markdown", *map(str, four)]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = [[c.strip() for c in line.strip("|").split(" | ")] for line in lines if "|" in line]
    heads, runs, means = make_table(read(four))
    assert table[0] == heads
    assert table[1][:3] == ["---", "---", "---:"]
    assert [[c.replace("\\", "") for c in row] for row in table[2:]] == runs + means
    assert "96.00%\\*" in table[2]
    assert any(line.startswith("\\* from the last block") for line in lines)


def test_the_box_never_wraps_and_takes_names_as_they_are(tmp_path, capsys):
    name = "[red]a_run_with_a_name_" + "x" * 80
    make_run(tmp_path / name, rows_of([0.5]))
    assert main(["compare", str(tmp_path / name)]) == 0
    assert name in capsys.readouterr().out


# At equal time


def test_estimators_are_compared_at_the_end_of_the_quicker(four):
    (said,) = equal_times(read(four))
    # total ends after 12 s; path, with 5 s for a block, has made two blocks until then
    assert said.startswith("path against total at L = 6, each after 12.0 s of training")
    assert "ESS 50.00% ± 0.00% against 85.00% ± 7.07%, a difference of -35.00 points" in said
    assert "A step takes 25% more time" in said
    assert "path was still on its way, at step 20 of 30" in said
    assert "total was still" not in said
    assert "single run" not in said


def test_only_what_differs_in_the_estimator_is_compared(four, tmp_path):
    make_run(tmp_path / "other", rows_of([0.5]), estimator="total", learning_rate=0.1)
    assert equal_times(read([four[0], tmp_path / "other"])) == []
    assert equal_times(read(four[:2])) == []
    far = {"platform": "Darwin", "cpus": 8}
    make_run(tmp_path / "far", rows_of([0.5]), estimator="total", provenance=far, steps=30)
    (said,) = equal_times(read([four[0], tmp_path / "far"]))
    assert "different machines" in said
    assert "ESS" not in said
    make_run(tmp_path / "longer", rows_of([0.5] * 9, 4.0, below_bound=0.1), estimator="total")
    (said,) = equal_times(read([four[0], tmp_path / "longer"]))
    assert "each after 15.0 s" in said
    assert "With a single run on a side" in said
    assert "total was still on its way, at step 30 of 90" in said
    assert "total had a loss below -log Z there" in said
    make_run(tmp_path / "begun", [], estimator="total", steps=30)
    assert equal_times(read([four[0], tmp_path / "begun"])) == []


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
    failed = [{"step": 10, "seconds": 1.0, "ess": None, "gradient_norm": None, "skipped": 10}]
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
    rows = rows_of([0.2, 0.9, 0.99])
    rows[1]["below_bound"] = 0.3
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


# The lattice


def test_deviations_add_both_errors():
    row = {"value": 3.0, "error": 0.3, "reference": 2.0, "reference_error": 0.4}
    without = {"value": 3.0, "error": 0.3, "reference": None, "reference_error": None}
    result = {"observables": {"a": row | {"mcmc_value": 1.0, "mcmc_error": 0.0}, "b": without}}
    assert deviations(result) == pytest.approx({"a": 2.0})
    assert deviations(result, "mcmc_") == pytest.approx({"a": -2.5})
    result["ward_identity"] = {"value": 0.6, "error": 0.1, "reference": 0.5, "reference_error": 0}
    assert deviations(result) == pytest.approx({"a": 2.0, "ward_identity": 1.0})
    assert deviations({"observables": None, "ward_identity": None}) == {}


def test_the_reference_decays_as_cosh_and_meets_the_last_point(tmp_path):
    arrays, result = make_evaluation(make_run(tmp_path / "a", rows_of([0.5])))
    arrays["two_point"] = arrays["two_point"] * 2
    found = reference_decay(_plots.Evaluated("", [], arrays, result))
    assert found is not None
    t, value = found
    assert (t[0], t[-1]) == (0, SIZE / 2)
    # The made-up function is a cosh with the mass of the reference itself.
    np.testing.assert_allclose(np.interp(np.arange(4), t, value), arrays["two_point"], rtol=1e-12)
    del result["observables"]["mass_times_size"]
    assert reference_decay(_plots.Evaluated("", [], arrays, result)) is None


def test_the_picture_of_a_lattice_run_shows_its_numbers(tmp_path):
    arrays, result = make_evaluation(make_run(tmp_path / "a", rows_of([0.5])), bias=50)
    figure = _plots.lattice_figure(rows_of([0.2, 0.6, 0.9]), arrays, result)
    sizes, norms, weights, fields, correlation, observables, _ = [
        axes for part in figure.subfigs for axes in part.axes
    ]
    curve, evaluated = sizes.lines
    np.testing.assert_allclose(curve.get_ydata(), [0.2, 0.6, 0.9])
    np.testing.assert_allclose(evaluated.get_xydata(), [(30, 0.9)])
    assert norms.lines
    assert sum(bar.get_height() for bar in weights.patches) == 500
    assert weights.get_title() == "ESS 90.00% of 500 draws"
    (image,) = fields.images
    low, high = image.get_clim()
    assert low == -high == -np.abs(arrays["fields"]).max()
    shown = np.asarray(image.get_array().filled(np.nan))
    np.testing.assert_allclose(shown[:SIZE, :SIZE], arrays["fields"][0])
    np.testing.assert_allclose(shown[-SIZE:, -SIZE:], arrays["fields"][15])
    points = correlation.containers[0].lines[0]
    np.testing.assert_allclose(points.get_ydata(), arrays["two_point"])
    assert any("cosh" in text.get_text() for text in correlation.get_legend().get_texts())
    names = [text.get_text() for text in observables.get_yticklabels()]
    assert names == ["⟨φ²⟩", "m L"]
    dots = observables.collections[1].get_offsets()
    # 50 errors off: at the edge, with its number; the other two errors below.
    np.testing.assert_allclose(dots[:, 0], [6.0, -2.0])
    assert [text.get_text() for text in observables.texts] == ["+50"]


def test_labels_of_the_lattice_picture_stay_inside_and_apart(tmp_path):
    arrays, result = make_evaluation(make_run(tmp_path / "a", rows_of([0.5])))
    figure = _plots.lattice_figure(rows_of([0.2, 0.6, 0.9]), arrays, result)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    boxes = [axes.get_tightbbox(renderer) for part in figure.subfigs for axes in part.axes]
    for i, box in enumerate(boxes):
        assert box.x0 >= -1
        assert box.x1 <= figure.bbox.x1 + 1
        assert not any(box.overlaps(other) for other in boxes[:i])


def test_what_a_lattice_run_lacks_is_said_in_its_panel(tmp_path):
    weights = np.array([0.1, np.nan, 0.2, -np.inf])
    result = {"step": 30, "samples": 9, "ess": None, "observables": None, "ward_identity": None}
    figure = _plots.lattice_figure([], {"log_weight": weights}, result)
    _plots.save(figure, tmp_path / "a.png")
    axes = [axes for part in figure.subfigs for axes in part.axes]
    assert axes[2].get_title() == "ESS unknown of 9 draws\n4 shown, 2 not finite"
    said = [" ".join(t.get_text() for t in a.texts).replace("\n", " ") for a in axes[3:]]
    assert "no fields" in said[0]
    assert "no two-point" in said[1]
    assert "no observables with a known reference" in said[2]


def test_one_lost_draw_does_not_squeeze_the_histogram():
    log_weight = np.concatenate([0.2 * np.random.default_rng(0).normal(size=4000), [-60.0, 5.0]])
    run = _plots.Evaluated("", [], {"log_weight": log_weight}, {"ess": 0.5, "samples": 4002})
    (axes,) = _plots.single_figure("weights", [run]).axes
    assert axes.get_title() == "ESS 50.00% of 4,002 draws\n1 further left"
    heights = [bar.get_height() for bar in axes.patches]
    assert sum(heights) == 4001
    assert heights[-1] == 1  # large weights are always shown
    assert axes.get_xlim()[0] > -10


@pytest.mark.parametrize("noise", [-0.5, np.nan])
def test_a_two_point_function_may_be_lost_in_noise(noise, tmp_path):
    arrays, result = make_evaluation(make_run(tmp_path / "a", rows_of([0.5])))
    arrays["two_point"][-1] = noise
    arrays["two_point_err"][-1] = 1.0
    figure = _plots.single_figure("two-point", [_plots.Evaluated("", [], arrays, result)])
    _plots.save(figure, tmp_path / "a.png")
    assert len(figure.axes[0].get_legend().get_texts()) == 1  # and no curve through the last point


# The command


def test_plot_writes_every_figure_in_every_format(four, tmp_path, capsys):
    for path in four[:2]:
        make_evaluation(RunDir.open(path))
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    kinds = ("training", "fields", "two-point", "weights", "observables", "all")
    for i, kind in enumerate(kinds):
        ending = list(starts)[i % 3]
        out = tmp_path / f"{kind}.{ending}"
        runs = four[:1] if kind in ("training", "all") else four[:2]
        assert main(["plot", *map(str, runs), "--out", str(out), "--figure", kind]) == 0
        assert out.read_bytes().startswith(starts[ending])
        captured = capsys.readouterr()
        assert captured.out == f"picture: {out}\n"
        assert captured.err == ""


@pytest.mark.parametrize("ending", ["svg", "pdf"])
def test_the_same_numbers_give_the_same_file(ending, tmp_path):
    files = [tmp_path / f"{i}.{ending}" for i in (0, 1)]
    for file in files:
        figure = style.new_figure(2.0, 2.0)
        figure.subplots().plot([0, 1], [1, 2], marker="o")
        _plots.save(figure, file)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_plot_says_what_is_missing_and_what_to_do(four, tmp_path, capsys):
    out = tmp_path / "x.png"
    run = four[0]
    assert "name at least one run" in refused(capsys, "plot", "--out", out)
    assert "--out must end in .png, .svg or .pdf" in refused(capsys, "plot", run, "--out", "x.doc")
    said = refused(capsys, "plot", run, "--out", out)
    assert f"{run} has not been evaluated: pathgrad evaluate {run}" in said
    make_evaluation(RunDir.open(run), arrays=False)
    said = refused(capsys, "plot", run, "--out", out, "--figure", "weights")
    assert f"pathgrad evaluate {run}" in said
    (run / "evaluation.npz").write_bytes(b"PK\3\4 torn")
    said = refused(capsys, "plot", run, "--out", out)
    assert "evaluation.npz cannot be read" in said
    np.savez(run / "evaluation.npz", log_weight=np.zeros(3))
    assert "has no fields" in refused(capsys, "plot", run, "--out", out, "--figure", "fields")
    (run / "evaluation.json").write_text("{")
    assert "evaluation.json cannot be read" in refused(capsys, "plot", run, "--out", out)
    toy = tmp_path / "toy"
    RunDir.create(toy, {"experiment": "toy", "options": {"training": {"estimator": "path"}}})
    said = refused(capsys, "plot", toy, "--out", out, "--figure", "weights")
    assert "--figure training" in said
    assert not out.exists()
    assert main(["plot", str(toy), "--out", str(out)]) == 0  # of a toy run, its training is all
    nowhere = tmp_path / "none" / "x.png"
    assert "cannot be written" in refused(capsys, "plot", toy, "--out", nowhere)


def test_an_old_evaluation_is_drawn_with_a_word(four, tmp_path, capsys):
    make_evaluation(RunDir.open(four[0]), step=20)
    words = ["plot", str(four[0]), "--out", str(tmp_path / "x.png"), "--figure", "weights"]
    assert main(words) == 0
    assert "is of step 20, the run now at step 30: pathgrad evaluate" in capsys.readouterr().err


def test_reading_runs_takes_no_jax(four, tmp_path):
    make_evaluation(RunDir.open(four[0]))
    words = ["plot", str(four[0]), "--out", str(tmp_path / "x.png"), "--figure", "two-point"]
    code = f"import sys; from pathgrad._cli.main import main; main({words!r}); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    code = "import sys; import pathgrad._cli.plot; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_compare_reads_a_torn_evaluation_as_an_error(four, capsys):
    (four[0] / "evaluation.json").write_text(json.dumps([1, 2]))
    assert "cannot be read" in refused(capsys, "compare", four[0])
