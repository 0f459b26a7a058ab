"""The targets of the benchmark by name, with what is known about them."""

import difflib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pathgrad._data.files import data_folder
from pathgrad._words.arguments import instance
from pathgrad._words.errors import UserError

from . import reading
from .density import AbstractDensity
from .hierarchies import Seeds
from .known import BenchmarkTarget, Published, Reference
from .mixtures import forty_blobs, two_blobs
from .names import NAMES
from .small import Banana, Correlated, Normalised, Ring, neals_funnel
from .wells import ManyWells

Made = AbstractDensity | tuple[AbstractDensity, Reference]

_LOSSES = "Rethinking losses for diffusion bridge samplers, 2025"
_SCLD = "Chen et al. 2025, SCLD"
_FAB = "Midgley et al. 2023, README of fab-jax"
_ERROR = "mean absolute error of log Z, 2,000 draws"


class _Entry(NamedTuple):
    make: Callable[[Path], Made]
    log_z: float | None = None
    log_z_err: float | None = None
    published: tuple[Published, ...] = ()


def _posterior(name: str, log_z: float, log_z_err: float) -> _Entry:
    return _Entry(functools.partial(reading.posterior, name), log_z, log_z_err)


# Normalisers of the posteriors: those with error 0 in closed form or by quadrature, the others by bridge
# sampling from the reference draws.
_ENTRIES: dict[str, _Entry] = {
    "funnel-10": _Entry(
        lambda data: Normalised(neals_funnel(10)), 0.0, 0.0,
        (Published(0.00218, "FAB", _FAB, _ERROR, 0.00051),),
    ),
    "banana": _Entry(lambda data: Normalised(Banana()), 0.0, 0.0),
    "correlated-20": _Entry(lambda data: Normalised(Correlated(20)), 0.0, 0.0),
    "ring": _Entry(lambda data: Normalised(Ring()), 0.0, 0.0),
    "two-modes": _Entry(lambda data: two_blobs(), 0.0, 0.0),
    "many-well-32": _Entry(
        lambda data: ManyWells(16), ManyWells(16).log_z, 0.0,
        (Published(0.0316, "FAB", _FAB, _ERROR, 0.0042),),
    ),
    # The note on the best ELBO, -21.94, does not say in which dimension.
    "gmm40-2": _Entry(lambda data: forty_blobs(2), 0.0, 0.0),
    "gmm40-50": _Entry(lambda data: forty_blobs(50), 0.0, 0.0),
    "credit": _Entry(
        reading.credit, -504.4860, 0.0002, (Published(-504.58, "diffusion bridge sampler", _LOSSES),)
    ),
    "credit-prior": _Entry(functools.partial(reading.credit, prior_sd=10.0), -585.0983, 0.0002),
    "ionosphere": _Entry(functools.partial(reading.labelled, "ionosphere"), -111.609, 0.003),
    "sonar": _Entry(
        functools.partial(reading.labelled, "sonar"), -108.384, 0.001,
        (Published(-108.83, "diffusion bridge sampler", _LOSSES),),
    ),
    "seeds": _Entry(
        lambda data: Seeds(), -73.4066, 0.0004, (Published(-73.45, "diffusion bridge sampler", _LOSSES),)
    ),
    "cox-1600": _Entry(
        functools.partial(reading.cox, 40), 501.772, 0.004,
        (
            Published(497.85, "sequential Monte Carlo", _SCLD),
            Published(486.77, "SCLD", _SCLD),
            Published(0.194, "FAB", _FAB, _ERROR, 0.039),
        ),
    ),
    "cox-1024": _Entry(functools.partial(reading.cox, 32), 503.353, 0.006),
    "eight_schools_noncentered": _posterior("eight_schools_noncentered", -32.0045, 0.0),
    "arK": _posterior("arK", 57.8944, 0.0),
    "garch11": _posterior("garch11", -451.0008, 0.0007),
    "one_comp_mm_elim_abs": _posterior("one_comp_mm_elim_abs", -43.9067, 0.0009),
    "low_dim_gauss_mix": _posterior("low_dim_gauss_mix", -2117.0703, 0.0004),
    "hmm_example": _posterior("hmm_example", -172.7112, 0.0003),
    "logearn_interaction": _posterior("logearn_interaction", -1553.3588, 0.0),
    "nes2000": _posterior("nes2000", -957.1280, 0.0),
}  # fmt: skip


def load(name: str, data: Path | str | None = None) -> BenchmarkTarget:
    """Return a target of the benchmark; its data must be in the data folder.

    The same name and folder give the same object, so that what was compiled for it can be used again.

    Args:
        name: One of `NAMES`.
        data: The data folder. By default the environment variable `PATHGRAD_DATA`, else one in the user's
            cache.
    """
    instance("name", name, str, "the name of a target")
    if name not in _ENTRIES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UserError(f"There is no target {name!r}. Choose from: {', '.join(NAMES)}.{hint}")
    return _load(name, data_folder(data))


@functools.cache
def _load(name: str, folder: Path) -> BenchmarkTarget:
    entry = _ENTRIES[name]
    made = entry.make(folder)
    density, reference = made if isinstance(made, tuple) else (made, None)
    return BenchmarkTarget(name, density, entry.log_z, entry.log_z_err, entry.published, reference)
