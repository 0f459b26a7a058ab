"""`pathgrad report RUN ...`."""

import dataclasses
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from pathgrad._errors import UserError, as_options

from .arguments import parse
from .compare.equal_time import equal_times
from .compare.summary import Summary, grouped, labels_of, names_of, numbers_of

if TYPE_CHECKING:
    from pathgrad._report import Broken, Comparison, Run

_DEEPEST = 3  # how far below a folder runs are looked for


@dataclasses.dataclass(frozen=True)
class Report:
    """Write one page of HTML about runs, finished or not: verdicts, curves, evaluation, draws, what was run.

    Nothing is computed anew, and the page needs no network: send it as it is. What a run has not is said
    there, with the command that makes it.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")]
    """Directories of runs, or folders with such directories in them."""
    out: Path = Path("report.html")
    """Page to write (.html). One that exists is replaced."""
    title: str | None = None
    """Headline of the page; by default what was run."""
    open: bool = False
    """Show the page in the browser."""


def run(prog: str, words: list[str]) -> int:
    """Write the page."""
    from pathgrad._report import make_page
    from pathgrad._train.files import write_atomically

    given = parse(Report, prog, words)
    _check_out(given.out)
    runs, broken = read(find_runs(given.runs))
    if not runs:
        raise UserError(broken[0].why)
    runs, comparisons = arrange(runs)
    page = make_page(runs, comparisons=comparisons, broken=broken, title=given.title)
    try:
        write_atomically(given.out, [page.encode("utf-8", "replace")])
    except OSError as error:
        raise UserError(f"{given.out} cannot be written: {error.strerror}.") from error
    for path, why in broken:
        print(f"not shown: {path}: {as_options(why)}")
    print(f"report of {len(runs)} run{'s' if len(runs) != 1 else ''}: {given.out}")
    if given.open:
        import webbrowser

        webbrowser.open(given.out.resolve().as_uri())
    return 0


def _check_out(path: Path) -> None:
    if path.suffix not in (".html", ".htm"):
        raise UserError(f"--out must end in .html, got {path}.")
    if path.is_dir():
        raise UserError(f"--out {path} is a directory: name a file in it.")
    if not path.absolute().parent.is_dir():
        raise UserError(f"There is no directory {path.absolute().parent} to write into.")


def find_runs(paths: tuple[Path, ...]) -> list[Path]:
    """Return the run directories that are meant, each once."""
    if not paths:
        raise UserError("name at least one run directory, or a folder of runs.")
    found: dict[Path, Path] = {}
    for path in paths:
        if (path / "config.toml").is_file():
            inside = [path]
        else:
            inside = [
                file.parent
                for depth in range(1, _DEEPEST + 1)
                for file in sorted(path.glob(f"{'*/' * depth}config.toml"))
            ]
        if not inside:
            if path.is_file():
                raise UserError(f"{path} is a file: name the directory of its run.")
            what = (
                "has no config.toml, and no folder in it has" if path.is_dir() else "does not exist"
            )
            raise UserError(
                f"{path} is not a run directory: it {what}. Check the path, or start a run there with "
                "`pathgrad train`."
            )
        for each in inside:
            found.setdefault(each.resolve(), each)
    return list(found.values())


def read(paths: list[Path]) -> "tuple[list[Run], list[Broken]]":
    """Read runs; those that cannot be read are told apart."""
    from pathgrad._report import Broken, read_run

    runs, broken = [], []
    for path in paths:
        try:
            runs.append(read_run(path))
        except UserError as error:
            broken.append(Broken(path, error.text))
    return runs, broken


def arrange(runs: "list[Run]") -> "tuple[list[Run], list[Comparison]]":
    """Give runs their names and labels, those of a group one after the other, and compare estimators."""
    from pathgrad._report import compare

    summaries = [_summary(run) for run in runs]
    by_path = dict(zip([s.path for s in summaries], runs, strict=True))
    names = dict(zip(by_path, names_of(summaries), strict=True))
    arranged: list[Run] = []
    comparisons: list[Comparison] = []
    # Autoencoders have no number in common with other flows.
    for kind in ([s for s in summaries if not s.dataset], [s for s in summaries if s.dataset]):
        labels: dict[str, str] = {}
        for problem in dict.fromkeys(s.problem for s in kind):
            labels |= labels_of([s for s in kind if s.problem == problem])
        groups = []
        for group in grouped(kind):
            label = labels[group[0].group]
            groups.append([_named(by_path[s.path], s, names[s.path], label) for s in group])
        arranged += [each for group in groups for each in group]
        for (one, mine), (other, theirs) in itertools.combinations(
            zip(groups, grouped(kind), strict=True), 2
        ):
            for found in equal_times([*mine, *theirs]):
                turned = found.one[0].group != mine[0].group
                first, second = (other, one) if turned else (one, other)
                timed = found.seconds is not None
                said = found.result(gap="\u00a0")  # as elsewhere on the page
                comparisons.append(compare(first, second, said, timed=timed))
    return arranged, comparisons


def _summary(run: "Run") -> Summary:
    """Return a run as `pathgrad compare` sees it."""
    return Summary(run.path, run.config, run.rows, numbers_of(run.rows), run.evaluated)


def _named(run: "Run", s: Summary, name: str, label: str) -> "Run":
    return dataclasses.replace(
        run, name=name, problem=s.problem, estimator=s.estimator, label=label, group=s.group
    )
