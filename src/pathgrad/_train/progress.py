"""Show progress: a bar on a terminal, plain lines elsewhere."""

import contextlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from .row import Row

_PLAIN_SECONDS = 10.0  # between plain lines, so that logs stay readable

# Called with a text, and the shares of steps, time, ... used so far: the first to reach 1 is the end.
Show = Callable[[str, Sequence[float]], None]

_SHOWN = {
    "round": "{:.0f}",
    "epoch": "{:.2f}",
    "loss": "{:.4f}",
    "ess": "{:.1%}",
    "validation": "{:.3f}",
    "best_validation": "{:.3f}",
    "waiting": "{}",
    "gradient_norm": "{:.3g}",
}


@contextlib.contextmanager
def report(
    steps: int | None, *, visible: bool = True, max_seconds: float | None = None
) -> Iterator[Callable[[Row], None]]:
    """Yield a function that takes a row of metrics and shows the progress of training."""
    with progress("compiling", visible=visible) as show:

        def show_row(row: Row) -> None:
            known = [(name, form, row.value(name)) for name, form in _SHOWN.items()]
            words = [f"{name.replace('_', ' ')} {form.format(v)}" for name, form, v in known if v is not None]
            words += [f"skipped {row.skipped}"] if row.skipped else []
            end = row.value("planned_steps") or steps
            of = f"/{end:.0f}" if end else ""
            shares = [x / limit for x, limit in ((row.step, end), (row.seconds, max_seconds)) if limit]
            show("  ".join([f"step {row.step}{of}", *words]), shares)

        yield show_row


@contextlib.contextmanager
def progress(text: str = "", *, visible: bool = True, passing: bool = False) -> Iterator[Show]:
    """Yield a function that shows progress.

    Args:
        text: The text of a bar before any progress.
        visible: Whether to show anything.
        passing: For tasks that may be short: no plain line at the start, and no bar left at the end.
    """
    if not visible:
        yield lambda text, shares: None
    elif sys.stderr.isatty() and importlib.util.find_spec("rich"):
        with _bar(text, passing=passing) as show:
            yield show
    else:
        yield _lines(passing=passing)


# Called with a text, and the share of the work that is done.
Tell = Callable[[str, float], None]


@contextlib.contextmanager
def at_first_use(*, visible: bool = True) -> Iterator[tuple[Tell, Callable[[], None]]]:
    """Yield a function that shows the progress of work that may not take place, and one that ends it."""
    with contextlib.ExitStack() as stack:
        shows: list[Show] = []

        def tell(text: str, share: float) -> None:
            if not shows:
                shows.append(stack.enter_context(progress(text, visible=visible, passing=True)))
            shows[0](text, [share])

        yield tell, stack.close


def _lines(*, passing: bool) -> Show:
    clock, due, printed = _Clock(), time.monotonic() + (_PLAIN_SECONDS if passing else 0.0), False

    def show(text: str, shares: Sequence[float]) -> None:
        nonlocal due, printed
        left, now = clock.left(shares), time.monotonic()
        if now >= due or (printed and max(shares, default=0.0) >= 1):
            due, printed = now + _PLAIN_SECONDS, True
            print("  ".join(filter(None, [text, left])), file=sys.stderr, flush=True)

    return show


@contextlib.contextmanager
def _bar(text: str, *, passing: bool) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    words, left = TextColumn("{task.description}", markup=False), TextColumn("[dim]{task.fields[left]}")
    clock = _Clock()
    with Progress(BarColumn(), words, left, console=Console(stderr=True), transient=passing) as bar:
        task = bar.add_task(text, total=None, left="")

        def show(text: str, shares: Sequence[float]) -> None:
            done, total = max(shares, default=0.0), 1.0 if shares else None
            bar.update(task, description=text, completed=done, total=total, left=clock.left(shares))

        yield show


class _Clock:
    """Estimates the time left, from the first shares on; if a share falls, new work has begun."""

    def __init__(self) -> None:
        self.began, self.first, self.last = 0.0, [], []

    def left(self, shares: Sequence[float]) -> str:
        """Return the time left; nothing until it can be estimated."""
        now = time.monotonic()
        if not self.last or any(new < old for new, old in zip(shares, self.last, strict=True)):
            self.began, self.first = now, shares
        self.last = shares
        ends = [(1 - new) / (new - old) for new, old in zip(shares, self.first, strict=True) if new > old]
        if not ends:
            return ""
        minutes, seconds = divmod(round(max(0.0, min(ends)) * (now - self.began)), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02d}:{seconds:02d} left" if hours else f"{minutes}:{seconds:02d} left"
