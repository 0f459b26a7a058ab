"""Verdicts: what numbers are worth, at the edges of every threshold, and as they are kept in files."""

import json
import math
from pathlib import Path

import pytest

import pathgrad as pg
from pathgrad._numbers.measured import MEASURED
from pathgrad._numbers.quantity import measured_rows
from pathgrad._numbers.verdict import judge, read_verdict
from pathgrad._words.errors import as_options
from pathgrad.experiments.vae import verdict as autoencoder
from pathgrad.experiments.vae.verdict import AutoencoderReason

from .helpers import has_marks

RESULTS = Path(__file__).parents[1] / "results"
LEVELS = ["good", "usable", "unknown", "unreliable", "unusable"]

# An evaluation that nothing is wrong with.
FINE = {
    "samples": 10000, "failed": 0, "ess": 0.9, "ess_err": 0.003, "forward_ess": None, "elbo": 1.9, "kl": 0.1,
    "kl_err": 0.01, "log_z": 2.0, "log_z_err": 0.003, "khat": 0.2, "largest_weight": 9.0, "solver_shift": 0.0,
    "solver_shift_err": 0.0, "ess_shift": 0.0, "ess_shift_err": 0.0, "evaluations": 40.0, "rounding": 4.4e-16,
}  # fmt: skip
COARSE = {"solver_shift": 1.0}
HEAVY = {"khat": 0.9}
MISSED = {"forward_ess": 0.1}
LOST = {"chains": 252, "reach": 100.0, "lost": 0.25, "lost_err": 0.01, "lost_point": [1.5, -20.0]}
# Weights that hardly vary, with a tail that is heavy and very small.
NEARLY_EQUAL = {"ess": 0.9999, "khat": 1.1, "largest_weight": 1.4}


def reasons(**changed):
    return [reason.name for reason in judge(FINE | changed).reasons]


@pytest.mark.parametrize(
    ("n", "khat", "level", "reason"),
    [
        # Vehtari et al.: min(1 - 1/log10(n), 0.7), here worked out by hand; and one half.
        (21, 0.2436, "good", None),
        (21, 0.2438, "unreliable", "TAIL_NEEDS_DRAWS"),
        (100, 0.4999, "good", None),
        (100, 0.5, "unreliable", "TAIL_NEEDS_DRAWS"),
        (101, 0.5, "usable", "SLOW_TAIL"),
        (316, 0.6, "unreliable", "TAIL_NEEDS_DRAWS"),
        (317, 0.6, "usable", "SLOW_TAIL"),
        (1000, 0.4999, "good", None),
        (1000, 0.5, "usable", "SLOW_TAIL"),
        (1000, 0.6666, "usable", "SLOW_TAIL"),
        (1000, 0.6667, "unreliable", "TAIL_NEEDS_DRAWS"),
        (1000, 0.6999, "unreliable", "TAIL_NEEDS_DRAWS"),
        (1000, 0.7, "unreliable", "HEAVY_TAIL"),
        (2155, 0.6999, "usable", "SLOW_TAIL"),
        (10**6, 0.6999, "usable", "SLOW_TAIL"),
        (10**6, 0.7, "unreliable", "HEAVY_TAIL"),
        (1000, math.inf, "unreliable", "HEAVY_TAIL"),
        (1000, -math.inf, "good", None),
        (1000, math.nan, "unknown", "UNKNOWN_TAIL"),
        (1000, None, "unknown", "UNKNOWN_TAIL"),
        (20, 0.1, "unknown", "FEW_DRAWS"),
        (20, math.inf, "unknown", "FEW_DRAWS"),
        (20, math.nan, "unknown", "FEW_DRAWS"),
        (1, None, "unknown", "FEW_DRAWS"),
    ],
)
def test_the_tail_of_the_weights(n, khat, level, reason):
    found = judge(FINE | {"samples": n, "khat": khat})
    assert [r.name for r in found.reasons] == ([] if reason is None else [reason])
    assert found.level.name.lower() == level


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (NEARLY_EQUAL, []),
        (NEARLY_EQUAL | {"khat": 0.52}, []),
        ({"samples": 65536, "ess": 0.984, "khat": 1.0, "largest_weight": 2.9}, []),
        ({"samples": 65536, "ess": 0.993, "khat": 0.74, "largest_weight": 25.0}, ["HEAVY_TAIL"]),
        # By hand: 1/0.95 = 1/0.97 + 2 * 99 / 10000 * E^2 for k = 1, so that E = 1.0469.
        ({"ess": 0.97, "khat": 1.0, "largest_weight": 2.0468}, []),
        ({"ess": 0.97, "khat": 1.0, "largest_weight": 2.0470}, ["HEAVY_TAIL"]),
        # And 1/0.95 = 1/0.97 + ln(100) / 10000 * E^2 for k = 1/2, so that E = 6.8650.
        ({"ess": 0.97, "khat": 0.5, "largest_weight": 7.8649}, []),
        ({"ess": 0.97, "khat": 0.5, "largest_weight": 7.8651}, ["SLOW_TAIL"]),
        ({"ess": 0.97, "khat": 0.5, "largest_weight": 1.2, "samples": 90}, []),
        ({"ess": 0.97, "khat": 0.5, "largest_weight": 3.0, "samples": 90}, ["TAIL_NEEDS_DRAWS"]),
        ({"ess": 0.949, "khat": 0.7, "largest_weight": 1.01}, ["HEAVY_TAIL"]),
        (NEARLY_EQUAL | {"khat": math.inf}, ["HEAVY_TAIL"]),
        (NEARLY_EQUAL | {"khat": 300.0}, ["HEAVY_TAIL"]),
        (NEARLY_EQUAL | {"largest_weight": None}, ["HEAVY_TAIL"]),
        (NEARLY_EQUAL | {"largest_weight": math.inf}, ["HEAVY_TAIL"]),
        (NEARLY_EQUAL | {"ess": None}, ["HEAVY_TAIL"]),
        (NEARLY_EQUAL | {"khat": None}, ["UNKNOWN_TAIL"]),
        (NEARLY_EQUAL | {"samples": 20}, ["FEW_DRAWS"]),
        (NEARLY_EQUAL | MISSED, ["MISSED_MODE"]),
        (NEARLY_EQUAL | COARSE, ["COARSE_SOLVER"]),
    ],
)
def test_a_tail_that_is_small_may_have_any_shape(changed, expected):
    assert reasons(**changed) == expected


