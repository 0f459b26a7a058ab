"""`python -m benchmarks.study`: FLOPs; exponents, bars, tables and pictures, from records made up here."""

import dataclasses
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax import lax
from matplotlib.patches import Rectangle

import pathgrad as pg
from benchmarks import study as command
from benchmarks.costs import rivals, studies
from benchmarks.costs.bars import Bar, bars
from benchmarks.costs.figures import costs_figure, plot_costs
from benchmarks.costs.flops import count_flops, flops_of
from benchmarks.costs.growth import fit_exponent, growth
from benchmarks.costs.measure import gradients_of, measured
from benchmarks.costs.records import StudyRecord
from benchmarks.costs.studies import STUDIES, run_study
from benchmarks.costs.tables import markdown
from benchmarks.study import main
from pathgrad._bench.measure import Work
from pathgrad._bench.options import MeasureOptions
from pathgrad.experiments.options import FlowOptions, TrainOptions
from pathgrad.experiments.toy.experiment import ToyOptions

# FLOPs


def product(x, w):
    return jnp.tanh(x @ w)  # no FLOPs but those of the product: tanh is counted apart


@pytest.mark.parametrize("length", [1, 2, 3, 8])
def test_a_scan_counts_as_often_as_it_runs(length):
    x, w = jnp.ones((5, 16)), jnp.ones((length, 16, 16))
    found = count_flops(lambda x, w: lax.scan(lambda x, w: (product(x, w), None), x, w)[0], x, w)
    once = 2 * 5 * 16 * 16
    # The compiler also counts the loop's counter.
    assert found["flops"] == pytest.approx(length * once, rel=5e-3)
    assert found["flops_of_program"] == pytest.approx(once, rel=5e-3)
    assert found["flops_of_loop_bodies"] == pytest.approx(once if length > 1 else 0, rel=5e-3)


def test_a_while_counts_as_often_as_it_ran():
    def program(x, w, stop):
        def go_on(carry):
            return jnp.sum(carry[0]) < stop

        # Behind a call, as in most programs, and with a second loop that is longer.
        y, n = jax.jit(lambda x: lax.while_loop(go_on, lambda c: (c[0] + c[0] @ w, c[1] + 1), (x, 0)))(x)
        return lax.fori_loop(0, 7, lambda _, y: jnp.tanh(y @ w), y), n

    x, w = jnp.ones((4, 8)) / 32, jnp.eye(8)  # the sum is 1, and doubles
    _, n = program(x, w, 20.0)
    assert int(n) == 5
    found = count_flops(program, x, w, 20.0)
    once = 2 * 4 * 8 * 8
    assert found["flops"] == pytest.approx((5 + 7) * once, rel=0.15)  # the sums and additions
    assert found["flops_of_program"] == pytest.approx(2 * once, rel=0.15)


def test_flops_of_a_solve_are_those_of_its_matrix_products():
    dim, width, batch, steps = 8, 64, 16, 9
    field = pg.MLPField(dim, width, 2, key=jr.key(0))
    flow = pg.Flow(pg.StandardNormal((dim,)), [pg.CNF(field, integrator=pg.FixedStep(steps))])
    arrays, static = eqx.partition(flow, eqx.is_array)

    def sample(arrays, key):
        return eqx.combine(arrays, static).draw("x", key=key, n=batch, chunk=batch).x

    evaluation = 2 * batch * (dim * width + width * width + width * dim)
    found = count_flops(sample, arrays, jr.key(0))["flops"]
    assert found == pytest.approx(4 * steps * evaluation, rel=0.05)


def gradient(steps, batch):
    flow = FlowOptions(width=64, solver_steps=steps, divergence="hutchinson")
    options = ToyOptions("correlated", 8, flow, TrainOptions(batch=batch))
    return gradients_of(options, MeasureOptions(("path",)))[1]["path"]


def test_flops_of_a_gradient_grow_with_steps_and_batch():
    with jax.enable_x64(False):
        work, larger = gradient(5, 16), gradient(25, 32)
        counts = [count_flops(w.function, w.arrays, jr.key(0)).values() for w in (work, larger)]
        compiled = jax.jit(work.function).lower(work.arrays, jr.key(0)).compile()
    (few, few_program, bodies), (many, many_program, _) = counts
    assert few_program == pytest.approx(flops_of(compiled), rel=2e-3)
    # Twice the draws; of five times the steps the compiler sees nothing.
    assert many_program == pytest.approx(2 * few_program, rel=0.02)
    assert few == pytest.approx(few_program + 4 * bodies)
    assert many == pytest.approx(2 * (few + 20 * bodies), rel=0.02)
    # Forward: velocity, its push-forward, the derivative of both. Backward: once more, two products each.
    velocity = 2 * 16 * (8 * 64 + 64 * 64 + 64 * 8)
    assert bodies / (4 * velocity) == pytest.approx(6.95, rel=0.08)


