"""Reasons not to trust a run, the same wherever they are shown."""

from typing import TYPE_CHECKING

from .._train.row import Row
from .._words.text import count

if TYPE_CHECKING:
    from .run import Run


def warnings_of(run: "Run") -> list[str]:
    """Return what is wrong with a run as it is now, each with a remedy; arguments are marked by `named`."""
    messages = list(run.troubles)
    if run.is_evaluated and run.verdict is not None:
        messages += run.verdict.explain(run.evaluation, str)  # names of arguments stay marked
    messages += run.experiment.warnings(run)
    if skipped := run.at_end("skipped"):
        messages.append(
            f"{count(skipped)} steps of training were skipped, because their loss or gradient was not "
            "finite. Use a lower learning rate or more solver steps."
        )
    if below := sum(bool(row.below_bound) for row in run.rows):
        messages.append(
            f"In {below} of {len(run.rows)} blocks the loss was lower than any density can reach, by more "
            "than chance: the solver was too coarse there. Use more solver steps."
        )
    row = last_finite(run)
    if row is not None and row is not run.last:
        since = len(run.rows) - 1 - run.rows.index(row)
        title = run.experiment.followed(run.options).title
        messages.append(
            f"The last finite {title} of training is from step {count(row.step)}, {count(since)} blocks ago. "
            "Start again with a lower learning rate or more solver steps."
        )
    return messages


def last_finite(run: "Run") -> Row | None:
    """Return the last row in which the followed number is finite; if only its best counts, the last row."""
    followed = run.experiment.followed(run.options)
    if followed.best:
        return run.last
    return next((row for row in reversed(run.rows) if row.value(followed.name) is not None), None)
