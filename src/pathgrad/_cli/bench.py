"""`pathgrad bench cnf`, `bench phi4` and `bench vae`."""

import dataclasses
import json
from typing import Annotated, Literal

import tyro

from pathgrad import _bench
from pathgrad._bench.options import CnfOptions, ImagesOptions, LatticeOptions, images_preset, lattice_preset
from pathgrad._bench.record import Record, duration, number, stopwatch, write_spread
from pathgrad._runs.provenance import provenance

from .arguments import given_words, parse
from .tables import print_table

_JSON = "Print one JSON object instead of a table. (What goes on is told on stderr.)"
Json = Annotated[bool, tyro.conf.arg(help=_JSON)]

HEAD = ("gradient", "time", "from", "to", "temporary MB", "compiling", "evaluations")


@dataclasses.dataclass(frozen=True)
class Cnf:
    """Measure one training gradient of a continuous flow with a perceptron as its field.

    Time (interleaved repetitions, warm), temporary memory, compiling and field evaluations, by estimator. The
    target is a standard normal, which costs next to nothing: what is measured is the flow.
    """

    options: CnfOptions = CnfOptions()
    json: Json = False


@dataclasses.dataclass(frozen=True)
class Lattice:
    """Measure one training gradient of an untrained flow for lattice phi^4 theory.

    Time (interleaved repetitions, warm), temporary memory, compiling and field evaluations, by estimator. Any
    --size will do: the cost does not depend on the coupling.
    """

    options: LatticeOptions = LatticeOptions()
    preset: Literal["fast", "paper"] = "fast"
    """Where the model's defaults come from: fast (for a CPU), or paper (the published model, 50 steps,
    backsolve)."""
    json: Json = False


@dataclasses.dataclass(frozen=True)
class Images:
    """Measure one training step of a variational autoencoder, and the gradient of its flow alone.

    Time (interleaved repetitions, warm), temporary memory, compiling and field evaluations, by estimator. On
    random images: no data is needed.
    """

    options: ImagesOptions = ImagesOptions()
    preset: Literal["small", "paper"] = "small"
    """Where the model's defaults come from: small (for a CPU), or paper (the published one of --dataset)."""
    json: Json = False


def run(prog: str, words: list[str]) -> int:
    """Measure what the last word of the command says."""
    say, chosen = stopwatch(), given_words(words)
    preset = chosen.get("preset")
    images = images_preset(preset or "small", chosen.get("dataset", ImagesOptions.dataset))
    defaults = {"cnf": Cnf(), "phi4": Lattice(lattice_preset(preset)), "vae": Images(images)}
    default = defaults[prog.split()[-1]]
    given = parse(type(default), prog, words, default)
    if isinstance(given, Images):
        record = _bench.measure_images(given.options, say)
    else:
        record = _bench.measure_flow(given.options, say)
    if given.json:
        print(json.dumps(record | {"provenance": provenance()}, indent=2, allow_nan=False))
    else:
        _print_tables(record)
    return 0


def _print_tables(record: Record) -> None:
    about = {k: v for k, v in record.items() if k not in ("what", "estimators", "ratios", "flow_alone")}
    print(", ".join(f"{k.replace('_', ' ')} {v}" for k, v in about.items()))
    parts = {None: record}
    if "flow_alone" in record:
        parts = {"whole step": record, "flow alone": record["flow_alone"]}
    for title, part in parts.items():
        print_table(HEAD, [(n, *_columns(costs)) for n, costs in part["estimators"].items()], title=title)
        for name, ratio in part["ratios"].items():
            timed = f"time {write_spread(ratio['seconds'])}, " if ratio["seconds"] else ""
            print(f"{name}: {timed}memory {number(ratio['temporary_bytes'])}")


def _columns(costs: Record) -> tuple[str, ...]:
    there, back = costs["evaluations"], costs["evaluations_backward"]
    return (
        *map(duration, (costs["seconds"], *(costs["seconds_spread"] or (None, None)))),
        f"{costs['temporary_bytes'] / 1e6:.4g}",
        duration(costs["compile_seconds"]),
        "-" if there is None else f"{there:g} + {back:g}",
    )
