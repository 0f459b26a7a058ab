"""What the report says of runs and of who is ahead, and that the page is whole, safe and in words."""

import html.parser
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from pathgrad._cli.report import arrange, read
from pathgrad._report import make_page
from pathgrad._report.comparison import standing
from pathgrad._report.verdict import grade, verdict

from .run_helpers import four_runs, make_evaluation, make_run, rows_of

RESULTS = Path(__file__).parent.parent / "results"


def runs_of(*paths):
    found, broken = read(list(paths))
    assert not broken
    return arrange(found)


def one(path):
    (run,), _ = runs_of(path)
    return run


def page_of(*paths, **more):
    runs, comparisons = runs_of(*paths)
    return make_page(runs, comparisons=comparisons, **more)


GOOD = "good: k-hat 0.20; weighted averages and their error bars can be trusted."


@pytest.mark.parametrize(
    ("ess", "words", "level", "chip"),
    [
        (0.995, GOOD, "good", "can be trusted"),
        (0.3, GOOD, "fair", "use with care"),
        (0.05, GOOD, "bad", "do not rely on it"),
        (0.9, "usable: k-hat 0.6 is below 0.7.", "fair", "use with care"),
        (
            0.99,
            "unreliable, because of the tail of the weights: see the warnings.",
            "bad",
            "do not rely on it",
        ),
        (0.99, "unknown: 10 draws are too few.", "fair", "use with care"),
        (0.9, None, "good", "can be trusted"),
    ],
)
def test_verdicts(tmp_path, ess, words, level, chip):
    run = make_run(tmp_path / "run", rows_of([0.1, 0.2, 0.5]))
    make_evaluation(run, ess=ess, ess_err=0.001, verdict=words)
    said = verdict([one(run.path)])
    assert (said.level, said.chip) == (level, chip)
    assert said.headline == f"{100 * ess:.2f} ± 0.10\u00a0%"
    assert grade(ess) in said.sentences[0]
    assert ("in doubt" in said.sentences[0]) == (level == "bad" and ess > 0.1)
    assert ("k-hat", "0.20") in said.facts


def test_warnings_come_from_training_and_evaluation(tmp_path):
    rows = rows_of([0.5, 0.6, 0.7], skipped=3)
    rows[1]["below_bound"] = 0.1
    run = make_run(tmp_path / "run", rows)
    make_evaluation(run, verdict=GOOD, warnings=["The solver is too coarse: take `--refine 2`."])
    said = verdict([one(run.path)])
    assert said.level == "fair"
    assert [text.split()[0] for text in said.warnings] == ["The", "3", "In"]
    text = page_of(run.path)
    assert (
        "<strong>⚠ Warning: </strong>The solver is too coarse: take <code>--refine 2</code>."
        in text
    )
    # Of a run that has gone on since, neither the number nor its warnings count.
    run.append_metrics(rows_of([0.1] * 4)[-1])
    said = verdict([one(run.path)])
    assert said.headline == "10.00\u00a0%"
    assert "of step 30, before the run went on" in said.sentences[1]
    assert not any("solver is too coarse: take" in text for text in said.warnings)


def test_log_z_is_compared_with_what_is_known(tmp_path):
    run = make_run(tmp_path / "run", rows_of([0.5, 0.6, 0.7]))
    known = {"log_z": 1.0, "log_z_err": 0.03, "log_z_known": 1.1, "log_z_known_err": 0.04}
    make_evaluation(run, verdict=GOOD, **known)
    assert any(
        "agrees with the published value 1.1 (2.0 standard" in s
        for s in verdict([one(run.path)]).sentences
    )
    make_evaluation(run, verdict=GOOD, **known | {"log_z_known": 1.2})
    assert any(
        "is off the published value 1.2 (4.0 standard" in s
        for s in verdict([one(run.path)]).sentences
    )


