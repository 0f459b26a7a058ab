"""Records as text: a table for a terminal, and Markdown for documents."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .bars import bars

HEAD = ("gradient", "time", "from", "to", "GFLOP", "temporary MB", "compiling", "evaluations")


def cost_rows(measured: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return one line for each estimator, of the columns of `HEAD`."""
    return [
        (
            name,
            seconds(row["seconds"]),
            *(map(seconds, row["seconds_spread"] or (None, None))),
            f"{row['flops'] / 1e9:.4g}",
            f"{row['temporary_bytes'] / 1e6:.4g}",
            seconds(row["compile_seconds"]),
            _evaluations(row),
        )
        for name, row in measured["estimators"].items()
    ]


def ratio_lines(measured: dict[str, Any]) -> list[str]:
    """Return the ratios, one line each."""
    lines = []
    for name, ratio in measured["ratios"].items():
        memory = ratio["temporary_bytes"]
        parts = [
            *([f"time {spread(ratio['seconds'])}"] if ratio["seconds"] else []),
            f"FLOPs {number(ratio['flops'])}",
            *([f"memory {number(memory)}"] if memory is not None else []),
        ]
        lines.append(f"{name}: {', '.join(parts)}")
    return lines


def markdown(studies: Mapping[str, dict[str, Any]]) -> str:
    """Return everything as one document."""
    parts = ["# What a training gradient costs", *_preface(studies)]
    found = bars(studies)
    if found:
        lines = [
            (
                b.what,
                b.paper or "-",
                f"{'<=' if b.at_most else '>='} {b.limit:g}",
                number(b.measured),
                b.verdict,
            )
            for b in found
        ]
        parts += ["## Bars", _table(("what", "paper", "bar", "measured", ""), lines)]
    for study in studies.values():
        parts += [f"## {study['title']}", f"`{study['study']}.json`. {_common(study)}"]
        parts.append(_study_table(study))
        if study["growth"]:
            parts.append(_growth_table(study))
    return "\n\n".join(parts) + "\n"


def _preface(studies: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    made = next(iter(studies.values()))["provenance"]
    commits = {str(study["provenance"]["commit"])[:7] for study in studies.values()}
    yield (
        f"Made by `{made['command']}` at commit {', '.join(sorted(commits))}, {made['cpus']} CPUs, "
        f"JAX {made['jax']}."
        + (
            " A quick run: sizes too small to be quoted."
            if any(s["quick"] for s in studies.values())
            else ""
        )
    )
    yield (
        "A gradient is value and gradient of the loss, as a training step needs them. Times are medians of "
        "interleaved repetitions after a warm-up, ratios of times medians of the ratios within a "
        "repetition, with the smallest and largest in brackets. FLOPs count every step of the solvers; "
        "memory is what the compiled program needs beside its arguments. Exponents are fitted by least "
        "squares on logarithmic scales to the larger half of the range, with their standard error."
    )


def _common(study: dict[str, Any]) -> str:
    """Say what is the same in all rows."""
    rows = study["rows"]
    names = (
        "dim",
        "width",
        "depth",
        "size",
        "batch",
        "solver",
        "solver_steps",
        "divergence",
        "adjoint",
        "dtype",
    )
    same = [
        f"{name.replace('_', ' ')} {rows[0][name]}"
        for name in names
        if rows[0].get(name) is not None and len({row.get(name) for row in rows}) == 1
    ]
    return f"In all rows: {', '.join(same)}." if same else ""


def labelled(study: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the measurements of a study with what tells them apart; a row may have two."""
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


def _study_table(study: dict[str, Any]) -> str:
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
        line = [label, *(seconds(costs.get(n, {}).get("seconds")) for n in names)]
        for pair in pairs:
            ratio = ratios.get(pair, {})
            line += [
                spread(ratio.get("seconds")),
                number(ratio.get("flops")),
                number(ratio.get("temporary_bytes")),
            ]
        lines.append(tuple(line))
    return _table(head, lines)


def _growth_table(study: dict[str, Any]) -> str:
    by = study["series_by"]
    quantities = list(dict.fromkeys(fit["quantity"] for fit in study["growth"]))
    fits: dict[tuple[Any, ...], dict[str, str]] = {}
    for fit in study["growth"]:
        key = (*(fit[name] for name in by), fit["estimator"])
        fits.setdefault(key, {})[fit["quantity"]] = exponent(fit)
    head = (
        *by,
        "",
        *(
            f"exponent of {study['variable'].replace('_', ' ')}, {q.replace('_', ' ')}"
            for q in quantities
        ),
    )
    lines = [(*map(str, key), *(own.get(q, "-") for q in quantities)) for key, own in fits.items()]
    return _table(head, lines)


def exponent(fit: dict[str, Any]) -> str:
    """Return an exponent with its error."""
    error = fit["standard_error"]
    return f"{fit['exponent']:.2f}" + ("" if error is None else f" ± {error:.2f}")


def seconds(value: float | None) -> str:
    """Return a time in a unit that suits it."""
    if value is None:
        return "-"
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value / 1e-6:.3g} us"


def number(value: float | None) -> str:
    """Return a ratio."""
    return "-" if value is None else f"{value:.3g}" if value >= 10 else f"{value:.2f}"


def spread(value: dict[str, Any] | None) -> str:
    """Return a median with its spread."""
    if value is None:
        return "-"
    low, high = value["spread"]
    return f"{number(value['median'])} [{number(low)}, {number(high)}]"


def _evaluations(row: dict[str, Any]) -> str:
    if row["evaluations"] is None:
        return "-"
    return f"{row['evaluations']:g} + {row['evaluations_backward']:g}"


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))
