"""The verdicts as the page shows them: a card for each group of runs, and who is ahead of whom."""

from collections.abc import Sequence

from .chart import swatch
from .comparison import Comparison
from .contents import Broken, Run
from .html import Html, joined, prose, tag
from .verdict import Trust, Verdict, verdict
from .words import sentence

_FEW = 4
_ICONS = {Trust.GOOD: "✓", Trust.FAIR: "!", Trust.BAD: "✕", Trust.OPEN: "…"}


def cards(runs: Sequence[Run]) -> Html:
    """Return a card for each group of runs that differ by their seed only."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    return tag("div", *[_card(group, verdict(group)) for group in groups.values()], class_="cards")


def _card(group: list[Run], said: Verdict) -> Html:
    first, alone = group[0], len(group) == 1
    facts = [tag("div", tag("dt", name), tag("dd", value)) for name, value in said.facts]
    paths = ", ".join(str(run.path) for run in group)
    return tag(
        "article",
        tag("h3", swatch(first.estimator, None), first.label, tag("span", first.what, class_="of")),
        tag(
            "p", tag("span", _ICONS[said.level], aria_hidden="true"), f" {said.chip}", class_="chip"
        ),
        tag("p", said.headline, class_="headline"),
        tag("p", said.name, class_="unit"),
        _warnings(said.warnings),
        *[
            tag("p", None if alone else f"{run.name}: ", prose(sentence(run.state.text)))
            for run in group
            if run.state.kind != "ended"
        ],
        *[tag("p", prose(text)) for text in said.sentences],
        tag("dl", *facts, class_="facts"),
        tag("p", "Directory: " if alone else "Directories: ", tag("code", paths), class_="where"),
        class_=f"card {said.level.name.lower()}",
    )


def _warnings(texts: list[str]) -> Html | None:
    items = [tag("li", tag("strong", "⚠ Warning: "), prose(text)) for text in texts]
    return tag("ul", *items, class_="warnings") if items else None


def comparisons_of(comparisons: Sequence[Comparison]) -> Html | None:
    """Return who is ahead of whom."""
    if not comparisons:
        return None
    # Of many, the titles say enough until one is unfolded.
    box, head = ("div", "h4") if len(comparisons) <= _FEW else ("details", "summary")
    shown = [
        tag(
            box,
            tag(head, found.title),
            *[tag("p", prose(text)) for text in found.sentences],
            class_="comparison",
        )
        for found in comparisons
    ]
    return joined([tag("h3", "Who is ahead"), *shown])


def broken_runs(broken: Sequence[Broken]) -> Html | None:
    """Return which runs could not be read, and why."""
    if not broken:
        return None
    items = [
        tag("li", tag("strong", "⚠ Not shown: "), tag("code", str(path)), ". ", prose(why))
        for path, why in broken
    ]
    shown = tag("ul", *items, class_="warnings broken")
    return joined([tag("h3", "Runs that cannot be read"), shown])
