"""Pictures of lattice runs, and `pathgrad plot`, from run directories made up here."""

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from pathgrad import _plots
from pathgrad._cli.main import main
from pathgrad._plots import style
from pathgrad._plots.lattice import reference_decay
from pathgrad._plots.observables import deviations
from pathgrad._train.rundir import RunDir

from .run_helpers import SIZE, four_runs, make_evaluation, make_run, refused, rows_of


@pytest.fixture
def four(tmp_path):
    return four_runs(tmp_path)


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
