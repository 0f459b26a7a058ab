"""Colours and line styles of methods in every figure, and the order in which methods are named."""

from typing import NamedTuple


class Look(NamedTuple):
    """How one kind of curve is drawn.

    Attributes:
        colour: Colour on a light background.
        dark: Colour on a dark background.
        line: Solid, or lengths of dashes and gaps in line widths.
    """

    colour: str
    dark: str
    line: str | tuple[float, ...] = "-"


# Okabe and Ito's colours, which colour-blind readers can distinguish. Lightness increases from first to last
# and line styles differ, so they also work in grey. Comparisons name methods in this order.
LOOKS = {
    "path-gauss-newton": Look("#882255", "#E59AC4", (6.0, 1.5)),
    "gauss-newton": Look("#CC3377", "#F07DB2", "-"),
    "path": Look("#0072B2", "#56B4E9", "-"),
    "two-copy": Look("#009E73", "#3DCB9F", (4.0, 1.5, 1.0, 1.5)),
    "total": Look("#E69F00", "#F0B429", (4.0, 1.8)),
}
OTHER = Look("#666666", "#A8AEB8", (1.0, 1.2))


def look_of(method: str) -> Look:
    """Return how a method is drawn; methods that are not in the table share one look."""
    return LOOKS.get(method, OTHER)


def rank_of(method: str) -> int:
    """Return the rank of a method in the order of the table."""
    return list(LOOKS).index(method) if method in LOOKS else len(LOOKS)
