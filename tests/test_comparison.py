"""Who is ahead of whom, and whether it is more than chance: by hand, and against closed forms."""

import math
import shutil

import numpy as np
import pytest
from scipy import stats

import pathgrad as pg
from pathgrad._cli.main import main
from pathgrad._runs.comparison import Standing, standing
from pathgrad._train.row import Row

from .run_helpers import changed, compared, four_runs, groups_of, make_run, recorded_run, rows_of


@pytest.fixture
def four(tmp_path):
    return four_runs(tmp_path)


def test_standing_by_hand(tmp_path):
    slow, fast = tmp_path / "slow", tmp_path / "fast"
    make_run(slow, rows_of([0.3, 0.6, 0.9], seconds=2.0))
    make_run(fast, rows_of([0.2, 0.5], seconds=1.0), estimator="total", steps=30)
    (found,) = compared(slow, fast)
    # The other ended after 20 steps and 2 s: the first was then at 0.6 and at 0.3.
    assert found.by_step[:3] == (20, [0.6], [0.5])
    assert found.by_time[:3] == (2.0, [0.3], [0.5])
    assert found.by_time.lead == pytest.approx(-0.2)
    # Of so few blocks it is not known how they scatter.
    assert found.by_step.error == found.by_time.error == math.inf
    assert found.title == (
        "Path did better than total in these single runs at equal steps; total did better than path in these "
        "single runs at equal training time on phi4 L = 6"
    )


def test_estimators_are_compared_at_the_end_of_the_quicker(four):
    (found,) = compared(*four)
    # total ends after 12 s; path, with 5 s for a block, has made two blocks until then
    assert (found.by_time.at, found.cost) == (12.0, pytest.approx(1.25))
    assert found.by_time[1:3] == ([0.5, 0.5], [0.8, 0.9])
    said = " ".join(found.sentences)
    assert "ESS 50.00 ± 0.00 % against 85.00 ± 7.07 %, a difference of -35.00 points" in said
    assert "A step takes 25 % more time" in said
    assert "path was still training, at step 20 of 30" in said
    assert "total was still" not in said
    assert "single run" not in said


def test_chance_decides_nothing(tmp_path):
    def found(one, other):
        make_run(tmp_path / "a", rows_of(one))
        make_run(tmp_path / "b", rows_of(other), estimator="total")
        (said,) = compared(tmp_path / "a", tmp_path / "b")
        for name in ("a", "b"):
            shutil.rmtree(tmp_path / name)
        return said.by_step, said.title.partition(" at ")[0]

    # Both rise steadily: that is no scatter.
    by_step, title = found([0.1, 0.3, 0.5, 0.7], [0.1, 0.2, 0.3, 0.4])
    assert by_step.error == pytest.approx(0, abs=1e-12)
    assert title == "Path is ahead of total"
    # Rises of 0.4, -0.4 and 0.4 have a standard deviation of 0.8 over the root of 3.
    by_step, title = found([0.5, 0.9, 0.5, 0.9], [0.5, 0.6, 0.7, 0.8])
    assert by_step.error == pytest.approx(0.8 / math.sqrt(6))
    assert title.startswith("No clear winner")
    # Nor does a single bad block after many good ones, though it is more than they scatter.
    by_step, title = found([0.9, 0.9, 0.9, 0.9, 0.9, 0.5], [0.8, 0.8, 0.8, 0.8, 0.8, 0.8])
    assert by_step.lead == pytest.approx(-0.3)
    assert by_step.usual == pytest.approx(0.1)
    assert title.startswith("No clear winner")


@pytest.mark.parametrize(
    ("other", "judgement"),
    [
        ([0.83, 0.85, 0.87], "Path is ahead of total at"),
        ([0.84, 0.86, 0.88], "No clear winner"),
        ([0.6, 0.8, 0.7, 0.9], "No clear winner"),
    ],
)
def test_few_seeds_need_a_larger_lead(tmp_path, other, judgement):
    one = [0.88, 0.90, 0.92]
    for name, ends in (("path", one), ("total", other)):
        for seed, end in enumerate(ends):
            make_run(tmp_path / f"{name}{seed}", rows_of([end]), estimator=name, seed=seed)
    (said,) = compared(*sorted(tmp_path.iterdir()))
    found = said.by_step
    statistic, chance = map(float, stats.ttest_ind(one, other, equal_var=False))  # Welch's
    assert found.lead == pytest.approx(np.mean(one) - np.mean(other))
    assert found.lead / found.error == pytest.approx(statistic)
    assert 2 * stats.t.sf(statistic, found.freedom) == pytest.approx(chance)
    assert said.title.startswith(judgement)
    assert found.is_decided == (chance < 0.05) == ("ahead" in judgement)


