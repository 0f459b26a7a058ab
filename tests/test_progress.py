"""Progress as plain lines."""

from pathgrad._train import progress
from pathgrad._train.row import Row


def test_time_left_is_extrapolated_and_bounded_by_the_budget():
    first, row = Row(100, 5.0), Row(300, 9.0)
    assert progress.time_left(row, first, 1000, None) == 700 * 4.0 / 200
    assert progress.time_left(row, first, 1000, 12.0) == 3.0
    assert progress.time_left(first, first, 1000, None) is None


def test_plain_lines_say_where_things_are(capsys):
    with progress.report(200) as tell:
        tell(Row(100, 60.0, loss=-1.5, ess=0.25, gradient_norm=0.5))
        tell(Row(150, 90.0, loss=-1.6))  # too soon after the first: no line
        tell(Row(200, 120.0, loss=-1.7, skipped=3))
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "step 100/200  loss -1.5000  ess 25.0%  gradient norm 0.5",
        "step 200/200  loss -1.7000  skipped 3  0:00 left",
    ]


def test_silence_where_it_is_asked_for(capsys):
    with progress.report(10, visible=False) as tell:
        tell(Row(10, 1.0, loss=0.0))
    assert capsys.readouterr().err == ""