@pytest.mark.slow
def test_path_gradient_of_a_network_keeps_its_bar():
    """The bar for FLOPs, through the configuration that the study has for it."""
    point = next(p for p in STUDIES["choices"].points(False) if p.options.flow.adjoint == "discrete")
    how = MeasureOptions(("path", "total"), repetitions=0)
    found = point.measure(point.options, how, print)["ratios"]["path / total"]
    assert point.options.flow.divergence == "hutchinson"
    assert 0.80 < found["flops"] <= 0.90
    assert found["temporary_bytes"] <= 1.1


def test_flops_stand_among_the_costs():
    works = {
        "path": Work(lambda x, key: (x @ x, None), jnp.ones((4, 4))),
        "total": Work(lambda x, key: (x @ x, None), jnp.ones((8, 8))),
        "other": Work(lambda x, key: (x @ x, None), jnp.ones((2, 2))),
    }
    pairs = (("path", "total"), ("other", "total"), ("missing", "total"))
    found = measured(works, MeasureOptions(repetitions=0), lambda text: None, seed=0, pairs=pairs)
    flops = {name: costs["flops"] for name, costs in found["estimators"].items()}
    assert flops == {"path": 2 * 4**3, "total": 2 * 8**3, "other": 2 * 2**3}
    assert {name: r["flops"] for name, r in found["ratios"].items()} == {
        "path / total": 1 / 8,
        "other / total": 1 / 64,
    }


# Records


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


def study(name, rows) -> StudyRecord:
    about = STUDIES[name]
    made = {"command": "benchmarks.study", "commit": "0123456789", "cpus": 2, "jax": "1.2"}
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
    text = markdown({"dimension": study("dimension", [record(dim=d, batch=64) for d in (2, 8, 32)])})
    assert "at commit 0123456, 2 CPUs" in text
    assert "In all rows: width 9, depth 2, batch 64, divergence hutchinson" in text
    assert (
        "| 8 dimensions | 7.2 s | 8 s | 10.8 s | 0.90 [0.81, 0.99] | 0.90 | 0.90 "
        "| 1.50 [1.35, 1.65] | 1.50 | 1.50 |"
    ) in text
    assert "| path | 1.00 ± 0.00 | 2.00 ± 0.00 | 1.00 ± 0.00 |" in text
    assert "quick" not in text


# Pictures


def test_growth_figure_draws_each_estimator_of_each_series():
    rows = [record(solver_steps=n, dim=n, adjoint=a) for a in ("discrete", "backsolve") for n in (4, 16)]
    figure = costs_figure(study("steps", rows))
    time, relative, flops, memory = figure.axes
    labels = [text.get_text() for text in time.get_legend().get_texts()]
    assert len(labels) == 6
    assert labels[0] == "discrete, path  ~ x$^{1.00}$"
    assert labels[5].startswith("backsolve, two-copy")
    drawn = [axes.lines[1] for axes in (time, flops, memory)] + [relative.lines[0]]
    for line, expected in zip(drawn, ([4, 16], [16, 256], [4, 16], [0.9, 0.9]), strict=True):
        np.testing.assert_allclose(np.asarray(line.get_xydata()), np.transpose([[4, 16], expected]))
    assert len(relative.lines) == 4 + 1  # path and two-copy of both, and the line at 1


def test_bars_figure_is_relative_to_the_total_gradient(tmp_path):
    both = record(dim=5, dataset="mnist") | {"flow_alone": record(path=0.7, dim=3)}
    figure = costs_figure(study("images", [both]))
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["mnist, discrete,\nwhole step", "mnist, discrete,\nflow alone"]
    widths = [bar.get_width() for bar in figure.axes[0].patches if isinstance(bar, Rectangle)]
    np.testing.assert_allclose(widths, [0.9, 0.7, 1, 1, 1.35, 1.05])
    plot_costs(study("images", [both]), tmp_path / "images.png")
    assert (tmp_path / "images.png").stat().st_size > 5000


def test_what_is_no_estimator_has_a_look_of_its_own():
    row = record(size=12)
    costs = row["estimators"]
    costs |= {"bijx": cost(20.0), "flowjax": cost(2.0)}
    figure = costs_figure(study("rivals", [row]))
    assert len({bar.get_facecolor() for bar in figure.axes[0].patches}) == 5


