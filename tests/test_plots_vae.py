"""Panels of autoencoders: what is drawn, from run directories made up here."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Rectangle

import pathgrad as pg
from pathgrad._runs.look import look_of
from pathgrad._show.style import RC, new_figure
from pathgrad.experiments.vae.experiment import VAE

from .vae_helpers import BITS, STEPS, evaluate_vae, four_vaes, make_vae, vae_rows


@pytest.fixture
def four(tmp_path):
    return four_vaes(tmp_path)


@pytest.fixture
def evaluated(tmp_path):
    """Path and arrays of one run."""
    rows = vae_rows([BITS * bits for bits in (8.0, 5.0, 4.5, 4.42, 4.44)])
    arrays, _ = evaluate_vae(make_vae(tmp_path / "run", rows), step=4 * STEPS)
    return tmp_path / "run", arrays


def drawn(name, *paths, size=None):
    """Draw a panel of runs as it would be alone; return its axes and what it says."""
    panel = VAE.panels()[name]
    groups = pg.group_runs([pg.Run.open(path, VAE) for path in paths])
    with mpl.rc_context(RC):
        figure = new_figure(*(size or (panel.width, panel.height)))
        axes = figure.subplots()
        said = panel.draw(axes, groups)
        FigureCanvasAgg(figure).draw()
    return axes, said


def labelled(axes):
    return {each.get_label(): each for each in axes.lines if not each.get_label().startswith("_")}


def points(line):
    return np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)


def published(axes):
    return [points(each)[1][0] for each in axes.lines if "published" in each.get_label()]


def dots(axes):
    found = [np.transpose(points(each)) for each in axes.lines if each.get_marker() == "o"]
    return [where[0] for where in found if len(where) == 1]


def shown_in(axes):
    (image,) = axes.images
    return np.ma.filled(image.get_array().astype(float), np.nan)


# Images


def test_originals_stand_above_their_reconstructions(evaluated):
    path, arrays = evaluated
    axes, said = drawn("images", path, size=(9.0, 2.0))
    image = shown_in(axes)
    np.testing.assert_allclose(image[:28, :20], arrays["originals"][0] / 255)
    assert np.isnan(image[28]).all()
    np.testing.assert_allclose(image[29:57, :20], arrays["reconstructions"][0])
    # Six in a wide panel are in one row, the second beside the first.
    assert image.shape == (57, 6 * 24 - 4)
    np.testing.assert_allclose(image[:28, 24:44], arrays["originals"][1] / 255)
    assert axes.images[0].get_clim() == (0, 1)
    error = np.sqrt(np.mean((arrays["originals"] / 255 - arrays["reconstructions"]) ** 2))
    assert said.startswith("6 test images")
    assert f"{error:.3f}" in said


def test_binary_originals_are_black_and_white(tmp_path):
    evaluate_vae(make_vae(tmp_path / "run", [], dataset="mnist"), step=1, dataset="mnist")
    image = shown_in(drawn("images", tmp_path / "run")[0])
    assert set(np.unique(image[:28, :28])) == {0.0, 1.0}


def test_draws_of_the_prior_keep_their_order(evaluated):
    path, arrays = evaluated
    axes, said = drawn("samples", path, size=(3.0, 4.0))
    image = shown_in(axes)
    assert image.shape == (3 * 30 - 2, 3 * 22 - 2)
    np.testing.assert_allclose(image[:28, :20], arrays["samples"][0])
    np.testing.assert_allclose(image[30:58, 22:42], arrays["samples"][4])
    assert said.startswith("9 images")


def test_each_moved_latent_number_has_a_row(evaluated):
    path, arrays = evaluated
    axes, said = drawn("traversals", path)
    image = shown_in(axes)
    assert image.shape == (2 * 30 - 2, 3 * 22 - 2)
    np.testing.assert_allclose(image[30:58, 22:42], arrays["traversals"][1, 1])
    assert np.isnan(image[28:30]).all()
    assert "from -2.5 to 2.5" in said
    assert "numbers 5, 1." in said


def test_panels_say_what_they_need(evaluated, four):
    whole, bare = (pg.Run.open(path, VAE) for path in (evaluated[0], four[0]))
    assert [panel.can_draw(whole) for panel in VAE.panels().values()] == [True] * 4
    assert [name for name, panel in VAE.panels().items() if panel.can_draw(bare)] == ["validation"]


def test_what_are_no_images_is_not_drawn(tmp_path):
    run = make_vae(tmp_path / "run", [])
    kept, _ = evaluate_vae(run, step=1)
    wrong = {"samples": np.zeros(5), "originals": np.ones((6, 4, 4)), "traversed": np.arange(7)}
    np.savez(run.output("evaluation.npz"), **kept | wrong)
    for name in ("samples", "images", "traversals"):
        with pytest.raises(pg.MissingData):
            drawn(name, tmp_path / "run")


# Training


def test_the_curves_of_one_run_are_in_bits_with_its_best_epoch(evaluated):
    axes, said = drawn("validation", evaluated[0])
    assert axes.get_ylabel() == "negative ELBO (bits/dim)"
    lines = labelled(axes)
    np.testing.assert_allclose(points(lines["path"])[0], [1, 2, 3, 4, 5])
    np.testing.assert_allclose(points(lines["path"])[1], [8.0, 5.0, 4.5, 4.42, 4.44])
    # Whatever beta is, it is the sum of reconstruction and KL; here, ten nats below the validation.
    training = points(lines["training images (rolling mean)"])[1]
    np.testing.assert_allclose(training[-1], 4.44 - 10 / BITS)
    np.testing.assert_allclose(np.transpose(points(lines["test images"])), [(4, 4.4)])
    np.testing.assert_allclose(dots(axes), [(4, 4.42)])
    assert "4.420 bits/dim at epoch 4" in said
    assert published(axes) == [4.35, 4.39]
    low, high = axes.get_ylim()
    assert low < min(4.35, *training) < 4.5 < high < 8.0
    (shade,) = axes.patches
    assert isinstance(shade, Rectangle)
    assert shade.get_label() == "KL warm-up"
    # Two rows of the first epoch of two.
    np.testing.assert_allclose((shade.get_x(), shade.get_width()), (0, 1))


def test_validation_of_seeds_and_their_mean(four):
    axes, said = drawn("validation", *four)
    path, total = (labelled(axes)[f"{name} (mean of 2 runs)"] for name in ("path", "total"))
    np.testing.assert_allclose(points(path)[1], [6.0, 4.6, 4.41, 4.51])
    np.testing.assert_allclose(points(total)[1], [6.0, 4.6, 4.52, 4.62])
    assert path.get_color() == look_of("path").colour != total.get_color()
    thin = [points(line)[1][2] for line in axes.lines if line.get_linewidth() < 0.8]
    np.testing.assert_allclose(thin, [4.40, 4.42, 4.50, 4.54])
    np.testing.assert_allclose(dots(axes), [(3, 4.40), (3, 4.42), (3, 4.50), (3, 4.54)])
    assert "training images (rolling mean)" not in labelled(axes)
    assert "4.400 bits/dim at epoch 3, 4.420 bits/dim at epoch 3" in said


@pytest.mark.parametrize(
    ("dataset", "ends", "values"),
    [
        ("mnist", (90.0, 82.5), [82.09, 82.82]),
        ("mnist", (104.0, 100.0), []),
        ("omniglot-rebuilt", (99.0, 96.0), []),
        ("new", (83.0, 82.0), []),
    ],
)
def test_published_values_must_not_squeeze_the_curves(dataset, ends, values, tmp_path):
    make_vae(tmp_path / "run", vae_rows(ends), dataset=dataset)
    axes, _ = drawn("validation", tmp_path / "run")
    assert published(axes) == values
    bottom, top = axes.get_ylim()
    assert bottom < min([*ends, *values]) < max(ends) < top


def test_runs_that_have_hardly_begun(tmp_path):
    make_vae(tmp_path / "none", [])
    with pytest.raises(pg.MissingData):
        drawn("validation", tmp_path / "none")
    make_vae(tmp_path / "begun", vae_rows([100.0])[:1], dataset="mnist")
    axes, _ = drawn("validation", tmp_path / "begun")
    assert list(labelled(axes)) == ["training images (rolling mean)"]
    # A single point, which no line shows.
    make_vae(tmp_path / "one", vae_rows([100.0]), dataset="mnist", seed=1)
    axes, _ = drawn("validation", tmp_path / "one")
    assert labelled(axes)["path"].get_marker() == "o"
