"""Print tables, for a terminal or as Markdown."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

_TEXT_COLUMNS = (
    "run", "problem", "method", "seeds", "gradient", "observable", "data set", "state", "target", "verdict",
    "parameter",
)  # fmt: skip

Rows = Sequence[Sequence[str]]


def print_table(
    heads: Sequence[str], rows: Rows, means: Rows = (), *, title: str | None = None, markdown: bool = False
) -> None:
    """Print rows, then a line, and rows of means below it."""
    if markdown:
        rule = ["---" if head in _TEXT_COLUMNS else "---:" for head in heads]
        for line in (heads, rule, *[[escaped(cell) for cell in row] for row in (*rows, *means)]):
            print(f"| {' | '.join(line)} |")
        return
    table = Table(title=title, title_justify="left")
    for head in heads:
        table.add_column(head, justify="left" if head in _TEXT_COLUMNS else "right")
    for part in (rows, means):
        for row in part:
            table.add_row(*row)
        table.add_section()
    # If the output is not a terminal, wide enough never to wrap. Names may hold [brackets].
    width = None if sys.stdout.isatty() else 400
    Console(width=width, markup=False, highlight=False).print(table)


def escaped(text: str) -> str:
    """Return a text with Markdown's special characters escaped."""
    for sign in "\\|*_":
        text = text.replace(sign, f"\\{sign}")
    return text
