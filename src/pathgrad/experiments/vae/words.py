"""Explain the results of an autoencoder in words for non-experts. No JAX here."""

import dataclasses
from collections.abc import Sequence
from statistics import mean

import pathgrad as pg
from pathgrad._runs.options import flat
from pathgrad._words.text import count

from .options import known_of, preset

_FLOW = ("cnfs", "field", "width", "depth", "rank", "activation", "end_time")
_MODEL = ("latent", "likelihood", "network.networks", *(f"flow.{name}" for name in _FLOW))


def warming_up(row: pg.Row | None) -> float | None:
    """Return the weight of the KL term if it was below one, else `None`."""
    beta = None if row is None else row.value("beta")
    return beta if beta is not None and beta < 1 else None


def explained(runs: Sequence[pg.Run]) -> list[str]:
    """Return sentences on what the negative ELBO of a group means, and what the paper reached."""
    first, tested = runs[0], all(run.is_evaluated for run in runs)
    measured = {quantity.name: quantity for quantity in first.experiment.measured(first.options)}
    bound = measured["negative_elbo" if tested else "best_validation"]
    values = [value for run in runs if (value := bound.value(run.numbers)) is not None]
    if len(values) < len(runs):
        return []
    of = "nats to describe an image" if bound.unit == "nats" else "bits to describe a pixel"
    whose = "" if tested else " (validation images)"
    value = bound.form.format(mean(values))
    lines = [f"It takes at most {value} {of} with this model{whose}: lower is better."]
    evaluation = first.evaluation
    if tested and len(runs) == 1 and pg.number_in(evaluation, "nll") is not None:
        images, draws = (count(pg.number_in(evaluation, name)) for name in ("nll_images", "nll_samples"))
        same = measured["nll_images_negative_elbo"]
        beside = "" if same.value(evaluation) is None else f" (their negative ELBO: {same.of(evaluation)})"
        nll = measured["nll"].of(evaluation)
        lines.append(f"Negative log-likelihood {nll}, from {images} images with {draws} draws each{beside}.")
    return lines + _published(first, bound.unit)


def _published(run: pg.Run, unit: str) -> list[str]:
    """Return what the paper reached, and how its model differs, if it does."""
    dataset = run.experiment.problem(run.options)
    known = known_of(dataset)
    value = known.results.get(run.method)
    if value is None:
        return []
    paper, ours = flat(dataclasses.asdict(preset("paper", dataset))), flat(run.options)
    other = [
        f"{name.removeprefix('flow.')} {paper[name]}, not {ours[name]}"
        for name in _MODEL
        if ours.get(name, paper[name]) != paper[name]
    ]
    reported = f"The paper reports {value} {unit} for {known.title} with this gradient"
    return [reported + (f", for a different model: {'; '.join(other)}." if other else ".")]
