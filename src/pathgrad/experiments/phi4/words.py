"""Tables and warnings that set measured observables beside known values. No JAX here."""

from collections.abc import Mapping

import pathgrad as pg
from pathgrad._words.text import listed, plain, with_error

from ..flows.words import FAR, REMEDY, standard_errors
from .reference import WORDS


def observables(evaluation: pg.Numbers) -> dict[str, Mapping[str, object]]:
    """Return the rows of observables in the contents of an evaluation.json, by name."""
    measured = evaluation.get("observables")
    if not isinstance(measured, Mapping):
        return {}
    rows = {**measured, "ward_identity": evaluation.get("ward_identity")}
    return {name: row for name, row in rows.items() if isinstance(row, Mapping)}


def word(name: str) -> str:
    """Return the name of an observable for readers."""
    return WORDS.get(name, name.replace("_", " "))


def deviation(row: Mapping[str, object], chain: str = "") -> float | None:
    """Return (value - known) / error, with both errors combined; `None` if a number is missing.

    `chain` is `mcmc_` for the values of the Markov chain, and empty for those of weighted draws.
    """
    names = (f"{chain}value", f"{chain}error", "reference", "reference_error")
    return standard_errors(*(pg.number_in(row, name) for name in names))


def is_far(row: Mapping[str, object]) -> bool:
    """Return whether a measured value contradicts the known one."""
    return abs(deviation(row) or 0.0) > FAR


# Column headings, and the names of the value and its error in the row of an observable.
_KINDS = {
    "weighted draws": ("value", "error"),
    "Metropolis chain": ("mcmc_value", "mcmc_error"),
    "known": ("reference", "reference_error"),
}


def tables(run: pg.Run) -> list[pg.ResultTable]:
    """Return a table of observables: by weighting, by Metropolis, and the known values."""
    rows, cells = observables(run.evaluation), []
    for name, row in rows.items():
        pairs = [(pg.number_in(row, value), pg.number_in(row, error)) for value, error in _KINDS.values()]
        cells.append((word(name), *(with_error(*pair) for pair in pairs), plain(deviation(row), "+.1f")))
    far = tuple(i for i, row in enumerate(rows.values()) if is_far(row))
    heads = ("observable", *_KINDS, "deviation, errors")
    return [pg.ResultTable("Observables", heads, cells, far, _chain(run.evaluation))] if rows else []


def _chain(evaluation: pg.Numbers) -> str:
    """Return a sentence on how well the Markov chain mixes."""
    chain = evaluation.get("mcmc")
    if not isinstance(chain, Mapping):
        return ""
    taus = [pg.number_in(row, "mcmc_tau") for row in observables(evaluation).values()]
    slowest = max((tau for tau in taus if tau is not None), default=None)
    forms = {"acceptance": ".2%", "acceptance_gaussian": ".2%", "tau_rejections": ".3f"}
    accepted, normal, tau = (plain(pg.number_in(chain, name), form) for name, form in forms.items())
    return (
        f"Metropolis acceptance {accepted} (for normal log-weights: {normal}); autocorrelation time {tau} "
        f"from rejections, at most {plain(slowest, '.3f')} among the observables."
    )


def warnings(run: pg.Run) -> list[str]:
    """Return a warning that lists observables far from their known values; `flows.words` covers log Z."""
    rows = observables(run.evaluation) if run.is_evaluated else {}
    far = [
        f"{word(name)} ({deviation(row):+.1f} standard errors)"
        for name, row in rows.items()
        if is_far(row) and name != "log_z"
    ]
    return [f"Far from the known value: {listed(far)}. {REMEDY}"] if far else []
