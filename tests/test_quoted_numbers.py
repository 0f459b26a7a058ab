"""Numbers on our pages are those in the files they come from. `quoted_helpers` has the notation."""

import json
import re

import pytest

from benchmarks import modes, posteriors
from benchmarks.costs.tables import markdown
from pathgrad._bench import fit_tables
from pathgrad._cli.tables import escaped

from .docs_helpers import DOCS, PAGES, README, ROOT
from .quoted_helpers import (
    Block,
    QuoteError,
    blocks_of,
    check_block,
    evaluate,
    files_named,
    links_of,
    table_in,
    unexplained,
    written_as,
)

GENERATED = ("bench.md", "targets.md", "modes.md", "posteriors.md")
RESULTS = sorted(page for page in (ROOT / "results").rglob("*.md") if page.name not in GENERATED)
# Pages with measured numbers; the others have settings and limits, which are in no file.
MEASURED = ("costs", "devices", "choosing", "when-not", "second-order", "phi4", "autoencoders")
# Every number with a decimal point on these pages needs a source. Other pages have their sources checked.
COMPLETE = [README, *RESULTS, *(DOCS / f"{name}.md" for name in MEASURED)]
STUDIES = ("dimension", "steps", "batch", "choices", "volume", "published", "field", "images", "rivals")


def named(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [README, *RESULTS, *PAGES], ids=named)
def test_quoted_numbers_are_those_in_the_files(page):
    for block in blocks_of(page.read_text()):
        explained = check_block(block, page)
        if page in COMPLETE:
            assert unexplained(block, explained) == [], f"without a source: {block.text[:80]}"


def test_there_are_sources():
    counts = {named(p): sum(len(b.sources) for b in blocks_of(p.read_text())) for p in COMPLETE}
    assert counts["README.md"] >= 6
    assert counts["results/README.md"] >= 50
    assert counts["results/phi4/second_order.md"] >= 80
    assert counts["docs/costs.md"] >= 25
    assert counts["docs/devices.md"] >= 10


def test_the_page_of_costs_is_made_from_its_files():
    files = {name: ROOT / f"results/bench/{name}.json" for name in STUDIES}
    made = markdown({name: json.loads(file.read_text()) for name, file in files.items()})
    page = (ROOT / "results/bench/bench.md").read_text()
    quoted, tables = ([line for line in text.splitlines() if line[:1] == "|"] for text in (page, made))
    assert len(tables) > 80
    assert quoted == tables


def test_the_page_of_targets_is_made_from_its_files():
    records = [json.loads(file.read_text()) for file in (ROOT / "results/targets").glob("*.json")]
    page = (ROOT / "results/targets/targets.md").read_text().splitlines()
    _, _, *quoted = [line for line in page if line[:2] == "| "]
    rows = [f"| {' | '.join(map(escaped, fit_tables.row(record)))} |" for record in records]
    assert len(rows) > 20
    assert sorted(quoted) == sorted(rows)


def test_the_page_of_lost_modes_is_made_from_its_file():
    folder = ROOT / "results/modes"
    records = json.loads((folder / "modes.json").read_text())["records"]
    assert (folder / "modes.md").read_text() == modes.markdown(records)


def test_the_pages_of_posteriors_are_made_from_their_files():
    records = [json.loads(file.read_text()) for file in (ROOT / "results/posteriors").glob("*.json")]
    page = (ROOT / "results/posteriors/posteriors.md").read_text()
    assert sorted(page.splitlines()[:-1]) == sorted(posteriors.markdown(records).splitlines()[:-1])
    table = [f"| {' | '.join(cells)} |" for cells in posteriors.overall(records)]
    assert len(table) >= 5
    said = (ROOT / "docs/posteriors.md").read_text()
    assert [line for line in table if line not in said] == []


@pytest.mark.parametrize("page", RESULTS, ids=named)
def test_seeds_and_commits_in_tables_are_those_of_the_runs(page):
    for block in blocks_of(page.read_text()):
        table = table_in(block.text)
        for row in table.rows if table else []:
            records = [json.loads(file.read_text()) for file in links_of(row, page)]
            cells = dict(zip(table.head, row, strict=True))
            commits = cells.get("commit") or cells.get("commits")
            if commits and records:
                made = [record["provenance"]["commit"][:7] for record in records]
                assert re.findall(r"`(\w+)`", commits) == list(dict.fromkeys(made)), row
            seeds = cells.get("seed") or cells.get("seeds")
            if seeds and records and "options" in records[0]:
                assert seeds == ", ".join(str(r["options"]["training"]["seed"]) for r in records), row


def test_the_index_names_every_file_of_numbers():
    """By a link, or by a pattern in a source."""
    index = [README, *RESULTS]
    text = "".join(page.read_text() for page in index)
    linked = {file for page in index for file in links_of([page.read_text()], page)}
    patterns = re.findall(r"results/[^\s;]+\.json", text)
    meant = {file for pattern in patterns for file in _meant(pattern)}
    files = {*(ROOT / "results").rglob("*.json")}
    assert sorted(named(file) for file in files - linked - meant) == [
        # Tables in bench.md.
        "results/bench/batch.json",
        "results/bench/steps.json",
    ]


