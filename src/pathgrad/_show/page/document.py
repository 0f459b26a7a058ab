"""The page around its contents: head, style sheet, script."""

import base64
import hashlib
import importlib.resources

from ..._runs.look import LOOKS, OTHER
from ..._runs.provenance import package_version
from .html import Html, tag


def document(title: str, body: Html) -> str:
    """Return a whole HTML file that fetches nothing from anywhere."""
    style, script = package_file("style.css"), package_file("page.js")
    # Browsers hold the page to it: nothing is loaded, and no other script runs, whatever is shown.
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
    whole = tag("html", head, tag("body", body, tag("script", Html(script))), lang="en")
    return f"<!doctype html>\n{whole}\n"


def package_file(name: str) -> str:
    """Return the text of a file beside this one."""
    return (importlib.resources.files(__package__ or "") / name).read_text("utf-8")


def _colours() -> str:
    """Return the colours of methods for the style sheet: those of all other pictures."""
    looks = LOOKS | {"other": OTHER}
    plain = "".join(f"--{name}:{look.colour};" for name, look in looks.items())
    both = "".join(f"--{n}:light-dark({look.colour},{look.dark});" for n, look in looks.items())
    return f":root{{{plain}}}@supports(color:light-dark(#000,#000)){{:root{{{both}}}}}\n"
