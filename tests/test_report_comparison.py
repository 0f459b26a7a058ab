"""Who is ahead of whom: leads and their errors worked out by hand, and when nothing is decided."""

import math
import shutil

import pytest

from pathgrad._report.comparison import Standing, standing

from .run_helpers import changed, make_run, rows_of
from .test_compare_vae import make_vae, vae_rows
from .test_report import RESULTS, runs_of


def test_standing_by_hand(tmp_path):
    slow, fast = tmp_path / "slow", tmp_path / "fast"
    make_run(slow, rows_of([0.3, 0.6, 0.9], seconds=2.0))
    make_run(fast, rows_of([0.2, 0.5], seconds=1.0), estimator="total", steps=30)
    (one_run, other), comparisons = runs_of(slow, fast)
    # The other ended after 20 steps and 2 s: the first was then at 0.6 and at 0.3.
    by_step = standing([one_run], [other], "step")
    by_time = standing([one_run], [other], "seconds")
    assert by_step[:3] == (20, [0.6], [0.5])
    assert by_time[:3] == (2.0, [0.3], [0.5])
    assert by_time.lead == pytest.approx(-0.2)
    # Of so few blocks it is not known how they scatter.
    assert by_step.error == by_time.error == math.inf
    assert comparisons[0].title == (
        "Path did better than total in these single runs at equal steps; total did better than path in these "
        "single runs at equal training time on L = 6"
    )


def test_chance_decides_nothing(tmp_path):
    def found(one, other):
        make_run(tmp_path / "a", rows_of(one))
        make_run(tmp_path / "b", rows_of(other), estimator="total")
        (a, b), (said,) = runs_of(tmp_path / "a", tmp_path / "b")
        for name in ("a", "b"):
            shutil.rmtree(tmp_path / name)
        return standing([a], [b], "step"), said.title

    # Both rise steadily: that is no scatter.
    by_step, title = found([0.1, 0.3, 0.5, 0.7], [0.1, 0.2, 0.3, 0.4])
    assert by_step.error == pytest.approx(0, abs=1e-12)
    assert title == "Path is ahead of total at equal steps and at equal training time on L = 6"
    # Rises of 0.4, -0.4 and 0.4 have a standard deviation of 0.8 over the root of 3.
    by_step, title = found([0.5, 0.9, 0.5, 0.9], [0.5, 0.6, 0.7, 0.8])
    assert by_step.error == pytest.approx(0.8 / math.sqrt(6))
    assert title == "No clear winner at equal steps and at equal training time on L = 6"
    # Nor does a single bad block after many good ones, though it is more than they scatter.
    by_step, title = found([0.9, 0.9, 0.9, 0.9, 0.9, 0.5], [0.8, 0.8, 0.8, 0.8, 0.8, 0.8])
    assert by_step.lead == pytest.approx(-0.3)
    assert by_step.usual == pytest.approx(0.1)
    assert title.startswith("No clear winner")


def test_optimisers_are_not_compared_at_equal_steps():
    folder = RESULTS / "phi4/second_order"
    _, comparisons = runs_of(folder / "L6-adam-path", folder / "L6-gauss-newton")
    assert [len(found.sentences) for found in comparisons] == [1]
    assert comparisons[0].title.startswith("Gauss-newton is ahead of path at equal training time")


def test_few_seeds_need_a_larger_lead(tmp_path):
    def found(one, other):
        for name, ends in (("path", one), ("total", other)):
            for seed, end in enumerate(ends):
                make_run(tmp_path / f"{name}{seed}", rows_of([end]), estimator=name, seed=seed)
        runs, (said,) = runs_of(*sorted(tmp_path.iterdir()))
        shutil.rmtree(tmp_path)
        groups = ([run for run in runs if run.estimator == name] for name in ("path", "total"))
        return standing(*groups, "step"), said.title.partition(" at ")[0]

    # Standard deviations of 0.02 over the root of three seeds; equal ones leave four degrees of freedom,
    # of which the 97.5 % quantile is 2.776.
    by_step, title = found([0.88, 0.90, 0.92], [0.83, 0.85, 0.87])
    assert by_step.error == pytest.approx(0.02 * math.sqrt(2 / 3))
    assert by_step.freedom == pytest.approx(4)
    assert title == "Path is ahead of total"
    # A lead of 2.45 standard errors.
    assert found([0.88, 0.90, 0.92], [0.84, 0.86, 0.88])[1] == "No clear winner"
    # One seed beside three: nothing is known of how it scatters.
    assert found([0.88, 0.90, 0.92], [0.5])[1] == "Path did better than total in these runs"


def test_the_quantile_is_that_of_student():
    for freedom, quantile in ((1, 12.706), (2, 4.303), (math.inf, 1.960)):
        for lead, decided in ((quantile - 0.01, False), (quantile + 0.01, True)):
            assert Standing(1.0, [], [], lead, lead, 1.0, freedom).decided == decided
    assert not Standing(1.0, [], [], 9.0, 9.0, math.inf).decided


def test_single_autoencoders_decide_nothing(tmp_path):
    make_vae(tmp_path / "a", vae_rows([100.0] * 9), dataset="mnist")
    make_vae(tmp_path / "b", vae_rows([100.001] * 9), dataset="mnist", estimator="total")
    _, (said,) = runs_of(tmp_path / "a", tmp_path / "b")
    assert said.title.startswith("Path did better than total in these single runs at equal steps")


def test_who_broke_the_bound_is_not_ahead(tmp_path):
    make_run(tmp_path / "a", rows_of([0.6, 0.7, 0.8, 0.9]))
    rows = changed(rows_of([0.7, 0.8, 0.9, 0.99]), 3, below_bound=0.1)
    make_run(tmp_path / "b", rows, estimator="total")
    _, (said,) = runs_of(tmp_path / "a", tmp_path / "b")
    assert said.title == (
        "Not comparable, as total had a loss below −log Z, at equal steps and at equal training time on L = 6"
    )
    # What the other did before does not matter, nor what the one behind does.
    make_run(tmp_path / "c", rows_of([0.1, 0.2, 0.3, 0.4], below_bound=0.1), estimator="two-copy")
    _, (said,) = runs_of(tmp_path / "a", tmp_path / "c")
    assert said.title.startswith("Path is ahead of two-copy")


def test_other_machines_have_other_clocks(tmp_path):
    make_run(tmp_path / "a", rows_of([0.6, 0.7, 0.8, 0.9]))
    far = {"platform": "Darwin", "cpus": 8}
    make_run(tmp_path / "b", rows_of([0.1, 0.2, 0.3, 0.4]), estimator="total", provenance=far)
    _, (said,) = runs_of(tmp_path / "b", tmp_path / "a")
    assert said.title == "Path is ahead of total at equal steps on L = 6"
    assert "ESS 90.00\u00a0% against 40.00\u00a0%" in said.sentences[0]
    assert said.sentences[-1] == (
        "Not compared at equal time, the runs were made on different machines."
    )


def test_a_row_without_a_time_is_passed_over(tmp_path):
    rows = changed(rows_of([0.6, 0.7, 0.8, 0.9]), 2, seconds=math.nan)
    make_run(tmp_path / "a", rows)
    make_run(tmp_path / "b", rows_of([0.1, 0.2, 0.3]), estimator="total", steps=40)
    _, (said,) = runs_of(tmp_path / "a", tmp_path / "b")
    assert "each after 3.0 s of training" in said.sentences[-1]
    assert "ESS 70.00\u00a0% against 30.00\u00a0%" in said.sentences[-1]
