"""Tables of studies in Markdown."""

from collections.abc import Iterator, Mapping, Sequence

from pathgrad._bench.record import duration, number, write_spread

from .bars import bars
from .records import Row, StudyRecord


def markdown(studies: Mapping[str, StudyRecord]) -> str:
    """Return all studies as one document."""
    parts = ["# What a training gradient costs", *_preface(studies)]
    targets = bars(studies)
    if targets:
        lines = [
            (
                b.what,
                b.paper or "-",
                f"{'<=' if b.at_most else '>='} {b.limit:g}",
                number(b.measured),
                b.verdict,
            )
            for b in targets
        ]
        parts += ["## Bars", _table(("what", "paper", "bar", "measured", ""), lines)]
    for study in studies.values():
        parts += [f"## {study['title']}", f"`{study['study']}.json`. {_common(study)}"]
        parts.append(_study_table(study))
        if study["growth"]:
            parts.append(_growth_table(study))
    return "\n\n".join(parts) + "\n"


def _preface(studies: Mapping[str, StudyRecord]) -> Iterator[str]:
    origin = next(iter(studies.values()))["provenance"]
    commits = {str(study["provenance"]["commit"])[:7] for study in studies.values()}
    yield (
        f"Made by `{origin['command']}` at commit {', '.join(sorted(commits))}, {origin['cpus']} CPUs, "
        f"JAX {origin['jax']}."
        + (" A quick run: sizes too small to quote." if any(s["quick"] for s in studies.values()) else "")
    )
    yield (
        "A gradient means value and gradient of the loss, as a training step needs them. Times are medians "
        "over interleaved repetitions after a warm-up; ratios of times are medians of the ratios within each "
        "repetition, with the smallest and largest in brackets. FLOPs count every solver step; memory is "
        "what the compiled program needs beside its arguments. Exponents are least-squares fits on "
        "logarithmic scales to the larger half of the range, with their standard error."
    )


def _common(study: StudyRecord) -> str:
    """Return a sentence on what is the same in all rows."""
    rows = study["rows"]
    sizes = ("dim", "width", "depth", "size", "batch")
    names = (*sizes, "solver", "solver_steps", "divergence", "adjoint", "dtype")
    same = [
        f"{name.replace('_', ' ')} {rows[0][name]}"
        for name in names
        if rows[0].get(name) is not None and len({row.get(name) for row in rows}) == 1
    ]
    return f"In all rows: {', '.join(same)}." if same else ""


def labelled(study: StudyRecord) -> Iterator[tuple[str, Row]]:
    """Yield each measurement of a study with its label; a row may have two."""
    names = [*study["series_by"], *([study["variable"]] if study["variable"] else [])]
    for row in study["rows"]:
        label = ", ".join(
            f"L = {row['size']}"
            if name in ("volume", "size")
            else f"{row[name]} {_UNITS[name]}"
            if name in _UNITS
            else str(row[name])
            for name in names
        )
        if "flow_alone" in row:
            yield f"{label}, whole step", row
            yield f"{label}, flow alone", row["flow_alone"]
        else:
            yield label, row


_UNITS = {"dim": "dimensions", "solver_steps": "steps", "batch": "draws"}


def _study_table(study: StudyRecord) -> str:
    names = list(dict.fromkeys(n for _, m in labelled(study) for n in m["estimators"]))
    pairs = list(dict.fromkeys(n for _, m in labelled(study) for n in m["ratios"]))
    head = (
        "",
        *(f"{n}, time" for n in names),
        *(f"{p}, {q}" for p in pairs for q in ("time", "FLOPs", "memory")),
    )
    lines = []
    for label, measured in labelled(study):
        costs, ratios = measured["estimators"], measured["ratios"]
        line = [label, *(duration(costs.get(n, {}).get("seconds")) for n in names)]
        for pair in pairs:
            ratio = ratios.get(pair, {})
            line += [
                write_spread(ratio.get("seconds")),
                number(ratio.get("flops")),
                number(ratio.get("temporary_bytes")),
            ]
        lines.append(tuple(line))
    return _table(head, lines)


def _growth_table(study: StudyRecord) -> str:
    by, of = study["series_by"], str(study["variable"]).replace("_", " ")
    quantities = list(dict.fromkeys(fit["quantity"] for fit in study["growth"]))
    fits: dict[tuple[object, ...], dict[str, str]] = {}
    for fit in study["growth"]:
        key = (*(fit[name] for name in by), fit["estimator"])
        fits.setdefault(key, {})[fit["quantity"]] = exponent(fit)
    head = (*by, "", *(f"exponent of {of}, {q.replace('_', ' ')}" for q in quantities))
    lines = [(*map(str, key), *(texts.get(q, "-") for q in quantities)) for key, texts in fits.items()]
    return _table(head, lines)


def exponent(fit: Row) -> str:
    """Return an exponent with its standard error."""
    error = fit["standard_error"]
    return f"{fit['exponent']:.2f}" + ("" if error is None else f" ± {error:.2f}")


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))
