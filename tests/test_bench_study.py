"""`pathgrad bench all`: exponents, bars, tables and pictures, from records made up here."""

import json

import numpy as np
import pytest

from pathgrad import _plots
from pathgrad._bench import gradients, studies
from pathgrad._bench.bars import Bar, bars
from pathgrad._bench.growth import fit_exponent, growth
from pathgrad._bench.studies import STUDIES, run_study
from pathgrad._bench.tables import markdown, seconds
from pathgrad._cli import bench
from pathgrad._cli.main import main


def cost(value):
    """The costs of one program, all multiples of a value."""
    return {
        "seconds": value,
        "seconds_spread": [0.9 * value, 1.2 * value],
        "seconds_all": [0.9 * value, value, 1.2 * value],
        "flops": 1e9 * value**2,
        "temporary_bytes": int(1e6 * value),
        "compile_seconds": 1.0,
        "evaluations": 40,
        "evaluations_backward": 40,
    }


def ratio(value):
    timed = {"median": value, "spread": [0.9 * value, 1.1 * value]}
    return {"seconds": timed, "flops": value, "temporary_bytes": value}


def record(path=0.9, two_copy=1.5, **about):
    """A record whose gradient by `total` costs as much as the dimension says."""
    about = {"divergence": "hutchinson", "adjoint": "discrete", "width": 9, "depth": 2} | about
    total = float(about.get("dim", 1))
    costs = {"path": path * total, "total": total, "two-copy": two_copy * path * total}
    return about | {
        "what": "cnf",
        "estimators": {name: cost(value) for name, value in costs.items()},
        "ratios": {"path / total": ratio(path), "two-copy / path": ratio(two_copy)},
    }


def study(name, rows):
    about = STUDIES[name]
    made = {"command": "pathgrad bench all", "commit": "0123456789", "cpus": 2, "jax": "1.2"}
    return {
        "study": name,
        "title": about.title,
        "quick": False,
        "variable": about.variable,
        "series_by": list(about.series_by),
        "rows": rows,
        "growth": growth(rows, about.variable, about.series_by) if about.variable else [],
        "provenance": made,
    }


# Exponents


def test_exponent_of_a_power_law_with_a_constant():
    x = 2.0 ** np.arange(1, 11)
    found = fit_exponent(list(x), list(7 * x**1.5))
    assert found.exponent == pytest.approx(1.5, abs=1e-12)
    assert found.standard_error == pytest.approx(0, abs=1e-9)
    # Only the larger half is looked at, where the constant has died away.
    found = fit_exponent(list(x), list(1e3 + x**2))
    assert (found.points, found.first) == (5, 64.0)
    assert 1.7 < found.exponent < 2
    everything = np.polyfit(np.log(x), np.log(1e3 + x**2), 1)[0]
    assert everything < 1.2


def test_standard_error_is_that_of_least_squares():
    log_x, off = np.arange(4.0), np.array([0.1, -0.1, -0.1, 0.1])
    # Every point above the middle is used: give the larger half only.
    x = np.exp(np.concatenate([log_x - 4, log_x]))
    y = np.exp(np.concatenate([np.zeros(4), 2 * log_x + off]))
    found = fit_exponent(list(x), list(y))
    assert found.exponent == pytest.approx(2.0)  # `off` has no slope
    assert found.points == 4
    # Residuals `off`, two degrees of freedom, sum of squares of x 5.
    assert found.standard_error == pytest.approx(np.sqrt(0.04 / 2 / 5))


def test_exponent_needs_two_points():
    assert fit_exponent([4.0], [1.0]) is None
    assert fit_exponent([4.0, 4.0], [1.0, 2.0]) is None
    assert fit_exponent([1.0, 2.0, 4.0], [None, 0.0, 1.0]) is None
    two = fit_exponent([1.0, 4.0], [1.0, 2.0])
    assert (two.exponent, two.standard_error) == (pytest.approx(0.5), None)


def test_growth_of_each_series_and_program():
    rows = [record(dim=d, adjoint=a) for a in ("discrete", "backsolve") for d in (2, 8, 32)]
    found = growth(rows, "dim", ("adjoint",))
    assert len(found) == 2 * 3 * 3
    assert {(f["adjoint"], f["estimator"]) for f in found} >= {("backsolve", "two-copy")}
    for fit in found:
        expected = 2.0 if fit["quantity"] == "flops" else 1.0
        assert fit["exponent"] == pytest.approx(expected, abs=1e-3)
        assert fit["of"] == "dim"


# Bars and tables


def test_bars_say_met_or_missed_and_by_how_much():
    upper, lower = Bar("a", "", 0.9, True, 0.99), Bar("b", "", 1.4, False, 2.1)
    assert (upper.met, upper.verdict) == (False, "**missed** by 10.0 %")
    assert (lower.met, lower.verdict) == (True, "met by 50.0 %")
    assert Bar("c", "", 20.0, False, 15.0).verdict == "**missed** by 25.0 %"


