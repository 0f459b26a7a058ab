"""What the report says of runs and of who is ahead, and that the page is whole, safe and in words."""

import dataclasses
import html.parser
import json
import re
from pathlib import Path

import numpy as np
import pytest

from pathgrad._cli.report import arrange, read
from pathgrad._errors import as_options
from pathgrad._report import make_page
from pathgrad._report.verdict import Trust, grade, verdict
from pathgrad._train.row import Row
from pathgrad._verdict import Level, read_verdict
from pathgrad.experiments.vae.options import preset

from .run_helpers import GOOD, because, changed, four_runs, make_evaluation, make_run, rows_of

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


@pytest.mark.parametrize(
    ("ess", "found", "level", "words"),
    [
        (0.995, GOOD, Trust.GOOD, "good: k-hat 0.20; weighted averages"),
        (0.3, GOOD, Trust.FAIR, "good: k-hat 0.20"),
        (0.05, GOOD, Trust.BAD, "good: k-hat 0.20"),
        (0.9, because("SLOW_TAIL"), Trust.FAIR, "usable: k-hat 0.20 is below 0.63, but averages"),
        (
            0.99,
            because("HEAVY_TAIL", "MISSED_MODE", "UNCHECKED_SOLVER"),
            Trust.BAD,
            "unreliable, because of the tail of the weights and a missed mode or tail: see the warn",
        ),
        (0.99, because("ESS_MOVES"), Trust.BAD, "unreliable, because of a coarse solver: see"),
        (0.99, because("FEW_DRAWS"), Trust.FAIR, "unknown: 500 draws are too few"),
        # Names that this version does not know: then the size has to do.
        (0.9, {"level": "splendid", "reasons": []}, Trust.GOOD, None),
        (0.9, {"level": "usable", "reasons": 7}, Trust.GOOD, None),
        # What is no verdict at all is judged by its numbers.
        (0.3, 7, Trust.FAIR, "good: k-hat 0.20"),
        # A file that somebody changed.
        (0.9, {"level": "unreliable", "reasons": []}, Trust.BAD, "unreliable"),
    ],
)
def test_verdicts(tmp_path, ess, found, level, words):
    run = make_run(tmp_path / "run", rows_of([0.1, 0.2, 0.5]))
    make_evaluation(run, ess=ess, ess_err=0.001, verdict=found)
    said = verdict([one(run.path)])
    assert (said.level, said.chip) == (level, level.chip)
    assert said.headline == f"{100 * ess:.2f} ± 0.10\u00a0%"
    assert grade(ess) in said.sentences[0]
    assert ("in doubt" in said.sentences[0]) == (level is Trust.BAD and ess > 0.1)
    assert ("k-hat", "0.20") in said.facts
    assert [text.startswith(f"Error bars: {words}") for text in said.sentences[1:]] == [True] * (
        words is not None
    )


def test_the_worse_the_more():
    assert sorted(Trust) == [Trust.OPEN, Trust.GOOD, Trust.FAIR, Trust.BAD]
    assert len({level.chip for level in Trust}) == 4


def test_a_verdict_without_its_numbers_is_told_as_far_as_it_goes(tmp_path):
    run = make_run(tmp_path / "run", rows_of([0.1, 0.2, 0.5]))
    make_evaluation(run, verdict=because("SLOW_TAIL"), khat="odd", samples=None)
    assert "Error bars: usable." in verdict([one(run.path)]).sentences


@pytest.mark.parametrize(
    "file", sorted(RESULTS.rglob("evaluation.json")), ids=lambda f: f.parent.name
)
def test_older_evaluations_are_judged_as_they_were(file):
    stored = json.loads(file.read_text())
    if "verdict" not in stored:
        assert stored["experiment"] == "vae"
        return
    found = read_verdict(stored)
    assert found is not None
    assert found.level is Level[stored["verdict"].replace(",", ":").partition(":")[0].upper()]
    # Only those that were found wanting were warned of.
    assert len(stored.get("warnings", [])) == len(found.reasons)


def test_warnings_come_from_training_and_evaluation(tmp_path):
    rows = changed(rows_of([0.5, 0.6, 0.7], skipped=3), 1, below_bound=0.1)
    run = make_run(tmp_path / "run", rows)
    make_evaluation(run, verdict=GOOD, warnings=["The solver is too coarse: take `--refine 2`."])
    said = verdict([one(run.path)])
    assert said.level is Trust.FAIR
    assert [text.split()[0] for text in said.warnings] == ["The", "3", "In"]
    text = page_of(run.path)
    assert "Take more <code>--solver-steps</code>." in text
    assert "--" not in said.warnings[2]  # it is the page that speaks of options
    assert as_options(said.warnings[2]).endswith("`--solver-steps`.")
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
    assert said.level is Trust.GOOD
    assert "log Z agrees with the known value 1.1 (2.0 standard errors apart)." in said.sentences
    both = verdict(runs_of(*paths)[0])
    assert both.level is Trust.GOOD
    assert any("known value 1.1 (at most 2.0 standard" in text for text in both.sentences)
    assert any("no large part of it is missed" in text for text in both.sentences)
    # One of them is further off than chance explains: neither it nor its group can be trusted.
    make_evaluation(runs[1], ess=0.99, verdict=GOOD, **known | {"log_z_known": 1.2})
    for said in (verdict([one(paths[1])]), verdict(runs_of(*paths)[0])):
        assert said.level is Trust.FAIR
        assert "log Z is off the known value 1.2 (4.0 standard errors apart)" in said.warnings[0]
        assert not [text for text in said.sentences if "log Z" in text]
        assert not [text for text in said.sentences if "no large part" in text]
    off = {"phi_2": {"value": 1.0, "deviation": -3.4}, "binder": {"value": 1.0, "deviation": 2.9}}
    make_evaluation(runs[0], ess=0.99, verdict=GOOD, observables=off)
    said = verdict([one(paths[0])])
    assert said.level is Trust.FAIR
    assert "(−3.4 standard errors). Evaluate" in said.warnings[0]


