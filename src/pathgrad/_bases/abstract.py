"""What every base offers."""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import Array, Float, Key


class AbstractBase(eqx.Module):
    """A normalised density in closed form, with draws that can be differentiated.

    Every method speaks of one point.
    """

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one point."""

    @abstractmethod
    def draw(
        self, *, key: Key[Array, ""]
    ) -> tuple[Float[Array, "*event"], Float[Array, ""] | None]:
        """Return one point and the log-probability of the discrete choice behind it.

        The point is a differentiable function of the parameters at fixed noise. Where a choice was
        made that has no such function (a component of a mixture), its log-probability comes with it;
        otherwise `None`.
        """

    @abstractmethod
    def log_prob(self, x: Float[Array, "*event"]) -> Float[Array, ""]:
        """Return the normalised log density."""