def test_seeds_share_a_card_and_estimators_are_compared(tmp_path):
    runs, comparisons = runs_of(*four_runs(tmp_path))
    assert [run.name for run in runs] == ["path0", "path1", "total0", "total1"]
    said = verdict(runs[:2])
    # 0.96 and 0.98: their standard deviation is 0.02 over the root of 2.
    assert said.headline == "97.00 ± 1.41\u00a0%"
    assert ("seeds", "0, 1") in said.facts
    (found,) = comparisons
    # At equal steps 97 against 85 with standard errors of 1 and 5 points: more than twice their root sum
    # of squares, 5.1; at 12 s path is in its second block, where both its runs have 50 %.
    assert (
        found.title
        == "Path is ahead of total at equal steps; total is ahead of path at equal training time on L = 6"
    )
    assert (
        "ESS 97.00 ± 1.41\u00a0% against 85.00 ± 7.07\u00a0%, a difference of +12.00 points"
        in found.sentences[0]
    )
    assert "each after 12.0 s" in found.sentences[1]
    assert make_page(runs).count('class="card ') == 2


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
    assert comparisons[0].title.startswith(
        "Path is ahead of total at equal steps; total is ahead of path"
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


def test_autoencoders_are_judged_by_their_bound():
    runs, (found,) = runs_of(*(RESULTS / f"vae/small-mnist-{e}-s0" for e in ("path", "total")))
    said = verdict(runs[:1])
    assert said.headline == "141.71 ± 0.43"
    assert said.name == "negative ELBO of the test images, nats"
    assert said.level == "fair"  # its NLL is of too few draws
    assert any("82.09 nats for MNIST" in text for text in said.sentences)
    assert found.title.startswith("Path is ahead of total")
    text = make_page(runs, comparisons=[found])
    assert "Validation" in text
    assert text.count('src="data:image/png;base64,') == 2  # the pictures that evaluation left
    assert "its checkpoints are not here" in text


def test_runs_of_different_kinds_share_a_page(tmp_path):
    make_run(tmp_path / "run", rows_of([0.5]))
    text = page_of(tmp_path / "run", RESULTS / "toy/demo/path", RESULTS / "vae/small-mnist-path-s0")
    for name in ("phi4 L = 6", "toy correlated", "vae MNIST"):
        assert f"<h3>{name}</h3>" in text


class Loads(html.parser.HTMLParser):
    """Collects whatever a browser would fetch, and all elements."""

    def __init__(self, text):
        super().__init__()
        self.sources, self.tags, self.attributes = [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += [name for name, _ in attrs]
        wanted = ("src", "href", "xlink:href", "srcset", "action", "data", "poster")
        self.sources += [value for name, value in attrs if name in wanted]


def test_the_page_loads_nothing_and_hostile_names_do_nothing(tmp_path):
    evil = '"><img src=http://evil.example onerror=alert(1)>'
    path = tmp_path / evil.replace("/", ":")
    run = make_run(
        path, rows_of([0.2, 0.5, 0.6]), estimator=evil, provenance={"command": f"</script>{evil}"}
    )
    make_evaluation(run, verdict=evil, warnings=[f"</style><script>alert(2)</script>{evil}"])
    stored = json.loads((path / "evaluation.json").read_text())
    stored["observables"][evil] = {"value": evil}
    (path / "evaluation.json").write_text(json.dumps(stored))
    text = page_of(path, title=evil)
    found = Loads(text)
    assert found.sources
    assert all(s.startswith(("#", "data:")) for s in found.sources)
    assert not {"iframe", "object", "embed", "base", "form"} & found.tags
    assert not [name for name in found.attributes if name.startswith("on")]
    assert text.count("<script>") == text.count("</script>") == 1
    assert text.count("</style>") == 1
    assert "@import" not in text
    assert not re.search(r"url\s*\(", text)


def test_pictures_and_charts_have_words(tmp_path):
    run = make_run(tmp_path / "run", rows_of([0.2, 0.5, 0.9], gradient_snr=2.0, evaluations=7))
    make_evaluation(run, verdict=GOOD)
    text = page_of(run.path)
    charts = re.findall(r'<svg class="chart"[^>]*aria-label="([^"]*)"', text)
    assert any(
        "path: 20.00\u00a0% at step 10, then 90.00\u00a0% at step 30." in words for words in charts
    )
    for name in (
        "Reverse KL",
        "Gradient norm",
        "Signal-to-noise",
        "Histogram of log-weights",
        "Two-point",
    ):
        assert any(words.startswith(name) for words in charts)
    assert "A step took 7 field evaluations" in text
    assert "16 fields drawn by path, 6 × 6 sites each" in text
    assert (
        len(re.findall("<img ", text)) == len(re.findall(r'<img [^>]*alt="[^"]{20,}"', text)) == 1
    )


@pytest.mark.parametrize("shape", [(500, 2), (500, 1), (500, 7), (1, 2)])
def test_points_of_any_dimension_are_drawn(tmp_path, shape):
    run = make_run(tmp_path / "run", rows_of([0.2, 0.5, 0.9]))
    rng = np.random.default_rng(0)
    np.savez(
        run.output("evaluation.npz"),
        x=rng.normal(size=shape),
        log_weight=rng.normal(size=len(shape)),
    )
    text = page_of(run.path)
    assert ('class="dots' in text) == (shape[0] > 1 and shape[1] > 1)
    assert ("Histogram of 500 draws" in text) == (shape == (500, 1))


def test_what_differs_is_set_apart_from_what_is_shared(tmp_path):
    text = page_of(*four_runs(tmp_path))
    differs, shared = text.split("<h3>What differs")[1].split("What all phi4 runs share")
    assert "training.estimator" in differs
    assert "training.seed" in differs
    assert "training.decay" not in differs
    assert "training.decay" in shared
    assert "platform" in shared
