"""A report of runs whose every string is hostile, in a real browser: nothing runs, all is text."""

import json

import numpy as np
import pytest
import tomli_w

from pathgrad._cli.main import main

from ..browser_helpers import chromium, needs_browser, visits
from ..run_helpers import make_evaluation, make_run, rows_of

pytestmark = needs_browser

# What would run, load or break out, wherever a string may land: text, attributes, drawings, style, script.
HOSTILE = (
    '"><img src=x onerror=window.caught=1>',
    "</script><script>window.caught=1</script>",
    "</title></style><svg onload=window.caught=1>",
    "' onmouseover='window.caught=1' style='position:fixed;inset:0",
    "<iframe srcdoc='<script>parent.caught=1</script>'></iframe>",
    "<a href=javascript:window.caught=1>click</a>",
    "`](javascript:window.caught=1) ${window.caught=1} {{7*7}}",
    "<style>@import 'http://evil.example/x.css';body{display:none}</style>",
    "<meta http-equiv=refresh content='0;url=http://evil.example'>",
    "]]><!--</svg><base href=http://evil.example/>",
    "\u202egnp.exe \u2028alert(1)\u2029 \x7f <b>bold</b> &lt;i&gt; &#60;u&#62;",
)


def hostile(value, i=0):
    """Return a tree in which every string is replaced, and a key is added to every mapping."""
    if isinstance(value, dict):
        replaced = {key: hostile(each, i + k) for k, (key, each) in enumerate(value.items())}
        return replaced | {HOSTILE[i % len(HOSTILE)]: HOSTILE[(i + 1) % len(HOSTILE)]}
    if isinstance(value, list):
        return [hostile(each, i + k) for k, each in enumerate(value)] + [HOSTILE[i % len(HOSTILE)]]
    return HOSTILE[i % len(HOSTILE)] if isinstance(value, str) else value


def hostile_run(path, i, experiment):
    """Write a run that reads as one of ours, and is hostile in all that a reader does not check."""
    options = {"target": HOSTILE[i]} if experiment == "toy" else {}
    rows = rows_of([0.2, 0.5, 0.9], **{HOSTILE[i]: 1.0})
    run = make_run(
        path, rows, experiment=experiment, estimator=HOSTILE[i - 1], seed=HOSTILE[i - 2], **options
    )
    kept, found = make_evaluation(run, arrays=False, parameters={HOSTILE[i]: {"mean": 1.0, "sd": 0.1}})
    config = run.config
    config["options"]["training"] |= {"decay": HOSTILE[i - 3], HOSTILE[i - 4]: HOSTILE[i - 5]}
    config["provenance"] = hostile(config["provenance"] | {"commit": "x", "jax": "y"}, i)
    (path / "config.toml").write_text(tomli_w.dumps(config))
    # In half of the runs the evaluation is read as a whole, in the others its numbers are.
    (path / "evaluation.json").write_text(
        json.dumps(hostile(found, i) if i % 2 else found | {"warnings": HOSTILE})
    )
    np.savez(path / "evaluation.npz", allow_pickle=False, **kept, **{f"odd{i}": np.zeros(3)})
    (path / "evaluation.png").write_bytes(b"\x89PNG\r\n\x1a\n" + HOSTILE[i].encode())


@pytest.fixture(scope="module")
def page_path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    for i, text in enumerate(HOSTILE):
        name = text.replace("/", "\u2215").replace("\u2028", "").replace("\u2029", "")[:60]
        hostile_run(folder / name, i, "toy" if i % 3 else "phi4")
    broken = folder / HOSTILE[0].replace("/", "")[:-1]
    broken.mkdir()
    (broken / "config.toml").write_text(f"x = '''{HOSTILE[3]}\n{HOSTILE[0]}")
    page = folder / "page.html"
    assert main(["report", str(folder), "--out", str(page), "--title", HOSTILE[2]]) == 0
    return page


def test_a_page_of_hostile_strings_is_text(page_path):
    with chromium() as browser, visits(browser, page_path) as visit:
        page = visit()
        for each in page.locator("summary").all():
            if each.is_visible():
                each.click()
        for chart in page.locator("svg.chart").all()[:5]:
            if chart.is_visible():
                chart.hover()
        assert page.evaluate("window.caught") is None
        assert page.url == page_path.as_uri()
        assert page.locator("iframe, base, object, embed, a[href^=javascript]").count() == 0
        assert page.locator("script").count() == page.locator("style").count() == 1
        attributes = "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())"
        assert not [name for name in page.evaluate(attributes) if name.startswith("on")]
        text = page.evaluate("document.body.textContent")
        missing = [each for each in HOSTILE[:10] if each[:30] not in text]
        assert missing == []
