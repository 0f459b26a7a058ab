"""Code in the documents runs as it is written, prints what they say, and links lead somewhere."""

import contextlib
import itertools
import re

import jax
import pytest

from .docs_helpers import DOCS, PAGES, blocks, name_of

WITH_CODE = [page for page in PAGES if any(b.language == "python" for b in blocks(page))]


def precision_of(code):
    """Readers have single precision unless the page asks for double, which is what tests have."""
    asks = 'jax.config.update("jax_enable_x64", True)' in code
    return contextlib.nullcontext() if asks else jax.enable_x64(False)


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_code_runs_and_prints_what_the_page_says(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = blocks(page)
    whole: dict = {}  # one namespace for the page: its blocks build on each other
    with precision_of("".join(b.text for b in found if b.language == "python")):
        for block, after in itertools.zip_longest(found, found[1:]):
            if block.language != "python":
                continue
            # A block with a title is a file of its own.
            exec(compile(block.text, str(page), "exec"), {} if "title=" in block.options else whole)
            printed = capsys.readouterr().out
            if after is not None and after.language == "text":
                assert printed == after.text


def test_every_page_with_claims_has_code():
    names = {page.stem for page in WITH_CODE}
    assert names >= {
        "index", "theory", "choosing", "own-problems", "second-order", "costs", "phi4", "autoencoders",
    }  # fmt: skip


def test_blocks_are_of_known_kinds():
    kinds = {b.language for page in PAGES for b in blocks(page)}
    assert kinds == {"python", "text", "toml", ""}  # code, what it prints, settings, the shell


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere_in_the_repository_too(page):
    targets = re.findall(r"\]\(([^)#:\s]+)", page.read_text())
    assert [t for t in targets if not (page.parent / t).exists()] == []
    assert targets or page.parent == DOCS / "api" or page.stem == "devices"