def test_bars_are_read_from_the_studies():
    lattice = {"size": 12, "volume": 144}
    field_rows = [
        record(volume=v, size=int(v**0.5), dim=v) for v in (64, 256, 1024, 4096)
    ]  # seconds grow as V, FLOPs as V^2
    rival = record(**lattice)
    rival["ratios"]["bijx / path"] = ratio(25.0)
    found = bars(
        {
            "choices": study("choices", [record(dim=64), record(dim=64, divergence="closed")]),
            "published": study("published", [record(path=1.3, **lattice)]),
            "field": study("field", field_rows),
            "rivals": study("rivals", [rival]),
        }
    )
    told = {bar.what: bar for bar in found}
    flops = told["path / total, FLOPs, Hutchinson, 64-9-9-64, discrete"]
    assert (flops.limit, flops.measured, flops.met) == (0.90, 0.9, True)
    time = told["path / total, time, published lattice model, L = 12"]
    assert (time.paper, time.measured, time.met) == ("1.14", 1.3, False)
    assert told["two-copy / path, time, closed, 64-9-9-64, discrete"].met
    memory = next(bar for bar in found if "memory" in bar.what)
    assert (memory.measured, memory.met) == (1.3, False)
    assert "`published`" in memory.what
    growing = [bar for bar in found if bar.what.startswith("exponent of the volume, one path")]
    assert [round(bar.measured, 2) for bar in growing] == [1.0, 2.0]
    assert [bar.met for bar in growing] == [True, False]
    assert told["bijx / path, time, lattice gradient, same model and solver, L = 12"].met


def test_markdown_has_every_row_and_exponent():
    text = markdown(
        {"dimension": study("dimension", [record(dim=d, batch=64) for d in (2, 8, 32)])}
    )
    assert "at commit 0123456, 2 CPUs" in text
    assert "In all rows: width 9, depth 2, batch 64, divergence hutchinson" in text
    assert (
        "| 8 dimensions | 7.2 s | 8 s | 10.8 s | 0.90 [0.81, 0.99] | 0.90 | 0.90 "
        "| 1.50 [1.35, 1.65] | 1.50 | 1.50 |"
    ) in text
    assert "| path | 1.00 ± 0.00 | 2.00 ± 0.00 | 1.00 ± 0.00 |" in text
    assert "quick" not in text
    assert [seconds(s) for s in (None, 12.3, 0.0123, 4.56e-5)] == [
        "-",
        "12.3 s",
        "12.3 ms",
        "45.6 us",
    ]


# Pictures


def test_growth_figure_draws_each_estimator_of_each_series():
    rows = [
        record(solver_steps=n, dim=n, adjoint=a) for a in ("discrete", "backsolve") for n in (4, 16)
    ]
    figure = _plots.costs_figure(study("steps", rows))
    time, relative, flops, memory = figure.axes
    labels = [text.get_text() for text in time.get_legend().get_texts()]
    assert len(labels) == 6
    assert labels[0] == "discrete, path  ~ x$^{1.00}$"
    assert labels[5].startswith("backsolve, two-copy")
    np.testing.assert_allclose(time.lines[1].get_xydata(), [[4, 4], [16, 16]])
    np.testing.assert_allclose(flops.lines[1].get_ydata(), [16, 256])
    np.testing.assert_allclose(memory.lines[1].get_ydata(), [4, 16])
    np.testing.assert_allclose(relative.lines[0].get_ydata(), [0.9, 0.9])
    assert len(relative.lines) == 4 + 1  # path and two-copy of both, and the line at 1


def test_bars_figure_is_relative_to_the_total_gradient(tmp_path):
    both = record(dim=5, dataset="mnist") | {"flow_alone": record(path=0.7, dim=3)}
    figure = _plots.costs_figure(study("images", [both]))
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["mnist, discrete,\nwhole step", "mnist, discrete,\nflow alone"]
    widths = [bar.get_width() for bar in figure.axes[0].patches]
    np.testing.assert_allclose(widths, [0.9, 0.7, 1, 1, 1.35, 1.05])
    _plots.plot_costs(study("images", [both]), tmp_path / "images.png")
    assert (tmp_path / "images.png").stat().st_size > 5000


def test_what_is_no_estimator_has_a_look_of_its_own():
    row = record(size=12)
    costs = row["estimators"]
    costs |= {"bijx": cost(20.0), "flowjax": cost(2.0)}
    figure = _plots.costs_figure(study("rivals", [row]))
    assert len({bar.get_facecolor() for bar in figure.axes[0].patches}) == 5


