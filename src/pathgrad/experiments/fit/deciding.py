"""What a fit decides by the clock and by measurement, before its run begins."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Literal

import jax.random as jr
from jaxtyping import Array, Key

import pathgrad as pg
from pathgrad._default.clock import Clock
from pathgrad._default.contender import Contender
from pathgrad._default.kinds import Kind, new_flow
from pathgrad._default.pipeline import Pipeline
from pathgrad._default.recipe import Recipe
from pathgrad._words.errors import check_at_least_one, check_at_most
from pathgrad._words.memory import check_memory
from pathgrad._words.text import percent

from .options import MOST_ROUNDS, FitOptions, FitTrainOptions, Found
from .target import target_of

_KEPT = 4  # numbers kept of each draw of a look
PRECISIONS = {"auto": None, "single": False, "double": True}


def kind_of(word: str) -> Kind:
    """Return the kind of flow that a word stands for."""
    return Kind[word.replace("-", "_").upper()]


def recipe_of(options: FitOptions) -> Recipe:
    """Return the recipe that the options describe."""
    training = options.training
    kinds = None if options.flow == "auto" else [kind_of(options.flow)]
    # Where it ended before, if this is not the first time.
    warm_start = functools.partial(pg.warm_start, cut=options.found.cut) if options.warm_start else None
    return Recipe(
        kinds=kinds,
        n=training.batch,
        first=training.first,
        rounds=training.rounds,
        look_draws=training.look_draws,
        double=PRECISIONS[options.precision],
        defence=options.defence,
        warm_start=warm_start,
    )


def pipeline_of(options: FitOptions, seconds: float, tell: Callable[[str, float], None]) -> Pipeline:
    """Return the stages of the fit that the options describe."""
    return Pipeline(target_of(options), recipe_of(options), Clock(seconds), seed_key(options.training), tell)


def seed_key(training: FitTrainOptions) -> Key[Array, ""]:
    """Return the key of a fit, which `Pipeline` splits into the keys of a run."""
    _ = pg.run_keys(training.seed)  # checks the seed
    return jr.key(training.seed)


def decide(options: FitOptions, tell: Callable[[str, float], None]) -> pg.Decided:
    """Run the first stages of a fit. The best flow has trained for a round, and goes on from there."""
    if not pg.devices.is_alone():
        raise pg.UserError(
            "A fit decides by its clock, and several processes would decide differently. Start a single one, "
            "which can use all devices of its machine."
        )
    seconds = options.training.max_seconds
    if not 0 < seconds < math.inf:
        raise pg.ArgumentError(f"{pg.named('max_seconds')} must be a positive number, got {seconds}.")
    _check(options.training)
    pipeline = pipeline_of(options, seconds, tell)
    best = pipeline.choose()
    chosen, notes = _with_decisions(options, pipeline, best), _notes(pipeline, best)
    return pg.Decided(chosen, best.trainer, best.state, best.history, notes)


def _check(training: FitTrainOptions) -> None:
    """Raise an error unless the numbers that are given make sense."""
    check_at_least_one(
        batch=training.batch, first=training.first, rounds=training.rounds, look_draws=training.look_draws
    )
    check_at_most(MOST_ROUNDS, rounds=training.rounds)
    check_at_most(2**30, first=training.first)
    check_memory(_KEPT * (training.look_draws or 0), look_draws=training.look_draws or 0)


def _with_decisions(options: FitOptions, pipeline: Pipeline, best: Contender) -> FitOptions:
    assert best.kind is not None
    training = dataclasses.replace(
        options.training,
        batch=best.n,
        first=best.first,
        rounds=pipeline.rounds_that_fit(best),
        look_draws=best.look_draws,
    )
    coordinates, directions = _coordinates(pipeline)
    cut = None if pipeline.start is None else pipeline.start.cut
    found = Found(coordinates, directions, best.inside.centre, cut)
    return dataclasses.replace(
        options,
        dim=pipeline.dim,
        flow=best.kind.name.lower().replace("_", "-"),
        precision="double" if best.inside.is_double else "single",
        training=training,
        found=found,
    )


def _coordinates(pipeline: Pipeline) -> tuple[Literal["own", "full", "diagonal"], int]:
    if pipeline.start is None:
        return "own", 0
    to_target = pipeline.start.map
    return ("full", 0) if isinstance(to_target, pg.FullAffine) else ("diagonal", to_target.rank)


def _notes(pipeline: Pipeline, best: Contender) -> list[str]:
    start, notes = pipeline.start, []
    if start is not None:
        notes.append(f"warm start: {start.kind.value}, ELBO {start.elbo:.4f}")
    notes += [f"{one.name}: ESS {percent(one.look.ess)} after {one.steps} steps" for one in pipeline.rounds]
    if len(pipeline.rounds) > 1:
        notes.append(f"chosen: {best.name}")
    if best.inside.is_double:
        notes.append("the density is evaluated in double precision: single precision is too coarse for it")
    return notes


def begin(options: FitOptions, model: pg.Flow) -> pg.Flow:
    """Return an untrained flow with the map of a warm start, for a run that lost its first state."""
    if not options.warm_start:
        return model
    # Without a limit of time: it ends where it ended.
    pipeline = pipeline_of(options, math.inf, lambda text, share: None)
    start = pipeline.warm_start()
    assert start is not None
    # Its arrays may depend on the map, so make it anew.
    key = pg.run_keys(options.training.seed)[0]
    return new_flow(kind_of(options.flow), pipeline.shape, start.map, key=key)
