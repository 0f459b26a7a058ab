"""Progress of a training: a bar on a terminal, plain lines elsewhere."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from .row import Row

_PLAIN_SECONDS = 10.0  # between plain lines, so that logs stay readable

_SHOWN = {
    "epoch": "{:.2f}",
    "loss": "{:.4f}",
    "ess": "{:.1%}",
    "validation": "{:.3f}",
    "best_validation": "{:.3f}",
    "waiting": "{}",
    "gradient_norm": "{:.3g}",
}


def _numbers(row: Row) -> str:
    shown = []
    for name, form in _SHOWN.items():
        value = row.value(name)
        if value is not None:
            shown.append(f"{name.replace('_', ' ')} {form.format(value)}")
    if row.skipped:
        shown.append(f"skipped {row.skipped}")
    return "  ".join(shown)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def time_left(row: Row, first: Row, steps: int | None, max_seconds: float | None) -> float | None:
    """Return the seconds of training still to come, `None` before there is anything to go by."""
    done, left = row.step - first.step, []
    if steps is not None and done > 0:
        left.append((steps - row.step) * (row.seconds - first.seconds) / done)
    if max_seconds is not None and done > 0:
        left.append(max(0.0, max_seconds - row.seconds))
    return min(left, default=None)


@contextlib.contextmanager
def report(
    steps: int | None, *, visible: bool = True, max_seconds: float | None = None
) -> Iterator[Callable[[Row], None]]:
    """Yield a function that takes a row of metrics and shows how far things are."""
    if not visible:
        yield lambda row: None
    elif sys.stderr.isatty():
        with _bar(steps, max_seconds) as tell:
            yield tell
    else:
        yield _lines(steps, max_seconds)


def _lines(steps: int | None, max_seconds: float | None) -> Callable[[Row], None]:
    rows: list[Row] = []
    last = -_PLAIN_SECONDS

    def tell(row: Row) -> None:
        nonlocal last
        rows[1:] = [row]
        now = time.monotonic()
        if now - last < _PLAIN_SECONDS and row.step != steps:
            return
        last = now
        left = time_left(row, rows[0], steps, max_seconds)
        ending = "" if left is None else f"  {_clock(left)} left"
        of = "" if steps is None else f"/{steps}"
        print(f"step {row.step}{of}  {_numbers(row)}{ending}", file=sys.stderr, flush=True)

    return tell


@contextlib.contextmanager
def _bar(steps: int | None, max_seconds: float | None) -> Iterator[Callable[[Row], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("step {task.completed:.0f}{task.fields[of]}"),
        BarColumn(),
        TextColumn("{task.fields[numbers]}"),
        TextColumn("[dim]{task.fields[left]}"),
    )
    rows: list[Row] = []
    of = "" if steps is None else f"/{steps}"
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=steps, of=of, numbers="compiling", left="")

        def tell(row: Row) -> None:
            rows[1:] = [row]
            left = time_left(row, rows[0], steps, max_seconds)
            bar.update(
                task,
                completed=row.step,
                numbers=_numbers(row),
                left="" if left is None else f"{_clock(left)} left",
            )

        yield tell
