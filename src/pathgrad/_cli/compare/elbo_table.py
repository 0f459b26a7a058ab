"""The table of variational autoencoders: what they reached on which images, and what a step cost."""

from .summary import Summary, grouped, labels_of, names_of
from .table import mean_and_deviation, print_cells

# Column, where it is found, and how it is written; `None`: in the unit of the data set.
_COLUMNS = (
    ("epochs", "epoch", "{:.4g}"),
    ("best epoch", "best_epoch", "{:.4g}"),
    ("best validation", "best_validation", None),
    ("test -ELBO", "negative_elbo", None),
    ("test NLL", "nll", None),
    ("forward evals", "evaluations", "{:.1f}"),
    ("backward evals", "evaluations_backward", "{:.1f}"),
    ("ms/step", "step_ms", "{:.1f}"),
    ("train s", "seconds", "{:.1f}"),
    ("skipped", "skipped", "{:.0f}"),
)
_ALWAYS = ("best_validation", "negative_elbo")
_NOTE = (
    "Runs without a test -ELBO have not been evaluated as they are now: `pathgrad evaluate RUN`."
)


def print_elbo_table(summaries: list[Summary], *, markdown: bool = False) -> None:
    """Print a row for each run, and one for each group of seeds; below, what to know about them."""
    print_cells(*make_elbo_table(summaries), elbo_notes(summaries), markdown=markdown)


def make_elbo_table(summaries: list[Summary]) -> tuple[list[str], list[list[str]], list[list[str]]]:
    """Return the heads, a row for each run, and one for each group of several seeds."""
    from pathgrad._plots import unit_of

    shown = [c for c in _COLUMNS if _worth_showing(summaries, c[1])]
    labels = labels_of(summaries)
    units = {unit_of(s.problem).name for s in summaries}

    def row(name: str, group: list[Summary]) -> list[str]:
        first = group[0]
        seeds = ", ".join(str(s.training.get("seed", "?")) for s in group)
        cells = [_cell(group, *c[1:], name_unit=len(units) > 1) for c in shown]
        return [name, first.problem, labels[first.group], seeds, *cells]

    runs = [row(name, [s]) for name, s in zip(names_of(summaries), summaries, strict=True)]
    means = []
    for group in grouped(summaries):
        if len(group) > 1:
            seeds = len({s.training.get("seed") for s in group}) == len(group)
            means.append(row(f"mean of {len(group)} {'seeds' if seeds else 'runs'}", group))
    of = f" ({units.pop()})" if len(units) == 1 else ""
    heads = [head + (of if form is None else "") for head, _, form in shown]
    return ["run", "data set", "estimator", "seeds", *heads], runs, means


def elbo_notes(summaries: list[Summary]) -> list[str]:
    """Return what a reader of the table must know: what is missing, and from how much NLLs were found."""
    notes = [] if all(s.evaluated for s in summaries) else [_NOTE]
    ways: dict[str, list[str]] = {}
    for name, s in zip(names_of(summaries), summaries, strict=True):
        notes += [f"{name}: {text}" for text in s.warnings]
        if s.numbers.get("nll") is not None:
            images, every, draws = (
                s.numbers.get(n) for n in ("nll_images", "images", "nll_samples")
            )
            of = f" of {every}" if images != every else ""
            ways.setdefault(f"{draws} draws for each of {images}{of} images", []).append(name)
    for way, names in ways.items():
        # Fewer draws make it larger: then NLLs cannot be compared.
        of = f" of {', '.join(names)}" if len(ways) > 1 else ""
        notes.append(f"NLL{of}: {way}.")
    return notes


def _worth_showing(summaries: list[Summary], name: str) -> bool:
    values = {s.numbers.get(name) for s in summaries}
    return any(values) if name == "skipped" else values != {None} or name in _ALWAYS


def _cell(group: list[Summary], name: str, form: str | None, *, name_unit: bool) -> str:
    from pathgrad._plots import unit_of

    values = [v for s in group if (v := s.numbers.get(name)) is not None]
    if len(values) < len(group):  # a mean over fewer seeds than the row says would mislead
        return "-"
    if form is not None:
        same = len(set(values)) == 1 and name in ("epoch", "best_epoch")
        return form.format(values[0]) if same else mean_and_deviation(values, form)
    unit = unit_of(group[0].problem)
    text = mean_and_deviation([v / unit.nats for v in values], unit.form)
    return f"{text} {unit.name}" if name_unit else text
