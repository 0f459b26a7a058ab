"""Tables: what evaluation measured, what was run, and with what."""

import json
from typing import Any

from pathgrad._plots.elbo import unit_of

from .contents import Run
from .facts import FAR, observable_word, observables_of
from .html import Html, joined, prose, table, tag
from .words import count, duration, number, percent, plain, sentence, with_error


def evaluation_table(runs: list[Run]) -> Html | None:
    """Return a row for each evaluated run of one problem."""
    found = [run for run in runs if run.evaluation]
    if not found:
        return None
    heads, cells = (_VAE_HEADS, _vae_row) if found[0].dataset else (_FLOW_HEADS, _flow_row)
    rows = [[_named(run), run.label, *cells(run)] for run in found]
    # A column in which nothing stands says nothing.
    filled = [i for i in range(2 + len(heads)) if i < 2 or any(row[i] != "–" for row in rows)]
    every = ["run", "estimator", *heads]
    shown = table(
        [every[i] for i in filled],
        [[row[i] for i in filled] for row in rows],
        label="What evaluation measured, with standard errors",
        texts=2,
    )
    old = [run.name for run in found if not run.evaluated]
    note = f"* {', '.join(old)}: of an earlier step, the run has gone on since." if old else None
    return tag("div", shown, tag("p", note, class_="note") if note else None)


def _named(run: Run) -> str:
    return run.name + ("" if run.evaluated else "*")


_FLOW_HEADS = (
    "ESS", "reverse KL", "log Z", "known log Z", "k-hat", "forward ESS", "draws", "failed",
    "solver shift of log Z", "field evaluations",
)  # fmt: skip
_VAE_HEADS = (
    "−ELBO", "reconstruction", "KL", "NLL", "NLL images", "bits/dim", "test images", "failed",
    "solver shift, RMS", "field evaluations",
)  # fmt: skip


def _flow_row(run: Run) -> list[str]:
    found = run.evaluation

    def get(name: str) -> float | None:
        return number(found, name)

    known = with_error(get("log_z_known"), get("log_z_known_err"))
    if get("log_z_exact") is not None:
        known = f"{plain(get('log_z_exact'), '.7g')} (exact)"
    return [
        percent(get("ess"), get("ess_err")),
        with_error(get("kl"), get("kl_err")),
        with_error(get("log_z"), get("log_z_err")),
        known,
        plain(get("khat"), ".2f"),
        percent(get("forward_ess")),
        count(get("samples")),
        count(get("failed") or None),  # none is not worth a column
        plain(get("solver_shift"), "+.1e"),
        plain(get("evaluations"), ".4g"),
    ]


def _vae_row(run: Run) -> list[str]:
    found = run.evaluation
    unit = unit_of(run.dataset or "")

    def get(name: str) -> float | None:
        return number(found, name)

    def own(name: str) -> str:
        value, error = get(name), get(f"{name}_err")
        scaled = None if value is None else value / unit.nats
        return with_error(scaled, None if error is None else error / unit.nats, unit.name)

    return [
        own("negative_elbo"),
        plain(get("reconstruction"), ".2f"),
        plain(get("kl"), ".2f"),
        own("nll"),
        count(get("nll_images") or None),
        plain(get("bits_per_dim"), ".4f"),
        count(get("images")),
        count(get("failed") or None),
        plain(get("solver_shift_rms"), ".1e"),
        plain(get("evaluations"), ".4g"),
    ]


def observables_tables(runs: list[Run]) -> list[Html]:
    """Return for each lattice run what was measured on the fields, beside what is known."""
    shown = []
    for run in runs:
        rows = [_observable(name, row) for name, row in observables_of(run).items()]
        if not rows:
            continue
        heads = ["observable", "weighted draws", "Metropolis chain", "known", "off by, errors"]
        inside = table(heads, rows, label=f"Observables of {run.name}")
        shown.append(
            tag(
                "details",
                tag("summary", f"Observables of {run.name}"),
                inside,
                open=len(runs) == 1 or None,
            )
        )
    return shown


