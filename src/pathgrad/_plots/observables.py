"""Observables against values known from elsewhere."""

import math
from typing import TYPE_CHECKING

import numpy as np

from .run import Evaluated, MissingData, Result, looks_for
from .style import How, Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WORDS = {
    "log_z": "log Z",
    "phi_2": "⟨φ²⟩",
    "phi_4": "⟨φ⁴⟩",
    "abs_magnetisation": "⟨|M|⟩",
    "susceptibility": "χ₂",
    "connected_susceptibility": "χ₂ connected",
    "binder": "Binder cumulant",
    "mass_times_size": "m L",
    "correlation_length": "correlation length",
    "ward_identity": "Ward identity",
}


def deviations(result: Result, chain: str = "") -> dict[str, float]:
    """Return (value - reference) / error of the observables with a reference, errors of both added.

    `chain` is the prefix of the values meant: none for the weighted ones, `mcmc_` for those of the chain.
    """
    found: dict[str, float] = {}
    table = {**(result.get("observables") or {}), "ward_identity": result.get("ward_identity")}
    for name, numbers in table.items():
        if numbers is None:
            continue
        keys = (f"{chain}value", f"{chain}error", "reference")
        value, error, reference = (numbers.get(key) for key in keys)
        if value is None or error is None or reference is None:
            continue
        total = math.hypot(error, numbers.get("reference_error") or 0.0)
        if total > 0:
            found[name] = (value - reference) / total
    return found


_FURTHEST = 6.0  # standard errors; what is further off is drawn at the edge, with its number


def draw_observables(axes: "list[Axes]", runs: list[Evaluated]) -> None:
    """Draw how far observables are from their references, in standard errors."""
    (axis,) = axes
    sets: list[tuple[str, dict[str, float], Look, str]] = []
    for run, look in zip(runs, looks_for(runs), strict=True):
        alone = len(runs) == 1
        label = "weighted draws" if alone else run.short
        sets.append((label, deviations(run.result), look, look.colour))
        chain = deviations(run.result, "mcmc_")
        if alone and chain:  # of several runs, both would be too much for one picture
            sets.append(("Markov chain", chain, look._replace(marker="s"), "white"))
    names = list(dict.fromkeys(name for _, found, _, _ in sets for name in found))
    if not names:
        who = runs[0].label or "this run"
        raise MissingData(f"the evaluation of {who} has no observables with a known reference.")
    axis.axvspan(-2, 2, color="0.9", lw=0)
    axis.axvline(0, color="0.4", lw=0.8)
    for i, (label, found, look, face) in enumerate(sets):
        shift = 0.7 * ((i + 0.5) / len(sets) - 0.5)
        heights = np.array([names.index(name) + shift for name in found])
        _draw_set(axis, np.array(list(found.values())), heights, look, face, label)
    axis.set_yticks(range(len(names)), [WORDS.get(n, n.replace("_", " ")) for n in names])
    axis.set_xticks(range(-6, 7, 2))
    axis.set(ylim=(len(names) - 0.4, -0.6), xlim=(-_FURTHEST - 0.5, _FURTHEST + 0.5))
    axis.set_xlabel("standard errors from the reference")
    axis.grid(visible=False, axis="y")
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, handlelength=1)


def _draw_set(
    axis: "Axes", z: np.ndarray, heights: np.ndarray, look: Look, face: str, label: str
) -> None:
    shown = np.clip(z, -_FURTHEST, _FURTHEST)
    axis.hlines(heights, 0, shown, color=look.colour, lw=1)
    how: How = {"marker": look.marker, "s": 20, "edgecolors": look.colour, "facecolors": face}
    axis.scatter(shown, heights, label=label, zorder=3, **how)
    for far, at, height in zip(z, shown, heights, strict=True):
        if far != at:
            inwards, side = (-3, "right") if far > 0 else (3, "left")
            how = {"textcoords": "offset points", "ha": side, "va": "bottom", "fontsize": 7}
            axis.annotate(f"{far:+.0f}", (at, height), (inwards, 3), **how)
