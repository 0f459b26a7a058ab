"""Tables of runs, and estimators compared after the same time, from run directories made up here."""

import json
import math

import numpy as np
import pytest

from pathgrad._cli.compare.equal_time import equal_times
from pathgrad._cli.compare.summary import grouped, labels_of, names_of
from pathgrad._cli.compare.table import make_table
from pathgrad._cli.main import main
from pathgrad._train.row import Row
from pathgrad._train.rundir import RunDir

from .run_helpers import four_runs, make_evaluation, make_run, read, refused, rows_of


@pytest.fixture
def four(tmp_path):
    return four_runs(tmp_path)


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
    (found,) = equal_times(read(four))
    # total ends after 12 s; path, with 5 s for a block, has made two blocks until then
    assert (found.seconds, found.cost, found.begun) == (12.0, pytest.approx(1.25), False)
    assert found.reached == ([0.5, 0.5], [0.8, 0.9])
    assert found.early == (("path", 20, 30),)
    assert found.below_bound == ()
    said = found.sentence()
    assert said.startswith("path against total at L = 6, each after 12.0 s of training")
    assert "ESS 50.00% ± 0.00% against 85.00% ± 7.07%, a difference of -35.00 points" in said
    assert "A step takes 25% more time" in said
    assert "path was still on its way, at step 20 of 30" in said
    assert "total was still" not in said
    assert "single run" not in said


def test_gauss_newton_is_compared_with_whatever_adam_was_given(four, tmp_path):
    rows = rows_of([0.7, 0.9], 6.0)
    run = make_run(tmp_path / "second", rows, steps=1000, learning_rate=0.3)
    config = run.config
    config["options"]["training"]["optimizer"] = "gauss-newton"
    run.write_config(config)
    (said,) = [found.sentence() for found in equal_times(read([four[0], tmp_path / "second"]))]
    assert said.startswith("gauss-newton against path at L = 6, each after 12.0 s")
    assert "gauss-newton was still" not in said  # it has no learning rate that could fall


def test_only_what_differs_in_the_estimator_is_compared(four, tmp_path):
    make_run(tmp_path / "other", rows_of([0.5], 12.0), estimator="total", learning_rate=0.1)
    assert equal_times(read([four[0], tmp_path / "other"])) == []
    assert equal_times(read(four[:2])) == []
    far = {"platform": "Darwin", "cpus": 8}
    make_run(tmp_path / "far", rows_of([0.5]), estimator="total", provenance=far, steps=30)
    (found,) = equal_times(read([four[0], tmp_path / "far"]))
    assert found.seconds is None
    assert "different machines" in found.sentence()
    assert "ESS" not in found.sentence()
    make_run(tmp_path / "longer", rows_of([0.5] * 9, 4.0, below_bound=0.1), estimator="total")
    (found,) = equal_times(read([four[0], tmp_path / "longer"]))
    assert found.seconds == 15.0
    assert found.early == (("total", 30, 90),)
    assert found.below_bound == ("total",)
    assert "With a single run on a side" in found.sentence()
    assert "total was still on its way, at step 30 of 90" in found.sentence()
    assert "total had a loss below -log Z there" in found.sentence()
    make_run(tmp_path / "begun", [], estimator="total", steps=30)
    assert equal_times(read([four[0], tmp_path / "begun"])) == []


def test_estimators_that_began_with_their_own_kind_are_compared(tmp_path):
    for estimator, end in (("path", 0.9), ("total", 0.6)):
        small = tmp_path / f"small-{estimator}"
        make_run(small, rows_of([0.5]), estimator=estimator)
        begun = {"estimator": estimator, "size": 8, "init_from": str(small)}
        make_run(tmp_path / estimator, rows_of([0.3, end]), **begun)
    (said,) = [
        found.sentence() for found in equal_times(read([tmp_path / "path", tmp_path / "total"]))
    ]
    assert "ESS 90.00% against 60.00%" in said
    assert "The training of the runs they began with is not counted." in said


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (1796, "the same time"),
        (1440, "25% more time"),
        (2400, "25% less time"),
        (640, "2.8 times as long"),
        (10, "180 times as long"),
    ],
)
def test_the_cost_of_a_step_in_words(tmp_path, steps, words):
    """The other made 1800 steps in the same time."""
    for name, done in (("path", steps), ("total", 1800)):
        make_run(tmp_path / name, [Row(done, 12.0, ess=0.5)], estimator=name)
    (found,) = equal_times(read([tmp_path / "path", tmp_path / "total"]))
    assert found.cost == pytest.approx(1800 / steps)
    assert f" A step takes {words}. " in found.sentence()
    assert f" A step takes {words.replace('%', ' %')}. " in found.sentence(gap=" ")


def test_a_group_is_not_named_by_one_of_its_runs(four, tmp_path):
    # More options differ than a label can hold.
    more = {"learning_rate": 0.5, "mass": 1, "coupling": 2, "kernels": 3}
    make_run(tmp_path / "other", rows_of([0.5]), **more)
    labels = labels_of(read([*four[:2], tmp_path / "other"]))
    assert list(labels.values()) == ["path, path0 and 1 more", "path, other"]


def test_compare_reads_a_torn_evaluation_as_an_error(four, capsys):
    (four[0] / "evaluation.json").write_text(json.dumps([1, 2]))
    assert "cannot be read" in refused(capsys, "compare", four[0])


def test_options_that_older_runs_did_not_write_do_not_set_them_apart(tmp_path):
    """Nor is a run of stages without rivals: it is compared with either method alone."""
    new = {"newton_steps": 0}
    paths = [tmp_path / name for name in ("old", "new", "total", "stages")]
    for path, seed, estimator, training in zip(
        paths,
        (0, 1, 0, 0),
        ("path", "path", "total", "path"),
        ({}, new, new, {"newton_steps": 5}),
        strict=True,
    ):
        rows = rows_of([0.5, 0.6, 0.7])
        make_run(path, rows, seed=seed, estimator=estimator, training=training)
    summaries = read(paths)
    assert [len(group) for group in grouped(summaries)] == [2, 1, 1]
    assert set(labels_of(summaries[:3]).values()) == {"path", "total"}
    assert summaries[3].estimator == "path-gauss-newton"
    assert len(equal_times(summaries[:3])) == 1
    pairs = {(e.one[0].estimator, e.other[0].estimator) for e in equal_times(summaries)}
    assert ("path-gauss-newton", "path") in pairs
    assert len(pairs) == 3
