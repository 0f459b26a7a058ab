"""The verdict on an evaluation of an autoencoder. No JAX here: tools that only read results use it too."""

from collections.abc import Mapping
from typing import Any

from pathgrad._numbers.verdict import AbstractReason, Level, Verdict, has_wrong_divergence
from pathgrad._words.errors import named

_SHIFT = 0.1  # nats; published bounds are given to a tenth or a hundredth
_FEWEST_DRAWS = 10


class AutoencoderReason(AbstractReason):
    """Why the results of an autoencoder are less than good."""

    FAILED_SOLVES = (
        Level.UNUSABLE,
        "failed solves",
        "The ODE solves of {failed} of {images} images failed, so there is no mean. Evaluate with twice the "
        f"{named('refine')}, or train with a lower learning rate or more solver steps.",
    )
    WRONG_DIVERGENCE = (
        Level.UNUSABLE,
        "a wrong divergence",
        "The closed-form divergence of a posterior's field is wrong (relative error {divergence_error:.1e}, "
        "compared with automatic differentiation), so these are no bounds on the likelihood. Correct "
        "`prepare` or `velocity_and_divergence` of the field, or use `Exact()`, and train again.",
    )
    COARSE_SOLVER = (
        Level.UNRELIABLE,
        "a coarse solver",
        "Doubling the solver's accuracy moves the negative ELBO of an image by {solver_shift_rms:.2f} nats "
        f"(RMS). Evaluate with twice the {named('refine')}.",
    )
    FEW_EFFECTIVE_DRAWS = (
        Level.USABLE,
        "few effective draws",
        "Half of the images have fewer than {nll_effective_samples:.0f} effective draws for their "
        f"likelihood, so the NLL is too high. Use more {named('samples')}.",
    )
    NOT_COMPARABLE = (
        Level.GOOD,
        "rebuilt data",
        "Likelihoods of the rebuilt OMNIGLOT cannot be compared with published ones.",
    )


def judge(numbers: Mapping[str, Any]) -> Verdict:
    """Return the verdict on the named numbers of an evaluation; `None` may stand for NaN."""
    draws = numbers.get("nll_effective_samples")
    applies = {
        AutoencoderReason.FAILED_SOLVES: numbers["failed"] > 0,
        AutoencoderReason.WRONG_DIVERGENCE: has_wrong_divergence(numbers),
        AutoencoderReason.COARSE_SOLVER: float(numbers.get("solver_shift_rms") or 0.0) > _SHIFT,
        AutoencoderReason.FEW_EFFECTIVE_DRAWS: draws is not None and draws < _FEWEST_DRAWS,
        AutoencoderReason.NOT_COMPARABLE: numbers["dataset"] == "omniglot-rebuilt",
    }
    return Verdict.of(reason for reason, is_true in applies.items() if is_true)


def read_verdict(evaluation: Mapping[str, Any]) -> Verdict | None:
    """Return the verdict in an evaluation.json, or judge the numbers if an older version wrote none."""
    if "verdict" in evaluation:
        return Verdict.from_json(evaluation["verdict"], AutoencoderReason)
    try:
        return judge(evaluation)
    except (KeyError, TypeError, ValueError):
        return None
