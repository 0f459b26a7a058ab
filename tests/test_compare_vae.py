"""Tables of variational autoencoders, and estimators compared after the same time, from made-up runs."""

import math
import subprocess
import sys

import numpy as np
import pytest

from pathgrad._cli.compare.elbo_table import elbo_notes, make_elbo_table
from pathgrad._cli.compare.equal_time import equal_times
from pathgrad._cli.compare.summary import grouped, labels_of
from pathgrad._cli.main import main
from pathgrad._train.row import Row
from pathgrad._train.rundir import RunDir

from .run_helpers import make_run, read, refused, rows_of

BITS = 560 * math.log(2)  # nats of an image, for one bit per pixel
STEPS = 16  # in an epoch, two rows each


def vae_rows(validation, seconds=10.0, warmup=2, evaluations=40.0):
    """Rows of so many epochs; the training loss is ten nats below the validation, the KL twenty."""
    rows = []
    for i in range(2 * len(validation)):
        epoch = (i + 1) / 2
        value = validation[i // 2]
        row = {"step": STEPS * (i + 1) // 2, "epoch": epoch, "seconds": seconds * epoch}
        row |= {
            "reconstruction": value - 30.0,
            "kl": 20.0,
            "beta": min(math.ceil(epoch) / warmup, 1.0),
        }
        row |= {"evaluations": evaluations + i, "evaluations_backward": evaluations - 6.0}
        row |= {
            "loss": row["reconstruction"] + row["beta"] * 20.0,
            "gradient_norm": 1.0,
            "skipped": 0,
        }
        if i % 2:
            row |= {"validation": value, "best_validation": min(validation[: i // 2 + 1])}
            row["waiting"] = i // 2 - int(np.argmin(validation[: i // 2 + 1]))
        rows.append(Row.of(row))
    return rows


def make_vae(path, rows, *, estimator="path", seed=0, dataset="freyfaces", **training):
    options = {"dataset": dataset, "split_seed": 123, "flow": {"blocks": 2}}
    options |= {"data": training.pop("data")} if "data" in training else {}
    known = {"optimizer": "adamax", "epochs": 9, "learning_rate": 5e-4, "patience": 100}
    options["training"] = known | {"estimator": estimator, "seed": seed} | training
    provenance = {"platform": "Linux", "cpus": 2, "command": str(path)}
    run = RunDir.create(path, {"experiment": "vae", "options": options, "provenance": provenance})
    for row in rows:
        run.append_metrics(row)
    return run


def evaluate_vae(run, *, step, dataset="freyfaces", arrays=True, **more):
    """Write what `pathgrad evaluate` writes."""
    rng = np.random.default_rng(3)
    levels = 256 if dataset == "freyfaces" else 2
    shape = (28, 20) if dataset == "freyfaces" else (28, 28)
    pixels = shape[0] * shape[1]
    result = {"experiment": "vae", "dataset": dataset, "step": step, "epoch": step / STEPS}
    result |= {
        "images": 200,
        "pixels": pixels,
        "negative_elbo": 4.4 * BITS,
        "negative_elbo_err": 9.0,
    }
    result |= {"reconstruction": 1650.0, "kl": 58.0, "nll": None, "nll_err": None, "warnings": []}
    result |= more
    result["bits_per_dim"] = result["negative_elbo"] / (pixels * math.log(2))
    run.write_json("evaluation.json", result)
    kept = {
        "originals": rng.integers(levels, size=(6, *shape), dtype=np.uint8),
        "reconstructions": rng.random((6, *shape), dtype=np.float32),
        "samples": rng.random((9, *shape), dtype=np.float32),
        "levels": np.array(levels),
    }
    if arrays:
        np.savez(run.output("evaluation.npz"), **kept)
    return kept, result


def four_vaes(tmp_path):
    """Two estimators, two seeds each; the total gradient is quicker by a fifth."""
    ends = {("path", 0): 4.40, ("path", 1): 4.42, ("total", 0): 4.50, ("total", 1): 4.54}
    for (estimator, seed), end in ends.items():
        values = [BITS * bits for bits in (6.0, 4.6, end, end + 0.1)]
        rows = vae_rows(values, 10.0 if estimator == "path" else 8.0)
        make_vae(tmp_path / f"{estimator}{seed}", rows, estimator=estimator, seed=seed)
    return [tmp_path / f"{estimator}{seed}" for estimator, seed in ends]


@pytest.fixture
def four(tmp_path):
    return four_vaes(tmp_path)


def cells(table, row):
    heads, runs, means = table
    return dict(zip(heads, (runs + means)[row], strict=True))


# The table


def test_the_table_says_what_runs_reached_and_what_they_cost(four):
    table = make_elbo_table(read(four))
    heads, runs, means = table
    assert heads[:6] == ["run", "data set", "estimator", "seeds", "epochs", "best epoch"]
    assert heads[6:8] == ["best validation (bits/dim)", "test -ELBO (bits/dim)"]
    assert heads[8:] == ["forward evals", "backward evals", "ms/step", "train s"]
    assert [row[:4] for row in runs[1:3]] == [
        ["path1", "freyfaces", "path", "1"],
        ["total0", "freyfaces", "total", "0"],
    ]
    path = cells(table, 0)
    # Eight rows of eight steps, of 40, 41, ..., 47 evaluations; 64 steps in 40 s.
    assert (path["forward evals"], path["backward evals"]) == ("43.5", "34.0")
    assert (path["ms/step"], path["epochs"], path["best epoch"]) == ("625.0", "4", "3")
    assert path["best validation (bits/dim)"] == "4.400"
    assert path["test -ELBO (bits/dim)"] == "-"
    assert [row[0] for row in means] == ["mean of 2 seeds"] * 2
    total = cells(table, 5)
    assert total["seeds"] == "0, 1"
    assert total["epochs"] == "4"
    # 0.04 / sqrt 2
    assert total["best validation (bits/dim)"] == "4.520 ± 0.028"
    assert total["train s"] == "32.0 ± 0.0"


def test_evaluations_of_the_last_and_of_the_best_epoch_count(four):
    found = {"nll": 4.3 * BITS, "nll_images": 50, "nll_samples": 500}
    evaluate_vae(RunDir.open(four[0]), step=4 * STEPS, **found)
    evaluate_vae(RunDir.open(four[1]), step=3 * STEPS, negative_elbo=4.6 * BITS, warnings=["odd"])
    evaluate_vae(RunDir.open(four[2]), step=2 * STEPS, warnings=["stale"])
    summaries = read(four)
    assert [s.evaluated for s in summaries] == [True, True, False, False]
    table = make_elbo_table(summaries)
    found = [cells(table, i)["test -ELBO (bits/dim)"] for i in range(6)]
    assert found == ["4.400", "4.600", "-", "-", "4.500 ± 0.141", "-"]
    assert [cells(table, i)["test NLL (bits/dim)"] for i in (0, 1, 4)] == ["4.300", "-", "-"]
    notes = elbo_notes(summaries)
    assert "have not been evaluated as they are now" in notes[0]
    assert notes[1:] == ["path1: odd", "NLL: 500 draws for each of 50 of 200 images."]


def test_log_likelihoods_found_differently_are_told_apart(four):
    for path, draws in zip(four, (500, 500, 2000, 500), strict=True):
        evaluate_vae(RunDir.open(path), step=64, nll=2.0, nll_images=200, nll_samples=draws)
    assert elbo_notes(read(four)) == [
        "NLL of path0, path1, total1: 500 draws for each of 200 images.",
        "NLL of total0: 2000 draws for each of 200 images.",
    ]


def test_units_stand_beside_the_numbers_where_they_differ(four, tmp_path):
    make_vae(tmp_path / "digits", vae_rows([100.0, 90.123]), dataset="mnist")
    table = make_elbo_table(read([four[0], tmp_path / "digits"]))
    assert "best validation" in table[0]
    assert cells(table, 0)["best validation"] == "4.400 bits/dim"
    assert cells(table, 1)["best validation"] == "90.12 nats"
    assert cells(table, 1)["data set"] == "mnist"
    # Data sets are problems of their own: what tells them apart is no part of a label.
    assert cells(table, 1)["estimator"] == "path"


def test_optimisers_are_named_only_where_they_differ_and_folders_never(four, tmp_path):
    make_vae(tmp_path / "moved", vae_rows([2e3]), seed=5, data="/elsewhere/images")
    summaries = read([*four, tmp_path / "moved"])
    assert [len(group) for group in grouped(summaries)] == [3, 2]
    assert sorted(labels_of(summaries).values()) == ["path", "total"]
    make_vae(tmp_path / "other", vae_rows([2e3]), optimizer="adam", learning_rate=1e-3)
    summaries = read([*four, tmp_path / "other"])
    assert sorted(labels_of(summaries).values()) == ["path, adam", "path, adamax", "total, adamax"]
    assert summaries[-1].estimator == summaries[0].estimator == "path"


def test_compare_prints_table_and_sentence(four, capsys):
    assert main(["compare", "--markdown", *map(str, four)]) == 0
    out = capsys.readouterr().out
    assert "| run | data set | estimator | seeds |" in out
    assert "| --- | --- | --- | ---: |" in out
    assert "| mean of 2 seeds | freyfaces | total | 0, 1 |" in out
    assert "path against total on freyfaces" in out
    assert main(["compare", str(four[0])]) == 0
    assert "4.400" in capsys.readouterr().out


def test_a_run_that_has_just_begun_has_a_row(tmp_path):
    make_vae(tmp_path / "new", [])
    make_vae(tmp_path / "begun", vae_rows([2e3])[:1], seed=1)
    table = make_elbo_table(read([tmp_path / "new", tmp_path / "begun"]))
    assert cells(table, 0)["best validation (bits/dim)"] == "-"
    assert cells(table, 1)["forward evals"] == "40.0"
    assert cells(table, 2)["forward evals"] == "-"


@pytest.mark.parametrize("words", [("compare",), ("plot", "--out", "x.png")])
def test_autoencoders_and_others_are_not_compared(four, tmp_path, capsys, words):
    make_run(tmp_path / "lattice", rows_of([0.5]))
    said = refused(capsys, *words, four[0], tmp_path / "lattice")
    assert f"{four[0]} is a variational autoencoder and {tmp_path / 'lattice'} is not" in said


def test_reading_autoencoders_takes_no_jax(four):
    words = ["compare", *map(str, four)]
    code = f"import sys; from pathgrad._cli.main import main; main({words!r}); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
    code = "import sys; import pathgrad._cli.compare; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# At equal time


def test_the_best_validation_until_the_quicker_ended_is_compared(four):
    (said,) = [found.sentence() for found in equal_times(read(four))]
    # Total ends after 32 s; path has ended three epochs until then.
    assert said.startswith(
        "path against total on freyfaces, each after 32.0 s of training (when the first"
    )
    assert "4.410 ± 0.014 against 4.520 ± 0.028 bits/dim, a difference of -0.110 bits/dim" in said
    assert "A step takes 25% more time." in said
    assert "warm-up" not in said
    assert "single run" not in said


def test_later_validations_do_not_count(tmp_path):
    make_vae(tmp_path / "path", vae_rows([100.0, 90.0, 80.0]), dataset="mnist", epochs=3)
    rows = vae_rows([101.0], 25.0)
    make_vae(tmp_path / "total", rows, estimator="total", dataset="mnist", epochs=1)
    (said,) = [
        found.sentence() for found in equal_times(read([tmp_path / "total", tmp_path / "path"]))
    ]
    assert "until then 90.00 against 101.00 nats, a difference of -11.00 nats" in said
    assert "With a single run on a side" in said
    assert "The KL warm-up was not over there: the KL term weighed 0.5." in said


def test_only_what_differs_in_the_estimator_alone_is_compared(four, tmp_path):
    rows = vae_rows([2e3, 1.9e3])
    for name, more in {
        "adam": {"optimizer": "adam"},
        "rate": {"learning_rate": 1e-3},
        "digits": {"dataset": "mnist"},
    }.items():
        make_vae(tmp_path / name, rows, estimator="total", **more)
        assert equal_times(read([four[0], tmp_path / name])) == []
    assert equal_times(read(four[:2])) == []
    make_vae(tmp_path / "begun", rows[:1], estimator="total")
    assert equal_times(read([four[0], tmp_path / "begun"])) == []
    make_vae(tmp_path / "patient", rows, estimator="total", patience=7, max_seconds=99.0)
    assert len(equal_times(read([four[0], tmp_path / "patient"]))) == 1
