"""What keeps a run from being trusted, whoever tells of it."""

from typing import TYPE_CHECKING

from .._train.row import Row
from .._words.text import count

if TYPE_CHECKING:
    from .run import Run


def warnings_of(run: "Run") -> list[str]:
    """Say what is wrong with a run as it is now, each with its remedy; arguments are marked by `named`."""
    said = list(run.troubles)
    if run.is_evaluated and run.verdict is not None:
        said += run.verdict.explain(run.evaluation, str)  # names of arguments stay marked
    said += run.experiment.warnings(run)
    if skipped := run.at_end("skipped"):
        said.append(
            f"{count(skipped)} steps of training were skipped, because their loss or gradient was not "
            "finite. A lower learning rate or more solver steps help."
        )
    if below := sum(bool(row.below_bound) for row in run.rows):
        said.append(
            f"In {below} of {len(run.rows)} blocks the loss was below its bound by more than chance, which "
            "no density can reach: the solver was too coarse there. Take more solver steps."
        )
    row = last_finite(run)
    if row is not None and row is not run.last:
        since = len(run.rows) - 1 - run.rows.index(row)
        title = run.experiment.followed(run.options).title
        said.append(
            f"The last {title} of training is of step {count(row.step)}; the {count(since)} blocks since "
            "have no finite number. Begin again with a lower learning rate or more solver steps."
        )
    return said


def last_finite(run: "Run") -> Row | None:
    """Return the last row that has what is followed. What is judged by its best need not be in every row."""
    followed = run.experiment.followed(run.options)
    if followed.best:
        return run.last
    return next((row for row in reversed(run.rows) if row.value(followed.name) is not None), None)