def test_figures_of_records_without_times():
    rows = [record(dim=d) for d in (2, 8)]
    for row in rows:
        for costs in row["estimators"].values():
            costs |= {"seconds": None, "seconds_spread": None, "seconds_all": []}
    figure = _plots.costs_figure(study("dimension", rows))
    assert len(figure.axes[0].lines) == 0
    assert len(figure.axes[2].lines) == 3


# The command


@pytest.fixture
def quick_work(monkeypatch):
    """Let a perceptron's gradient be measured in no time; return what was asked for."""
    asked = []

    def measure(options, say):
        asked.append(options)
        say("working")
        return record(dim=options.dim, batch=options.measure.batch)

    monkeypatch.setattr(gradients, "measure_cnf", measure)
    # Pictures are drawn above; here they only have to be asked for.
    monkeypatch.setattr(_plots, "plot_costs", lambda study, path: path.write_text(study["title"]))
    return asked


def test_studies_are_written_kept_and_measured_again(quick_work, tmp_path, capsys):
    words = ["bench", "all", "--out", str(tmp_path), "--quick", "--only", "dimension", "batch"]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert captured.out == f"results: {tmp_path / 'bench.md'}\n"
    assert "dimension, 1 of 2: working" in captured.err
    names = {"dimension.json", "dimension.png", "batch.json", "batch.png", "bench.md"}
    assert {file.name for file in tmp_path.iterdir()} == names
    written = json.loads((tmp_path / "dimension.json").read_text())
    assert (written["quick"], [row["dim"] for row in written["rows"]]) == (True, [16, 64])
    assert written["provenance"]["python"]
    assert "A quick run" in (tmp_path / "bench.md").read_text()
    measured = len(quick_work)
    assert main(words) == 0
    assert len(quick_work) == measured
    assert "batch: kept" in capsys.readouterr().err
    assert main([*words, "--overwrite"]) == 0
    assert len(quick_work) == 2 * measured


def test_an_interruption_loses_one_study(quick_work, tmp_path, monkeypatch, capsys):
    words = ["bench", "all", "--out", str(tmp_path), "--quick", "--only", "dimension", "batch"]
    whole = gradients.measure_cnf

    def stopped(options, say):
        if options.measure.batch == 16:
            raise KeyboardInterrupt
        return whole(options, say)

    monkeypatch.setattr(gradients, "measure_cnf", stopped)
    assert main(words) == 130
    assert {file.name for file in tmp_path.iterdir()} == {"dimension.json", "dimension.png"}
    monkeypatch.setattr(gradients, "measure_cnf", whole)
    before = len(quick_work)
    assert main(words) == 0
    assert len(quick_work) == before + len(STUDIES["batch"].points(True))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "--overwrite measures it again"),
        ('{"study": "batch"}', "it is the study 'batch'"),
        ('{"study": "dimension", "quick": false}', "is of a whole run: take another --out"),
    ],
)
def test_what_is_there_is_not_mixed_up(content, message, quick_work, tmp_path, capsys):
    (tmp_path / "dimension.json").write_text(content)
    words = ["bench", "all", "--out", str(tmp_path), "--quick", "--only", "dimension"]
    assert main(words) == 2
    assert message in capsys.readouterr().err
    assert quick_work == []
    assert main([*words, "--overwrite"]) == 0


def test_every_study_can_be_asked_for_and_measured():
    assert list(bench.StudyName.__args__) == list(STUDIES)
    for name, each in STUDIES.items():
        for quick in (True, False):
            for by, options in each.points(quick):
                module, function = by.split(":")
                assert module.startswith("pathgrad._bench.")
                assert function.startswith("measure_"), name
                options.measure.check()


def test_studies_hold_what_the_bars_ask_for():
    published = [options.size for _, options in STUDIES["published"].points(False)]
    assert published == [12, 20, 32]
    chosen = [(o.flow.divergence, o.flow.adjoint) for _, o in STUDIES["choices"].points(False)]
    assert len(set(chosen)) == 6
    assert 12 in [options.size for _, options in STUDIES["rivals"].points(False)]


def test_lattice_field_is_measured_by_volume(monkeypatch):
    """One real study, made small."""
    points = STUDIES["field"].points

    def small(quick):
        import dataclasses

        return [
            (by, dataclasses.replace(o, measure=dataclasses.replace(o.measure, repetitions=0)))
            for by, o in points(quick)
        ]

    monkeypatch.setitem(studies.STUDIES, "field", STUDIES["field"]._replace(points=small))
    found = run_study("field", quick=True, say=lambda text: None)
    assert [row["volume"] for row in found["rows"]] == [144, 256, 576]
    fits = {(f["estimator"], f["quantity"]): f["exponent"] for f in found["growth"]}
    assert 1.2 < fits["velocity", "flops"] <= 1.5
    assert 1.1 < fits["velocity and divergence", "flops"] <= 1.5
    assert ("velocity", "seconds") not in fits
