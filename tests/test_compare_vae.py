"""What is told of autoencoders and how they are compared, from made-up runs."""

import subprocess
import sys

import pytest

import pathgrad as pg
from pathgrad._runs.rundir import RunDir
from pathgrad.experiments.vae.experiment import VAE

from .vae_helpers import BITS, STEPS, evaluate_vae, four_vaes, make_vae, vae_rows


@pytest.fixture
def four(tmp_path):
    return four_vaes(tmp_path)


def read(paths):
    return [pg.Run.open(path, VAE) for path in paths]


def cells(run):
    """The row of a run in a table of several."""
    return {q.title: q.write(q.value(run.numbers)) for q in VAE.columns(run.options)}


def labels(paths):
    return sorted(group.label for group in pg.group_runs(read(paths)))


def compared(*paths):
    return pg.compare_groups(pg.group_runs(read(paths)))


# Columns


def test_columns_say_what_a_run_reached_and_what_it_cost(four):
    path = cells(read(four)[0])
    # Eight rows of eight steps, of 40, 41, ..., 47 evaluations; 64 steps in 40 s.
    assert (path["forward evaluations"], path["backward evaluations"]) == ("43.5", "34.0")
    assert (path["ms/step"], path["epochs"], path["best epoch"]) == ("625.0", "4", "3")
    assert path["best validation"] == "4.400 bits/dim"
    assert path["negative ELBO"] == path["NLL"] == "-"
    assert (path["training, s"], path["skipped"]) == ("40.0", "0")


def test_evaluations_of_the_last_and_of_the_best_epoch_count(four):
    found = {"nll": 4.3 * BITS, "nll_images": 50, "nll_samples": 500}
    evaluate_vae(RunDir.open(four[0]), step=4 * STEPS, **found)
    evaluate_vae(RunDir.open(four[1]), step=3 * STEPS, negative_elbo=4.6 * BITS)
    evaluate_vae(RunDir.open(four[2]), step=2 * STEPS)
    runs = read(four)
    assert [run.is_evaluated for run in runs] == [True, True, False, False]
    table = [cells(run) for run in runs]
    found = [row["negative ELBO"] for row in table]
    assert found == ["4.400 bits/dim", "4.600 bits/dim", "-", "-"]
    assert [row["NLL"] for row in table] == ["4.300 bits/dim", "-", "-", "-"]
    assert [row["NLL draws"] for row in table] == ["500", "-", "-", "-"]
    # Of the training: an evaluation has an epoch and evaluations of its own.
    assert (table[1]["epochs"], table[1]["forward evaluations"]) == ("4", "43.5")


def test_a_run_that_has_just_begun_has_a_row(tmp_path):
    make_vae(tmp_path / "new", [])
    make_vae(tmp_path / "begun", vae_rows([2e3])[:1], seed=1)
    new, begun = map(cells, read([tmp_path / "new", tmp_path / "begun"]))
    assert set(new.values()) == {"-"}
    assert begun["best validation"] == "-"
    assert begun["forward evaluations"] == "40.0"


def test_units_are_those_of_the_data_set(four, tmp_path):
    make_vae(tmp_path / "digits", vae_rows([100.0, 90.123]), dataset="mnist")
    make_vae(tmp_path / "later", vae_rows([100.0]), dataset="imagenet")
    faces, digits, later = read([four[0], tmp_path / "digits", tmp_path / "later"])
    assert cells(digits)["best validation"] == "90.12 nats"
    assert cells(later)["best validation"] == "100.00 nats"
    titles = [VAE.title(run.options) for run in (faces, digits, later)]
    assert titles == ["vae Frey Faces", "vae MNIST", "vae imagenet"]
    assert VAE.result(faces.options).scale == pytest.approx(BITS)


# Groups


def test_optimisers_are_named_only_where_they_differ_and_folders_never(four, tmp_path):
    make_vae(tmp_path / "moved", vae_rows([2e3]), seed=5, data="/elsewhere/images", epochs=70)
    paths = [*four, tmp_path / "moved"]
    assert sorted(len(group.runs) for group in pg.group_runs(read(paths))) == [2, 3]
    assert labels(paths) == ["path", "total"]
    make_vae(tmp_path / "other", vae_rows([2e3]), optimizer="adam")
    found = labels([*four, tmp_path / "other"])
    assert found == ["path, optimizer adam", "path, optimizer adamax", "total, optimizer adamax"]
    # Data sets are problems of their own: what tells them apart is no part of a label.
    make_vae(tmp_path / "digits", vae_rows([2e3]), dataset="mnist")
    assert labels([four[0], tmp_path / "digits"]) == ["path", "path"]


# At equal time


def test_the_best_validation_until_the_quicker_ended_is_compared(four):
    (found,) = compared(*four)
    assert found.one.method == "path"
    # Total ends after 32 s; path has ended three epochs until then.
    assert found.by_time.at == pytest.approx(32.0)
    assert found.by_time.one == pytest.approx([4.40, 4.42])
    assert found.by_time.other == pytest.approx([4.50, 4.54])
    assert found.by_time.lead == pytest.approx(0.11)  # lower is better
    assert found.cost == pytest.approx(1.25)
    assert found.doubts == ()
    said = " ".join(found.sentences)
    assert "4.410 ± 0.014 bits/dim against 4.520 ± 0.028 bits/dim" in said
    assert "-0.110 bits/dim (lower is better)" in said
    assert found.title.endswith("on vae Frey Faces")