def test_limit_of_khat():
    assert pg.khat_limit(100) == 0.5
    assert pg.khat_limit(1000) == pytest.approx(2 / 3)
    assert pg.khat_limit(10**5) == pg.khat_limit(10**9) == 0.7
    assert [pg.khat_limit(n) for n in (0, 1)] == [-math.inf] * 2
    few = [pg.khat_limit(n) for n in range(1, 3000)]
    assert few == sorted(few)


def test_it_says_how_many_draws_would_do():
    # 1 - 1/log10(n) = 0.6 at n = 10^2.5 = 316.2.
    (text,) = judge(FINE | {"samples": 100, "khat": 0.6}).explain(FINE | {"samples": 100, "khat": 0.6})
    assert text == "K-hat 0.60 is above 0.50 for 100 draws; take at least 317 draws and look again."


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        # The errors of log Z and of the shift add up in squares: 0.003, 0.004, 0.005.
        ({"solver_shift": -0.00499, "solver_shift_err": 0.004}, []),
        ({"solver_shift": -0.00501, "solver_shift_err": 0.004}, ["COARSE_SOLVER"]),
        # Nobody quotes log Z more precisely than this.
        ({"solver_shift": 1e-5, "log_z_err": 0.0}, []),
        ({"solver_shift": 1.01e-5, "log_z_err": 0.0}, ["COARSE_SOLVER"]),
        ({"solver_shift": 0.02, "rounding": 0.02}, []),
        ({"solver_shift": 0.0201, "rounding": 0.02}, ["COARSE_SOLVER"]),
        ({"solver_shift": math.inf}, ["COARSE_SOLVER"]),
        # Before it was kept: single precision at a log Z of 1600 is 1.9e-4.
        ({"solver_shift": 1.9e-4, "rounding": None, "log_z": 1600.0, "log_z_err": 0.0}, []),
        ({"solver_shift": 1.92e-4, "rounding": None, "log_z": 1600.0, "log_z_err": 0.0}, ["COARSE_SOLVER"]),
        ({"ess_shift": -0.00499, "ess_shift_err": 0.004}, []),
        ({"ess_shift": -0.00501, "ess_shift_err": 0.004}, ["ESS_MOVES"]),
        ({"ess_shift": 1e-5, "ess_err": 0.0}, []),
        ({"ess_shift": 1.01e-5, "ess_err": 0.0}, ["ESS_MOVES"]),
        ({"ess_shift": 0.5, "solver_shift": 1.0}, ["COARSE_SOLVER"]),
        ({"solver_shift": math.nan, "ess_shift": math.nan}, ["UNCHECKED_SOLVER"]),
        ({"solver_shift": None, "ess_shift": None}, ["UNCHECKED_SOLVER"]),
        ({"forward_ess": 0.4501}, []),
        ({"forward_ess": 0.4499}, ["MISSED_MODE"]),
        ({"forward_ess": 0.0}, ["MISSED_MODE"]),
        ({"forward_ess": math.nan}, []),
    ],
)
def test_solver_and_coverage(changed, expected):
    assert reasons(**changed) == expected


