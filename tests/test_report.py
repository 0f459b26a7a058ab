"""The page of a report: what it says of runs in every state, and that nothing on it can do harm."""

import dataclasses
import html.parser
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from pathgrad._numbers.verdict import Level, Reason, Verdict
from pathgrad._runs.comparison import compare_groups
from pathgrad._runs.look import LOOKS, OTHER
from pathgrad._runs.run import Run
from pathgrad._show.curves import training_panels
from pathgrad._show.page import make_page
from pathgrad._show.page.html import Html, fine, prose, table, tag
from pathgrad._show.page.svg import chart, swatch_of
from pathgrad._show.page.verdict import Trust, judge_group
from pathgrad._show.style import INK, PAPER, RULE, SOFT
from pathgrad._train.row import Row

from .show_helpers import EVIL, EXPERIMENT, because, draws, evaluate, four_runs, grouped, make_run, rows_of

GOOD = Verdict(Level.GOOD)


class Seen(html.parser.HTMLParser):
    """What a browser would make of a page: elements, what it would fetch, and the text."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.sources, self.text, self._skipped = [], [], [], False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self._skipped = tag in ("style", "script")
        self.elements.append((tag, dict(attrs)))
        wanted = ("src", "href", "xlink:href", "srcset", "action", "data", "poster")
        self.sources += [value for name, value in attrs if name in wanted]

    def handle_endtag(self, tag):
        self._skipped = False

    def handle_data(self, data):
        if not self._skipped:
            self.text.append(data)

    def all(self, name, class_=None):
        return [
            attributes
            for found, attributes in self.elements
            if found == name and (class_ is None or class_ in (attributes.get("class") or "").split())
        ]

    @property
    def words(self):
        return " ".join("".join(self.text).split())


def page_of(*runs, **more):
    groups = grouped(runs)
    return make_page(groups, compare_groups(groups), **more)


def judged(*runs):
    (group,) = grouped(runs)
    return judge_group(group)


@pytest.fixture(scope="module")
def ten(tmp_path_factory):
    """Five seeds of two methods with long trainings, evaluated and drawn from."""
    folder, rng = tmp_path_factory.mktemp("ten"), np.random.default_rng(3)
    runs = []
    for method in ("path", "total"):
        for seed in range(5):
            share = 0.99 - 0.8 * np.exp(-np.arange(1000) / 100) - 0.01 * rng.uniform(size=1000)
            norms = [*map(float, np.exp(rng.normal(size=1000)))]
            rows = rows_of([*map(float, share)], gradient_norm=norms)
            run = make_run(folder / f"{method}{seed}", rows, method=method, seed=seed)
            runs.append(evaluate(run, ess=0.97, ess_err=0.001, arrays=draws(seed, 5000), tins=1))
    return runs, page_of(*runs)


# Numbers and markup


def test_numbers_are_set_in_fine_type():
    assert fine("-3.5 ± 1 %, 1.0e-05 and 12.0 s") == "−3.5_±_1_%, 1.0e−05 and 12.0_s".replace("_", "\u00a0")
    assert fine("-") == "–"
    # Names stay as they are.
    for name in ("run-1", "a--b", "2026-11-18", "s1-2 sheep", "--refine"):
        assert fine(name) == name


def test_text_cannot_become_markup():
    assert tag("p", EVIL, title='"') == ('<p title="&quot;">&lt;img src=x onerror=alert(1)&gt;</p>')
    assert EVIL not in prose(f"`{EVIL}` {EVIL}")
    assert EVIL not in table([EVIL, "x"], [[EVIL, EVIL]], label=EVIL)
    assert tag("p", Html("<b>"), None, 3) == "<p><b>3</p>"
    assert prose("take `--x -1` of -1 s") == "take <code>--x -1</code> of −1\u00a0s"


# Verdicts


@pytest.mark.parametrize(
    ("verdict", "level"),
    [
        (GOOD, Trust.GOOD),
        (because("SLOW_TAIL"), Trust.FAIR),
        (because("HEAVY_TAIL", "MISSED_MODE"), Trust.BAD),
        (Verdict(Level.UNRELIABLE), Trust.BAD),  # of a file that somebody changed
    ],
)
def test_the_level_is_that_of_the_verdict(tmp_path, verdict, level):
    run = make_run(tmp_path / "run", rows_of([0.1, 0.2, 0.5]))
    said = judged(evaluate(run, ess=0.9, ess_err=0.001, verdict=verdict))
    assert (said.level, said.chip) == (level, level.chip)
    assert said.headline == "90.00 ± 0.10 %"
    assert len(said.warnings) == len(verdict.reasons)
    assert ("k-hat", "0.20") in said.facts


def test_the_worst_of_the_seeds_speaks_for_all(tmp_path):
    runs = [make_run(tmp_path / n, rows_of([0.5, 0.6, 0.8]), seed=i) for i, n in enumerate("ab")]
    runs = [evaluate(runs[0], ess=0.9), evaluate(runs[1], ess=0.8, verdict=because("HEAVY_TAIL"))]
    said = judged(*runs)
    assert (said.level, said.headline) == (Trust.BAD, "85.00 ± 7.07 %")
    assert [text.startswith("b: ") for text in said.warnings] == [True]
    assert any(" b, the worst" in text for text in said.sentences)


def test_seeds_of_which_some_are_evaluated_are_provisional(tmp_path):
    runs = [make_run(tmp_path / n, rows_of([0.5, 0.6, 0.8]), seed=i) for i, n in enumerate("ab")]
    for verdict, level in ((GOOD, Trust.OPEN), (because("HEAVY_TAIL"), Trust.BAD)):
        said = judged(evaluate(runs[0], ess=0.9, verdict=verdict), runs[1])
        assert (said.level, said.headline) == (level, "80.00 ± 0.00 %")  # of training, both
        assert said.chip.startswith("provisional")


def test_an_evaluation_without_a_number_is_bad(tmp_path):
    runs = [make_run(tmp_path / n, rows_of([0.5, 0.6, 0.8]), seed=i) for i, n in enumerate("ab")]
    lost = evaluate(runs[0], ess=None, failed=3, verdict=because("FAILED_DRAWS"))
    for shown in ([lost], [lost, runs[1]]):
        said = judged(*shown)
        assert (said.level, said.headline) == (Trust.BAD, "-")
        assert "3 of 500 draws" in said.warnings[0]


def test_warnings_are_of_training_and_evaluation_and_of_the_experiment(tmp_path):
    rows = rows_of([0.5, 0.6, 0.7], skipped=3, below_bound=[None, 0.1, None])
    run = evaluate(make_run(tmp_path / "run", rows), ess=0.7, glued=1)
    said = judged(run)
    assert said.level is Trust.FAIR
    assert len(said.warnings) == 3
    assert "hammer" in said.warnings[0]
    assert "3 steps" in said.warnings[1]
    assert "1 of 3 blocks" in said.warnings[2]
    # Of a run that has gone on since, neither the number nor its verdict count.
    evaluate(run, ess=0.7, verdict=because("HEAVY_TAIL"))
    run.directory.append_metrics(rows_of([0.1] * 4)[-1])
    said = judged(Run.open(run.path, EXPERIMENT))
    assert (said.headline, said.level) == ("10.00 %", Trust.OPEN)
    assert not any("K-hat" in text for text in said.warnings)
    assert any("step 30" in text for text in said.sentences)


def test_a_training_that_broke_down_is_in_doubt(tmp_path):
    lost = [*rows_of([0.9, 0.99]), Row(30, 3.0), Row(40, 4.0)]
    said = judged(make_run(tmp_path / "lost", lost))
    assert (said.level, said.headline) == (Trust.BAD, "99.00 %")
    assert "step 20" in said.warnings[0]
    said = judged(make_run(tmp_path / "below", rows_of([0.9, 0.99], below_bound=0.1)))
    assert said.level is Trust.BAD


def test_what_is_judged_by_its_best_need_not_be_in_every_row(tmp_path):
    rows = rows_of([0.5] * 4, validation=[104.0, 101.0, 102.0, None], epoch=[1.0, 2.0, 3.0, 3.5])
    said = judged(make_run(tmp_path / "run", rows, target="data", training={"epochs": 9}))
    assert (said.level, said.headline, said.warnings) == (Trust.OPEN, "101.00", [])


@pytest.mark.parametrize("evaluation", ["{half", "[1, 2]", '{"step": 30, "verdict": "good"}', "3"])
def test_odd_files_are_read_as_far_as_possible(tmp_path, evaluation):
    run = make_run(tmp_path / "run", rows_of([0.2, 0.5, 0.9]))
    (run.path / "evaluation.json").write_text(evaluation)
    (run.path / "evaluation.npz").write_bytes(b"PK no")
    (run.path / "evaluation.png").write_bytes(b"no picture")
    text = Seen(page_of(Run.open(run.path, EXPERIMENT))).words
    assert "evaluation.npz cannot be read" in text
    assert f"pathgrad evaluate {run.path}" in text


@pytest.mark.parametrize("reason", list(Reason))
def test_a_verdict_without_its_numbers_is_told_as_far_as_it_goes(tmp_path, reason):
    run = make_run(tmp_path / "run", rows_of([0.1, 0.2, 0.5]))
    run = evaluate(run, ess=0.5, verdict=Verdict.of([reason]), khat="odd", samples=None)
    assert page_of(run)


# The page


def test_the_page_has_the_numbers_of_the_comparison(tmp_path):
    groups = grouped(four_runs(tmp_path))
    (found,) = compare_groups(groups)
    text = Seen(make_page(groups, [found])).words
    assert fine(found.title) in text
    assert all(" ".join(fine(each).split()) in text for each in found.sentences)
    # 0.96 and 0.98: their standard deviation is 0.02 over the root of 2; 97 against 85 is 12.
    assert "97.00 ± 1.41 %" in text.replace("\u00a0", " ")
    assert "+12.00 points" in text.replace("\u00a0", " ")


def test_runs_in_every_state_are_on_the_page(tmp_path):
    ended = make_run(tmp_path / "ended", rows_of([0.2, 0.5]))
    killed = make_run(tmp_path / "killed", rows_of([0.2]), steps=500, width=8)
    with (killed.path / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 20, "ess": 0.')
    empty = make_run(tmp_path / "empty", [], steps=500, width=16)
    running = make_run(tmp_path / "running", rows_of([0.3]), steps=500, width=32)
    broken = [(tmp_path / "broken", f"There is no `config` {EVIL}.")]
    with running.directory.locked():
        seen = Seen(page_of(ended, killed, empty, running, broken=broken))
    kinds = [each["class"].split()[1] for each in seen.all("span", "state")]
    assert sorted(kinds) == ["empty", "ended", "running", "stopped"]
    assert len(seen.all("article")) == 4
    assert "1 training now" in seen.words
    assert "2 stopped before the end" in seen.words
    assert str(tmp_path / "broken") in seen.words
    assert EVIL in seen.words


def test_a_run_without_rows_has_a_card_and_no_curve(tmp_path):
    seen = Seen(page_of(make_run(tmp_path / "run", [], steps=5)))
    assert len(seen.all("article")) == 1
    assert not seen.all("svg", "chart")


def test_resuming_is_told_for_the_command_line(tmp_path):
    run = make_run(tmp_path / "run", rows_of([0.5]), steps=99)
    (run.path / "checkpoints").mkdir()
    (run.path / "checkpoints/step-10.npz").touch()
    assert f"--out {run.path} --resume" in Seen(page_of(run)).words


def test_every_chart_has_a_description_and_every_picture_words(ten):
    seen = Seen(ten[1])
    # Against steps and time: what is followed, two further numbers. The spread; of each group shots and tins.
    charts = seen.all("svg", "chart")
    assert len(charts) == 2 * 3 + 1 + 2 * 2
    assert all(each["role"] == "img" and len(each["aria-label"]) > 10 for each in charts)
    assert all(each["aria-hidden"] == "true" for each in seen.all("svg", "swatch"))
    words = [each["aria-label"] for each in charts]
    assert [sum(text.startswith(w) for text in words) for w in ("Hist", "5000", "A pic")] == [1, 2, 2]


def test_the_page_stays_small(ten):
    assert len(ten[1].encode()) < 1_500_000


def test_colours_are_those_of_the_theme(ten):
    page = ten[1]
    drawings = "".join(re.findall(r"<svg.*?</svg>", page, flags=re.S))
    for colour in (*(look.colour for look in LOOKS.values()), OTHER.colour, INK, SOFT, RULE, PAPER):
        assert colour.lower() not in drawings.lower()
    for name in ("path", "total", "text", "soft", "rule"):
        assert f"var(--{name})" in drawings
    # And the theme says what they are, as all other pictures do.
    sheet = re.search(r"<style>(.*?)</style>", page, flags=re.S)[1]
    for name, look in LOOKS.items():
        assert f"--{name}:light-dark({look.colour},{look.dark})" in sheet
    for name, colour in (("text", INK), ("soft", SOFT), ("rule", RULE), ("paper", PAPER)):
        assert f"--{name}: {colour};" in sheet


def test_ids_are_unique_and_those_referred_to_are_there(ten):
    seen = Seen(ten[1])
    ids = [attributes["id"] for _, attributes in seen.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    used = set(re.findall(r"url\(#(.*?)\)", ten[1]))
    assert used
    assert used <= set(ids)


def test_a_drawing_tells_where_its_numbers_lie(tmp_path):
    rows = rows_of([0.2, 0.5, 0.9])
    groups = grouped([make_run(tmp_path / "run", rows)])
    followed, _, kl = training_panels(groups)
    forward = {"linear": float, "log": np.log10, "share": lambda v: -np.log10(1 - v)}
    for panel, xs, ys in (
        (followed.by_length, (10, 20, 30), (0.2, 0.5, 0.9)),
        (followed.by_time, (1, 2, 3), (0.2, 0.5, 0.9)),
        (kl.by_length, (10, 20, 30), tuple(row.kl for row in rows)),
    ):
        root = ET.fromstring(chart(panel, groups)[0])
        (line,) = [e for e in root.iter("path") if e.get("data-label") == "path" and "L" in e.attrib["d"]]
        points = np.array(re.findall(r"[ML]([\d.]+) ([\d.]+)", line.attrib["d"]), float)
        for axis, places, values in (("x", points[:, 0], xs), ("y", points[:, 1], ys)):
            kind, *numbers = root.get(f"data-{axis}").split()
            low, high, start, end = map(float, numbers)
            a, b = forward[kind](low), forward[kind](high)
            shares = [(forward[kind](v) - a) / (b - a) for v in values]
            np.testing.assert_allclose(places, [start + s * (end - start) for s in shares], atol=0.06)


def test_thousands_of_points_are_one_path_and_images_keep_their_pixels(ten):
    groups = grouped(ten[0])[:1]
    panels = EXPERIMENT.panels()
    shots = ET.fromstring(chart(panels["shots"], groups)[0])
    (dots,) = [e for e in shots.iter("path") if e.get("d").count("M") > 1000]
    assert dots.get("d").count("h0") == 5000
    tins = ET.fromstring(chart(panels["tins"], groups)[0])
    (image,) = tins.iter("image")
    assert image.attrib["href"].startswith("data:image/png;base64,")
    assert len(image.attrib["href"]) < 2000  # 12 by 16 pixels, not those of the screen


def test_swatches_show_dashes_and_stand_alone():
    swatches = [ET.fromstring(swatch_of(method)) for method in ("path", "total", "two-copy", "mine")]
    styles = [next(e.attrib["style"] for e in each.iter("path")) for each in swatches]
    assert len(set(styles)) == 4
    assert ["dasharray" in style for style in styles] == [False, True, True, True]
    assert not [e for each in swatches for e in each.iter() if e.get("id")]


def test_many_groups_are_named_once(tmp_path):
    runs = [make_run(tmp_path / str(w), rows_of([0.2, 0.5]), width=w) for w in range(6)]
    assert len(Seen(page_of(*runs)).all("ul", "legend")) == 1
    assert len(Seen(page_of(*runs[:2])).all("ul", "legend")) > 1


def test_tables_of_the_experiment_mark_what_is_doubtful(tmp_path):
    run = evaluate(make_run(tmp_path / "run", rows_of([0.2, 0.5])), ess=0.5, tins=1)
    page = page_of(run)
    assert "<strong>−4 ⚠</strong>" in page
    assert "<strong>1 ⚠</strong>" not in page
    assert "Counted by hand." in page
    scrolled = Seen(page).all("div", "scroll")
    assert len(scrolled) >= 3
    assert all(each["tabindex"] == "0" and each["aria-label"] for each in scrolled)


def test_what_differs_is_set_apart_from_what_is_shared(tmp_path):
    runs = [make_run(tmp_path / str(w), rows_of([0.5]), width=w, depth=3) for w in (8, 16)]
    page = page_of(*runs)
    differs = re.search(r"<h3>What differs.*?</table>", page, flags=re.S)[0]
    assert ">width<" in differs
    assert ">depth<" not in differs
    assert "<dt>depth</dt><dd>3</dd>" in page


def test_arrays_of_odd_shapes_do_not_keep_the_page_from_being_made(tmp_path):
    run = make_run(tmp_path / "run", rows_of([0.2, 0.5]))
    odd = {"x": np.zeros(3), "log_weight": np.full(9, np.nan), "tins": np.array(["a"])}
    text = Seen(page_of(evaluate(run, ess=0.5, arrays=odd))).words
    assert "do not fit together" in text
    assert "holds something other than numbers in tins" in text


def test_the_picture_of_an_evaluation_stands_in_for_lost_draws(tmp_path):
    run = evaluate(make_run(tmp_path / "run", rows_of([0.5])), ess=0.5)
    file = run.path / "evaluation.png"
    for size, shown in ((1_000, 1), (3_000_000, 0)):
        file.write_bytes(b"\x89PNG\r\n\x1a\n".ljust(size, b"."))
        seen = Seen(page_of(run))
        assert len(seen.all("img")) == shown
        assert (str(file) in seen.words) == (not shown)


def test_the_page_loads_nothing_and_hostile_names_do_nothing(tmp_path):
    evil = '"><img src=http://evil.example onerror=alert(1)>$\\x'
    path = tmp_path / evil.replace("/", ":")
    rows = rows_of([0.2, 0.5, 0.6])
    machine = {"platform": evil, "cpus": 1}
    run = make_run(path, rows, method=evil, target=f"</script>{evil}", machine=machine)
    run = evaluate(run, ess=0.5, glued=1, tins=1, arrays=draws(), provenance={"command": evil})
    stored = json.loads((path / "evaluation.json").read_text())
    (path / "evaluation.json").write_text(json.dumps(stored | {"verdict": evil}))
    page = page_of(Run.open(path, EXPERIMENT), title=f"</title>{evil}", broken=[(path, evil)])
    seen = Seen(page)
    assert seen.sources
    assert all(source.startswith(("#", "data:")) for source in seen.sources)
    assert len(seen.all("script")) == len(seen.all("title")) == len(seen.all("style")) == 1
    assert not [name for _, each in seen.elements for name in each if name.startswith("on")]
    policy = next(e["content"] for e in seen.all("meta") if e.get("http-equiv"))
    assert policy.startswith("default-src 'none';")
    assert "unsafe-inline" not in policy.partition("script-src")[2]
    assert evil in seen.words


def test_the_page_is_made_without_jax(tmp_path):
    run = evaluate(make_run(tmp_path / "run", rows_of([0.2, 0.5])), ess=0.5)
    code = "import sys; import pathgrad._show.page, pathgrad._show.figure; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    before = sorted((p.name, p.stat().st_mtime_ns) for p in run.path.iterdir())
    page_of(dataclasses.replace(run))
    assert sorted((p.name, p.stat().st_mtime_ns) for p in run.path.iterdir()) == before
