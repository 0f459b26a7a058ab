"""The studies: their configurations, and how to measure one."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from pathgrad._bench.options import MeasureOptions
from pathgrad._bench.record import Record, Say
from pathgrad._runs.provenance import provenance
from pathgrad.experiments.options import Estimator, FlowOptions, TrainOptions
from pathgrad.experiments.phi4.options import PRESETS, Phi4Options
from pathgrad.experiments.toy.experiment import ToyOptions
from pathgrad.experiments.vae.options import preset

from .field import measure_field
from .growth import growth
from .images import measure_images
from .measure import measure_gradients
from .records import Row, StudyRecord
from .rivals import measure_rivals

Adjoint = Literal["auto", "discrete", "backsolve"]
Divergence = Literal["closed", "exact", "hutchinson"]


class Point(NamedTuple):
    """A configuration: the options of an experiment, how to measure it, and with which function."""

    options: Any
    how: MeasureOptions
    measure: Callable[[Any, MeasureOptions, Say], Record]


class Study(NamedTuple):
    """Configurations that belong together.

    Attributes:
        title: Heading of the study.
        points: Function that returns all configurations, or (quick) a few small ones.
        variable: Name of the growing variable in a record; `None` if there is none.
        series_by: Names of the other variables that differ between records.
    """

    title: str
    points: Callable[[bool], list[Point]]
    variable: str | None
    series_by: tuple[str, ...] = ()


_TWO: tuple[Estimator, ...] = ("path", "total")  # where the second copy would add nothing new
_ALL: tuple[Estimator, ...] = (*_TWO, "two-copy")


def _cnf(
    dim: int,
    width: int,
    steps: int,
    estimators: tuple[Estimator, ...] = _ALL,
    *,
    batch: int = 64,
    repetitions: int = 5,
    divergence: Divergence = "closed",
    adjoint: Adjoint = "auto",
) -> Point:
    flow = FlowOptions(width=width, solver_steps=steps, divergence=divergence, adjoint=adjoint)
    # The target costs almost nothing.
    options = ToyOptions("correlated", dim, flow, TrainOptions(batch=batch))
    return Point(options, MeasureOptions(estimators, repetitions), measure_gradients)


def _lattice(
    name: str,
    size: int,
    batch: int,
    steps: int | None = None,
    repetitions: int = 5,
    estimators: tuple[Estimator, ...] = _ALL,
    measure: Callable[[Phi4Options, MeasureOptions, Say], Record] = measure_gradients,
) -> Point:
    flow = PRESETS[name].flow
    if steps is not None:
        flow = dataclasses.replace(flow, solver_steps=steps)
    options = Phi4Options(size, flow=flow, training=TrainOptions(batch=batch))
    return Point(options, MeasureOptions(estimators, repetitions), measure)


def _dimension(quick: bool) -> list[Point]:  # noqa: FBT001
    if quick:
        return [_cnf(dim, 64, 3, divergence="hutchinson") for dim in (16, 64)]
    dims = (2, 16, 64, 128, 256, 512)
    return [_cnf(dim, 1024, 5, divergence="hutchinson") for dim in dims]


def _steps(quick: bool) -> list[Point]:  # noqa: FBT001
    adjoints: tuple[Adjoint, ...] = ("discrete",) if quick else ("discrete", "backsolve")
    counts = (4, 16) if quick else (10, 40, 160)
    return [_cnf(32, 64, n, _TWO, adjoint=adjoint) for adjoint in adjoints for n in counts]


def _batch(quick: bool) -> list[Point]:  # noqa: FBT001
    if quick:
        return [_cnf(32, 64, 4, _TWO, batch=n) for n in (16, 64)]
    return [_cnf(64, 256, 10, batch=n) for n in (8, 32, 128, 512)]


def _choices(quick: bool) -> list[Point]:  # noqa: FBT001
    divergences: tuple[Divergence, ...] = ("hutchinson", "closed")
    adjoints: tuple[Adjoint, ...] = ("discrete", "backsolve")
    if quick:
        return [_cnf(64, 128, 4, _TWO, divergence=d) for d in divergences]
    return [
        *(_cnf(64, 1024, 10, divergence=d, adjoint=a) for d in divergences for a in adjoints),
        # The trace by automatic differentiation costs 64 velocities, so few steps and repetitions.
        *(_cnf(64, 1024, 1, divergence="exact", adjoint=a, repetitions=2) for a in adjoints),
    ]


def _volume(quick: bool) -> list[Point]:  # noqa: FBT001
    if quick:
        return [_lattice("fast", size, 16, 6, estimators=_TWO) for size in (6, 12)]
    return [_lattice("fast", size, 64, 8) for size in (6, 8, 12, 16, 20, 32)]


def _published(quick: bool) -> list[Point]:  # noqa: FBT001
    if quick:
        return [_lattice("paper", 12, 4, 20, estimators=_TWO)]
    batches = {12: 64, 20: 32, 32: 16}  # to fit a small machine
    return [_lattice("paper", *pair) for pair in batches.items()]


def _field(quick: bool) -> list[Point]:  # noqa: FBT001
    sizes = (12, 16, 24) if quick else (8, 12, 16, 24, 32, 48, 64)
    return [_lattice("fast", size, 64, repetitions=41, measure=measure_field) for size in sizes]


def _images(quick: bool) -> list[Point]:  # noqa: FBT001
    if quick:
        options = preset("cpu", "freyfaces")
        flow = dataclasses.replace(options.flow, solver_steps=2)
        training = dataclasses.replace(options.training, batch=20)
        options = dataclasses.replace(options, flow=flow, training=training)
        return [Point(options, MeasureOptions(_TWO, 3), measure_images)]
    both = [preset("paper", dataset) for dataset in ("freyfaces", "mnist")]
    return [Point(options, MeasureOptions(_ALL, 3), measure_images) for options in both]


def _rivals(quick: bool) -> list[Point]:  # noqa: FBT001
    sizes = ((6, 4),) if quick else ((6, 64), (12, 64))
    return [_lattice("paper", *pair, 20, 3, measure=measure_rivals) for pair in sizes]


STUDIES = {
    "dimension": Study(
        "Growth with the dimension, MLP field of fixed width (Figure 4 of the paper)", _dimension, "dim"
    ),
    "steps": Study("Growth with the solver steps", _steps, "solver_steps", ("adjoint",)),
    "batch": Study("Growth with the batch size", _batch, "batch"),
    "choices": Study("Every divergence and adjoint", _choices, None, ("divergence", "adjoint")),
    "volume": Study("Growth with the volume, lattice flow (`fast` model)", _volume, "volume"),
    "published": Study(
        "The published lattice model, 50 steps, backsolve (Table 3 of the paper)",
        _published,
        None,  # the batch shrinks as the size grows, so an exponent would mean nothing
        ("size", "batch"),
    ),
    "field": Study("Growth with the volume, one evaluation of the lattice field", _field, "volume"),
    "images": Study("Autoencoders: a whole step, and the flow alone", _images, None, ("dataset", "adjoint")),
    "rivals": Study("The lattice gradient in other packages", _rivals, None, ("size",)),
}


def run_study(name: str, *, quick: bool, say: Say) -> StudyRecord:
    """Measure the configurations of a study, including FLOPs; return it as written to JSON."""
    study = STUDIES[name]
    points, rows = study.points(quick), list[Row]()
    for i, point in enumerate(points):
        where = f"{name}, {i + 1} of {len(points)}"
        rows.append(point.measure(point.options, point.how, lambda text, w=where: say(f"{w}: {text}")))
    return {
        "study": name,
        "title": study.title,
        "quick": quick,
        "variable": study.variable,
        "series_by": list(study.series_by),
        "rows": rows,
        "growth": growth(rows, study.variable, study.series_by) if study.variable else [],
        "provenance": provenance(),
    }