def test_reasons_come_by_weight_and_remarks_last():
    assert reasons(**HEAVY, **MISSED, **COARSE) == ["HEAVY_TAIL", "MISSED_MODE", "COARSE_SOLVER"]
    assert reasons(khat=0.6, **COARSE) == ["COARSE_SOLVER", "SLOW_TAIL"]
    assert reasons(solver_shift=None, khat=0.6) == ["SLOW_TAIL", "UNCHECKED_SOLVER"]
    assert reasons(samples=20, **COARSE) == ["COARSE_SOLVER", "FEW_DRAWS"]
    # Where draws have failed, the other numbers are NaN and say nothing.
    assert reasons(failed=3, **HEAVY, **MISSED, **COARSE) == ["FAILED_DRAWS"]
    # Where the density is another one, they say nothing either; a thousandth is rounding.
    wrong = {"divergence_error": 1.01e-3}
    assert reasons(**wrong, **HEAVY) == ["WRONG_DIVERGENCE"]
    assert reasons(**wrong, failed=3) == ["FAILED_DRAWS", "WRONG_DIVERGENCE"]
    assert reasons(divergence_error=0.99e-3) == reasons(divergence_error=None) == []
    # A remark changes nothing.
    assert judge(FINE | {"solver_shift": None}).level is pg.Level.GOOD


def test_every_reason_is_reached():
    found = set()
    for changed in (
        {"failed": 1}, {"samples": 5}, {"khat": None}, {"khat": 0.9}, {"khat": 0.6},
        {"khat": 0.6, "samples": 100}, MISSED, COARSE, {"ess_shift": 0.1}, {"solver_shift": None},
        {"divergence_error": 0.1}, LOST, {"rounding": 0.1, "spread": 0.5}, {"rounding": 1e-3, "spread": 0.0},
    ):  # fmt: skip
        found |= set(judge(FINE | changed).reasons)
    assert found == set(pg.Reason)


@pytest.mark.parametrize(
    ("rounding", "spread", "expected"),
    [
        (0.0101, 0.1, ["ROUNDED"]),
        (0.0099, 0.0, ["EQUAL_WEIGHTS"]),  # so small that nothing is hidden
        (0.0101, 0.102, []),
        (119.0, 0.0, ["ROUNDED"]),
        (1e-6, 0.0, []),  # a flow may be the target
        (119.0, None, []),  # of an older version
        (None, 0.0, []),
    ],
)
def test_rounding_counts_where_it_hides_the_weights(rounding, spread, expected):
    assert reasons(rounding=rounding, spread=spread) == expected


def test_a_level_is_the_worst_of_its_reasons():
    assert [level.name.lower() for level in pg.Level] == LEVELS
    assert [int(level) for level in pg.Level] == sorted(map(int, pg.Level))
    for reason in pg.Reason:
        assert pg.Verdict.of([reason]).level is reason.level
    assert pg.Verdict.of([]) == pg.Verdict(pg.Level.GOOD)


def told(numbers, write=None):
    verdict = judge(numbers)
    return verdict.rows(numbers) if write is None else verdict.rows(numbers, write)