def test_poor_coverage_is_not_called_complete(tmp_path):
    run = make_run(tmp_path / "run", rows_of([0.5, 0.6, 0.7]))
    make_evaluation(run, ess=0.1, verdict=GOOD, forward_ess=0.07)
    assert not [text for text in verdict([one(run.path)]).sentences if "missed" in text]


def test_an_evaluation_without_a_number_is_bad(tmp_path):
    rows = rows_of([0.9, 0.95, 0.97])
    run = make_run(tmp_path / "a", rows)
    found, told = because("FAILED_DRAWS"), ["3 of 9 draws have no finite weight."]
    make_evaluation(run, ess=None, failed=3, verdict=found, warnings=told)
    make_run(tmp_path / "b", rows, seed=1)
    for paths in (["a"], ["a", "b"]):
        said = verdict(runs_of(*(tmp_path / p for p in paths))[0])
        assert (said.level, said.headline) == (Trust.BAD, "–")
        assert said.sentences[0].endswith("unusable, because of failed draws: see the warnings.")
        assert len(said.sentences) == 1


def test_a_coarse_solver_may_move_log_z_alone(tmp_path):
    run = make_run(tmp_path / "run", rows_of([0.5, 0.6, 0.7]))
    for shift, reasons, level in (
        (-1e-5, ["COARSE_SOLVER"], Trust.FAIR),
        (-1e-2, ["COARSE_SOLVER"], Trust.BAD),
        (None, ["COARSE_SOLVER"], Trust.BAD),
        ("odd", ["COARSE_SOLVER"], Trust.BAD),
        (-1e-5, ["COARSE_SOLVER", "HEAVY_TAIL"], Trust.BAD),
        (-1e-5, ["HEAVY_TAIL"], Trust.BAD),
    ):
        more = {"ess_err": 2e-5, "ess_shift": shift, "ess_shift_err": 1e-6, "warnings": ["Coarse."]}
        make_evaluation(run, ess=0.999, verdict=because(*reasons), **more)
        said = verdict([one(run.path)])
        assert said.level is level
        assert ("in doubt" in said.sentences[0]) == (level is Trust.BAD)
        assert ("log Z is less accurate" in said.sentences[1]) == (level is Trust.FAIR)


def test_seeds_of_which_some_are_evaluated(tmp_path):
    runs = [make_run(tmp_path / n, rows_of([0.5, 0.6, 0.8]), seed=i) for i, n in enumerate("ab")]
    for ess, found, level in (
        (0.9, GOOD, Trust.OPEN),
        (0.4, GOOD, Trust.FAIR),
        (0.9, because("HEAVY_TAIL"), Trust.BAD),
    ):
        make_evaluation(runs[0], ess=ess, verdict=found)
        said = verdict(runs_of(tmp_path / "a", tmp_path / "b")[0])
        assert (said.level, said.headline) == (level, "80.00 ± 0.00\u00a0%")  # of training, both
        assert said.sentences[1].startswith("1 of 2 runs evaluated, so this is of the last block")


def test_numbers_of_a_training_that_broke_down_are_in_doubt(tmp_path):
    lost = [*rows_of([0.9, 0.99]), Row(30, 3.0), Row(40, 4.0)]
    make_run(tmp_path / "lost", lost)
    said = verdict([one(tmp_path / "lost")])
    assert (said.level, said.headline) == (Trust.BAD, "99.00\u00a0%")
    assert "of step 20; the 2 blocks since have no finite number" in said.warnings[0]
    make_run(tmp_path / "below", rows_of([0.9, 0.99], below_bound=0.1))
    said = verdict([one(tmp_path / "below")])
    assert (said.level, said.chip) == (Trust.BAD, "provisional, do not rely on it")
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
    assert said.level is Trust.FAIR  # its NLL is of too few draws
    reports = "The paper reports 82.09 nats for MNIST with this gradient"
    other = (
        f"{reports}, of another model: latent 64, not 32; channels 32, not 8; width 1024, not 128;"
    )
    assert any(text.startswith(other) for text in said.sentences)
    # The model of the paper, stopped while its KL term did not count in full.
    paper = preset("paper", "mnist")
    options = dataclasses.asdict(paper)
    early = [Row(1, more={"beta": 0.25})]
    run = dataclasses.replace(runs[0], config={"experiment": "vae", "options": options}, rows=early)
    said = verdict([dataclasses.replace(run, evaluation={"step": 1, "negative_elbo": 90.0})])
    assert f"{reports}." in said.sentences
    assert said.level is Trust.FAIR
    assert "the KL term weighs 0.25 of 1" in said.warnings[0]
    said = verdict([dataclasses.replace(run, evaluation={"step": 1, "negative_elbo": None})])
    assert (said.level, said.headline) == (Trust.BAD, "–")
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