def _meant(pattern):
    try:
        return files_named(pattern)
    except QuoteError:
        return []  # with the cell of a row in its name


# The check itself


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Two runs in files, and a place for a page beside them."""
    monkeypatch.setattr("tests.quoted_helpers.ROOT", tmp_path)
    for seed, ess in enumerate((0.98765, 0.96543)):
        curve = {"epoch": [1, 5], "validation": [7.0, 3.25 + seed], "seconds": [30.0, 90.0]}
        rows = [{"size": 6, "cost": 2.0}, {"size": 12, "cost": 5.0}]
        record = {"ess": ess, "curve": curve, "rows": rows, "a / b": {"median": 1.5}}
        (tmp_path / f"run-s{seed}.json").write_text(json.dumps(record))
    return tmp_path / "page.md"


def checked(page, text, *sources):
    return check_block(Block(text, "", list(sources)), page)


def test_values_are_found(page):
    assert evaluate("run-s0.json ess in %", []) == [pytest.approx(98.765)]
    assert evaluate("run-s?.json ess", []) == [0.98765, 0.96543]
    assert evaluate("mean run-s{0,1}.json ess in %", []) == [pytest.approx(97.654)]
    assert evaluate("run-s0.json curve.validation[epoch=5]", []) == [3.25]
    assert evaluate("run-s0.json curve.seconds[-1] in min", []) == [1.5]
    assert evaluate("run-s0.json rows[size=12].cost / rows[size=6].cost", []) == [2.5]
    assert evaluate("run-s0.json rows[size=12].cost - run-s0.json ess", []) == [pytest.approx(4.01235)]
    assert evaluate('run-s1.json "a / b".median', []) == [1.5]
    assert evaluate("run-s0.json rows[size=12].cost / rows[size=6].cost * curve.validation[0]", []) == [17.5]
    assert evaluate("largest run-s?.json curve.seconds", []) == [90.0]


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        (98.766, "98.77"),
        (98.765, "99"),
        (2.04, "+2.0"),
        (-0.04, "-0.0"),
        (499600.2, "499,600"),
        (-3.96e-5, "-4e-5"),
        (1234.5, "1.23e3"),
    ],
)
def test_a_value_is_rounded_as_it_is_quoted(value, quoted):
    assert written_as(value, quoted) == quoted.replace(",", "")


def test_true_quotes_pass(page):
    text = "It reaches **98.77 %**, and 96.54 % with the other seed."
    assert checked(page, text, "98.77 %, and 96.54 % <- run-s?.json ess in %") == {"98.77", "96.54"}
    table = "| seed | ESS, % | file |\n| --- | --- | --- |\n"
    table += "| 0 | 98.77 | [x](run-s0.json) |\n| both | 97.65 ± 1.57 | [x](run-s0.json) [y](run-s1.json) |"
    assert checked(page, table, "ESS, % <- mean ess in %; sd ess in %") == {"98.77", "97.65", "1.57"}
    named_by_cell = "| seed | ESS |\n| --- | --- |\n| 0 | 0.988 |\n| 1 | 0.965 |"
    assert checked(page, named_by_cell, "ESS <- run-s{seed}.json ess") == {"0.988", "0.965"}


@pytest.mark.parametrize(
    ("text", "source", "complaint"),
    [
        ("It reaches 98.78 %.", "98.78 % <- run-s0.json ess in %", "98.78 .* should be 98.77"),
        ("It reaches 98.8 %.", "98.77 % <- run-s0.json ess in %", "not there any more"),
        ("It reaches 98.77 %.", "98.77 % <- run-s?.json ess in %", "1 numbers, its source 2 values"),
        ("It reaches 98.77 %.", "98.77 % <- run-s7.json ess in %", "no file run-s7.json"),
        ("It reaches 98.77 %.", "98.77 % <- run-s0.json kl", "kl leads nowhere"),
        ("It reaches 98.77 %.", "98.77 % = run-s0.json ess", "not of the form"),
        ("| a | b |\n| --- | --- |\n| 0 | 0.98 |", "b <- run-s{a}.json ess", "0.98 .* should be 0.99"),
        ("| a | b |\n| --- | --- |\n| 0 | - |", "b <- run-s{a}.json ess", "has 0 numbers"),
    ],
)
def test_wrong_quotes_fail(page, text, source, complaint):
    with pytest.raises(QuoteError, match=complaint):
        checked(page, text, source)


def test_numbers_without_a_source_are_found():
    block = Block("Between 1.5 and **2.25** with `--rate 0.1`, bijx 1.3.2, 3 seeds, Apache-2.0.", "", [])
    assert unexplained(block, set()) == ["1.5", "2.25"]
    assert unexplained(block, {"1.5", "2.25"}) == []


def test_a_comment_belongs_to_the_block_above_it():
    first, second = blocks_of("One 1.5.\n\n<!-- from a.json\n1.5 <- b\n-->\n\n```\n2.5\n\n3.5\n```\n\nTwo.")
    assert (first.file, first.sources, second.text) == ("a.json", ["1.5 <- b"], "Two.")
    with pytest.raises(QuoteError, match="nothing above it"):
        blocks_of("<!-- from\n1.5 <- a.json b\n-->")
