"""Which runs belong together, and what they are called next to each other."""

import dataclasses
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from .._words.arguments import instance, shown
from .._words.errors import ArgumentError, UserError, named
from .run import Run

_MOST_WORDS = 3  # options in a label; where more differ, the directory name is clearer
_DEEPEST = 3  # how far below a folder runs are looked for


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Runs that differ only in their seed.

    Attributes:
        runs: At least one.
        names: Names of the runs, as short as they can be without two runs sharing one.
        label: The method, and what sets the group apart from others of its problem.
    """

    runs: tuple[Run, ...]
    names: tuple[str, ...]
    label: str

    @property
    def first(self) -> Run:
        """The first run, from which to read what all have in common."""
        return self.runs[0]

    @property
    def method(self) -> str:
        """The method of the runs, which decides colour and line."""
        return self.first.method

    @property
    def problem(self) -> str:
        """A readable title of what was fitted; each problem has its own figures."""
        return self.first.experiment.title(self.first.options)

    @property
    def has_other_seeds(self) -> bool:
        """Whether all seeds differ; if not, the same run is there twice, perhaps from another machine."""
        return len({run.seed for run in self.runs}) == len(self.runs)

    @property
    def detail(self) -> str:
        """The part of the label after the method."""
        return self.label.removeprefix(self.method).lstrip(", ")


def find_runs(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Return the run directories among the paths and in the folders among them, each once."""
    if isinstance(paths, str) or not isinstance(paths, Iterable):
        raise ArgumentError(f"{named('paths')} must be a list of directories, got {shown(paths)}.")
    given = list(paths)
    for path in given:
        instance("paths", path, (str, os.PathLike), "a list of directories")
    paths = [Path(path) for path in given]
    if not paths:
        raise UserError("No run was given. Name at least one run directory, or a folder of runs.")
    runs: dict[Path, Path] = {}
    for path in paths:
        inside = [path]
        if not (path / "config.toml").is_file():
            files = [f for d in range(1, _DEEPEST + 1) for f in path.glob(f"{'*/' * d}config.toml")]
            inside = sorted(file.parent for file in files)
        if not inside and path.is_file():
            raise UserError(f"{path} is a file. Name the directory of its run.")
        if not inside:
            why = "has no config.toml, nor has any folder in it" if path.is_dir() else "does not exist"
            raise UserError(
                f"{path} is not a run directory: it {why}. Check the path, or start a run there with "
                "`pathgrad train`."
            )
        for run in inside:
            runs.setdefault(run.resolve(), run)
    return list(runs.values())


def group_runs(runs: Iterable[Run]) -> list[Group]:
    """Return runs in groups that differ only in their seed, with labels; small problems first."""
    if not isinstance(runs, Iterable) or isinstance(runs, str):
        raise ArgumentError(f"{named('runs')} must be a list of runs, got {shown(runs)}.")
    runs = list(runs)
    for run in runs:
        instance("runs", run, Run, "a list of runs, as of `Run.open`")
    names = dict(zip(map(id, runs), _names_of(runs), strict=True))
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(json.dumps(run.alike, sort_keys=True, default=str), []).append(run)
    places = list(dict.fromkeys(map(_place, runs)))

    def rank(group: list[Run]) -> tuple[str, float, int]:
        first = group[0]
        return first.experiment.name, first.experiment.size(first.options), places.index(_place(first))

    ordered = sorted(groups.values(), key=rank)
    firsts = [group[0] for group in ordered]
    labels = [_label(group, names[id(group[0])], firsts) for group in ordered]
    full = [(*_place(first), label) for first, label in zip(firsts, labels, strict=True)]
    for i, first in enumerate(firsts):
        if full.count(full[i]) > 1:
            labels[i] += f", {names[id(first)]}"
    return [
        Group(tuple(group), tuple(names[id(run)] for run in group), label)
        for group, label in zip(ordered, labels, strict=True)
    ]


def _names_of(runs: Sequence[Run]) -> list[str]:
    """Return the ends of the paths, as long as needed to make them differ."""
    parts = [run.path.resolve().parts for run in runs]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(p[-length:]) for p in parts]
        if len(set(names)) == len(names):
            return names
    return [str(run.path) for run in runs]


def _label(group: list[Run], name: str, firsts: list[Run]) -> str:
    """Return the method of a group, and what sets it apart from the other groups of its problem."""
    first = group[0]
    peers = [run for run in firsts if _place(run) == _place(first)]
    options = {n for run in peers for n in run.alike} - set(first.experiment.shown_options)
    differing = [n for n in sorted(options) if _differs(peers, n)]
    if len(differing) > _MOST_WORDS:
        # One run's name alone would not describe a group of several.
        words = [f"{name} and {len(group) - 1} more" if len(group) > 1 else name]
    else:
        words = [_word(n, first) for n in differing if n in first.alike]
    return ", ".join([first.method, *words])


def _place(run: Run) -> tuple[str, str]:
    return run.experiment.name, run.experiment.problem(run.options)


def _differs(runs: list[Run], name: str) -> bool:
    """Return whether an option has several values, among the runs whose method uses it."""
    return len({str(run.alike[name]) for run in runs if name in run.alike}) > 1


def _word(name: str, run: Run) -> str:
    value, short = run.alike[name], name.rpartition(".")[2].replace("_", " ")
    return f"no {short}" if value is None else f"{short} {value}"
