"""`pathgrad report RUN ...`."""

import dataclasses
import webbrowser
from pathlib import Path

import pathgrad as pg
from pathgrad._runs.files import write_atomically
from pathgrad._show.page import make_page

from .arguments import parse
from .compare import Runs, read_groups
from .outputs import check_output, writing


@dataclasses.dataclass(frozen=True)
class Report:
    """Write one HTML page about runs, finished or not: verdicts, curves, evaluation, draws, what was run.

    Nothing is computed again, and the page needs no network: you can send it as it is. If results of a run
    are missing, the page names the command that produces them.
    """

    runs: Runs
    """Directories of runs, or folders that contain such directories."""
    out: Path = Path("report.html")
    """Page to write (.html). An existing page is replaced."""
    title: str | None = None
    """Title of the page; by default what was run."""
    open: bool = False
    """Open the page in the browser."""


def run(prog: str, words: list[str]) -> int:
    """Write the page."""
    given = parse(Report, prog, words)
    check_output(given.out, ".html", ".htm")
    groups, broken = read_groups(given.runs)
    page = make_page(groups, comparisons=pg.compare_groups(groups), broken=broken, title=given.title)
    with writing(given.out):
        write_atomically(given.out, [page.encode("utf-8", "replace")])
    count = sum(len(group.runs) for group in groups)
    print(f"report of {count} run{'s' if count != 1 else ''}: {given.out}")
    if given.open:
        webbrowser.open(given.out.resolve().as_uri())
    return 0