def test_one_seed_beside_three_says_nothing_of_how_it_scatters(tmp_path):
    for seed, end in enumerate([0.88, 0.90, 0.92]):
        make_run(tmp_path / f"path{seed}", rows_of([end]), seed=seed)
    make_run(tmp_path / "total", rows_of([0.5]), estimator="total")
    (said,) = compared(*sorted(tmp_path.iterdir()))
    assert said.by_step.error == math.inf
    assert said.title.startswith("Path did better than total in these runs at equal steps")


def test_the_quantile_is_that_of_student():
    for freedom, quantile in ((1, 12.706), (2, 4.303), (math.inf, 1.960)):
        for lead, decided in ((quantile - 0.01, False), (quantile + 0.01, True)):
            assert Standing(1.0, [], [], lead, lead, 1.0, freedom).is_decided == decided
    assert not Standing(1.0, [], [], 9.0, 9.0, math.inf).is_decided


def test_what_falls_is_better_below_and_judged_by_its_best(tmp_path):
    rows = [Row(10 * i, 1.0 * i, validation=v) for i, v in enumerate([3.0, 1.0, 2.0], start=1)]
    make_run(tmp_path / "a", rows)
    make_run(tmp_path / "b", [Row(30, 3.0, validation=1.5)], estimator="total", steps=30)
    one, other = groups_of(tmp_path / "a", tmp_path / "b")
    quantity = pg.Quantity("validation", "validation", better=-1, best=True, scale=0.5)
    found = standing(one, other, quantity, "step")
    assert (found.one, found.other, found.lead) == ([2.0], [3.0], 1.0)
    assert found.error == math.inf  # the best of one run says nothing of another seed


def test_who_broke_the_bound_is_not_ahead(tmp_path):
    make_run(tmp_path / "a", rows_of([0.6, 0.7, 0.8, 0.9]))
    rows = changed(rows_of([0.7, 0.8, 0.9, 0.99]), 3, below_bound=0.1)
    make_run(tmp_path / "b", rows, estimator="total")
    (said,) = compared(tmp_path / "a", tmp_path / "b")
    assert said.title.startswith("Not comparable, as total had a loss below -log Z, at equal steps")
    assert "total had a loss below -log Z at that point: do not trust its ESS." in said.sentences
    # What the other did before does not matter, nor what the one behind does.
    make_run(tmp_path / "c", rows_of([0.1, 0.2, 0.3, 0.4], below_bound=0.1), estimator="two-copy")
    (said,) = compared(tmp_path / "a", tmp_path / "c")
    assert said.title.startswith("Path is ahead of two-copy")


def test_other_machines_have_other_clocks(tmp_path):
    make_run(tmp_path / "a", rows_of([0.6, 0.7, 0.8, 0.9]))
    far = {"platform": "Darwin", "cpus": 8}
    make_run(tmp_path / "b", rows_of([0.1, 0.2, 0.3, 0.4]), estimator="total", provenance=far)
    (said,) = compared(tmp_path / "b", tmp_path / "a")
    assert said.title == "Path is ahead of total at equal steps on phi4 L = 6"
    assert "ESS 90.00 % against 40.00 %" in said.sentences[0]
    assert (said.by_time, "different machines" in said.doubts[0]) == (None, True)


def test_a_row_without_a_time_is_passed_over(tmp_path):
    rows = changed(rows_of([0.6, 0.7, 0.8, 0.9]), 2, seconds=math.nan)
    make_run(tmp_path / "a", rows)
    make_run(tmp_path / "b", rows_of([0.1, 0.2, 0.3]), estimator="total", steps=40)
    (said,) = compared(tmp_path / "a", tmp_path / "b")
    assert said.by_time[:3] == (3.0, [0.7], [0.3])


