"""The HTML file around the contents of the page: head, style sheet, script."""

import base64
import hashlib
import importlib.resources

from ..._runs.look import LOOKS, OTHER
from ..._runs.provenance import package_version
from .html import Html, tag


def document(title: str, body: Html) -> str:
    """Return a complete HTML file that loads nothing from anywhere."""
    style, script = package_file("style.css"), package_file("page.js")
    # Browsers enforce this policy: nothing is loaded, and no other script runs, whatever the page shows.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="generator", content=f"pathgrad {package_version('pathgrad') or ''}"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        tag("style", Html(_colours() + style)),
    )
    page = tag("html", head, tag("body", body, tag("script", Html(script))), lang="en")
    return f"<!doctype html>\n{page}\n"


def package_file(name: str) -> str:
    """Return the text of a file in this folder."""
    return (importlib.resources.files(__package__ or "") / name).read_text("utf-8")


def _colours() -> str:
    """Return the colours of methods for the style sheet, the same as in all figures."""
    looks = LOOKS | {"other": OTHER}
    plain = "".join(f"--{name}:{look.colour};" for name, look in looks.items())
    both = "".join(f"--{n}:light-dark({look.colour},{look.dark});" for n, look in looks.items())
    return f":root{{{plain}}}@supports(color:light-dark(#000,#000)){{:root{{{both}}}}}\n"
