"""What the report says of runs and of who is ahead, and that the page is whole, safe and in words."""

import dataclasses
import html.parser
import json
import re
from pathlib import Path

import numpy as np
import pytest

from pathgrad._cli.report import arrange, read
from pathgrad._report import make_page
from pathgrad._report.verdict import grade, verdict
from pathgrad.experiments.vae.options import preset

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


def test_log_z_and_observables_are_held_against_what_is_known(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    runs = [make_run(p, rows_of([0.5, 0.6, 0.7]), seed=i) for i, p in enumerate(paths)]
    known = {"log_z": 1.0, "log_z_err": 0.03, "log_z_known": 1.1, "log_z_known_err": 0.04}
    for run in runs:
        make_evaluation(run, ess=0.99, verdict=GOOD, forward_ess=0.9, **known)
    said = verdict([one(paths[0])])
    assert said.level == "good"
    assert "log Z agrees with the known value 1.1 (2.0 standard errors apart)." in said.sentences
    both = verdict(runs_of(*paths)[0])
    assert both.level == "good"
    assert any("known value 1.1 (at most 2.0 standard" in text for text in both.sentences)
    assert any("no large part of it is missed" in text for text in both.sentences)
    # One of them is further off than chance explains: neither it nor its group can be trusted.
    make_evaluation(runs[1], ess=0.99, verdict=GOOD, **known | {"log_z_known": 1.2})
    for said in (verdict([one(paths[1])]), verdict(runs_of(*paths)[0])):
        assert said.level == "fair"
        assert "log Z is off the known value 1.2 (4.0 standard errors apart)" in said.warnings[0]
        assert not [text for text in said.sentences if "log Z" in text]
        assert not [text for text in said.sentences if "no large part" in text]
    off = {"phi_2": {"value": 1.0, "deviation": -3.4}, "binder": {"value": 1.0, "deviation": 2.9}}
    make_evaluation(runs[0], ess=0.99, verdict=GOOD, observables=off)
    said = verdict([one(paths[0])])
    assert said.level == "fair"
    assert "(−3.4 standard errors). Evaluate" in said.warnings[0]


def test_poor_coverage_is_not_called_complete(tmp_path):
    run = make_run(tmp_path / "run", rows_of([0.5, 0.6, 0.7]))
    make_evaluation(run, ess=0.1, verdict=GOOD, forward_ess=0.07)
    assert not [text for text in verdict([one(run.path)]).sentences if "missed" in text]


def test_an_evaluation_without_a_number_is_bad(tmp_path):
    rows = rows_of([0.9, 0.95, 0.97])
    words = "unusable, because of failed draws: see the warnings."
    run = make_run(tmp_path / "a", rows)
    make_evaluation(run, ess=None, verdict=words, warnings=["3 of 9 draws have no finite weight."])
    make_run(tmp_path / "b", rows, seed=1)
    for paths in (["a"], ["a", "b"]):
        said = verdict(runs_of(*(tmp_path / p for p in paths))[0])
        assert (said.level, said.headline) == ("bad", "–")
        assert said.sentences[0].endswith(words)
        assert len(said.sentences) == 1


def test_a_coarse_solver_may_move_log_z_alone(tmp_path):
    run = make_run(tmp_path / "run", rows_of([0.5, 0.6, 0.7]))
    words = "unreliable, because of a coarse solver: see the warnings."
    for shift, reason, level in (
        (-1e-5, words, "fair"),
        (-1e-2, words, "bad"),
        (-1e-5, words.replace("a coarse", "the tail of the weights and a coarse"), "bad"),
    ):
        more = {"ess_err": 2e-5, "ess_shift": shift, "ess_shift_err": 1e-6, "warnings": ["Coarse."]}
        make_evaluation(run, ess=0.999, verdict=reason, **more)
        said = verdict([one(run.path)])
        assert said.level == level
        assert ("in doubt" in said.sentences[0]) == (level == "bad")
        assert ("log Z is less accurate than its error" in said.sentences[1]) == (level == "fair")


def test_seeds_of_which_some_are_evaluated(tmp_path):
    runs = [make_run(tmp_path / n, rows_of([0.5, 0.6, 0.8]), seed=i) for i, n in enumerate("ab")]
    for ess, words, level in (
        (0.9, GOOD, "open"),
        (0.4, GOOD, "fair"),
        (0.9, "unreliable: k-hat 0.9", "bad"),
    ):
        make_evaluation(runs[0], ess=ess, verdict=words)
        said = verdict(runs_of(tmp_path / "a", tmp_path / "b")[0])
        assert (said.level, said.headline) == (level, "80.00 ± 0.00\u00a0%")  # of training, both
        assert said.sentences[1].startswith("1 of 2 runs evaluated, so this is of the last block")


def test_numbers_of_a_training_that_broke_down_are_in_doubt(tmp_path):
    lost = rows_of([0.9, 0.99, 0.5, 0.5])
    for row in lost[2:]:
        row["ess"] = None
    make_run(tmp_path / "lost", lost)
    said = verdict([one(tmp_path / "lost")])
    assert (said.level, said.headline) == ("bad", "99.00\u00a0%")
    assert "of step 20; the 2 blocks since have no finite number" in said.warnings[0]
    make_run(tmp_path / "below", rows_of([0.9, 0.99], below_bound=0.1))
    said = verdict([one(tmp_path / "below")])
    assert (said.level, said.chip) == ("bad", "provisional, do not rely on it")
    assert "below −log Z by more than four standard errors" in said.warnings[0]


def test_seeds_share_a_card_and_estimators_are_compared(tmp_path):
    runs, comparisons = runs_of(*four_runs(tmp_path))
    assert [run.name for run in runs] == ["path0", "path1", "total0", "total1"]
    said = verdict(runs[:2])
    # 0.96 and 0.98: their standard deviation is 0.02 over the root of 2.
    assert said.headline == "97.00 ± 1.41\u00a0%"
    assert ("seeds", "0, 1") in said.facts
    (found,) = comparisons
    # 97 against 85 with standard errors of 1 and 5 points: of two seeds each that may be chance.
    assert found.title == "No clear winner at equal steps and at equal training time on L = 6"
    assert (
        "ESS 97.00 ± 1.41\u00a0% against 85.00 ± 7.07\u00a0%, a difference of +12.00 points"
        in found.sentences[0]
    )
    assert "each after 12.0 s" in found.sentences[1]
    assert make_page(runs).count('class="card ') == 2


def test_autoencoders_are_judged_by_their_bound():
    runs, (found,) = runs_of(*(RESULTS / f"vae/small-mnist-{e}-s0" for e in ("path", "total")))
    said = verdict(runs[:1])
    assert said.headline == "141.71 ± 0.43"
    assert said.name == "negative ELBO of the test images, nats"
    assert said.level == "fair"  # its NLL is of too few draws
    reports = "The paper reports 82.09 nats for MNIST with this gradient"
    other = (
        f"{reports}, of another model: latent 64, not 32; channels 32, not 8; width 1024, not 128;"
    )
    assert any(text.startswith(other) for text in said.sentences)
    # The model of the paper, stopped while its KL term did not count in full.
    paper = preset("paper", "mnist")
    options = dataclasses.asdict(paper)
    early = [{"step": 1.0, "beta": 0.25}]
    run = dataclasses.replace(runs[0], config={"experiment": "vae", "options": options}, rows=early)
    said = verdict([dataclasses.replace(run, evaluation={"step": 1, "negative_elbo": 90.0})])
    assert f"{reports}." in said.sentences
    assert said.level == "fair"
    assert "the KL term weighs 0.25 of 1" in said.warnings[0]
    said = verdict([dataclasses.replace(run, evaluation={"step": 1, "negative_elbo": None})])
    assert (said.level, said.headline) == ("bad", "–")
    assert found.title.startswith("Path did better than total in these single runs at equal steps")
    text = make_page(runs, comparisons=[found])
    assert "Validation" in text
    assert text.count('src="data:image/png;base64,') == 2  # the pictures that evaluation left
    assert "its checkpoints are not here" in text
    assert "Gradient norm" in text
    assert "a path gradient shrinks" not in text  # not where a decoder is trained too


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
