"""Axes, ticks and curves of the report against numbers worked out by hand; numbers as people read them."""

import math
import re

import numpy as np
import pytest

from pathgrad._errors import named
from pathgrad._report import chart, scale, words
from pathgrad._report.chart import Curve
from pathgrad._report.html import Html, joined, prose, spoken, table, tag
from pathgrad._report.scale import Scale

X = Scale("linear", 0.0, 100.0, 50.0, 450.0)
Y = Scale("log", 0.01, 100.0, 230.0, 10.0)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 1400, [0, 500, 1000]),
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (-3.1, 1.2, [-3, -2, -1, 0, 1]),
        (43.731, 43.749, [43.735, 43.74, 43.745]),
        (5, 5, [5]),
    ],
)
def test_nice_ticks(low, high, ticks):
    assert scale.nice_ticks(float(low), float(high)) == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.005, 20, [0.01, 0.1, 1, 10]),
        (0.15, 9, [0.2, 0.5, 1, 2, 5]),
        (1, 1e12, [1, 1e3, 1e6, 1e9, 1e12]),
        (0.19, 0.75, [0.2, 0.3, 0.4, 0.5, 0.7]),
        (101, 119, [105, 110, 115]),
    ],
)
def test_log_ticks(low, high, ticks):
    assert scale.log_ticks(float(low), float(high)) == pytest.approx(ticks)


def test_places_on_axes():
    assert X(np.array([0, 25, 100])) == pytest.approx([50, 150, 450])
    # Four powers of ten over 220 pixels, upwards.
    assert Y(np.array([0.01, 1, 100])) == pytest.approx([230, 120, 10])
    assert np.isnan(Y(np.array([0.0, -1.0, math.nan]))).all()
    # What is missing to 100 %: half, a tenth, a hundredth; log10 of 2, 10 and 100 are 0.301, 1 and 2.
    sizes = Scale("ess", 0.5, 0.99, 0.0, 1.0)
    middle = (1 - math.log10(2)) / (2 - math.log10(2))
    assert sizes(np.array([0.5, 0.9, 0.99])) == pytest.approx([0, middle, 1])
    assert [sizes.label(t) for t in (0.5, 0.99, 0.999)] == ["50 %", "99 %", "99.9 %"]


@pytest.mark.parametrize("kind", ["linear", "log", "ess"])
@pytest.mark.parametrize("values", [[0.2, 0.9], [0.7], [], [math.nan, math.inf, 0.3, -0.0]])
def test_an_axis_has_room_for_what_it_shows(kind, values):
    values = np.array(values, float)
    axis = scale.fitting(kind, values, 0.0, 100.0)
    places = axis(values[np.isfinite(values) & (values > 0)])
    assert axis.low < axis.high
    assert ((places > 0) & (places < 100)).all()
    assert len(axis.ticks) >= 2
    assert all(axis.low <= t <= axis.high for t in axis.ticks)


def test_numbers_beside_axes():
    assert [scale.short(v) for v in (0.0, 1400.0, 25e3, -2e6, 0.25)] == [
        "0",
        "1,400",
        "25k",
        "−2M",
        "0.25",
    ]
    assert [scale.power_of_ten(v) for v in (0.01, 1e-6, 200.0, 1e5)] == [
        "0.01",
        "10⁻⁶",
        "200",
        "10⁵",
    ]


def test_what_is_not_finite_leaves_a_gap():
    y = np.array([1, 10, math.nan, 0.1, math.inf, 0.0, 1, 1])
    pieces = chart.pixels(Curve(np.arange(8.0), y), X, Y)
    assert [len(piece) for piece in pieces] == [2, 1, 2]
    assert pieces[0] == pytest.approx(np.array([[50, 120], [54, 65]]))
    assert pieces[1][0] == pytest.approx([62, 175])


def test_many_points_are_thinned_and_no_peak_is_lost():
    points = np.stack([np.arange(10_000.0), np.zeros(10_000)], axis=1)
    points[1234, 1], points[8765, 1] = 7.0, -3.0
    few = chart.thinned(points)
    assert len(few) <= 240
    assert (few[:, 1].max(), few[:, 1].min()) == (7.0, -3.0)
    assert (np.diff(few[:, 0]) > 0).all()
    assert chart.thinned(points[:50]) is not None
    assert len(chart.thinned(points[:50])) == 50


