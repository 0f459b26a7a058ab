"""Progress as plain lines."""

from pathgrad._train import progress


def test_time_left_is_extrapolated_and_bounded_by_the_budget():
    first, row = {"step": 100, "seconds": 5.0}, {"step": 300, "seconds": 9.0}
    assert progress.time_left(row, first, 1000, None) == 700 * 4.0 / 200
    assert progress.time_left(row, first, 1000, 12.0) == 3.0
    assert progress.time_left(first, first, 1000, None) is None


def test_plain_lines_say_where_things_are(capsys):
    with progress.report(200) as tell:
        tell({"step": 100, "seconds": 60.0, "loss": -1.5, "ess": 0.25, "gradient_norm": 0.5})
        tell({"step": 150, "seconds": 90.0, "loss": -1.6})  # too soon after the first: no line
        tell({"step": 200, "seconds": 120.0, "loss": -1.7, "skipped": 3})
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "step 100/200  loss -1.5000  ess 25.0%  gradient norm 0.5",
        "step 200/200  loss -1.7000  skipped 3  0:00 left",
    ]


def test_silence_where_it_is_asked_for(capsys):
    with progress.report(10, visible=False) as tell:
        tell({"step": 10, "seconds": 1.0, "loss": 0.0})
    assert capsys.readouterr().err == ""
