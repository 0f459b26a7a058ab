"""Measure programs, including FLOPs: gradients of an experiment, or any others."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.random as jr

import pathgrad as pg
from pathgrad._bench.gradients import programs
from pathgrad._bench.measure import RATIOS, Work, measure, ratios_of
from pathgrad._bench.options import MeasureOptions
from pathgrad._bench.record import Record, Say

from .flops import count_flops

EXPERIMENTS = ("toy", "phi4", "vae")
Pairs = tuple[tuple[str, str], ...]


def measure_gradients(options: Any, how: MeasureOptions, say: Say) -> Record:
    """Return the costs of the training gradients of the experiment that the options belong to."""
    with jax.enable_x64(False):
        about, works = gradients_of(options, how)
        return about | measured(works, how, say, seed=options.training.seed)


def gradients_of(options: Any, how: MeasureOptions) -> tuple[Record, dict[str, Work]]:
    """Return a description of an experiment, for the rows of a study, and its gradients as programs."""
    experiment = next(e for e in map(pg.find_experiment, EXPERIMENTS) if e.Options is type(options))
    about, works = programs(experiment, options, how.estimators)
    volume = {"volume": options.size**2} if hasattr(options, "size") else {}
    return {"what": experiment.name} | about | volume | {"dtype": how.dtype}, works


def measured(
    works: Mapping[str, Work],
    how: MeasureOptions,
    say: Say,
    *,
    seed: int,
    pairs: Pairs = RATIOS,
    clock: Callable[[], float] = time.perf_counter,
) -> Record:
    """Return the costs of programs, including FLOPs, and the ratios of pairs."""
    costs: dict[str, Record] = measure(works, how.repetitions, say, seed=seed, clock=clock)["estimators"]
    for name, work in works.items():
        say(f"counting FLOPs of {name}")
        costs[name] |= count_flops(work.function, work.arrays, jr.key(seed))
    counts = ("temporary_bytes", "argument_bytes", "flops", "flops_of_program", "flops_of_loop_bodies")
    return {"estimators": costs, "ratios": ratios_of(costs, pairs, counts)}
