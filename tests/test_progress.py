"""Progress as plain lines."""

import pytest

from pathgrad._train import progress
from pathgrad._train.row import Row


@pytest.fixture
def clock(monkeypatch):
    """The time, to be set by hand."""
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_plain_lines_say_where_things_are(capsys, clock):
    with progress.report(200) as tell:
        tell(Row(100, 60.0, loss=-1.5, ess=0.25, gradient_norm=0.5))
        clock[0] += 9
        tell(Row(120, 69.0, loss=-1.6))  # too soon after the first: no line
        clock[0] += 9
        tell(Row(140, 78.0, loss=-1.65, best_validation=2.0))
        clock[0] += 9
        tell(Row(200, 87.0, loss=-1.7, skipped=3))  # too soon, but the end
    assert capsys.readouterr().err.splitlines() == [
        "step 100/200  loss -1.5000  ess 25.0%  gradient norm 0.5",
        "step 140/200  loss -1.6500  best validation 2.000  0:27 left",
        "step 200/200  loss -1.7000  skipped 3  0:00 left",
    ]


@pytest.mark.parametrize(
    ("steps", "max_seconds", "left"),
    [
        (1000, None, "  1:10:00 left"),
        (1000, 1800.0, "  10:00 left"),
        (None, 1800.0, "  10:00 left"),
        (None, None, ""),
    ],
)
def test_time_left_is_extrapolated_and_bounded_by_the_budget(capsys, clock, steps, max_seconds, left):
    with progress.report(steps, max_seconds=max_seconds) as tell:
        tell(Row(100, 0.0))
        clock[0] += 1200
        tell(Row(300, 1200.0))
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"{'/1000' if steps else 'step 300'}{left}")


def test_what_is_short_passes_in_silence(capsys, clock):
    with progress.progress(passing=True) as show:
        show("drawing", [0.5])
        clock[0] += 2
        show("drawing", [1.0])
        assert capsys.readouterr().err == ""
        show("checking", [0.1])  # begins anew
        clock[0] += 9
        show("checking", [0.4])
        assert capsys.readouterr().err == "checking  0:18 left\n"


def test_silence_where_it_is_asked_for(capsys):
    with progress.report(10, visible=False) as tell:
        tell(Row(10, 1.0, loss=0.0))
    assert capsys.readouterr().err == ""
