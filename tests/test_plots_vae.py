"""Pictures of variational autoencoders, and `pathgrad plot` of them, from run directories made up here."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from pathgrad import _plots
from pathgrad._cli import compare
from pathgrad._cli.main import main
from pathgrad._plots.elbo import draw_published, interesting
from pathgrad._plots.style import LOOKS, new_figure
from pathgrad._train.rundir import RunDir

from .run_helpers import make_run, read, refused, rows_of
from .test_compare_vae import BITS, STEPS, evaluate_vae, four_vaes, make_vae, vae_rows


@pytest.fixture
def four(tmp_path):
    return four_vaes(tmp_path)


@pytest.fixture
def evaluated(tmp_path):
    """Rows, arrays and result of one run."""
    rows = vae_rows([BITS * bits for bits in (8.0, 5.0, 4.5, 4.42, 4.44)])
    arrays, result = evaluate_vae(make_vae(tmp_path / "run", rows), step=4 * STEPS)
    return rows, arrays, result


def panels(figure):
    return [axes for part in figure.subfigs for axes in part.axes]


def labelled(axes):
    return {each.get_label(): each for each in axes.lines if not each.get_label().startswith("_")}


def published(axes):
    return [each.get_ydata()[0] for each in axes.lines if "published" in each.get_label()]


def texts(legend):
    return [text.get_text() for text in legend.get_texts()]


def shown_in(axes):
    (image,) = axes.images
    return np.ma.filled(image.get_array().astype(float), np.nan)


# One run


def test_originals_stand_above_their_reconstructions(evaluated):
    pairs, samples, *_ = panels(_plots.images_figure(*evaluated))
    _, arrays, _ = evaluated
    image = shown_in(pairs)
    np.testing.assert_allclose(image[:28, :20], arrays["originals"][0] / 255)
    assert np.isnan(image[28]).all()
    np.testing.assert_allclose(image[29:57, :20], arrays["reconstructions"][0])
    # Six in a wide panel are in one row, the second beside the first.
    assert image.shape == (57, 6 * 24 - 4)
    np.testing.assert_allclose(image[:28, 24:44], arrays["originals"][1] / 255)
    assert pairs.get_title().startswith("6 test images")
    np.testing.assert_allclose(shown_in(samples)[:28, :20], arrays["samples"][0])
    assert samples.get_title().startswith("9 draws from the prior")
    assert pairs.images[0].get_clim() == (0, 1)


def test_binary_originals_are_black_and_white(tmp_path):
    run = make_vae(tmp_path / "run", [], dataset="mnist")
    arrays, result = evaluate_vae(run, step=1, dataset="mnist")
    image = shown_in(panels(_plots.images_figure([], arrays, result))[0])
    assert set(np.unique(image[:28, :28])) == {0.0, 1.0}


def test_the_curves_of_one_run_are_in_bits_with_its_best_epoch(evaluated):
    figure = _plots.images_figure(*evaluated)
    curve, evaluations = panels(figure)[2:]
    assert curve.get_ylabel() == "negative ELBO (bits/dim)"
    lines = labelled(curve)
    np.testing.assert_allclose(lines["validation"].get_xdata(), [1, 2, 3, 4, 5])
    np.testing.assert_allclose(lines["validation"].get_ydata(), [8.0, 5.0, 4.5, 4.42, 4.44])
    # Whatever beta is, it is the sum of reconstruction and KL; here, ten nats below the validation.
    training = lines["training images (rolling mean)"].get_ydata()
    np.testing.assert_allclose(training[-1], 4.44 - 10 / BITS)
    best = lines["best validation: 4.420, epoch 4"]
    np.testing.assert_allclose(best.get_xydata(), [(4, 4.42)])
    np.testing.assert_allclose(lines["test images"].get_xydata(), [(4, 4.4)])
    assert published(curve) == [4.35, 4.39]
    low, high = curve.get_ylim()
    assert low < 4.35 < 4.5 < high < 8.0
    assert "KL warm-up" in texts(curve.get_legend())
    (shade,) = curve.patches
    assert shade.get_window_extent().width > 0
    forward, backward = evaluations.lines
    assert forward.get_linewidth() > backward.get_linewidth()
    np.testing.assert_allclose(forward.get_xdata(), 8 * np.arange(1, 11))
    np.testing.assert_allclose(backward.get_ydata(), 34.0)
    assert figure._suptitle.get_text() == (
        "Frey Faces, 200 test images: negative ELBO 4.400 ± 0.023 bits/dim "
        "(reconstruction 1650.00 + KL 58.00 nats)"
    )


def test_the_headline_has_the_log_likelihood_if_there_is_one(evaluated):
    _, arrays, result = evaluated
    result |= {"dataset": "omniglot-rebuilt", "negative_elbo": 99.0, "nll": 95.0, "nll_err": 0.5}
    title = _plots.pictures_figure(arrays, result)._suptitle.get_text()
    assert title.startswith("Omniglot, rebuilt, 200 test images: negative ELBO 99.00 ± 9.00 nats (")
    assert title.endswith("), negative log-likelihood 95.00 ± 0.50 nats")


def test_labels_of_the_picture_stay_inside_and_apart(evaluated):
    figure = _plots.images_figure(*evaluated)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    boxes = [axes.get_tightbbox(canvas.get_renderer()) for axes in panels(figure)]
    boxes.append(figure._suptitle.get_window_extent())
    for i, box in enumerate(boxes):
        assert box.x0 >= -1
        assert box.x1 <= figure.bbox.x1 + 1
        assert not any(box.overlaps(other) for other in boxes[:i])


def test_what_a_run_lacks_is_said_in_its_panel(tmp_path):
    result = {"dataset": "caltech", "step": 3, "epoch": None, "negative_elbo": None}
    figure = _plots.images_figure([], {}, result)
    _plots.plot_images([], {}, result, tmp_path / "a.png")
    assert (tmp_path / "a.png").exists()
    said = [" ".join(text.get_text() for text in axes.texts) for axes in panels(figure)]
    assert said == [
        "the evaluation has no originals.",
        "the evaluation has no samples.",
        "no rows yet",
        "no rows yet",
    ]
    with pytest.raises(_plots.MissingData, match="no originals"):
        _plots.pictures_figure({}, result)


def test_a_grid_of_draws_keeps_their_order():
    images = np.linspace(0, 1, 7)[:, None, None] * np.ones((7, 28, 28))
    (axes,) = _plots.samples_figure(images).axes
    image = shown_in(axes)
    assert image.shape == (88, 88)
    np.testing.assert_allclose(image[::30, ::30].ravel()[:7], np.linspace(0, 1, 7))
    assert np.isnan(image[-1, -1])
    assert axes.get_title() == "7 draws"
    many = _plots.samples_figure(np.zeros((1000, 4, 4)))
    assert many.axes[0].get_title() == "400 of 1,000 draws"


# Several runs


def test_validation_of_seeds_and_their_mean_against_epoch_and_time(four):
    figure = _plots.elbo_figure(compare.trainings(read(four)))
    by_epoch, by_time, evaluations = figure.axes
    assert by_epoch.get_title(loc="left") == "Frey Faces"
    for axes in (by_epoch, by_time):
        assert axes.get_ylabel() == "negative ELBO, validation (bits/dim)"
        assert published(axes) == [4.35, 4.39]
        assert axes.get_ylim() == by_epoch.get_ylim()
    assert (by_epoch.get_xlabel(), by_time.get_xlabel()) == ("epoch", "seconds of training")
    path, total = labelled(by_epoch)["path"], labelled(by_epoch)["total"]
    np.testing.assert_allclose(path.get_ydata(), [6.0, 4.6, 4.41, 4.51])
    np.testing.assert_allclose(total.get_ydata(), [6.0, 4.6, 4.52, 4.62])
    np.testing.assert_allclose(labelled(by_time)["total"].get_xdata(), [8, 16, 24, 32])
    assert (path.get_color(), total.get_color()) == (LOOKS["path"].colour, LOOKS["total"].colour)
    thin = [line.get_ydata()[2] for line in by_epoch.lines if line.get_linewidth() < 0.8]
    np.testing.assert_allclose(thin, [4.40, 4.42, 4.50, 4.54])
    dots = [
        line.get_xydata()[0] for line in by_epoch.lines if line.get_markeredgecolor() == "white"
    ]
    np.testing.assert_allclose(dots, [(3, 4.40), (3, 4.42), (3, 4.50), (3, 4.54)])
    assert [line.get_label() for line in evaluations.lines] == ["path"] * 2 + ["total"] * 2
    np.testing.assert_allclose(evaluations.lines[3].get_ydata(), 34.0)
    assert texts(figure.legends[0]) == [
        "path (mean of 2 runs)",
        "total (mean of 2 runs)",
        "best of a run",
        "published, on test images",
        "KL warm-up",
    ]


def test_data_sets_have_columns_with_their_own_units(four, tmp_path):
    for name in ("mnist", "omniglot-rebuilt"):
        make_vae(tmp_path / name, vae_rows([150.0, 100.0, 83.0, 82.5]), dataset=name)
    runs = compare.trainings(read([*four, tmp_path / "mnist", tmp_path / "omniglot-rebuilt"]))
    figure = _plots.elbo_figure(runs)
    grid = np.array(figure.axes).reshape(3, 3)
    assert [axes.get_title(loc="left") for axes in grid[0]] == [
        "Frey Faces",
        "MNIST",
        "Omniglot, rebuilt",
    ]
    units = [axes.get_ylabel().rpartition(" ")[2] for axes in grid[0]]
    assert units == ["(bits/dim)", "(nats)", "(nats)"]
    assert [published(axes) for axes in grid[1]] == [[4.35, 4.39], [82.09, 82.82], []]
    np.testing.assert_allclose(labelled(grid[0, 2])["path"].get_ydata(), [150, 100, 83, 82.5])
    assert all("field evaluations" in axes.get_ylabel() for axes in grid[2])


def test_the_first_fall_is_left_out_of_sight():
    x = np.arange(1.0, 101.0)
    slow = (x, 200.0 - x)
    assert interesting([slow]) == (100.0, 189.0)
    # Most of the time near the end: three times as high as three quarters of it.
    quick = (x, np.where(x < 20, 1000.0, 90.0 + (100 - x) / 10))
    low, high = interesting([quick])
    assert low == 90.0
    assert 100.0 < high < 120.0
    flat = (np.array([1.0, 2.0]), np.array([3.0, 3.0]))
    assert interesting([flat]) == (3.0, 3.0)
    assert np.isnan(interesting([(np.empty(0), np.empty(0))])).all()


@pytest.mark.parametrize(
    ("dataset", "low", "high", "drawn"),
    [("mnist", 82.5, 90.0, True), ("mnist", 100.0, 104.0, False), ("new", 82.0, 83.0, False)],
)
def test_published_values_must_not_squeeze_the_curves(dataset, low, high, drawn):
    axes = new_figure(3.0, 3.0).subplots()
    assert draw_published(axes, dataset, low, high) == drawn
    assert published(axes) == ([82.09, 82.82] if drawn else [])
    bottom, top = axes.get_ylim()
    assert bottom < low < high < top
    assert (bottom < 82.09) == (drawn or dataset == "new")


def test_runs_that_have_hardly_begun(tmp_path):
    one = _plots.Training("one", "path", vae_rows([100.0]), "mnist")
    none = _plots.Training("none", "total", [], "caltech")
    begun = _plots.Training("begun", "total", vae_rows([100.0])[:1], "omniglot")
    figure = _plots.elbo_figure([one, none, begun])
    _plots.plot_elbo([], tmp_path / "a.png")
    assert (tmp_path / "a.png").exists()
    said = [[text.get_text() for text in axes.texts] for axes in figure.axes]
    late = ["no epoch has ended yet"]
    assert said == [[], late, late, [], late, late, [], ["no rows yet"], []]
    assert labelled(figure.axes[0])["one"].get_marker() == "o"
    assert "none (no rows yet)" in texts(figure.legends[0])


# The command


def test_plot_draws_what_there_is_of_autoencoders(four, tmp_path, capsys, monkeypatch):
    drawn = {}
    monkeypatch.setattr(_plots, "save", lambda figure, path: drawn.update({path.name: figure}))
    monkeypatch.setattr(_plots, "plot_elbo", lambda runs, path: drawn.update({path.name: runs}))
    evaluate_vae(RunDir.open(four[0]), step=64)
    for name, count, kind in (
        ("a", 1, "all"),
        ("b", 1, "images"),
        ("c", 4, "evaluations"),
        ("d", 1, "training"),
        ("e", 4, "all"),
    ):
        words = ["plot", *map(str, four[:count]), "--out", str(tmp_path / f"{name}.png")]
        assert main([*words, "--figure", kind]) == 0
        captured = capsys.readouterr()
        assert captured.out == f"picture: {tmp_path / name}.png\n"
        assert captured.err == ""
    assert len(panels(drawn["a.png"])) == 4
    assert [len(axes.images) for axes in drawn["b.png"].axes] == [1, 1]
    (axes,) = drawn["c.png"].axes
    assert "field evaluations" in axes.get_ylabel()
    assert len(axes.lines) == 4
    assert [(run.label, run.panel) for run in drawn["d.png"]] == [("path", "freyfaces")]
    assert [run.label for run in drawn["e.png"]] == ["path", "path", "total", "total"]


def test_pictures_are_written(four, tmp_path):
    evaluate_vae(RunDir.open(four[0]), step=64)
    assert main(["plot", str(four[0]), "--out", str(tmp_path / "a.pdf")]) == 0
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    out = tmp_path / "b.png"
    assert main(["compare", *map(str, four), "--plot", str(out)]) == 0
    assert mpl.image.imread(out).shape[1] == 1840


def test_plot_says_what_there_is_not(four, tmp_path, capsys):
    out = ("--out", tmp_path / "x.png")
    for kind in ("time", "fields", "weights"):
        said = refused(capsys, "plot", four[0], *out, "--figure", kind)
        assert f"no --figure {kind}: take all, training, images or evaluations" in said
    said = refused(capsys, "plot", *four, *out, "--figure", "images")
    assert "is of a single run, and 4 are named" in said
    said = refused(capsys, "plot", four[0], *out)
    assert f"has not been evaluated: pathgrad evaluate {four[0]}" in said
    evaluate_vae(RunDir.open(four[0]), step=64, arrays=False)
    said = refused(capsys, "plot", four[0], *out, "--figure", "images")
    assert "evaluated without keeping its draws" in said
    make_run(tmp_path / "lattice", rows_of([0.5]))
    for kind in ("images", "evaluations"):
        said = refused(capsys, "plot", tmp_path / "lattice", *out, "--figure", kind)
        assert "is not a variational autoencoder" in said
    assert not (tmp_path / "x.png").exists()


def test_an_old_evaluation_is_drawn_with_a_word(four, tmp_path, capsys):
    evaluate_vae(RunDir.open(four[0]), step=16)
    assert main(["plot", str(four[0]), "--out", str(tmp_path / "x.png"), "--figure", "images"]) == 0
    assert "is of step 16, the run now at step 64: pathgrad evaluate" in capsys.readouterr().err