def test_figures_of_records_without_times():
    rows = [record(dim=d) for d in (2, 8)]
    for row in rows:
        for costs in row["estimators"].values():
            costs |= {"seconds": None, "seconds_spread": None, "seconds_all": []}
    figure = costs_figure(study("dimension", rows))
    assert len(figure.axes[0].lines) == 0
    assert len(figure.axes[2].lines) == 3


# The command


@pytest.fixture
def quick_work(monkeypatch):
    """Let a perceptron's gradient be measured in no time; return what was asked for."""
    asked = []

    def measure(options, how, say):
        how.check()
        asked.append(options)
        say("working")
        return record(dim=options.dim, batch=options.training.batch)

    monkeypatch.setattr(studies, "measure_gradients", measure)
    # Pictures are drawn above; here they only have to be asked for.
    monkeypatch.setattr(command, "plot_costs", lambda study, path: path.write_text(study["title"]))
    return asked


def test_studies_are_written_kept_and_measured_again(quick_work, tmp_path, capsys):
    words = ["--out", str(tmp_path), "--quick", "--only", "dimension", "batch"]
    assert main(words) == 0
    captured = capsys.readouterr()
    assert captured.out == f"results: {tmp_path / 'bench.md'}\n"
    assert "dimension, 1 of 2: working" in captured.err
    names = {"dimension.json", "dimension.png", "batch.json", "batch.png", "bench.md"}
    assert {file.name for file in tmp_path.iterdir()} == names
    written = json.loads((tmp_path / "dimension.json").read_text())
    assert (written["quick"], [row["dim"] for row in written["rows"]]) == (True, [16, 64])
    assert written["provenance"]["python"]
    assert written["provenance"]["command"].startswith("python -m benchmarks.study --out")
    assert "A quick run" in (tmp_path / "bench.md").read_text()
    measured = len(quick_work)
    assert main(words) == 0
    assert len(quick_work) == measured
    assert "batch: kept" in capsys.readouterr().err
    assert main([*words, "--overwrite"]) == 0
    assert len(quick_work) == 2 * measured


def test_an_interruption_loses_one_study(quick_work, tmp_path, monkeypatch, capsys):
    words = ["--out", str(tmp_path), "--quick", "--only", "dimension", "batch"]
    whole = studies.measure_gradients

    def stopped(options, *others):
        if options.training.batch == 16:
            raise KeyboardInterrupt
        return whole(options, *others)

    monkeypatch.setattr(studies, "measure_gradients", stopped)
    assert main(words) == 130
    assert {file.name for file in tmp_path.iterdir()} == {"dimension.json", "dimension.png"}
    monkeypatch.setattr(studies, "measure_gradients", whole)
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
    words = ["--out", str(tmp_path), "--quick", "--only", "dimension"]
    assert main(words) == 2
    assert message in capsys.readouterr().err
    assert quick_work == []
    assert main([*words, "--overwrite"]) == 0


@pytest.mark.parametrize(
    ("words", "remedy"), [("--only rivals", "needs --rivals"), ("--rivals", "pip install bijx flowjax")]
)
def test_rivals_are_asked_for_and_have_to_be_there(words, remedy, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(rivals, "_import", lambda name: None)
    assert main(["--out", str(tmp_path / "x"), *words.split()]) == 2
    assert remedy in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(rivals, "_import", {"bijx": json}.get)
    assert rivals.installed() == {"bijx": json}
    rivals.check_installed()


def test_studies_can_be_measured_and_hold_what_the_bars_ask_for():
    for each in STUDIES.values():
        for quick in (True, False):
            for point in each.points(quick):
                point.how.check()

    def chosen(name):
        return [dataclasses.asdict(point.options) for point in STUDIES[name].points(False)]

    assert [options["size"] for options in chosen("published")] == [12, 20, 32]
    assert len({(o["flow"]["divergence"], o["flow"]["adjoint"]) for o in chosen("choices")}) == 6
    assert 12 in [options["size"] for options in chosen("rivals")]


def test_lattice_field_is_measured_by_volume(monkeypatch):
    """One real study, made small."""
    points = [p._replace(how=MeasureOptions(repetitions=0)) for p in STUDIES["field"].points(True)]
    changed = STUDIES["field"]._replace(points=lambda quick: points)
    monkeypatch.setitem(studies.STUDIES, "field", changed)
    found = run_study("field", quick=True, say=lambda text: None)
    assert [row["volume"] for row in found["rows"]] == [144, 256, 576]
    fits = {(f["estimator"], f["quantity"]): f["exponent"] for f in found["growth"]}
    assert 1.2 < fits["velocity", "flops"] <= 1.5
    assert 1.1 < fits["velocity and divergence", "flops"] <= 1.5
    assert ("velocity", "seconds") not in fits
