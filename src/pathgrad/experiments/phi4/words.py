"""What was measured on lattice fields, beside what is known, for people. No JAX here."""

from collections.abc import Mapping

import pathgrad as pg
from pathgrad._words.text import listed, plain, with_error

from ..flows.words import FAR, REMEDY, standard_errors
from .reference import WORDS


def observables(evaluation: pg.Numbers) -> dict[str, Mapping[str, object]]:
    """Return the rows of what was measured by their names, out of the contents of an evaluation.json."""
    measured = evaluation.get("observables")
    if not isinstance(measured, Mapping):
        return {}
    every = {**measured, "ward_identity": evaluation.get("ward_identity")}
    return {name: row for name, row in every.items() if isinstance(row, Mapping)}


def word(name: str) -> str:
    """Return an observable as people call it."""
    return WORDS.get(name, name.replace("_", " "))


def deviation(row: Mapping[str, object], chain: str = "") -> float | None:
    """Return (value - known) / error, both errors added; `None` where one of them is missing.

    Values of the Markov chain have `mcmc_` before their names, those of weighted draws nothing.
    """
    names = (f"{chain}value", f"{chain}error", "reference", "reference_error")
    return standard_errors(*(pg.number_in(row, name) for name in names))


def is_far(row: Mapping[str, object]) -> bool:
    """Say whether what was measured contradicts what is known."""
    return abs(deviation(row) or 0.0) > FAR


# Heads of columns, and the names of a value and its error in the row of an observable.
_KINDS = {
    "weighted draws": ("value", "error"),
    "Metropolis chain": ("mcmc_value", "mcmc_error"),
    "known": ("reference", "reference_error"),
}


def tables(run: pg.Run) -> list[pg.ResultTable]:
    """Return what was measured by weighting and by Metropolis, and what is known."""
    rows, cells = observables(run.evaluation), []
    for name, row in rows.items():
        pairs = [(pg.number_in(row, value), pg.number_in(row, error)) for value, error in _KINDS.values()]
        cells.append((word(name), *(with_error(*pair) for pair in pairs), plain(deviation(row), "+.1f")))
    far = tuple(i for i, row in enumerate(rows.values()) if is_far(row))
    heads = ("observable", *_KINDS, "off by, errors")
    return [pg.ResultTable("Observables", heads, cells, far, _chain(run.evaluation))] if rows else []


def _chain(evaluation: pg.Numbers) -> str:
    """Say how well the Markov chain moves."""
    chain = evaluation.get("mcmc")
    if not isinstance(chain, Mapping):
        return ""
    taus = [pg.number_in(row, "mcmc_tau") for row in observables(evaluation).values()]
    slowest = max((tau for tau in taus if tau is not None), default=None)
    forms = {"acceptance": ".2%", "acceptance_gaussian": ".2%", "tau_rejections": ".3f"}
    accepted, normal, tau = (plain(pg.number_in(chain, name), form) for name, form in forms.items())
    return (
        f"Metropolis accepts {accepted} (normal log-weights: {normal}); autocorrelation time {tau} from "
        f"rejections, {plain(slowest, '.3f')} at most over the observables."
    )


def warnings(run: pg.Run) -> list[str]:
    """Say which observables contradict what is known; of log Z all flows are warned."""
    rows = observables(run.evaluation) if run.is_evaluated else {}
    far = [
        f"{word(name)} ({deviation(row):+.1f} standard errors)"
        for name, row in rows.items()
        if is_far(row) and name != "log_z"
    ]
    return [f"Off what is known: {listed(far)}. {REMEDY}"] if far else []