def test_later_validations_do_not_count_and_the_warm_up_is_told(tmp_path):
    make_vae(tmp_path / "path", vae_rows([100.0, 90.0, 80.0]), dataset="mnist", epochs=3)
    rows = vae_rows([101.0], 25.0)
    make_vae(tmp_path / "total", rows, estimator="total", dataset="mnist", epochs=1)
    (found,) = compared(tmp_path / "total", tmp_path / "path")
    assert (found.by_time.one, found.by_time.other) == ([90.0], [101.0])
    (warm,) = [text for text in found.doubts if "warm-up" in text]
    assert "total" in warm


def test_only_what_differs_in_the_estimator_alone_is_compared(four, tmp_path):
    rows = vae_rows([2e3, 1.9e3])
    for name, more in {
        "adam": {"optimizer": "adam"},
        "rate": {"learning_rate": 1e-3},
        "digits": {"dataset": "mnist"},
    }.items():
        make_vae(tmp_path / name, rows, estimator="total", **more)
        assert compared(four[0], tmp_path / name) == []
    assert compared(*four[:2]) == []
    make_vae(tmp_path / "begun", rows[:1], estimator="total")
    assert compared(four[0], tmp_path / "begun") == []
    make_vae(tmp_path / "patient", rows, estimator="total", patience=7, max_seconds=99.0)
    assert len(compared(four[0], tmp_path / "patient")) == 1


# Words


def test_a_result_is_explained_beside_what_the_paper_reached(four):
    found = {"nll": 4.3 * BITS, "nll_err": 0.1 * BITS, "nll_images": 50, "nll_samples": 500}
    evaluate_vae(RunDir.open(four[0]), step=3 * STEPS, **found)
    path, _, total, _ = read(four)
    means, likelihood, paper = VAE.explained([path])
    assert "at most 4.400 bits to describe a pixel" in means
    for said in ("4.30 ± 0.10 bits/dim", "50 images", "500 draws"):
        assert said in likelihood
    assert "reports 4.35 bits/dim for Frey Faces" in paper
    assert "width 512, not 64" in paper
    assert "rank" not in paper
    # Of a run that was not evaluated, the validation has to do.
    means, paper = VAE.explained([total])
    assert "4.500" in means
    assert "validation" in means
    assert "4.39" in paper
    # Of several runs, their mean.
    assert "4.410" in VAE.explained(read(four[:2]))[0]


def test_what_the_paper_has_not_is_not_told(tmp_path):
    make_vae(tmp_path / "rebuilt", vae_rows([90.0]), dataset="omniglot-rebuilt")
    make_vae(tmp_path / "copy", vae_rows([90.0]), estimator="two-copy", dataset="mnist")
    for run in read([tmp_path / "rebuilt", tmp_path / "copy"]):
        (means,) = VAE.explained([run])
        assert "90.00 nats to describe an image" in means
    make_vae(tmp_path / "new", [])
    assert VAE.explained(read([tmp_path / "new"])) == []


def test_a_warm_up_that_is_not_over_is_a_warning(four, tmp_path):
    make_vae(tmp_path / "early", vae_rows([2e3], warmup=4))
    early, late = read([tmp_path / "early", four[0]])
    (said,) = VAE.warnings(early)
    assert "has weight 0.25, not 1" in said
    assert pg.named("warmup_epochs") in said
    assert VAE.warnings(late) == []


def test_a_run_knows_how_far_it_is(four):
    run = read(four)[0]
    assert VAE.length(run.options) == ("epoch", 9.0)
    assert run.status.kind == "stopped"
    assert "epoch 4 of 9" in run.status.text


def test_a_coarse_solver_lowers_the_level(four):
    evaluate_vae(RunDir.open(four[0]), step=3 * STEPS)
    evaluate_vae(RunDir.open(four[1]), step=3 * STEPS, solver_shift_rms=0.5)
    good, bad, *_ = read(four)
    assert VAE.level(good) is pg.Level.GOOD
    assert VAE.level(bad) is pg.Level.UNRELIABLE


def test_reading_autoencoders_takes_no_jax(four):
    code = f"""
import sys
import pathgrad as pg
from pathgrad.experiments.vae.experiment import VAE
runs = [pg.Run.open(path, VAE) for path in {list(map(str, four))!r}]
assert pg.compare_groups(pg.group_runs(runs))
assert VAE.explained(runs[:1]) and VAE.defaults() and VAE.settled(VAE.defaults())
assert [q.value(runs[0].numbers) for q in VAE.columns(runs[0].options)]
assert not {{"jax", "matplotlib", "scipy.io"}} & set(sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (found.stderr.strip(), found.returncode) == ("", 0)
