"""A plot of runs on one pair of axes: alone, next to others in a figure, or on a page."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .._words.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .group import Group
    from .run import Run


# What drawing raises where files hold arrays of unexpected shapes, or something other than numbers.
UNFIT = (ArithmeticError, LookupError, TypeError, ValueError)


class MissingData(UserError):
    """The runs lack the data that a panel shows."""


@dataclasses.dataclass(frozen=True)
class Panel:
    """A plot that an experiment can draw from the files of its runs.

    Attributes:
        draw: Function that draws groups of runs on axes, and returns in words and numbers what it shows, for
            readers who cannot see it. Raises `MissingData` where there is nothing to draw.
        means: How to read the plot, in a few words.
        is_of_one: Whether it shows a single run (of a group, the first).
        needs: Names of the arrays in the evaluation that it needs.
        width: Width in inches if drawn alone; likewise `height`.
    """

    title: str
    draw: "Callable[[Axes, Sequence[Group]], str]"
    means: str = ""
    is_of_one: bool = False
    needs: tuple[str, ...] = ()
    width: float = 4.6
    height: float = 3.4

    def can_draw(self, run: "Run") -> bool:
        """Return whether a run has the arrays that are needed."""
        return all(name in run.arrays and run.arrays[name].size for name in self.needs)

    def drawable(self, groups: "Sequence[Group]") -> "list[Group]":
        """Return groups without the runs that lack arrays that are needed."""
        kept = [(g, [i for i, run in enumerate(g.runs) if self.can_draw(run)]) for g in groups]
        return [
            dataclasses.replace(
                g, runs=tuple(g.runs[i] for i in which), names=tuple(g.names[i] for i in which)
            )
            for g, which in kept
            if which
        ]
