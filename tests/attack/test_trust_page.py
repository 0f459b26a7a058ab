"""docs/trust.md names the tests that hold its promises: they exist."""

import re

import pytest

from ..docs_helpers import ROOT

PAGE = (ROOT / "docs" / "trust.md").read_text("utf-8")
SECTIONS = [part.partition("\n")[0] for part in PAGE.split("\n## ")[1:]]


def test_tests_and_programs_on_the_page_exist():
    named = re.findall(r"`(tests/[\w/]+\.py)`", PAGE)
    named += [name.replace(".", "/") + ".py" for name in re.findall(r"`python -m ([\w.]+)`", PAGE)]
    assert len(named) > 15
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("section", SECTIONS)
def test_every_promise_says_how_it_is_tested(section):
    text = PAGE.split(f"\n## {section}\n")[1].partition("\n## ")[0]
    assert "**Promised.**" in text
    assert re.search(r"\*\*Tested\*\* by `", text)


def test_every_attack_is_on_the_page():
    attacks = {path.name for path in (ROOT / "tests" / "attack").glob("test_*.py")} - {"test_trust_page.py"}
    assert {name for name in attacks if f"tests/attack/{name}`" not in PAGE} == set()
