"""The verdicts on the page: a card for each group of runs, and which method is ahead."""

from collections.abc import Sequence
from pathlib import Path

from ..._runs.comparison import Comparison
from ..._runs.group import Group
from ..._words.text import sentence
from .html import Html, fine, joined, listing, prose, tag
from .svg import swatch_of
from .verdict import Trust, judge_group

_WARNING, _NOT_SHOWN = tag("strong", "⚠ Warning: "), tag("strong", "⚠ Not shown: ")
_FEW = 4
_ICONS = {Trust.GOOD: "✓", Trust.FAIR: "!", Trust.BAD: "✕", Trust.OPEN: "…"}


def cards(groups: Sequence[Group]) -> Html:
    """Return a card for each group."""
    return tag("div", *map(_card, groups), class_="cards")


def _card(group: Group) -> Html:
    judgement, alone = judge_group(group), len(group.runs) == 1
    facts = [tag("div", tag("dt", name), tag("dd", fine(value))) for name, value in judgement.facts]
    paths = ", ".join(str(run.path) for run in group.runs)
    icon = tag("span", _ICONS[judgement.level], aria_hidden="true")
    unfinished = [
        tag("p", None if alone else f"{name}: ", prose(sentence(run.status.text)))
        for run, name in zip(group.runs, group.names, strict=True)
        if run.status.kind != "ended"
    ]
    return tag(
        "article",
        tag("h3", swatch_of(group.method), group.label, tag("span", group.problem, class_="of")),
        tag("p", icon, f" {judgement.chip}", class_="chip"),
        tag("p", fine(judgement.headline), class_="headline"),
        tag("p", judgement.name, class_="unit"),
        listing([joined([_WARNING, prose(text)]) for text in judgement.warnings], "warnings"),
        *unfinished,
        *[tag("p", prose(text)) for text in judgement.sentences],
        tag("dl", *facts, class_="facts"),
        tag("p", "Directory: " if alone else "Directories: ", tag("code", paths), class_="where"),
        class_=f"card {judgement.level.name.lower()}",
    )


def comparisons_of(comparisons: Sequence[Comparison]) -> Html | None:
    """Return which methods are ahead of which."""
    if not comparisons:
        return None
    # If there are many, show the titles only, to be unfolded one by one.
    box, head = ("div", "h4") if len(comparisons) <= _FEW else ("details", "summary")
    shown = []
    for comparison in comparisons:
        texts = [tag("p", prose(text)) for text in comparison.sentences]
        shown.append(tag(box, tag(head, fine(comparison.title)), *texts, class_="comparison"))
    return joined([tag("h3", "Who is ahead"), *shown])


def broken_runs(broken: Sequence[tuple[Path, str]]) -> Html | None:
    """Return a list of the runs that could not be read, and why."""
    items = [joined([_NOT_SHOWN, tag("code", str(path)), ". ", prose(why)]) for path, why in broken]
    shown = listing(items, "warnings broken")
    return joined([tag("h3", "Runs that cannot be read"), shown]) if shown else None
