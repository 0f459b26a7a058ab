"""A target in other coordinates."""

import equinox as eqx
from jaxtyping import Array, Float

from .._ingredients.target import Target, check_is_target, log_prob_of
from .._words.arguments import instance
from .transforms import AbstractBijection


class Whitened(eqx.Module):
    r"""A target in the coordinates of a bijection $g$: $z \mapsto \ln p(g(z)) + \ln |\det \partial
    g/\partial z|$.

    With the map of `warm_start`, a target that is nearly standard normal, whatever its scales: this is what
    a flow is trained on. A flow `Flow(base, transforms)` of this target and the flow
    `Flow(base, [*transforms, map])` of the original one have the same weights, draw by draw.

    The map computes in the precision of the point. For coordinates in single and a target in
    double precision write `Precise(Whitened(target, map))`: then the large coordinates are never rounded.

    Attributes:
        target: An object with `log_prob(x)` for one point.
        map: From the new coordinates to those of the target.
    """

    target: Target
    map: AbstractBijection

    def __check_init__(self):
        check_is_target(self.target)
        instance("map", self.map, AbstractBijection, "a bijection, such as that of `warm_start`")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one point, if the target knows it."""
        return self.target.shape  # pyright: ignore[reportAttributeAccessIssue]

    def log_prob(self, z: Float[Array, "*event"]) -> Float[Array, ""]:
        """Return the log density of one point of the new coordinates, up to the target's constant."""
        x, log_det = self.map.forward(z)
        return log_prob_of(self.target, x) + log_det
