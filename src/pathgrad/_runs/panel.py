"""A picture of runs on one pair of axes: alone, beside others in a figure, or on a page."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .._words.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .group import Group
    from .run import Run


# What drawing raises where files hold arrays of odd shapes, or numbers that are none.
UNFIT = (ArithmeticError, LookupError, TypeError, ValueError)


class MissingData(UserError):
    """Runs have not what a panel shows."""


@dataclasses.dataclass(frozen=True)
class Panel:
    """What an experiment can draw of its runs, from what they have written.

    Attributes:
        draw: Draws groups of runs on axes, and returns what it shows in words and numbers, for those who do
            not see it. Raises `MissingData` where there is nothing to draw.
        means: How to read it, in a few words.
        is_of_one: Whether it shows a single run; of a group, the first.
        needs: Arrays of the evaluation without which it cannot be drawn.
        width: In inches, if drawn alone; as `height`.
    """

    title: str
    draw: "Callable[[Axes, Sequence[Group]], str]"
    means: str = ""
    is_of_one: bool = False
    needs: tuple[str, ...] = ()
    width: float = 4.6
    height: float = 3.4

    def can_draw(self, run: "Run") -> bool:
        """Say whether a run has kept what is needed."""
        return all(name in run.arrays and run.arrays[name].size for name in self.needs)

    def drawable(self, groups: "Sequence[Group]") -> "list[Group]":
        """Return groups without the runs that have not kept what is needed."""
        kept = [(g, [i for i, run in enumerate(g.runs) if self.can_draw(run)]) for g in groups]
        return [
            dataclasses.replace(
                g, runs=tuple(g.runs[i] for i in which), names=tuple(g.names[i] for i in which)
            )
            for g, which in kept
            if which
        ]
