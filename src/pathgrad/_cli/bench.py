"""`pathgrad bench EXPERIMENT`, the same for all experiments."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import tyro

import pathgrad as pg
from pathgrad import _bench
from pathgrad._bench.options import MeasureOptions
from pathgrad._bench.record import Record, duration, number, stopwatch, write_spread
from pathgrad._runs.machine import check_devices
from pathgrad._runs.provenance import provenance

from . import bench_targets
from .arguments import check_used, given_words, option_fields, parse, with_first_word
from .tables import print_table

_JSON = "Print one JSON object instead of a table. (Progress goes to stderr.)"
_DOC = """Measure what one training gradient of an untrained model costs, by estimator.

Measures time (estimators take turns, after a warm-up), temporary memory, compile time and field evaluations.
No data are needed: images are blank. Of the training options, only batch and seed matter.
"""
HEAD = ("gradient", "time", "fastest", "slowest", "temporary MB", "compiling", "evaluations")

# Names for an experiment with other defaults.
ALIASES: dict[str, tuple[str, dict[str, Any]]] = {
    # The target costs next to nothing, so the flow is what is measured.
    "cnf": (
        "toy",
        {
            "target": "correlated",
            "dim": 64,
            "flow": {"width": 1024, "solver_steps": 20},
            "training": {"batch": 64},
        },
    )
}


def run(prog: str, words: list[str]) -> int:
    """Measure the experiment that the last word of the command names, or fit the targets."""
    say, what = stopwatch(), prog.split()[-1]
    if what == "targets":
        return bench_targets.run(prog, words)
    name, table = ALIASES.get(what, (what, None))
    experiment = pg.find_experiment(name)
    fields = option_fields(experiment)[: None if table is None else 1]  # an alias has no presets
    fields += [
        ("measure", MeasureOptions, MeasureOptions()),
        ("json", Annotated[bool, tyro.conf.arg(help=_JSON)], False),
    ]
    kind = dataclasses.make_dataclass("Bench", fields, frozen=True, namespace={"__doc__": _DOC})
    words = with_first_word(experiment, kind, words)
    chosen = given_words(words)
    if "estimator" in chosen:
        raise pg.UserError("--estimator is for training; to measure only some of them, use --estimators.")
    default = experiment.read(table, what) if table else experiment.defaults(**chosen)
    given: Any = parse(kind, prog, words, kind(default))
    # A preset may plan several runs; the last one is what it is about.
    plan = experiment.planned(getattr(given, fields[0][0]), getattr(given, "preset", ""), Path("runs"))
    options = plan[-1][1]
    trained = [f.name for f in dataclasses.fields(options.training) if f.name not in ("batch", "seed")]
    check_used(chosen, dict.fromkeys(trained, "one gradient is measured, nothing is trained"))
    check_devices()
    record = {"what": what} | _bench.measure_gradients(experiment, options, given.measure, say)
    if given.json:
        print(json.dumps(record | {"provenance": provenance()}, indent=2, allow_nan=False, default=str))
    else:
        _print_tables(record)
    return 0


def _print_tables(record: Record) -> None:
    about = {k: v for k, v in record.items() if k not in ("what", "estimators", "ratios") and v is not None}
    print(", ".join(f"{k.replace('_', ' ')} {v}" for k, v in about.items()))
    print_table(HEAD, [(n, *_columns(costs)) for n, costs in record["estimators"].items()])
    for name, ratio in record["ratios"].items():
        timed = f"time {write_spread(ratio['seconds'])}, " if ratio["seconds"] else ""
        print(f"{name}: {timed}memory {number(ratio['temporary_bytes'])}")


def _columns(costs: Record) -> tuple[str, ...]:
    forward, backward = costs["evaluations"], costs["evaluations_backward"]
    return (
        *map(duration, (costs["seconds"], *(costs["seconds_spread"] or (None, None)))),
        f"{costs['temporary_bytes'] / 1e6:.4g}",
        duration(costs["compile_seconds"]),
        "-" if forward is None else f"{forward:g} + {backward:g}",
    )