def test_only_what_differs_in_the_method_is_compared(four, tmp_path):
    make_run(tmp_path / "other", rows_of([0.5], 12.0), estimator="total", learning_rate=0.1)
    assert compared(four[0], tmp_path / "other") == []
    assert compared(*four[:2]) == []
    make_run(tmp_path / "longer", rows_of([0.5] * 9, 4.0), estimator="total")
    (said,) = compared(four[0], tmp_path / "longer")
    assert said.by_time.at == 15.0
    assert "With a single run on one side, the difference may be due to the seed." in said.doubts
    assert any("total was still training, at step 30 of 90" in text for text in said.doubts)
    make_run(tmp_path / "begun", [], estimator="total", steps=30)
    assert compared(four[0], tmp_path / "begun") == []


def test_optimisers_are_compared_at_equal_time_alone_whatever_the_other_was_given(four, tmp_path):
    training = {"optimizer": "gauss-newton"}
    make_run(tmp_path / "second", rows_of([0.7, 0.9], 6.0), learning_rate=0.3, training=training)
    (said,) = compared(four[0], tmp_path / "second")
    assert (said.one.method, said.other.method) == ("gauss-newton", "path")
    assert (said.by_step, said.by_time.at) == (None, 12.0)
    # It has no learning rate that could fall.
    assert not any("gauss-newton was still" in text for text in said.doubts)
    for name in ("adam-path", "gauss-newton"):
        recorded_run(tmp_path / name, f"phi4/runs/second_order-L6-{name}.json")
    (said,) = compared(tmp_path / "adam-path", tmp_path / "gauss-newton")
    assert said.title.startswith("Gauss-newton is ahead of path at equal training time")


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (1796, "the same time"),
        (1440, "25 % more time"),
        (2400, "25 % less time"),
        (640, "2.8 times as long"),
        (10, "180 times as long"),
    ],
)
def test_the_cost_of_a_step_in_words(tmp_path, steps, words):
    """The other made 1800 steps in the same time."""
    for name, done in (("path", steps), ("total", 1800)):
        make_run(tmp_path / name, [Row(done, 12.0, ess=0.5)], estimator=name)
    (found,) = compared(tmp_path / "path", tmp_path / "total")
    assert found.cost == pytest.approx(1800 / steps)
    assert f"A step takes {words}." in found.sentences


def test_compare_plot_and_report_say_the_same(four, tmp_path, capsys):
    (found,) = compared(*four)
    paths = [str(path) for path in four]
    assert main(["compare", *paths]) == 0
    assert f"{found.title}." in capsys.readouterr().out
    assert main(["plot", *paths, "--out", str(tmp_path / "x.png")]) == 0
    assert f"{found.title}." in capsys.readouterr().out
    assert main(["report", *paths, "--out", str(tmp_path / "x.html")]) == 0
    page = (tmp_path / "x.html").read_text()
    assert found.title in page
    for sentence in found.sentences[:2]:
        # The page sets minus signs and spaces of its own.
        plain = page.replace("\u00a0", " ").replace("\u2212", "-")
        assert sentence in plain


def test_the_same_seed_twice_is_no_second_opinion(tmp_path):
    """Copies of a run do not scatter at all: that must not make a lead of nothing more than chance."""
    for name, end in (("path", 0.9001), ("total", 0.9)):
        for copy in (0, 1):
            make_run(tmp_path / f"{name}{copy}", rows_of([0.5, end]), estimator=name)
    (found,) = compared(*sorted(tmp_path.iterdir()))
    assert (found.by_step.error, found.by_step.is_decided) == (math.inf, False)


def test_a_group_is_doubted_once_by_its_slowest(tmp_path):
    for seed, seconds in enumerate((1.0, 2.0, 3.0)):
        make_run(tmp_path / f"path{seed}", rows_of([0.5] * 8, seconds), seed=seed)
    make_run(tmp_path / "total", rows_of([0.5] * 8, 0.9), estimator="total")
    (found,) = compared(*sorted(tmp_path.iterdir()))
    late = [text for text in found.doubts if "still training" in text]
    assert late == ["path was still training, at step 20 of 80, with its learning rate still decaying."]
