"""CONTRIBUTING and the pages about additions name files that exist, and the layers that the tests know."""

import re

import pytest

from .docs_helpers import DOCS, ROOT
from .test_layers import LAYERS

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
PAGES = sorted((DOCS / "extending").glob("*.md"))
NAMES = {page.stem for page in PAGES} - {"index"}


@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda page: page.stem)
def test_files_that_are_named_exist(page):
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.M))
    paths = [span for span in spans if re.fullmatch(r"[\w./-]+(/|\.(py|pyi|md|toml|yml|txt|cff))", span)]
    paths = [path for path in paths if path not in ("site/", "dist/")]  # which are made
    # A file of an experiment that is yet to be written is one that others have.
    places = (ROOT, ROOT / "src/pathgrad", ROOT / "src/pathgrad/experiments/phi4")
    assert [path for path in paths if not any((place / path).exists() for place in places)] == []
    assert len(paths) >= 2


def test_the_map_has_the_layers_of_the_code():
    table = TEXT.partition("| layer |")[2].partition("\n\n")[0]
    rows = [line.split("|")[2] for line in table.splitlines()[2:]]
    named = [{re.sub(r"/|\.py", "", name) for name in re.findall(r"`([^`]+)`", row)} for row in rows]
    assert named == list(LAYERS)


def test_every_page_about_an_addition_is_listed():
    index = (DOCS / "extending" / "index.md").read_text()
    assert set(re.findall(r"\]\((\w+)\.md\)", index)) == NAMES
    assert set(re.findall(r"docs/extending/(\w+)\.md", TEXT)) - {"index"} == NAMES


def test_targets_of_make_exist():
    known = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"`make ([a-z-]+)", TEXT)) <= set(known)
    assert set(re.findall(r"\]\(([^):#]+)", TEXT)) == {f"docs/extending/{n}.md" for n in NAMES | {"index"}}
