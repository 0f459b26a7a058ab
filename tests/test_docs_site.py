"""The site builds without a warning, has every page and public name, and loads nothing from elsewhere."""

import html
import html.parser
import importlib.util
import os
import re
import subprocess
import sys
import types
import xml.etree.ElementTree as ET
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
import yaml

import pathgrad
from benchmarks.pictures import PICTURES

from .docs_helpers import DOCS, ROOT

PUBLIC = vars(pathgrad)["__all__"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        # Not --quiet: warnings that are not said do not end a strict build either.
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    assert "Documentation built" in built.stderr
    return folder


class Loads(html.parser.HTMLParser):
    """Collects what a page makes the browser load, as opposed to what it links to."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        names = {"a": (), "link": ("href",)}.get(tag, ("src", "srcset", "data", "poster"))
        self.found += [value for name, value in attrs if name in names and value]


def pages(site):
    return {page: page.read_text() for page in sorted(site.rglob("*.html"))}


def navigation(entries):
    """Yield the files that the navigation names."""
    for entry in entries:
        [content] = entry.values()
        yield from navigation(content) if isinstance(content, list) else [content]


def test_every_page_of_the_navigation_is_built(site):
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    named = list(navigation(settings["nav"]))
    assert {p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md")} <= set(named)
    for name in named:
        stem = name.removesuffix(".md").removesuffix("README").removesuffix("index").rstrip("/")
        assert (site / stem / "index.html").is_file(), name


def test_pages_load_nothing_from_elsewhere(site):
    loaded = 0
    for page, text in pages(site).items():
        for address in Loads(text).found:
            if address.startswith("data:"):
                continue
            assert not re.match(r"(\w+:)?//", address), f"{page} loads {address}"
            path = unquote(urldefrag(address).url.partition("?")[0])
            there = site / path[1:] if path.startswith("/") else page.parent / path
            assert there.exists(), f"{page} wants {address}"
            loaded += 1
    assert loaded > 100
    for sheet in site.rglob("*.css"):
        assert not re.search(r"""(@import|url\()\s*["']?(https?:)?//""", sheet.read_text()), sheet


def test_pictures_of_the_results_are_shown(site):
    for page, picture in (
        ("index.html", "results/toy/demo/comparison.png"),
        ("phi4/index.html", "results/phi4/comparison.png"),
        ("autoencoders/index.html", "results/vae/small.png"),
    ):
        assert (site / picture).read_bytes() == (ROOT / picture).read_bytes()
        assert picture in (site / page).read_text()
    # The repository has each picture once: the site's own are those that are drawn for it.
    assert {p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.png")} == {
        f"pictures/{name}.png" for name in PICTURES
    }


def test_formulas_are_mathml(site):
    count = 0
    for page, text in pages(site).items():
        assert 'class="arithmatex"' not in text, page
        for formula in re.findall(r"<math.*?</math>", text, re.DOTALL):
            # Of the names that HTML has and XML has not, the translation uses this one.
            ET.fromstring(formula.replace("&ApplyFunction;", "\u2061"))
            count += 1
    assert count > 100


def test_the_reference_has_every_public_name_once(site):
    text = "".join(page.read_text() for page in sorted((DOCS / "api").glob("*.md")))
    assert sorted(re.findall(r"^::: pathgrad\.(\w+)$", text, re.MULTILINE)) == sorted(PUBLIC)
    built = "".join((site / "api").joinpath(p).read_text() for p in _html_below(site / "api"))
    for name in PUBLIC:
        public = getattr(pathgrad, name)
        # A module has a page, and on it its functions.
        inside = isinstance(public, types.ModuleType)
        assert f'id="pathgrad.{name}{"." if inside else chr(34)}' in built, name
    # How a module is made, with the default and the shape as they are written.
    plain = html.unescape(re.sub(r"<[^>]+>", "", built))
    assert "FixedStep(steps: int = 20)" in plain
    assert '-> Float[Array, "batch *event"]' in plain


def _html_below(folder: Path):
    return [path.relative_to(folder) for path in sorted(folder.rglob("*.html"))]


@pytest.fixture(scope="module")
def translated():
    """The hook that translates the formulas of a page."""
    spec = importlib.util.spec_from_file_location("mathml", DOCS / "_hooks" / "mathml.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = types.SimpleNamespace(file=types.SimpleNamespace(src_uri="some.md"))
    return lambda content: module.on_page_content(content, page)


def test_formulas_are_what_was_written(translated):
    """Inside a line and in a line of their own, and with what HTML has to escape."""
    inline, block = r"x_i^2 &lt; b", r"\frac{a}{\sqrt N}"
    made = translated(
        f'<p>As <span class="arithmatex">\\({inline}\\)</span> says.</p>\n'
        f'<div class="arithmatex">\\[\n{block}\n\\]</div>'
    )
    assert made.startswith("<p>As <math><semantics>")
    first, second = (ET.fromstring(f) for f in re.findall(r"<math.*?</math>", made, re.DOTALL))
    assert second.get("display") == "block"
    assert [operator.text for operator in first.iter("mo")] == ["<"]
    [power] = first.iter("msubsup")
    assert [node.text for node in power] == ["x", "i", "2"]
    [fraction] = second.iter("mfrac")
    assert [node.tag for node in fraction] == ["mi", "msqrt"]
    # What a reader copies is what was written.
    assert [f[0][-1].text.strip() for f in (first, second)] == [html.unescape(inline), block]


@pytest.mark.parametrize("wrong", [r"\unknown", r"\frac{a", "a}", r"\left( a", "a & b"])
def test_what_is_not_known_is_a_warning(translated, wrong, caplog):
    """And a warning is the end of a strict build."""
    content = f'<span class="arithmatex">\\({html.escape(wrong)}\\)</span>'
    assert translated(content) == content
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert "some.md" in record.getMessage()
    assert repr(wrong) in record.getMessage()
