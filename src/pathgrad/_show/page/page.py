"""The page: verdicts first, then the evidence for them, then what was run."""

import datetime
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from ..._runs.comparison import Comparison
from ..._runs.group import Group
from ..._runs.provenance import package_version
from ..._words.text import listed
from ..figure import by_problem
from .cards import broken_runs, cards, comparisons_of
from .charts import result_charts, training_charts
from .document import document, package_file
from .html import Html, joined, listing, pairs, prose, tag
from .tables import commands, configuration, evaluation_table, further_tables, named_runs, runs_table
from .verdict import remedy


def make_page(
    groups: Sequence[Group],
    comparisons: Sequence[Comparison] = (),
    broken: Sequence[tuple[Path, str]] = (),
    title: str | None = None,
) -> str:
    """Return the page as text.

    Args:
        groups: Groups of runs, in the order in which to show them.
        comparisons: Comparisons of some of these groups.
        broken: Directories of runs that could not be read, and why.
        title: Title of the page; by default what was run.
    """
    title = title or _title(groups)
    problems = by_problem(groups)

    def per_problem(part: Callable[[Sequence[Group]], Html]) -> list[Html]:
        heads = [tag("h3", name) if len(problems) > 1 else None for name in problems]
        shown = map(part, problems.values())
        return [tag("div", *both, class_="problem") for both in zip(heads, shown, strict=True)]

    sections = {
        "Verdict": [cards(groups), comparisons_of(comparisons), broken_runs(broken)],
        "Training": [_axis_switch(), *per_problem(training_charts)],
        "Evaluation": per_problem(_evaluation),
        "Draws and weights": per_problem(result_charts),
        "What was run": [runs_table(groups), configuration(groups), tag("h3", "Commands"), commands(groups)],
        "Glossary": [pairs(tomllib.loads(package_file("glossary.toml")).items(), "glossary")],
    }
    shown = []
    for name, parts in sections.items():
        heading = tag("h2", name, id=f"{_id(name)}-title")
        shown.append(tag("section", heading, *parts, id=_id(name), aria_labelledby=f"{_id(name)}-title"))
    links = [tag("a", name, href=f"#{_id(name)}") for name in sections]
    return document(title, joined([_header(title, groups, links), tag("main", *shown)]))


def _id(section: str) -> str:
    return section.split()[0].lower()


def _title(groups: Sequence[Group]) -> str:
    what = listed(list(dict.fromkeys(group.problem for group in groups)))
    who = listed(list(dict.fromkeys(group.method for group in groups)))
    count = sum(len(group.runs) for group in groups)
    return f"{what}: {who}" if len(what) < 60 else f"{count} runs: {who}"


def _header(title: str, groups: Sequence[Group], links: list[Html]) -> Html:
    kinds = [run.status.kind for run, _, _ in named_runs(groups)]
    running, stopped = kinds.count("running"), kinds.count("stopped") + kinds.count("empty")
    words = [f"{len(kinds)} run{'s' if len(kinds) != 1 else ''}"]
    words += [f"{running} training now"] if running else []
    words += [f"{stopped} stopped before the end"] if stopped else []
    now = datetime.datetime.now().astimezone()
    date = tag("time", now.strftime("%d %B %Y, %H:%M"), datetime=now.isoformat(timespec="seconds"))
    version = package_version("pathgrad") or ""
    return tag(
        "header",
        tag("p", "pathgrad report", class_="kicker"),
        tag("h1", title),
        tag("p", ", ".join(words), ". Made on ", date, f" by pathgrad {version}.", class_="made"),
        tag("nav", *links, aria_label="Sections"),
        tag("button", "Dark", id="theme", type="button", hidden=True),
    )


def _axis_switch() -> Html:
    """Return two buttons that choose charts; the style sheet shows and hides charts, without a script."""
    buttons = []
    for name, text in (("step", "step"), ("time", "training time")):
        button = tag("input", type="radio", name="axis", id=f"by-{name}", checked=name == "step")
        buttons.append(tag("label", button, text))
    return tag("fieldset", tag("legend", "Other charts against"), *buttons, class_="switch")


def _evaluation(groups: Sequence[Group]) -> Html:
    missing = []
    for run, name, _ in named_runs(groups):
        if not run.is_evaluated:
            state = "evaluated at an earlier step" if run.evaluation else "not evaluated"
            missing.append(prose(f"{name}: {state}; {remedy(run, 'measures it properly')}."))
    return joined([evaluation_table(groups), listing(missing, "missing"), *further_tables(groups)])
