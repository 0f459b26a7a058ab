r"""The action of $\phi^4$ theory, in the normalisation of the benchmark: no 1/2, no 1/4!."""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Phi4(eqx.Module):
    r"""The density $p(\phi) = e^{-S(\phi)} / Z$ on a periodic square lattice.

    $$S = \sum_x \Big\{ \sum_{\mu=1,2} (\phi_{x+\mu} - \phi_x)^2 + m^2 \phi_x^2 + \lambda \phi_x^4 \Big\}$$

    Half of the public codes include factors 1/2 or 1/24. `coupling` is $\lambda$ as defined here, and
    `mass_squared` is $m^2$, which may be negative if the coupling is positive.
    """

    size: int = eqx.field(static=True)  # sites along an axis
    coupling: float = eqx.field(static=True)
    mass_squared: float = eqx.field(static=True, default=-4.0)

    def __check_init__(self):
        if self.size < 2:
            raise ValueError(f"A lattice needs at least 2 sites along each axis, got {self.size}.")
        if not (math.isfinite(self.coupling) and math.isfinite(self.mass_squared)):
            raise ValueError(
                f"Coupling and mass_squared must be finite, got {self.coupling} and {self.mass_squared}."
            )
        if not (self.coupling > 0 or (self.coupling == 0 and self.mass_squared > 0)):
            raise ValueError(
                f"The action has no lower bound with coupling {self.coupling} and mass_squared "
                f"{self.mass_squared}: the coupling must be positive (or 0 with a positive mass_squared)."
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of one field."""
        return (self.size, self.size)

    def action(self, phi: Float[Array, "size size"]) -> Float[Array, ""]:
        """Return $S$."""
        square = phi * phi
        neighbours = jnp.roll(phi, -1, 0) + jnp.roll(phi, -1, 1)
        per_site = (4 + self.mass_squared + self.coupling * square) * square - 2 * phi * neighbours
        return jnp.sum(per_site)

    def log_prob(self, phi: Float[Array, "size size"]) -> Float[Array, ""]:
        """Return $-S$, the log density up to the constant log Z."""
        return -self.action(phi)
