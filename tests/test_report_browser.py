"""The report in a real browser."""

import numpy as np
import pytest

from pathgrad._runs.comparison import compare_groups
from pathgrad._show.page import make_page

from .browser_helpers import chromium, needs_browser, visits
from .show_helpers import EVIL, because, draws, evaluate, grouped, make_run, rows_of

pytestmark = needs_browser

# Contrast as WCAG defines it, of all visible text; what lies behind is mixed from the elements around it.
CONTRASTS = """() => {
  const parse = text => {
    const n = text.match(/-?[\\d.]+(e-?\\d+)?/g).map(Number);
    const unit = text.startsWith("color(") ? 255 : 1;
    return [n[0] * unit, n[1] * unit, n[2] * unit, n.length > 3 ? n[3] : 1];
  };
  const over = (a, b) => [0, 1, 2].map(i => a[3] * a[i] + (1 - a[3]) * b[i]).concat(1);
  const light = c => [0.2126, 0.7152, 0.0722].reduce((sum, w, i) => {
    const v = c[i] / 255;
    return sum + w * (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  }, 0);
  const behind = e => {
    const layers = [];
    for (; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !e.getClientRects().length || e.closest("script, .tip")) continue;
    const style = getComputedStyle(e);
    const back = behind(e);
    const front = over(parse(e.namespaceURI.includes("svg") ? style.fill : style.color), back);
    const [a, b] = [light(front), light(back)].sort((p, q) => q - p);
    found.push([(a + 0.05) / (b + 0.05), walk.currentNode.data.trim().slice(0, 40)]);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def page_path(tmp_path_factory):
    """Two methods with two seeds, one in trouble; runs with data, one that was killed, one without rows."""
    folder = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(3)
    runs = []
    for method in ("path", "total"):
        for seed in (0, 1):
            ends = 1 - 0.9 ** np.arange(1, 61) + 0.01 * rng.uniform(size=60) * (method == "path")
            bound = [0.2 if i == 40 else None for i in range(60)]
            rows = rows_of([*map(float, 0.99 * ends)], below_bound=bound)
            run = make_run(folder / f"{method}{seed}", rows, method=method, seed=seed)
            bad = {"verdict": because("HEAVY_TAIL"), "glued": 1} if method == "total" else {}
            found = {"ess": 0.97, "ess_err": 0.001, "tins": 1, "arrays": draws(seed)}
            runs.append(evaluate(run, **found | bad))
        losses = [100.0 + 50 * float(np.exp(-i / 5)) for i in range(40)]
        rows = rows_of([0.5] * 40, validation=losses, epoch=[i / 2 for i in range(40)])
        runs.append(make_run(folder / f"data-{method}", rows, method=method, target="data"))
    runs.append(make_run(folder / EVIL, rows_of([0.2]), target="data twice", steps=500))
    runs.append(make_run(folder / "empty", [], steps=500, target="larger"))
    groups = grouped(runs)
    out = folder / "report.html"
    out.write_text(make_page(groups, compare_groups(groups)), "utf-8")
    return out


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture
def visit(browser, page_path):
    """Open the page, and fail at the end of the test if the browser had anything to complain of."""
    with visits(browser, page_path) as opened:
        yield opened


def overflow(page):
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_is_there_and_readable(visit, tmp_path, width, scheme):
    page = visit(width, color_scheme=scheme)
    assert overflow(page) <= 0
    assert page.locator("img[src=x]").count() == 0
    assert page.locator("article.card").count() == 6
    for kind, least in (("svg.chart", 10), ("table", 3)):
        boxes = [each.bounding_box() for each in page.locator(kind).all() if each.is_visible()]
        assert len(boxes) >= least
        assert all(box["width"] > 50 and box["height"] > 20 for box in boxes)
    small = page.evaluate(
        "Math.min(...[...document.querySelectorAll('svg.chart text')]"
        ".map(t => t.getBoundingClientRect().height).filter(h => h))"
    )
    assert small >= 10
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) > 200
    assert [found for found in contrasts if found[0] < 4.5] == []
    picture = tmp_path / "page.png"
    page.screenshot(path=picture, full_page=True)
    assert picture.stat().st_size > 50_000


def test_dark_is_dark_and_can_be_chosen(visit):
    def shade(page):
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    page = visit(color_scheme="light")
    light = shade(page)
    page.get_by_role("button", name="Dark").click()
    dark = shade(page)
    assert light == "rgb(245, 246, 248)"
    assert dark == "rgb(15, 18, 23)"
    assert shade(visit(color_scheme="dark")) == dark
    page.get_by_role("button", name="Light").click()
    assert shade(page) == light
    # On paper it is light whatever was chosen.
    page.get_by_role("button", name="Dark").click()
    page.emulate_media(media="print")
    assert shade(page) == "rgb(255, 255, 255)"


def test_values_are_shown_under_the_pointer(visit):
    page = visit()
    chart = page.locator("svg.chart[aria-label^='Validation loss']").first
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    chart.hover(position={"x": box["width"] * 0.97, "y": box["height"] * 0.5})
    label, _, rest = page.locator(".tip").inner_text().rpartition(": ")
    assert label in ("path", "total")  # they are the same
    value, at = rest.split(" at ")
    # Of the last point: the loss at the last epoch.
    assert float(value) == pytest.approx(100 + 50 * np.exp(-39 / 5), abs=0.2)
    assert float(at) == pytest.approx(19.5, abs=0.1)


def test_it_reads_fully_without_scripts(visit):
    page = visit(360, java_script_enabled=False)
    assert not page.locator("#theme").is_visible()
    norms = [page.locator(f".by-{axis} figure").first for axis in ("step", "time")]
    assert [figure.is_visible() for figure in norms] == [True, False]
    page.get_by_role("radio", name="training time").check()
    assert [figure.is_visible() for figure in norms] == [False, True]
    page.locator("summary").first.click()
    assert page.locator("article.card").first.is_visible()


def test_print_unfolds_everything(visit):
    page = visit(720, color_scheme="dark")
    folded = page.locator("details:not([open]) table").first
    assert not folded.is_visible()
    page.emulate_media(media="print", color_scheme="dark")
    assert overflow(page) <= 0
    assert folded.bounding_box()["height"] > 50
    assert not page.locator("nav").is_visible()
    assert [found for found in page.evaluate(CONTRASTS) if found[0] < 4.5] == []
    assert len(page.pdf(format="A4")) > 50_000
