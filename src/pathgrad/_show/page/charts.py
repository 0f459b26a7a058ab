"""The charts of the page: training curves, and what the experiments draw."""

import base64
from collections.abc import Sequence

from ..._runs.group import Group
from ..._runs.panel import UNFIT, MissingData, Panel
from ..curves import NO_CURVE, constants, training_panels
from .html import Html, fine, joined, listing, prose, spoken, tag
from .svg import chart
from .verdict import judge_group, remedy

_WIDE = 6.0  # inches; a wider chart takes the full width of the page
_FEW_LABELS = 4  # with more, one legend above all charts replaces the legend of each
_MOST_BYTES = 2_000_000  # of a picture: the page should be small enough for mail
_PNG = b"\x89PNG\r\n\x1a\n"


def training_charts(groups: Sequence[Group]) -> Html:
    """Return the training charts of one problem: the main one on both axes, others as the reader chooses."""
    figures, legends = [], []
    is_few = len(groups) <= _FEW_LABELS
    for i, curve in enumerate(training_panels(groups)):
        for axis, unit, panel in (("step", curve.length, curve.by_length), ("time", "time", curve.by_time)):
            try:
                drawing, legend = chart(panel, groups)
            except MissingData:
                continue
            legends.append(legend)
            figure = _figure(panel, f" against training {unit}", drawing, legend if is_few else None)
            # The followed number is shown on both axes; for the others the style sheet hides one.
            figures.append(tag("div", figure, class_=f"by-{axis}" if i else None))
    if not figures:
        return tag("p", NO_CURVE)
    unchanged = " ".join(map(fine, constants(groups)))
    note = tag("p", unchanged, class_="note") if unchanged else None
    return tag("div", None if is_few else legends[0], tag("div", *figures, class_="charts"), note)


def _figure(panel: Panel, against: str, drawing: Html, legend: Html | None) -> Html:
    means = tag("span", fine(panel.means), class_="means") if panel.means else None
    caption = tag("figcaption", *_heading(panel.title, against), means, legend)
    return tag("figure", caption, drawing, class_="wide" if panel.width > _WIDE else None)


def _heading(title: str, against: str) -> tuple[Html, Html | None]:
    return tag("strong", title), tag("span", against, class_="against") if against else None


def result_charts(groups: Sequence[Group]) -> Html:
    """Return what the experiment draws from the evaluations of groups of one problem."""
    figures, missing = [], []
    panels = groups[0].first.experiment.panels().values()
    for panel in panels:
        kept = panel.drawable(groups)
        for shown in [[group] for group in kept] if panel.is_of_one else [kept] if kept else []:
            of = f" of {shown[0].names[0]}" if panel.is_of_one else ""
            try:
                figures.append(_figure(panel, of, *chart(panel, shown)))
            except MissingData:
                continue
            except UNFIT as error:  # the other charts are still shown
                missing.append(f"{panel.title}{of}: the saved data do not fit together ({error}).")
    for group in groups:
        if any(panel.needs for panel in panels) and not any(run.arrays for run in group.runs):
            figures += filter(None, [_old_picture(group)])
            how = remedy(group.first, "saves some")
            missing.append(f"{group.names[0]}: no draws are saved (`evaluation.npz`); {how}.")
    shown = tag("div", *figures, class_="charts") if figures else None
    return joined([shown, listing(map(prose, missing), "missing")])


def _old_picture(group: Group) -> Html | None:
    """Return the picture that an evaluation saved, if it saved no data to draw a new one from."""
    file, name = group.first.path / "evaluation.png", group.names[0]
    try:
        png = file.read_bytes()
    except OSError:
        return None
    if not png.startswith(_PNG):
        return None
    if len(png) > _MOST_BYTES:
        size = f"It is too large for this page ({len(png) / 1e6:.1f} MB): see "
        image = tag("p", size, tag("code", str(file)), ".", class_="note")
    else:
        source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
        words = " ".join(spoken(fine(text)) for text in judge_group(group).sentences)
        described = f"The picture that the evaluation of {name} saved. {words}"
        image = tag("img", src=source, alt=described, class_="paper")
    caption = tag("figcaption", *_heading("Picture of the evaluation", f" of {name}"))
    return tag("figure", caption, image, class_="wide")
