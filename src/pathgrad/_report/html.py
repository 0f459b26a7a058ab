"""HTML and SVG in which text cannot become markup: what is not `Html` already is escaped."""

import html
from collections.abc import Iterable, Sequence

from pathgrad._errors import as_options

_VOID = {"meta", "link", "img", "input", "br"}


class Html(str):
    """Markup, as opposed to text."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """Return an element.

    Args:
        name: Of the element.
        *children: `Html` is taken as it is, anything else as text; `None` is left out.
        **attributes: Those that are `None` are left out, `True` has no value. `class_` is `class`, and
            `aria_label` is `aria-label`.
    """
    words = [name]
    for key, value in attributes.items():
        if value is None:
            continue
        key = key.rstrip("_").replace("_", "-")
        words.append(key if value is True else f'{key}="{html.escape(str(value))}"')
    inside = joined(children)
    return Html(
        f"<{' '.join(words)}>" if name in _VOID else f"<{' '.join(words)}>{inside}</{name}>"
    )


def joined(parts: Iterable[object], between: str = "") -> Html:
    """Return parts one after the other, text among them escaped."""
    texts = [
        part if isinstance(part, Html) else html.escape(str(part))
        for part in parts
        if part is not None
    ]
    return Html(html.escape(between).join(texts))


def prose(text: str) -> Html:
    """Return a sentence in which `backticks` enclose code, for a reader at the command line."""
    return joined(tag("code", p) if i % 2 else p for i, p in enumerate(_pieces(text)))


def spoken(text: str) -> str:
    """Return the same where there is no markup, as in the description of a picture."""
    return "".join(_pieces(text))


def _pieces(text: str) -> list[str]:
    """Take a sentence apart; every second piece is code."""
    text = as_options(text)
    pieces = text.split("`")
    return pieces if len(pieces) % 2 else [text]  # an odd number of backticks encloses nothing


def table(
    heads: Sequence[object],
    rows: Sequence[Sequence[object]],
    *,
    label: str,
    texts: int = 1,
    class_: str | None = None,
) -> Html:
    """Return a table in a box that scrolls by itself where the page is too narrow.

    Args:
        heads: Of the columns.
        rows: Cells; the first of a row names it.
        label: What the table is, for those who do not see it.
        texts: How many columns at the left hold words; those after them hold numbers.
        class_: Of the table.
    """

    def cell(kind: str, i: int, content: object, **more: object) -> Html:
        return tag(kind, content, class_=None if i < texts else "number", **more)

    head = tag("tr", *[cell("th", i, h, scope="col") for i, h in enumerate(heads)])
    body = [
        tag(
            "tr",
            *[cell("td", i, c) if i else cell("th", i, c, scope="row") for i, c in enumerate(row)],
        )
        for row in rows
    ]
    inside = tag("table", tag("thead", head), tag("tbody", *body), class_=class_)
    # To be reached and scrolled with the keyboard.
    return tag("div", inside, class_="scroll", tabindex=0, role="region", aria_label=label)
