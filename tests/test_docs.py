"""Code in the documents runs as it is written, prints what they say, and links lead somewhere."""

import contextlib
import itertools
import re
import struct

import jax
import pytest

import pathgrad as pg
from benchmarks.pictures import PICTURES, draw
from pathgrad.experiments.vae.verdict import AutoencoderReason

from .docs_helpers import DOCS, PAGES, blocks, name_of

# Whose code takes long.
SLOW = {"default-fit", "chains", "posteriors", "tutorial"}
# The packages that code of a page needs, besides those that every test needs.
NEEDED = {"chains": ["blackjax"], "posteriors": ["numpyro", "arviz"], "tutorial": ["numpyro", "arviz"]}
WITH_CODE = [page for page in PAGES if any(b.language == "python" for b in blocks(page))]
TRIED = [
    pytest.param(page, marks=[pytest.mark.slow] if page.stem in SLOW else [], id=name_of(page))
    for page in WITH_CODE
]


def precision_of(code):
    """Readers have single precision unless the page asks for double, which is what tests have."""
    asks = 'jax.config.update("jax_enable_x64", True)' in code
    return contextlib.nullcontext() if asks else jax.enable_x64(False)


@pytest.mark.parametrize("page", TRIED)
def test_code_runs_and_prints_what_the_page_says(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = blocks(page)
    for package in NEEDED.get(page.stem, []):
        pytest.importorskip(package)
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
        for name in (name for name, (of, _) in PICTURES.items() if DOCS / of == page):
            picture = draw(name, whole, tmp_path)
            kept = DOCS / "pictures" / picture.name
            assert max(picture.stat().st_size, kept.stat().st_size) < 100_000
            assert size_of(picture) == size_of(kept)  # drawn again after it was changed


def size_of(png):
    """Width and height, from the head of the file."""
    return struct.unpack(">II", png.read_bytes()[16:24])


# What says how a picture was made: a command, in the line under it.
MADE = re.compile(r"\(.*`(pathgrad|python -m benchmarks\.|benchmarks/)[^`]*`")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_picture_has_the_command_that_makes_it_under_it(page):
    under = re.findall(r"^!\[[^\]]*\]\([^)]+\)\n\n([^\n]*)", page.read_text(), re.MULTILINE)
    assert len(under) == len(re.findall(r"!\[", page.read_text()))
    assert [line for line in under if not MADE.match(line)] == []


def test_every_level_and_reason_is_explained():
    text = (DOCS / "verdict.md").read_text()
    for level in pg.Level:
        assert f"| `{level.name}` |" in text
    for reason in pg.Reason:
        [explained] = re.findall(rf"^### {reason.name}\n\n(.*?)(?=^##|\Z)", text, re.DOTALL | re.MULTILINE)
        assert explained.startswith(f"Level `{reason.level.name}`")
        assert "*Computed*: " in explained
        assert "*Do*: " in explained
    for reason in AutoencoderReason:
        assert f"| `{reason.name}` | `{reason.level.name}` |" in text


def test_pages_begin_by_saying_whom_they_are_for():
    for page in DOCS.glob("*.md"):
        title, first = page.read_text().split("\n\n")[:2]
        assert title.startswith("# ")
        assert re.match(r"For anyone (who|whose|with)\b", first), page


def test_every_page_with_claims_has_code():
    names = {page.stem for page in WITH_CODE}
    assert names >= {
        "index", "verdict", "bad-fit", "own-density", "own-field", "own-objective", "own-experiment",
        "choosing", "runs", "devices", "phi4", "autoencoders", "theory", "second-order", "costs",
    }  # fmt: skip


def test_blocks_are_of_known_kinds():
    kinds = {b.language for page in PAGES for b in blocks(page)}
    assert kinds == {"python", "text", "toml", ""}  # code, what it prints, settings, the shell


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere_in_the_repository_too(page):
    targets = re.findall(r"\]\(([^)#:\s]+)", page.read_text())
    assert [t for t in targets if not (page.parent / t).exists()] == []
    assert targets or page.parent == DOCS / "api" or page.stem == "devices"
