"""HTML and SVG in which text cannot become markup: whatever is not `Html` is escaped."""

import html
import re
from collections.abc import Iterable, Sequence

from ..._words.errors import as_options
from ..._words.text import UNKNOWN

_VOID = {"meta", "link", "img", "input", "br"}

# A minus before a number or in its exponent, and the spaces around its error and before its unit.
_MINUS = re.compile(r"(?<![\w.-])-(?=\d)|(?<=\de)-(?=\d)")
_SPACE = re.compile(r" (?=± )|(?<=±) |(?<=\d) (?=(%|s|ms|min|h|nats|bits/dim|points)(?![\w/]))")


class Html(str):
    """Markup, as opposed to text."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """Return an element.

    Args:
        name: Name of the element.
        *children: `Html` is taken as it is, anything else as text; `None` is left out.
        **attributes: `None` and `False` are left out, `True` has no value. `class_` is `class`,
            and `aria_label` is `aria-label`.
    """
    words = [name]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(key)
        elif value is not None and value is not False:
            words.append(f'{key}="{html.escape(str(value))}"')
    inside = joined(children)
    return Html(f"<{' '.join(words)}>" if name in _VOID else f"<{' '.join(words)}>{inside}</{name}>")


def joined(parts: Iterable[object]) -> Html:
    """Return the parts one after the other, with text escaped."""
    shown = (part for part in parts if part is not None)
    return Html("".join(part if isinstance(part, Html) else html.escape(str(part)) for part in shown))


def listing(items: Iterable[object], class_: str) -> Html | None:
    """Return a list, or `None` if it would be empty."""
    shown = [tag("li", item) for item in items]
    return tag("ul", *shown, class_=class_) if shown else None


def pairs(named: Iterable[tuple[str, object]], class_: str) -> Html:
    """Return a list of names, each with its text."""
    return tag(
        "dl", *[part for name, text in named for part in (tag("dt", name), tag("dd", text))], class_=class_
    )


def fine(text: str) -> str:
    """Typeset numbers: with a true minus sign, and no line break before their units."""
    return "–" if text == UNKNOWN else _SPACE.sub("\u00a0", _MINUS.sub("−", text))


def prose(text: str) -> Html:
    """Return a sentence in which `backticks` enclose code, for a reader at the command line."""
    return joined(tag("code", p) if i % 2 else fine(p) for i, p in enumerate(_pieces(text)))


def spoken(text: str) -> str:
    """Return a sentence like `prose`, but without markup, as in the description of a picture."""
    return "".join(_pieces(text))


def _pieces(text: str) -> list[str]:
    """Split a sentence at its backticks; every second piece is code."""
    text = as_options(text)
    pieces = text.split("`")
    return pieces if len(pieces) % 2 else [text]  # an odd number of backticks encloses nothing


def table(heads: Sequence[object], rows: Sequence[Sequence[object]], label: str, texts: int = 1) -> Html:
    """Return a table in a box that scrolls by itself where the page is too narrow.

    Args:
        heads: Headings of the columns.
        rows: Cells; the first cell names the row.
        label: What the table is, for readers who cannot see it.
        texts: How many columns on the left hold words; the others hold numbers.
    """

    def row(cells: Sequence[object], scope: str) -> Html:
        parts = []
        for i, content in enumerate(cells):
            shown = content if i < texts or isinstance(content, Html) else fine(str(content))
            is_head = scope == "col" or i == 0
            how = {"class_": None if i < texts else "number", "scope": scope if is_head else None}
            parts.append(tag("th" if is_head else "td", shown, **how))
        return tag("tr", *parts)

    inside = tag("table", tag("thead", row(heads, "col")), tag("tbody", *[row(r, "row") for r in rows]))
    # A tab index, so that it can be scrolled with the keyboard.
    return tag("div", inside, class_="scroll", tabindex=0, role="region", aria_label=label)
