"""Pictures of lattice runs, from run directories made up here: the numbers on their axes are known."""

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

import pathgrad as pg
from pathgrad._show.figure import overview_figure
from pathgrad._show.style import save
from pathgrad.experiments.phi4.experiment import PHI4
from pathgrad.experiments.phi4.figures import decay, known_mass
from pathgrad.experiments.phi4.words import deviation

from .phi4_helpers import evaluated, make_run
from .run_helpers import SIZE

PANELS = PHI4.panels()


def drawn(name, *runs):
    axes = Figure().subplots()
    return axes, PANELS[name].draw(axes, pg.group_runs(runs))


@pytest.fixture
def run(tmp_path):
    return evaluated(make_run(tmp_path / "path"))


@pytest.fixture
def two(run, tmp_path):
    return run, evaluated(make_run(tmp_path / "total", training={"estimator": "total"}))


def points(axes, label):
    (line,) = [line for line in axes.lines if line.get_label() == label]
    return np.asarray(line.get_xydata())


def error_bars(axes):
    return [each for each in axes.containers if isinstance(each, ErrorbarContainer)]


def test_lattices_offer_these_pictures(run):
    assert list(PANELS) == ["weights", "fields", "two-point", "observables"]
    assert all(panel.can_draw(run) for panel in PANELS.values())


def test_deviations_add_both_errors():
    row = {"value": 3.0, "error": 0.3, "reference": 2.0, "reference_error": 0.4}
    row |= {"mcmc_value": 1.0, "mcmc_error": 0.0}
    assert deviation(row) == pytest.approx(2.0)
    assert deviation(row, "mcmc_") == pytest.approx(-2.5)
    for missing in ("value", "error", "reference"):
        assert deviation(row | {missing: None}) is None
    assert deviation(row | {"error": 0.0, "reference_error": None}) is None


def test_fields_are_laid_out_on_a_scale_with_zero_in_its_middle(two):
    axes, said = drawn("fields", two[0])
    (image,) = axes.images
    fields = two[0].arrays["fields"]
    low, high = image.get_clim()
    assert low == -high == -np.abs(fields).max()
    array = image.get_array()
    assert array is not None
    shown = np.ma.filled(array, np.nan)
    np.testing.assert_allclose(shown[:SIZE, :SIZE], fields[0])
    np.testing.assert_allclose(shown[-SIZE:, -SIZE:], fields[15])
    assert np.isfinite(shown).sum() == fields.size  # each once
    # The scale is to be read, by those too who do not see it.
    (text,) = axes.texts
    assert f"{high:+.2g}" in text.get_text()
    assert f"{high:+.2g}" in said
    assert "16 draws" in said
    assert f"{SIZE} × {SIZE}" in said


def test_fields_may_be_empty_of_finite_numbers(run):
    broken = evaluated(run, arrays={"fields": np.full((4, 3, 3), np.nan)})
    axes, _ = drawn("fields", broken)
    assert axes.images[0].get_clim() == (-1.0, 1.0)
    with pytest.raises(pg.MissingData):
        drawn("fields", evaluated(run, arrays={"fields": np.zeros(4)}))


def test_the_known_mass_decays_as_cosh_and_meets_the_last_point(run):
    assert known_mass(run) == 4.0 / SIZE
    value = 2 * run.arrays["two_point"]
    t, curve = decay(4.0 / SIZE, float(SIZE), value)
    assert (t[0], t[-1]) == (0, SIZE / 2)
    # The made-up function is a cosh with the known mass itself.
    np.testing.assert_allclose(np.interp(np.arange(len(value)), t, curve), value, rtol=1e-12)
    # On an odd lattice the last point is not the middle, which is where the slope vanishes.
    t, curve = decay(0.7, 5.0, np.array([3.0, 2.0, 1.0]))
    assert curve[-1] == pytest.approx(1.0)
    assert curve[0] == pytest.approx(np.cosh(0.7 * 2.5) / np.cosh(0.7 * 0.5))


def test_the_two_point_function_has_its_errors(two):
    axes, said = drawn("two-point", *two)
    for run, container, shift in zip(two, error_bars(axes), (-0.035, 0.035), strict=True):
        at = np.asarray(container.lines[0].get_xydata())
        np.testing.assert_allclose(at[:, 0], np.arange(4) + shift)
        np.testing.assert_allclose(at[:, 1], run.arrays["two_point"])
        bars = np.array(container.lines[2][0].get_segments())[:, :, 1]
        np.testing.assert_allclose((bars[:, 1] - bars[:, 0]) / 2, run.arrays["two_point_err"])
    assert [c.get_label() for c in axes.containers] == ["path", "total"]
    assert axes.get_yscale() == "log"
    # Both know the same mass: one curve.
    dashed = points(axes, "cosh with the known mass")
    np.testing.assert_allclose(dashed[-1], (3, two[0].arrays["two_point"][-1]))
    assert "0.667" in said
    first = two[0].arrays["two_point"][0]
    assert f"path: {first:.3f} ± 0.010 at 0" in said


