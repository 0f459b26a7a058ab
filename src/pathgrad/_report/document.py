"""The page around its contents: head, style sheet, script."""

import base64
import hashlib
import importlib.resources

from pathgrad._plots.style import LOOKS, OTHER
from pathgrad._train.rundir import package_version

from .html import Html, tag

# As light as a dark page needs them.
_ON_DARK = {
    "gauss-newton": "#F07DB2",
    "path": "#56B4E9",
    "two-copy": "#3DCB9F",
    "total": "#F0B429",
    "other": "#A8AEB8",
}


def document(title: str, body: Html) -> str:
    """Return a whole HTML file that fetches nothing from anywhere."""
    style, script = _file("style.css"), _file("page.js")
    # Browsers hold the page to it: nothing is loaded, and no other script runs, whatever is shown.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'"
    )
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


def _file(name: str) -> str:
    return (importlib.resources.files(__package__ or "") / name).read_text("utf-8")


def _colours() -> str:
    """Return the colours of estimators for the style sheet: those of all other pictures."""
    light = {name: look.colour for name, look in LOOKS.items()} | {"other": OTHER.colour}
    plain = "".join(f"--{name}:{colour};" for name, colour in light.items())
    both = "".join(f"--{n}:light-dark({c},{_ON_DARK.get(n, c)});" for n, c in light.items())
    classes = "".join(f".{name}{{--c:var(--{name})}}" for name in light)
    return f":root{{{plain}}}@supports(color:light-dark(#000,#000)){{:root{{{both}}}}}{classes}\n"
