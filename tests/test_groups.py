"""Which runs belong together, how they are called, and the tables of them: worked out by hand."""

import json
import math

import pytest

import pathgrad as pg
from pathgrad._cli.main import main
from pathgrad._runs.rundir import RunDir

from .run_helpers import compared, four_runs, groups_of, make_evaluation, make_run, rows_of


@pytest.fixture
def four(tmp_path):
    return four_runs(tmp_path)


def table_of(capsys, *paths):
    """The cells that `compare --markdown` prints: heads, rows of runs, rows of means."""
    assert main(["compare", "--markdown", *map(str, paths)]) == 0
    lines = capsys.readouterr().out.splitlines()
    cells = [
        [c.strip().replace("\\", "") for c in line.strip("|").split(" | ")]
        for line in lines
        if line.startswith("| ")
    ]
    rows = [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]
    means = [row for row in rows if row["run"].startswith("mean of")]
    return cells[0], [row for row in rows if row not in means], means


def test_seeds_are_summed_up_and_other_options_told_apart(four, tmp_path, capsys):
    other = tmp_path / "fast"
    make_run(other, rows_of([0.7]), learning_rate=0.1, seed=7)
    groups = groups_of(*four, other)
    assert sorted(len(group.runs) for group in groups) == [1, 2, 2]
    assert {group.label for group in groups} == {
        "path, learning rate 0.01, steps 30",
        "total, learning rate 0.01, steps 30",
        "path, learning rate 0.1, steps 10",
    }
    _, runs, means = table_of(capsys, *four, other)
    assert [row["run"] for row in runs if "fast" not in row["run"]] == [p.name for p in four]
    assert (runs[0]["steps"], runs[0]["training, s"], runs[0]["ms/step"]) == ("30", "15.0", "500.0")
    # sd of 0.96 and 0.98 is 0.02 / sqrt 2; of 0.8 and 0.9, 0.1 / sqrt 2
    assert [row["ESS"] for row in means] == ["97.00 ± 1.41 %*", "85.00 ± 7.07 %*"]
    kl = [-math.log(e) / 2 for e in (0.96, 0.98)]
    spread = abs(kl[0] - kl[1]) / math.sqrt(2)
    assert means[0]["reverse KL"] == f"{sum(kl) / 2:.5f} ± {spread:.5f}*"
    assert means[0]["seeds"] == "0, 1"


def test_what_evaluation_found_comes_first_if_it_is_of_the_same_step(four, capsys):
    make_evaluation(RunDir.open(four[0]), step=30, ess=0.951)
    make_evaluation(RunDir.open(four[1]), step=20, ess=0.3)
    one, other = (pg.Run.open(path) for path in four[:2])
    assert (one.is_evaluated, other.is_evaluated) == (True, False)
    assert (one.numbers["ess"], other.numbers["ess"]) == (0.951, 0.98)
    heads, runs, means = table_of(capsys, *four)
    assert [row["ESS"] for row in runs[:2]] == ["95.10 %", "98.00 %*"]
    assert means[0]["ESS"].endswith("*")
    assert "k-hat" in heads
    assert (runs[0]["k-hat"], runs[1]["k-hat"], means[0]["k-hat"]) == ("0.20", "-", "-")


def test_problems_get_a_column_and_skipped_steps_only_if_there_are_any(tmp_path, capsys):
    make_run(tmp_path / "large", rows_of([0.5], skipped=3), size=12)
    make_run(tmp_path / "small", rows_of([0.5]))
    paths = [tmp_path / "large", tmp_path / "small"]
    _, runs, _ = table_of(capsys, *paths)
    assert [(r["problem"], r["skipped"]) for r in runs] == [("phi4 L = 6", "0"), ("phi4 L = 12", "3")]
    # What must differ between sizes, as the coupling does, tells no groups apart.
    assert {group.label for group in groups_of(*paths)} == {"path"}
    assert "skipped" not in table_of(capsys, paths[1])[0]


def test_the_same_seed_twice_is_not_two_seeds(tmp_path, capsys):
    paths = [tmp_path / name for name in ("here/run", "there/run")]
    for path in paths:
        make_run(path, rows_of([0.5]))
    (group,) = groups_of(*paths)
    assert (group.names, group.has_other_seeds) == (("here/run", "there/run"), False)
    assert table_of(capsys, *paths)[2][0]["run"] == "mean of 2 runs"
    assert table_of(capsys, paths[0], paths[0])[2] == []


def test_a_group_is_not_named_by_one_of_its_runs(four, tmp_path):
    # And other steps: more than a label holds.
    make_run(tmp_path / "other", rows_of([0.5]), learning_rate=0.5, mass_squared=1.0, coupling=2.0)
    labels = [group.label for group in groups_of(*four[:2], tmp_path / "other")]
    assert sorted(labels) == ["path, other", "path, path0 and 1 more"]


def test_options_that_older_runs_did_not_write_do_not_set_them_apart(tmp_path):
    """Nor is a run of stages without rivals: it is compared with either method alone."""
    paths = [tmp_path / name for name in ("old", "new", "total", "stages")]
    for path, seed, estimator, training in zip(
        paths,
        (0, 1, 0, 0),
        ("path", "path", "total", "path"),
        ({}, {"newton_steps": 0}, {}, {"newton_steps": 5}),
        strict=True,
    ):
        make_run(path, rows_of([0.5, 0.6, 0.7]), seed=seed, estimator=estimator, training=training)
    groups = groups_of(*paths)
    assert sorted(len(group.runs) for group in groups) == [1, 1, 2]
    assert {g.label for g in groups_of(*paths[:3])} == {"path", "total"}
    assert len(compared(*paths[:3])) == 1
    pairs = {(c.one.method, c.other.method) for c in compared(*paths)}
    assert len(pairs) == 3
    assert ("path-gauss-newton", "path") in pairs


def test_the_box_never_wraps_and_takes_names_as_they_are(tmp_path, capsys):
    name = "[red]a_run_with_a_name_" + "x" * 80
    make_run(tmp_path / name, rows_of([0.5]))
    assert main(["compare", str(tmp_path / name)]) == 0
    assert name in capsys.readouterr().out


def test_a_torn_evaluation_is_told_and_does_not_stop_a_comparison(four, capsys):
    (four[0] / "evaluation.json").write_text(json.dumps([1, 2]))
    assert main(["compare", str(four[0])]) == 0
    assert "evaluation.json cannot be read" in capsys.readouterr().out


def test_folders_are_searched_and_runs_taken_once(tmp_path):
    for name in ("a", "b/c", "b/d/e"):
        make_run(tmp_path / name, rows_of([0.5]))
    paths = pg.find_runs((tmp_path / "b", tmp_path / "a", tmp_path / "a/../a", tmp_path))
    names = [path.resolve().relative_to(tmp_path.resolve()).as_posix() for path in paths]
    assert names == ["b/c", "b/d/e", "a"]
    (tmp_path / "none").mkdir()
    for path in (tmp_path / "none", tmp_path / "nowhere", tmp_path / "a/config.toml"):
        with pytest.raises(pg.UserError):
            pg.find_runs([path])
