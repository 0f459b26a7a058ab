"""How a warm start ended, and what kind of Gaussian it found."""

import enum

from ..._words.errors import in_python, named


class StartKind(enum.Enum):
    """The kind of Gaussian that a warm start found. The value is a description."""

    FULL = "a full Gaussian, by regression of the score"
    HESSIAN = "a full Gaussian, by averaged second derivatives"
    LOW_RANK = "a Gaussian whose covariance is diagonal but for a few directions"
    DIAGONAL = "a Gaussian with independent coordinates"


class StartOutcome(enum.Enum):
    """How a warm start ended. The value is the message to show.

    Anything but `CONVERGED`, `NOT_CONVERGED` and `TIME_USED_UP` means that a flow is not worth training.
    """

    CONVERGED = "the best Gaussian was found"
    NOT_CONVERGED = "the Gaussian was still improving when its iterations were used up"
    TIME_USED_UP = f"the Gaussian was still improving when its {named('max_seconds')} were used up"
    NOWHERE_FINITE = (
        "the target's log density was not a finite number at any point tried. Check it at a point where it "
        "must have a value. The search begins at the origin: shift the parameters so that there is a value "
        "there, or give the point as `start` in Python"
    )
    NO_GRADIENT = (
        "the target's log density is finite, but its gradient is not, at any point tried. (`jnp.where` "
        "around an undefined branch still differentiates it; so does a square root at zero.)"
    )
    IMPROPER = (
        "the target seems to have no finite integral: along some direction it does not fall off, however "
        "far one goes. Is a parameter without effect, or without a prior? (Parameters of 1e12 and more need "
        "other units.)"
    )
    UNBOUNDED = (
        "the target's log density grows without bound, or jumps, at a point: the best Gaussian shrinks on "
        "and on. Is a scale parameter allowed to reach zero? (Parameters that are known to fourteen digits "
        "need other units, or a shift.)"
    )
    TOO_SLOW = "the target is too slow for a search in the given time"
    DISCONTINUOUS = (
        "the target's log density does not follow its own gradient: it jumps somewhere, or part of its "
        "derivative is blocked (rounding, comparisons, `stop_gradient`). Path gradients cannot see such "
        "parts: smooth them, or sum over what is discrete"
    )
    BOUNDED = (
        "the target is minus infinity or NaN at some of the points under its best Gaussian. If it lives on a "
        "bounded region, map bounded parameters to the whole real line, and add the log-determinant; if not, "
        "look for a logarithm or a root of a negative number, or an overflow"
    )

    @property
    def text(self) -> str:
        """The message, with the names of arguments marked."""
        return self.value

    @property
    def message(self) -> str:
        """The message, for somebody who calls the library from Python."""
        return in_python(self.text)

    @property
    def is_usable(self) -> bool:
        """Whether the Gaussian is worth starting a flow from."""
        usable = StartOutcome.CONVERGED, StartOutcome.NOT_CONVERGED, StartOutcome.TIME_USED_UP
        return self in usable
