"""A target whose log density is near zero."""

import equinox as eqx
from jaxtyping import Array, Float

from .._ingredients.target import Target, log_prob_of


class Centred(eqx.Module):
    """A target whose log density is lower by a constant.

    Where log densities are large, those near zero keep digits that single precision would round away.

    Attributes:
        target: An object with `log_prob(x)` for one point.
        constant: What is subtracted: a plain number, so that it may have more digits than the arrays around.
    """

    target: Target
    constant: float = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one point, if the target knows it."""
        return self.target.shape  # pyright: ignore[reportAttributeAccessIssue]

    def log_prob(self, x: Float[Array, "*event"]) -> Float[Array, ""]:
        """Return the log density of one point, minus the constant."""
        return log_prob_of(self.target, x) - self.constant