def test_words_are_made_from_the_numbers():
    assert told(FINE) == [
        (
            "verdict",
            "good: k-hat 0.20; weighted averages and their error bars can be trusted, as far as the flow's "
            "own draws can tell.",
        )
    ]
    # Draws of the target tell more.
    (row,) = told(FINE | {"forward_ess": 0.9})
    assert row[1] == "good: k-hat 0.20; weighted averages and their error bars can be trusted."
    # So do chains that start outside the flow's own draws, whether they find something or nothing.
    (row,) = told(FINE | LOST | {"lost": 0.0099})
    assert row[1].endswith(
        "trusted, as far as the flow's own draws and 252 chains from outside them can tell."
    )
    (row,) = told(FINE | LOST)
    assert (
        "found at least 25.0% of the target's mass where the flow has far too little, such as around "
        "(1.5, -20)." in row[1]
    )
    (row,) = told(FINE | LOST | {"lost_point": [0.1] * 9})
    assert "around (0.1, 0.1, 0.1, 0.1, 0.1, 0.1, ...)." in row[1]
    (row,) = told(FINE | NEARLY_EQUAL)
    assert row[1].startswith("good: k-hat 1.10, but the largest weight is only 1.4 times the mean; weighted ")
    (row,) = told(FINE | {"khat": -math.inf})
    assert row[1].startswith("good: the weights have no tail; weighted averages")
    # One reason is written in full, in the form its reader needs.
    moved = FINE | {"solver_shift": 0.5, "ess_shift": 0.02}
    text = (
        "unreliable: the ODE solver is too coarse: with twice the steps log Z moves by +5.0e-01, more than "
        "its error of 3.0e-03, and the ESS by +2.00%. Evaluate with twice the {}, or train with more solver "
        "steps."
    )
    assert told(moved) == [("verdict", text.format("`refine`"))]
    assert told(moved, as_options) == [("verdict", text.format("--refine"))]
    # Several of the same level are only named in the sentence; the rows before it explain them.
    *warnings, (_, last) = told(FINE | HEAVY | COARSE)
    assert [name for name, _ in warnings] == ["warning"] * 2
    assert last == "unreliable, because of the tail of the weights and a coarse solver."
    # A reason of a lower level is not named.
    *warnings, (_, last) = told(FINE | COARSE | {"khat": 0.6})
    assert last.startswith("unreliable: the ODE solver is too coarse")
    assert ["averages converge slowly" in text for _, text in warnings] == [True]
    *warnings, (_, last) = told(FINE | {"solver_shift": None})
    assert last.startswith("good: ")
    assert ["could not be checked" in text for _, text in warnings] == [True]


@pytest.mark.parametrize("reason", [*pg.Reason, *AutoencoderReason])
@pytest.mark.parametrize("numbers", [{}, dict.fromkeys(FINE), FINE], ids=["nothing", "None", "numbers"])
def test_no_number_is_needed_to_speak(reason, numbers):
    verdict = pg.Verdict.of([reason])
    for text in (*verdict.explain(numbers), *[text for _, text in verdict.rows(numbers, as_options)]):
        assert "{" not in text
        assert not has_marks(text)


@pytest.mark.parametrize("name", FINE)
@pytest.mark.parametrize("numbers", [FINE, FINE | HEAVY | MISSED | COARSE, FINE | {"khat": 0.6}])
def test_a_number_may_be_missing(name, numbers):
    for broken in ({k: v for k, v in numbers.items() if k != name}, numbers | {name: None}):
        found = read_verdict(broken)
        if name not in ("samples", "failed"):
            assert found is not None
            assert all(text for _, text in found.rows(broken))
    assert measured_rows(MEASURED, numbers | {name: None})


def test_verdicts_keep_in_files():
    for changed in ({}, HEAVY, HEAVY | MISSED | COARSE, {"failed": 2}, {"solver_shift": None}):
        verdict = judge(FINE | changed)
        stored = json.loads(json.dumps(verdict.to_json()))
        assert read_verdict({"verdict": stored}) == verdict
    assert judge(FINE | HEAVY).to_json() == {"level": "unreliable", "reasons": ["heavy_tail"]}
    # JSON has no infinity, but the verdict was made before: it holds, and so do its words.
    heavy = FINE | {"khat": math.inf}
    stored = FINE | {"khat": None, "verdict": judge(heavy).to_json()}
    assert read_verdict(stored).sentence(stored) == judge(heavy).sentence(heavy)
    assert "K-hat inf is above" in judge(heavy).explain(heavy)[0]


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"level": "good"},
        {"level": "splendid", "reasons": []},
        {"level": None, "reasons": None},
        {"level": "good", "reasons": [3]},
    ],
)
def test_what_is_not_a_verdict_is_none(stored):
    assert read_verdict(FINE | {"verdict": stored}) is None
    assert autoencoder.read_verdict({"verdict": stored}) is None


