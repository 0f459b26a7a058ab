"""The table of runs, for a terminal or in Markdown."""

import statistics
import sys

from .summary import Summary, grouped, labels_of, names_of

# Column, where it is found, and how it is written. What evaluation found comes before training's last row.
_COLUMNS = (
    ("steps", "step", "{:.0f}"),
    ("train s", "seconds", "{:.1f}"),
    ("ms/step", "step_ms", "{:.1f}"),
    ("ESS", "ess", "{:.2%}"),
    ("KL", "kl", "{:.5f}"),
    ("k-hat", "khat", "{:.2f}"),
    ("grad norm", "gradient_norm", "{:.3g}"),
    ("skipped", "skipped", "{:.0f}"),
)
_TEXTS = ("run", "data set", "estimator")  # other columns are of numbers
_NOTE = "* from the last block of training; `pathgrad evaluate RUN` measures it properly."


def print_table(summaries: list[Summary], *, markdown: bool = False) -> None:
    """Print a row for each run, and one for each group of seeds; below, what to know about them."""
    notes = [] if all(s.evaluated for s in summaries) else [_NOTE]
    for name, s in zip(names_of(summaries), summaries, strict=True):
        notes += [f"{name}: {text}" for text in s.warnings]
    print_cells(*make_table(summaries), notes, markdown=markdown)


def print_cells(
    heads: list[str],
    runs: list[list[str]],
    means: list[list[str]],
    notes: list[str],
    *,
    markdown: bool = False,
) -> None:
    """Print rows of runs, below them rows of means, and notes after the table."""
    if markdown:
        _print_markdown(heads, runs + means)
    else:
        _print_box(heads, runs, means)
    for note in notes:
        print(f"\n{_escaped(note)}" if markdown else note)


def make_table(summaries: list[Summary]) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """Return the heads, a row for each run, and one for each group of several seeds."""
    shown = [c for c in _COLUMNS if _worth_showing(summaries, c[1])]
    sizes = len({s.size for s in summaries}) > 1
    labels = labels_of(summaries)

    def begin(name: str, s: Summary) -> list[str]:
        return [name, *([str(s.size or "-")] if sizes else []), s.estimator]

    runs = [
        [*begin(name, s), *[_cell(s, *c[1:]) for c in shown]]
        for name, s in zip(names_of(summaries), summaries, strict=True)
    ]
    means = []
    for group in grouped(summaries):
        if len(group) < 2:
            continue
        # The same seed twice is the same run twice, as on another machine.
        seeds = len({s.training.get("seed") for s in group}) == len(group)
        what = f"mean of {len(group)} {'seeds' if seeds else 'runs'}"
        what += labels[group[0].group].removeprefix(group[0].estimator)
        means.append([*begin(what, group[0]), *[_mean(group, *c[1:]) for c in shown]])
    heads = ["run", *(["L"] if sizes else []), "estimator", *[c[0] for c in shown]]
    return heads, runs, means


def _worth_showing(summaries: list[Summary], name: str) -> bool:
    values = {s.numbers.get(name) for s in summaries}
    return any(values) if name == "skipped" else values != {None} or name == "ess"


def _cell(s: Summary, name: str, form: str) -> str:
    value = s.numbers.get(name)
    return "-" if value is None else form.format(value) + _mark([s], name)


def _mean(group: list[Summary], name: str, form: str) -> str:
    values = [v for s in group if (v := s.numbers.get(name)) is not None]
    if len(values) < len(group):  # a mean over fewer seeds than the row says would mislead
        return "-"
    if name == "step" and len(set(values)) == 1:
        return form.format(values[0])
    return mean_and_deviation(values, form) + _mark(group, name)


def _mark(group: list[Summary], name: str) -> str:
    return "*" if name in ("ess", "kl") and not all(s.evaluated for s in group) else ""


def mean_and_deviation(values: list[float], form: str) -> str:
    """Write the mean, and the standard deviation if there are several values."""
    spread = f" ± {form.format(statistics.stdev(values))}" if len(values) > 1 else ""
    return form.format(statistics.mean(values)) + spread


def _print_box(heads: list[str], runs: list[list[str]], means: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for head in heads:
        table.add_column(head, justify="left" if head in _TEXTS else "right")
    for row in runs:
        table.add_row(*row)
    table.add_section()
    for row in means:
        table.add_row(*row)
    # Elsewhere than on a terminal, wide enough never to wrap. Names may hold [brackets].
    width = None if sys.stdout.isatty() else 400
    Console(width=width, markup=False, highlight=False).print(table)


def _print_markdown(heads: list[str], rows: list[list[str]]) -> None:
    rule = ["---" if head in _TEXTS else "---:" for head in heads]
    for row in (heads, rule, *[[_escaped(cell) for cell in row] for row in rows]):
        print(f"| {' | '.join(row)} |")


def _escaped(text: str) -> str:
    for sign in "\\|*_":
        text = text.replace(sign, f"\\{sign}")
    return text
