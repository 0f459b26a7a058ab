"""Rows of metrics: what they take, what they leave out, and that those of older versions are still read."""

import json
import math
from pathlib import Path

import pytest

from pathgrad._runs.rundir import RunDir
from pathgrad._train.row import Row, best_row, is_number

# One row of every shape that versions before 0.2 wrote, from runs of all experiments.
OLD = (Path(__file__).parent / "data" / "old_metrics.jsonl").read_text().splitlines()


def test_numbers_are_sorted_by_their_names():
    row = Row.of({"step": 20.0, "ess": 0.5, "skipped": 3, "epoch": 2, "damping": 0.1, "draws": 64})
    assert row == Row(20, skipped=3, ess=0.5, epoch=2.0, more={"damping": 0.1, "draws": 64})
    assert [type(n) for n in (row.step, row.skipped, row.epoch)] == [int, int, float]
    assert row.to_json()["damping"] == 0.1
    assert (row.value("ess"), row.value("damping"), row.value("beta")) == (0.5, 0.1, None)
    assert (row.value("kl"), row.value("skipped")) == (None, 3)


def test_what_is_no_finite_number_is_left_out():
    junk = {"ess": "good", "kl": math.nan, "loss": math.inf, "log_z": None, "beta": True, "a": [1]}
    assert Row.of({"step": 1, "seconds": 2.0} | junk | {"b": 10**400}) == Row(1, 2.0)
    assert not [value for value in (*junk.values(), 10**400) if is_number(value)]


@pytest.mark.parametrize("numbers", [{}, {"ess": 0.5}, {"step": None}, {"step": math.nan}])
def test_there_is_no_row_without_a_step(numbers):
    with pytest.raises(ValueError, match="no `step`"):
        Row.of(numbers)


def test_an_unknown_time_is_neither_before_nor_after():
    row = Row.of({"step": 1, "seconds": None})
    assert not row.seconds <= 1.0
    assert not row.seconds > 1.0
    assert row.value("seconds") is None


def test_no_number_hides_behind_a_method():
    assert Row(1).value("to_json") is None
    assert Row.of({"step": 1, "more": 2, "value": 3}).more == {"more": 2, "value": 3}


def test_a_row_comes_back_from_its_file(tmp_path):
    run = RunDir.create(tmp_path / "run", {})
    whole = {name: 0.1 * i for i, name in enumerate(Row(0).__dataclass_fields__) if name != "more"}
    rows = [Row.of(whole | {"step": 7, "skipped": 2, "waiting": 3, "beta": 0.25, "draws": 12}), Row(8)]
    for row in rows:
        run.append_metrics(row)
    assert run.read_metrics() == rows
    # All at one level, as it has always been.
    line = json.loads((run.path / "metrics.jsonl").read_text().splitlines()[0])
    assert line == whole | {"step": 7, "skipped": 2, "waiting": 3, "beta": 0.25, "draws": 12}


def test_the_best_row_is_the_first_of_the_lowest_validation():
    rows = [Row(1, validation=3.0), Row(2), Row(3, validation=2.0), Row(4, validation=2.0)]
    assert best_row(rows) is rows[2]
    assert best_row([Row(1), Row(2, validation=math.nan)]) is None
    # Where the best model was measured again, with a better solver, as 4: then 3 is better than it.
    rows = [Row(1, validation=2.0, best_validation=2.0), Row(2, validation=5.0, best_validation=4.0)]
    assert best_row(rows) is rows[0]
    rows += [Row(3, validation=3.0, best_validation=3.0), Row(4, validation=3.0, best_validation=3.0)]
    assert best_row(rows) is rows[2]


@pytest.mark.parametrize("line", OLD, ids=range(len(OLD)))
def test_rows_of_older_versions_are_read(line, tmp_path):
    run = RunDir.create(tmp_path / "run", {})
    (run.path / "metrics.jsonl").write_text(f"{line}\n")
    [row] = run.read_metrics()
    assert row.to_json() == json.loads(line)
    assert all(row.value(name) == number for name, number in row.to_json().items())


def test_there_are_rows_of_older_versions():
    kinds = [{*json.loads(line)} for line in OLD]
    assert len(kinds) == 10
    assert {"validation", "damping", "below_bound"} <= set.union(*kinds)
