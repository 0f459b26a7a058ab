"""Fields that know their own divergence."""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import Array, Float, PyTree


class AbstractTractableField(eqx.Module):
    """A field whose divergence has a closed form, so that `ClosedForm` can be asked of it.

    Any other Equinox module called as `field(t, x)` is a field too; it just cannot offer this.
    """

    @property
    def why_not_tractable(self) -> str | None:
        """Why this instance has no closed form after all; `None` if it has.

        Not abstract, unlike the rest of our interfaces: hardly any field has a reason to override it.
        """
        return None

    @abstractmethod
    def __call__(self, t: Float[Array, ""], x: Float[Array, "*event"]) -> Float[Array, "*event"]:
        """Return the velocity of one point."""

    @abstractmethod
    def prepare(self) -> PyTree:
        """Return what `velocity_and_divergence` needs and depends on parameters only."""

    @abstractmethod
    def velocity_and_divergence(
        self, t: Float[Array, ""], x: Float[Array, "*event"], prepared: PyTree
    ) -> tuple[Float[Array, "*event"], Float[Array, ""]]:
        """Return velocity and exact divergence of one point."""
