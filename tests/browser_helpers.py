"""A real browser without a window: Debian's Chromium, driven by Playwright."""

import contextlib
import os
import shutil

import pytest

CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium is installed: `apt-get install chromium`, or name one in CHROMIUM"
)


@contextlib.contextmanager
def chromium():
    """Run a browser."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@contextlib.contextmanager
def visits(browser, page_path):
    """Open a page, once for each call; fail at the end if the browser had anything to complain of."""
    contexts, complaints = [], []

    def opened(width=1280, **how):
        context = browser.new_context(viewport={"width": width, "height": 800}, **how)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on(
            "request",
            lambda r: complaints.append(r.url) if not r.url.startswith(("file:", "data:")) else None,
        )
        page.goto(page_path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