def test_a_chart_draws_lines_dashes_and_markers():
    curves = [
        Curve(np.array([0.0, 50, 100]), np.array([1.0, 10, 100]), "path", "mine"),
        Curve(np.array([0.0, 100]), np.array([0.1, 1]), "total", "theirs", "s"),
        Curve(np.array([50.0]), np.array([1.0]), "somebody's <own>", "one"),
    ]
    drawn = chart.chart(curves, X, Y, described="up & down", x_label="step")
    assert 'points="50.0,120.0 250.0,65.0 450.0,10.0"' in drawn
    lines = re.findall(r"<polyline [^>]*>", drawn)
    assert ["stroke-dasharray" in line for line in lines] == [False, True]
    assert ['class="line path"' in lines[0], 'class="line total"' in lines[1]] == [True, True]
    # Two squares, and a dot for the single point, which no line shows, in the colour of all others.
    assert len(re.findall('class="mark total"', drawn)) == 2
    assert 'class="mark other"' in drawn
    assert "somebody" not in drawn
    assert 'role="img" aria-label="up &amp; down"' in drawn
    assert 'data-y="log 0.01 100 230 10"' in drawn


def test_no_number_is_cut_off_at_the_edge():
    across = chart.horizontal(0.0, 1000.0, "linear", 50.0)
    drawn = chart.chart([], across, Y, described="", x_label="step")
    assert '<text x="439.0" y="247" class="tick end">1,000</text>' in drawn
    assert '<text x="50.0" y="247" class="tick middle">0</text>' in drawn


def test_outline_of_a_histogram():
    across, up = chart.steps_of(np.array([3.0, 5.0]), np.array([0.0, 1.0, 2.0]))
    assert across.tolist() == [0, 0, 1, 1, 2, 2]
    assert up.tolist() == [0, 3, 3, 5, 5, 0]


def test_numbers_with_errors():
    assert words.with_error(43.746118, 0.000311) == "43.74612 ± 0.00031"
    assert words.with_error(-12.3, 4.56) == "−12.3 ± 4.6"
    assert words.with_error(1234.5, 67.0, "nats") == "1234 ± 67\u00a0nats"
    assert words.with_error(None, 1.0) == "–"
    assert words.with_error(0.5, 0.0) == "0.5 (exact)"
    assert words.with_error(0.123456, None) == "0.12346"
    assert words.percent(0.99481, 0.000031) == "99.481 ± 0.003\u00a0%"
    assert words.percent(0.98, 0.0001) == "98.000 ± 0.010\u00a0%"
    assert [words.percent(v) for v in (0.5, 0.98097, 0.999623)] == [
        "50.00\u00a0%", "98.10\u00a0%", "99.962\u00a0%",
    ]  # fmt: skip
    assert [words.duration(s) for s in (7.11, 242.4, 5e3, None)] == [
        "7.1 s",
        "4 min 02 s",
        "1 h 23 min",
        "–",
    ]
    assert words.several([1.0, 3.0], "{:.1f}") == "2.0 ± 1.4"
    assert words.listed(["a", "b", "c"]) == "a, b and c"


@pytest.mark.parametrize(
    "value", ["0.5", None, True, math.nan, math.inf, [1], pytest.param(10**400, id="huge")]
)
def test_only_finite_numbers_are_numbers(value):
    assert words.number({"a": value}, "a") is None
    assert words.number({"a": 3}, "a") == 3


def test_text_cannot_become_markup():
    evil = "<b onclick='x'>\"&"
    safe = "&lt;b onclick=&#x27;x&#x27;&gt;&quot;&amp;"
    assert tag("p", evil, None, tag("i", 1), title=evil, hidden=True, id=None) == (
        f'<p title="{safe}" hidden>{safe}<i>1</i></p>'
    )
    assert tag("img", src="data:,") == '<img src="data:,">'
    assert joined([evil, Html("<br>")]) == f"{safe}<br>"
    assert prose("run `a <b>` now") == "run <code>a &lt;b&gt;</code> now"
    assert prose("odd ` tick") == "odd ` tick"
    assert prose(f"take `{named('solver_steps')}`") == "take <code>--solver-steps</code>"
    assert spoken(f"run `a <b>` {named('now')}") == "run a <b> --now"
    assert spoken("odd ` tick") == "odd ` tick"
    assert safe in table([evil], [[evil]], label=evil)
    assert "<b" not in table([evil], [[evil, evil]], label=evil)
