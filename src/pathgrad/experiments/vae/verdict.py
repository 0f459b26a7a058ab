"""What the numbers about an autoencoder are worth. No JAX here: readers of results judge them too."""

from collections.abc import Mapping
from typing import Any

from pathgrad._numbers.verdict import AbstractReason, Level, Verdict
from pathgrad._words.errors import named

_SHIFT = 0.1  # nats; published bounds are told to a tenth or a hundredth
_FEWEST_DRAWS = 10


class AutoencoderReason(AbstractReason):
    """Why the numbers about an autoencoder are less than good."""

    FAILED_SOLVES = (
        Level.UNUSABLE,
        "failed solves",
        "The ODE solves of {failed} of {images} images failed, so there is no mean. Evaluate with twice the "
        f"{named('refine')}, or train with a lower learning rate or more solver steps.",
    )
    COARSE_SOLVER = (
        Level.UNRELIABLE,
        "a coarse solver",
        "Twice the solver's accuracy moves the negative ELBO of an image by {solver_shift_rms:.2f} nats "
        f"(RMS). Evaluate with twice the {named('refine')}.",
    )
    FEW_EFFECTIVE_DRAWS = (
        Level.USABLE,
        "few effective draws",
        "Half of the images have less than {nll_effective_samples:.0f} effective draws behind their "
        f"likelihood: the NLL is too high. More {named('samples')} lower it.",
    )
    NOT_COMPARABLE = (
        Level.GOOD,
        "rebuilt data",
        "Likelihoods of the rebuilt OMNIGLOT cannot be compared with published ones.",
    )


def judge(numbers: Mapping[str, Any]) -> Verdict:
    """Judge the numbers of an autoencoder's evaluation, by their names; NaN may be written as `None`."""
    draws = numbers.get("nll_effective_samples")
    found = {
        AutoencoderReason.FAILED_SOLVES: numbers["failed"] > 0,
        AutoencoderReason.COARSE_SOLVER: float(numbers.get("solver_shift_rms") or 0.0) > _SHIFT,
        AutoencoderReason.FEW_EFFECTIVE_DRAWS: draws is not None and draws < _FEWEST_DRAWS,
        AutoencoderReason.NOT_COMPARABLE: numbers["dataset"] == "omniglot-rebuilt",
    }
    return Verdict.of(reason for reason, holds in found.items() if holds)


def read_verdict(evaluation: Mapping[str, Any]) -> Verdict | None:
    """Return the verdict in an evaluation.json; of older versions, which wrote none, judge the numbers."""
    if "verdict" in evaluation:
        return Verdict.from_json(evaluation["verdict"], AutoencoderReason)
    try:
        return judge(evaluation)
    except (KeyError, TypeError, ValueError):
        return None
