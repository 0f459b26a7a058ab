"""`python -m benchmarks.record_run`: a run becomes one small file with the same numbers."""

import itertools
import json
import math

import pytest

from benchmarks.record_run import MOST_ROWS, main

from .run_helpers import changed, make_evaluation, make_run, rows_of


def recorded(tmp_path, *runs):
    assert main([*map(str, runs), "--out", str(tmp_path / "records")]) == 0
    return {file.stem: json.loads(file.read_text()) for file in (tmp_path / "records").iterdir()}


def test_a_record_has_the_numbers_of_the_run(tmp_path):
    ess = [0.2, 0.123456789, 0.9]
    run = make_run(tmp_path / "one", rows_of(ess, seconds=2.0), seed=4, learning_rate=0.25)
    _, evaluation = make_evaluation(run, ess=0.912345678901234, bias=1.5, two_point=[0.1] * 50)
    (record,) = recorded(tmp_path, run.path).values()
    assert record["experiment"] == "phi4"
    assert record["options"]["training"]["learning_rate"] == 0.25
    assert record["options"]["training"]["seed"] == 4
    assert record["provenance"] == {"platform": "Linux", "cpus": 2, "command": str(run.path)}
    assert record["status"].startswith("ended: step 30 of 30")
    assert record["evaluation"] == evaluation  # to the last digit
    assert record["seconds_before"] == 0
    assert record["curve"]["step"] == [10, 20, 30]
    assert record["curve"]["seconds"] == [2.0, 4.0, 6.0]
    assert record["curve"]["ess"] == [0.2, 0.123457, 0.9]


def test_the_time_of_the_runs_before_is_kept(tmp_path):
    first = make_run(tmp_path / "first", rows_of([0.5, 0.6], seconds=50.0))
    second = make_run(tmp_path / "second", rows_of([0.7], seconds=7.0), init_from=str(first.path))
    (record,) = recorded(tmp_path, second.path).values()
    assert (record["seconds_before"], record["curve"]["seconds"]) == (100.0, [7.0])


def test_a_run_without_an_evaluation_says_so(tmp_path):
    run = make_run(tmp_path / "one", rows_of([0.5]), steps=20)
    (record,) = recorded(tmp_path, run.path).values()
    assert record["evaluation"] == {}
    assert record["status"].startswith("stopped at step 10 of 20")


def test_a_long_curve_keeps_its_ends_its_best_and_its_shape(tmp_path):
    n, best = 400, 217
    rows = rows_of([(i + 1) / n for i in range(n)])
    rows = [changed([row], 0, validation=5.0)[0] for row in rows]
    rows = changed(rows, best, validation=1.0)
    (record,) = recorded(tmp_path, make_run(tmp_path / "one", rows).path).values()
    steps = record["curve"]["step"]
    assert (steps[0], steps[-1], len(steps)) == (10, 10 * n, MOST_ROWS + 1)
    assert record["curve"]["validation"][steps.index(10 * (best + 1))] == 1.0
    assert record["curve"]["validation"].count(5.0) == MOST_ROWS
    assert record["curve"]["ess"] == pytest.approx([step / 10 / n for step in steps], rel=1e-5)
    gaps = [b - a for a, b in itertools.pairwise(steps) if 10 * (best + 1) not in (a, b)]
    assert {*gaps} <= {100, 110}  # 399 gaps shared among 39
    # The last twentieth is 20 rows, of steps 3810 to 4000.
    assert record["ending"]["rows"] == 20
    assert record["ending"]["step"] == pytest.approx(3905)
    assert record["ending"]["ess"] == pytest.approx(390.5 / n, rel=1e-5)


def test_gaps_in_the_metrics_stay_gaps(tmp_path):
    rows = changed(rows_of([0.5, 0.6, 0.7]), 1, ess=None)
    rows = changed(rows, 2, gradient_norm=math.inf)
    (record,) = recorded(tmp_path, make_run(tmp_path / "one", rows).path).values()
    assert record["curve"]["ess"] == [0.5, None, 0.7]
    assert record["curve"]["gradient_norm"] == [0.5, 0.5, None]


def test_runs_in_a_folder_are_named_after_both(tmp_path):
    for size, ess in ((6, 0.6), (8, 0.8)):
        make_run(tmp_path / "ladder" / f"L{size}", rows_of([ess]))
    found = recorded(tmp_path, tmp_path / "ladder")
    assert {name: record["curve"]["ess"] for name, record in found.items()} == {
        "ladder-L6": [0.6],
        "ladder-L8": [0.8],
    }


def test_what_cannot_be_recorded_is_refused_in_one_line(tmp_path, capsys):
    out = ["--out", str(tmp_path / "records")]
    for folder in ("a", "b"):
        make_run(tmp_path / folder / "run", rows_of([0.5]))
    assert main([str(tmp_path / "a" / "run"), str(tmp_path / "b" / "run"), *out]) == 2
    assert "would both become run.json" in capsys.readouterr().err
    (tmp_path / "a" / "run" / "evaluation.json").write_text("{")
    assert main([str(tmp_path / "a" / "run"), *out]) == 2
    assert "evaluation.json cannot be read" in capsys.readouterr().err
    assert main([str(tmp_path / "nowhere"), *out]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
    assert not list(tmp_path.glob("records/*"))
