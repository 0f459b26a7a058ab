"""Tables: what evaluation measured, what was run, and with which settings."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..._runs.experiment import ResultTable
from ..._runs.group import Group
from ..._runs.options import flat
from ..._runs.run import Run
from ..._words.text import UNKNOWN, count, duration, plain, sentence
from .html import Html, fine, joined, pairs, prose, table, tag


def named_runs(groups: Sequence[Group]) -> Iterator[tuple[Run, str, Group]]:
    """Yield the runs, with their names and groups."""
    for group in groups:
        for run, name in zip(group.runs, group.names, strict=True):
            yield run, name, group


def evaluation_table(groups: Sequence[Group]) -> Html | None:
    """Return a row for each evaluated run of one problem."""
    evaluated = [(run, name, group) for run, name, group in named_runs(groups) if run.evaluation]
    if not evaluated:
        return None
    quantities = evaluated[0][0].experiment.measured(evaluated[0][0].options)
    # Leave out empty columns.
    filled = [q for q in quantities if any(q.value(run.evaluation) is not None for run, _, _ in evaluated)]
    rows, old = [], []
    for run, name, group in evaluated:
        old += [] if run.is_evaluated else [name]
        star = "" if run.is_evaluated else "*"
        rows.append([name + star, group.label, *[q.of(run.evaluation) for q in filled]])
    heads = ["run", "method", *[q.title for q in filled]]
    shown = table(heads, rows, "What evaluation measured, with standard errors", texts=2)
    note = f"* {', '.join(old)}: from an earlier step; the run has been trained further since."
    return tag("div", shown, tag("p", note, class_="note") if old else None)


def further_tables(groups: Sequence[Group]) -> list[Html]:
    """Return the experiment's further results for each evaluated run."""
    runs = [(run, name) for run, name, _ in named_runs(groups)]
    evaluated = [(run, name) for run, name in runs if run.evaluation]
    return [
        _folded(t, name, is_open=len(runs) == 1)
        for run, name in evaluated
        for t in run.experiment.tables(run)
    ]


def _folded(result: ResultTable, name: str, *, is_open: bool) -> Html:
    rows = [
        [*row[:-1], tag("strong", f"{fine(row[-1])} ⚠")] if i in result.doubtful else row
        for i, row in enumerate(result.rows)
    ]
    title = f"{result.title}: {name}"
    note = tag("p", prose(result.note), class_="note") if result.note else None
    return tag("details", tag("summary", title), table(result.heads, rows, title), note, open=is_open)


def runs_table(groups: Sequence[Group]) -> Html:
    """Return how far each run is, and what it cost."""
    rows = []
    for run, name, group in named_runs(groups):
        state = tag("span", run.status.kind, class_=f"state {run.status.kind}")
        steps, seconds, skipped = (run.at_end(unit) for unit in ("step", "seconds", "skipped"))
        cost = [count(steps), duration(seconds), plain(run.step_ms, ".3g"), count(skipped)]
        rows.append([name, group.problem, run.method, state, str(run.seed), *cost])
    heads = ("run", "problem", "method", "state", "seed", "steps", "training", "ms per step", "skipped")
    return table(heads, rows, "The runs", texts=4)


def configuration(groups: Sequence[Group]) -> Html:
    """Return the settings that runs of an experiment share, and a table of those that differ."""
    kinds: dict[str, list[tuple[Run, str]]] = {}
    for run, name, _ in named_runs(groups):
        kinds.setdefault(run.experiment.name, []).append((run, name))
    return tag("div", *[_configuration(kind, runs) for kind, runs in kinds.items()])


def _configuration(kind: str, runs: Sequence[tuple[Run, str]]) -> Html:
    settings = [_settings(run) for run, _ in runs]
    names = list(dict.fromkeys(name for each in settings for name in each))
    common = [n for n in names if len({each.get(n) for each in settings}) == 1]
    differing = [n for n in names if n not in common]
    parts = []
    if differing:
        label = f"What differs between the {kind} runs"
        both = zip(runs, settings, strict=True)
        rows = [[name, *[each.get(n, UNKNOWN) for n in differing]] for (_, name), each in both]
        parts = [tag("h3", label), table(["run", *differing], rows, label, texts=1 + len(differing))]
    title = f"What all {kind} runs share" if len(runs) > 1 else f"Configuration of {runs[0][1]}"
    summary = tag("summary", f"{title}: {len(common)} settings and versions")
    shared = pairs([(name, settings[0][name]) for name in common], "settings")
    return joined([*parts, tag("details", summary, shared, open=len(runs) == 1)])


def _settings(run: Run) -> dict[str, str]:
    """Return options and versions as text; commands are shown elsewhere."""
    settings: dict[str, Any] = {"experiment": run.experiment.name, **flat(run.options)}
    settings |= {name: v for name, v in flat(run.provenance).items() if name != "command"}
    return {n: v if isinstance(v, str) else json.dumps(v, default=str) for n, v in settings.items()}


def commands(groups: Sequence[Group]) -> Html:
    """Return the commands that made the runs and their evaluations, and how far each run is."""
    shown = []
    for run, name, _ in named_runs(groups):
        origins = (run.provenance, run.evaluation.get("provenance"))
        typed = [origin.get("command") for origin in origins if isinstance(origin, Mapping)]
        lines = [tag("pre", str(command)) for command in typed if command]
        shown.append((name, joined([tag("p", prose(sentence(run.status.text))), *lines])))
    return pairs(shown, "commands")
