"""What every transform offers."""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import Array, Float, Key

from .._draw import Draw, SolveInfo, Tally


class AbstractTransform(eqx.Module):
    """An invertible map of a batch of points, which knows what it does to density and score.

    `push` carries whatever the draw carries, and differentiates it as `Draw` says. A map that is known in
    closed form both ways is an `AbstractBijection`, which has all of this from two methods.
    """

    @abstractmethod
    def check(self, shape: tuple[int, ...]) -> None:
        """Raise a `ValueError` if points of this shape cannot be served."""

    @abstractmethod
    def push(self, draw: Draw, *, keys: Key[Array, " batch"]) -> Draw:
        """Carry a draw forwards. Each draw has a key of its own, for noise."""

    @abstractmethod
    def pull(
        self, x: Float[Array, "batch *event"], *, keys: Key[Array, " batch"]
    ) -> tuple[Float[Array, "batch *event"], Float[Array, " batch"], SolveInfo | None]:
        """Carry points backwards. Also return log |det| of the *forward* map at them."""

    @property
    @abstractmethod
    def is_noisy(self) -> bool:
        """Whether `log q` is only estimated, so that keys are needed."""

    @property
    @abstractmethod
    def is_solved(self) -> bool:
        """Whether an ODE solver stands behind it, so that refining it can change its numbers."""

    @abstractmethod
    def exact(self) -> "AbstractTransform":
        """Return the same map with its density computed without noise."""

    @abstractmethod
    def refined(self, factor: int) -> "AbstractTransform":
        """Return the same map, solved as accurately as with `factor` times the steps."""

    @abstractmethod
    def tallied(self, tally: Tally) -> "AbstractTransform":
        """Return the same map, which counts the field evaluations of its backward pass in a tally."""
