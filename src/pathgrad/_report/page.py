"""The page: verdicts first, then how they came about, then what was run."""

import datetime
from collections.abc import Sequence

from pathgrad._train.rundir import package_version

from .cards import broken_runs, cards, comparisons_of
from .comparison import Comparison
from .contents import Broken, Run
from .curves import training_charts
from .document import document
from .draws import draws_figures, is_png, picture, two_point_chart, weights_chart
from .html import Html, joined, prose, spoken, tag
from .tables import commands, configuration, evaluation_table, observables_tables, runs_table
from .verdict import remedy, verdict
from .words import listed

_GLOSSARY = {
    "Effective sample size (ESS)": (
        "Draws of the flow are weighted to stand for the target. The ESS is the share of exact draws that "
        "they are worth: 100 % where flow and target are the same. It cannot see what the flow never draws."
    ),
    "Reverse KL": (
        "The mean of log q − log p over draws of the flow, less its smallest possible value, in nats: zero "
        "where both are the same."
    ),
    "k-hat": (
        "How heavy the tail of the weights is. Below 0.5 averages and their errors can be trusted; from 0.7 "
        "on a few draws decide everything."
    ),
    "log Z": "The logarithm of the target's normalising constant, estimated from the weights.",
    "Path and total gradient": (
        "Two estimates of the same gradient of training. The path gradient leaves out a term of mean zero "
        "that is nothing but noise, so with an exact divergence it vanishes where the flow has reached its "
        "target."
    ),
    "Signal-to-noise ratio": (
        "The mean gradient over its spread from step to step: below one, steps are mostly noise. Nothing but "
        "noise gives about one over the square root of the number of steps in a block, not zero."
    ),
    "ELBO": (
        "A lower bound of the log-likelihood of an image; its negative is what it costs to describe the "
        "image, at most."
    ),
}
_SECTIONS = {
    "verdict": "Verdict",
    "training": "Training",
    "evaluation": "Evaluation",
    "draws": "Draws and weights",
    "runs": "What was run",
    "words": "Words",
}


def make_page(
    runs: Sequence[Run],
    *,
    comparisons: Sequence[Comparison] = (),
    broken: Sequence[Broken] = (),
    title: str | None = None,
    now: datetime.datetime | None = None,
) -> str:
    """Return the page as text.

    Args:
        runs: In the order in which they are to be shown; those of a group one after the other.
        comparisons: Of groups among them.
        broken: Runs that could not be read.
        title: Above it all; by default what was run.
        now: When the page is made.
    """
    runs = list(runs)
    title = title or _title(runs)
    problems: dict[str, list[Run]] = {}
    for run in runs:
        problems.setdefault(run.what, []).append(run)

    def each(part) -> list[Html]:
        heads = [tag("h3", name) if len(problems) > 1 else None for name in problems]
        shown = map(part, problems.values())
        return [tag("div", *both, class_="problem") for both in zip(heads, shown, strict=True)]

    words = [joined([tag("dt", name), tag("dd", text)]) for name, text in _GLOSSARY.items()]
    main = tag(
        "main",
        _section("verdict", cards(runs), comparisons_of(comparisons), broken_runs(broken)),
        _section("training", _axis_switch(), *each(training_charts)),
        _section("evaluation", *each(_evaluation)),
        _section("draws", *each(_draws)),
        _section(
            "runs", runs_table(runs), configuration(runs), tag("h3", "Commands"), commands(runs)
        ),
        _section("words", tag("dl", *words, class_="glossary")),
    )
    now = now or datetime.datetime.now().astimezone()
    return document(title, joined([_header(title, runs, now), main]))


def _title(runs: list[Run]) -> str:
    what = listed(list(dict.fromkeys(run.what for run in runs)))
    who = listed(list(dict.fromkeys(run.estimator for run in runs)))
    return f"{what}: {who}" if len(what) < 60 else f"{len(runs)} runs: {who}"


def _header(title: str, runs: list[Run], now: datetime.datetime) -> Html:
    kinds = [run.state.kind for run in runs]
    going, stopped = kinds.count("running"), kinds.count("stopped") + kinds.count("empty")
    words = [f"{len(runs)} run{'s' if len(runs) != 1 else ''}"]
    words += [f"{going} training now"] if going else []
    words += [f"{stopped} stopped before the end"] if stopped else []
    made = tag("time", now.strftime("%d %B %Y, %H:%M"), datetime=now.isoformat(timespec="seconds"))
    version = package_version("pathgrad") or ""
    links = [tag("a", text, href=f"#{name}") for name, text in _SECTIONS.items()]
    return tag(
        "header",
        tag("p", "pathgrad report", class_="kicker"),
        tag("h1", title),
        tag("p", ", ".join(words), ". Made on ", made, f" by pathgrad {version}.", class_="made"),
        tag("nav", *links, aria_label="Sections"),
        tag("button", "Dark", id="theme", type="button", hidden=True),
    )


def _section(name: str, *parts: Html | None) -> Html:
    heading = tag("h2", _SECTIONS[name], id=f"{name}-title")
    return tag("section", heading, *parts, id=name, aria_labelledby=f"{name}-title")


def _axis_switch() -> Html:
    """Return two buttons of which the style sheet shows the charts; no script is needed."""

    def choice(name: str, text: str, checked: bool | None) -> Html:  # noqa: FBT001
        how = {"type": "radio", "name": "axis", "id": f"by-{name}", "checked": checked}
        return tag("label", tag("input", **how), text)

    legend = tag("legend", "Further charts against")
    buttons = choice("step", "step", True), choice("time", "training time", None)
    return tag("fieldset", legend, *buttons, class_="switch")


def _evaluation(runs: list[Run]) -> Html:
    missing = [
        tag("li", prose(f"{run.name}: {_lack(run)}; {remedy(run, 'measures it properly')}."))
        for run in runs
        if not run.evaluated
    ]
    return joined(
        [
            evaluation_table(runs),
            tag("ul", *missing, class_="missing") if missing else None,
            *observables_tables(runs),
        ]
    )


def _lack(run: Run) -> str:
    return "evaluated at an earlier step" if run.evaluation else "not evaluated"


def _draws(runs: list[Run]) -> Html:
    figures = [f for f in (weights_chart(runs), two_point_chart(runs)) if f is not None]
    figures += draws_figures(runs)
    kept = {run.group for run in runs if {"x", "fields", "samples"} & set(run.arrays)}
    without: dict[str, Run] = {}
    for run in runs:
        if run.group not in kept:
            without.setdefault(run.group, run)
    figures += [_old_picture(run) for run in without.values() if is_png(run.picture)]
    missing = []
    for run in without.values():
        how = remedy(run, "makes some")
        missing.append(
            tag("li", prose(f"{run.name}: no draws are kept (`evaluation.npz`); {how}."))
        )
    return joined(
        [
            tag("div", *figures, class_="charts") if figures else None,
            tag("ul", *missing, class_="missing") if missing else None,
        ]
    )


def _old_picture(run: Run) -> Html:
    """Return the picture that evaluation left, where it left nothing to draw a new one from."""
    caption = tag(
        "figcaption",
        tag("strong", "Picture of the evaluation"),
        tag("span", f" of {run.name}", class_="against"),
    )
    words = " ".join(map(spoken, verdict([run]).sentences))
    described = f"Training, weights and draws of {run.name}, as evaluation drew them. {words}"
    image = picture(run.picture or b"", described, run.path / "evaluation.png", class_="paper")
    return tag("figure", caption, image, class_="wide")