@pytest.mark.parametrize("noise", [-0.5, np.nan])
def test_a_two_point_function_may_be_lost_in_noise(noise, run, tmp_path):
    value = run.arrays["two_point"]
    lost = evaluated(run, arrays={"two_point": np.array([*value[:-1], noise])})
    axes, said = drawn("two-point", lost)
    assert isinstance(axes.figure, Figure)
    save(axes.figure, tmp_path / "a.png")
    # And no curve through the last point.
    assert not [line for line in axes.lines if "cosh" in str(line.get_label())]
    assert "cosh" not in said


def test_nothing_is_said_of_a_mass_that_is_not_known(run):
    axes, said = drawn("two-point", evaluated(run, observables=None))
    assert len(axes.containers) == 1
    assert "cosh" not in said
    with pytest.raises(pg.MissingData, match="different lengths"):
        drawn("two-point", evaluated(run, arrays={"two_point_err": np.zeros(2)}))


def test_observables_are_drawn_in_standard_errors(run):
    ward = {"value": 0.6, "error": 0.1, "reference": 0.5, "reference_error": 0.0}
    axes, said = drawn("observables", evaluated(run, bias=50, ward_identity=ward))
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == ["⟨φ²⟩", "m L", "Ward identity"]
    # 50 errors off: at the edge, with its number.
    np.testing.assert_allclose(points(axes, "path")[:, 0], [6.0, -2.0, 1.0])
    assert [text.get_text() for text in axes.texts] == ["+50"]
    chain = points(axes, "path, Markov chain")
    np.testing.assert_allclose(chain[:, 0], [2.0])  # (0.17 - 0.16) / hypot(0.003, 0.004)
    assert abs(chain[0, 1] - points(axes, "path")[0, 1]) < 0.5  # in the same line of the axes
    assert "path: ⟨φ²⟩ +50.0, m L -2.0, Ward identity +1.0." in said


def test_of_several_runs_the_chains_are_left_out(two):
    axes, _ = drawn("observables", evaluated(two[0], bias=1), evaluated(two[1], bias=-1))
    np.testing.assert_allclose(points(axes, "path")[:, 0], [1, -2])
    np.testing.assert_allclose(points(axes, "total")[:, 0], [-1, -2])
    assert len([line for line in axes.lines if not str(line.get_label()).startswith("_")]) == 2


def test_groups_of_one_method_are_told_apart(run, tmp_path):
    other = evaluated(make_run(tmp_path / "other", flow={"channels": 9}))
    axes, _ = drawn("two-point", run, other)
    assert [c.get_label() for c in axes.containers] == ["path, channels 6", "path, channels 9"]
    looks = {(c.lines[0].get_color(), c.lines[0].get_marker()) for c in error_bars(axes)}
    assert len(looks) == 2


@pytest.mark.parametrize("observables", [None, {"phi_2": {"value": 1.0}}, "nonsense"])
def test_without_known_values_there_is_nothing_to_draw(observables, run):
    with pytest.raises(pg.MissingData, match="no known values"):
        drawn("observables", evaluated(run, observables=observables))


def test_weights_of_a_lattice_are_those_of_any_flow(run):
    axes, said = drawn("weights", run)
    (histogram,) = axes.patches
    assert isinstance(histogram, StepPatch)
    assert histogram.get_data()[0].sum() == 500
    assert "500 draws" in said
    assert "draws" not in PANELS


def test_labels_of_the_overview_stay_inside_and_apart(run):
    figure = overview_figure(run)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    places = figure.subfigs or [figure]
    shown = [axes for part in places for axes in part.axes if axes.axison]
    boxes = [box for axes in shown if (box := axes.get_tightbbox(renderer)) is not None]
    assert len(boxes) == 2 + len(PANELS) - 1  # fields have no axis
    for i, box in enumerate(boxes):
        assert box.x0 >= -1
        assert box.x1 <= figure.bbox.x1 + 1
        assert not any(box.overlaps(other) for other in boxes[:i])


def test_reading_lattice_runs_takes_no_jax(run, tmp_path):
    code = (
        "import sys, pathgrad as pg; from pathgrad._show.figure import panel_figure;"
        f"run = pg.Run.open({str(run.path)!r}); run.experiment.tables(run); run.experiment.warnings(run);"
        "panels = run.experiment.panels(); groups = pg.group_runs([run]);"
        "[panel_figure(panel, groups) for panel in panels.values()]; sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