def _observable(name: str, row: dict[str, Any]) -> list[str]:
    def get(key: str) -> float | None:
        return number(row, key)

    deviation = get("deviation")
    off = plain(deviation, "+.1f")
    if deviation is not None and abs(deviation) > FAR:
        off = tag("strong", f"{off} ⚠")
    return [
        observable_word(name),
        with_error(get("value"), get("error")),
        with_error(get("mcmc_value"), get("mcmc_error")),
        with_error(get("reference"), get("reference_error")),
        off,
    ]


def runs_table(runs: list[Run]) -> Html:
    """Return how far each run is, and what it took."""
    rows = []
    for run in runs:
        step, seconds = run.at_end("step"), run.at_end("seconds")
        cost = 1000 * seconds / step if step and seconds is not None else None
        rows.append(
            [
                run.name,
                run.problem or run.config["experiment"],
                run.estimator,
                tag("span", run.state.kind, class_=f"state {run.state.kind}"),
                str(run.training.get("seed", "–")),
                count(step),
                duration(seconds),
                plain(cost, ".3g"),
                count(run.at_end("skipped")),
            ]
        )
    heads = [
        "run",
        "problem",
        "estimator",
        "state",
        "seed",
        "steps",
        "training",
        "ms a step",
        "skipped",
    ]
    return table(heads, rows, label="The runs", texts=4)


def configuration(runs: list[Run]) -> Html:
    """Return what runs of an experiment have in common, and a table of what tells them apart."""
    kinds: dict[str, list[Run]] = {}
    for run in runs:
        kinds.setdefault(run.config["experiment"], []).append(run)
    return tag("div", *[_configuration(each) for each in kinds.values()])


def _configuration(runs: list[Run]) -> Html:
    flat = [_flat(run) for run in runs]
    names = list(dict.fromkeys(name for options in flat for name in options))
    common = [n for n in names if len({options.get(n) for options in flat}) == 1]
    telling = [n for n in names if n not in common]
    kind, parts = runs[0].config["experiment"], []
    if telling:
        rows = [
            [run.name, *[options.get(n, "–") for n in telling]]
            for run, options in zip(runs, flat, strict=True)
        ]
        label = f"What differs between the {kind} runs"
        parts = [
            tag("h3", label),
            table(["run", *telling], rows, label=label, texts=1 + len(telling)),
        ]
    title = f"What all {kind} runs share" if len(runs) > 1 else f"Configuration of {runs[0].name}"
    pairs = [joined([tag("dt", name), tag("dd", flat[0][name])]) for name in common]
    summary = tag("summary", f"{title}: {len(common)} settings and versions")
    settings = tag("dl", *pairs, class_="settings")
    shared = tag("details", summary, settings, open=len(runs) == 1 or None)
    return joined([*parts, shared])


def _flat(run: Run) -> dict[str, str]:
    """Return options and versions as text, without nesting; commands stand elsewhere."""
    told = {"experiment": str(run.config["experiment"])}

    def add(options: dict[str, Any], prefix: str) -> None:
        for name, value in options.items():
            if isinstance(value, dict):
                add(value, f"{prefix}{name}.")
            elif f"{prefix}{name}" != "provenance.command":
                told[prefix + name] = (
                    value if isinstance(value, str) else json.dumps(value, default=str)
                )

    add(run.options, "")
    made = run.config.get("provenance")
    add(made if isinstance(made, dict) else {}, "provenance.")
    return {name.removeprefix("provenance."): value for name, value in told.items()}


def commands(runs: list[Run]) -> Html:
    """Return the commands that made the runs and their evaluations, and how far each run is."""
    shown = []
    for run in runs:
        lines = []
        for source in (run.config, run.evaluation):
            made = source.get("provenance")
            command = made.get("command") if isinstance(made, dict) else None
            if command:
                lines.append(tag("pre", str(command)))
        shown.append(tag("dt", run.name, class_="run"))
        shown.append(tag("dd", tag("p", prose(sentence(run.state.text))), *lines))
    return tag("dl", *shown, class_="commands")