def test_the_level_of_a_later_version_counts_without_its_reasons():
    stored = {"level": "unusable", "reasons": ["failed_draws", "of a later version"]}
    expected = pg.Verdict(pg.Level.UNUSABLE, (pg.Reason.FAILED_DRAWS,))
    assert read_verdict(FINE | {"verdict": stored}) == expected


def test_without_numbers_there_is_no_verdict():
    for contents in ({}, {"verdict": "good: really"}, {"failed": 0, "samples": None, "khat": 0.1}):
        assert read_verdict(contents) is None
        assert autoencoder.read_verdict(contents) is None


RECORDS = {file: json.loads(file.read_text()) for file in sorted(RESULTS.glob("*/runs/*.json"))}
OLD = {file.stem: record["evaluation"] for file, record in RECORDS.items() if record["evaluation"]}


def test_there_are_old_evaluations():
    assert len(OLD) > 30


@pytest.mark.parametrize("contents", OLD.values(), ids=OLD)
def test_old_evaluations_are_judged_from_their_numbers(contents):
    """They have a sentence, written by an older version: the level must be its first word."""
    contents = dict(contents)
    if contents.get("experiment") == "vae":
        stored = contents.pop("verdict", None)
        found = autoencoder.read_verdict(contents)
        assert len(found.reasons) == len(contents["warnings"])
        assert stored is None or found.to_json() == stored
        return
    sentence = contents.pop("verdict")
    found = read_verdict(contents)
    if isinstance(sentence, str):
        assert found.level.name.lower() == sentence.replace(",", ":").split(":")[0]
    else:
        assert found.to_json() == sentence


IMAGES = {
    "dataset": "mnist", "images": 24, "failed": 0, "solver_shift_rms": 0.01, "nll_effective_samples": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "level", "expected"),
    [
        ({}, "good", []),
        ({"failed": 1, "solver_shift_rms": None}, "unusable", ["FAILED_SOLVES"]),
        ({"divergence_error": 9.9e-4}, "good", []),
        ({"divergence_error": 1.1e-3}, "unusable", ["WRONG_DIVERGENCE"]),
        ({"solver_shift_rms": 0.1}, "good", []),
        ({"solver_shift_rms": 0.101}, "unreliable", ["COARSE_SOLVER"]),
        ({"nll_effective_samples": 10.0}, "good", []),
        ({"nll_effective_samples": 9.9}, "usable", ["FEW_EFFECTIVE_DRAWS"]),
        ({"dataset": "omniglot-rebuilt"}, "good", ["NOT_COMPARABLE"]),
        (
            {"failed": 1, "solver_shift_rms": 2.0, "nll_effective_samples": 1.0}
            | {"dataset": "omniglot-rebuilt"},
            "unusable",
            ["FAILED_SOLVES", "COARSE_SOLVER", "FEW_EFFECTIVE_DRAWS", "NOT_COMPARABLE"],
        ),
    ],
)  # fmt: skip
def test_autoencoders(changed, level, expected):
    numbers = IMAGES | changed
    verdict = autoencoder.judge(numbers)
    assert [reason.name for reason in verdict.reasons] == expected
    assert verdict.sentence(numbers).startswith(level)
    assert autoencoder.read_verdict(numbers) == verdict  # of an older version, without one
    assert autoencoder.read_verdict({"verdict": json.loads(json.dumps(verdict.to_json()))}) == verdict


def test_words_about_autoencoders():
    numbers = IMAGES | {"failed": 2}
    assert autoencoder.judge(IMAGES).sentence(IMAGES) == "good: no problem was found."
    said = autoencoder.judge(numbers).sentence(numbers, as_options)
    assert said.startswith("unusable: the ODE solves of 2 of 24 images failed, so there is no mean.")
    assert "--refine" in said
