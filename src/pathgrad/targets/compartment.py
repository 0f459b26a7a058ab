"""Posterior of a compartment model: an ordinary differential equation in the likelihood."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .density import LOG_2_PI, AbstractPosterior, cauchy_of_log, like

# The equation is solved by Euler's implicit method with this many steps between two measurements, once for
# each number. The solutions are extrapolated to infinitely many steps, so that the first three orders of the
# error cancel: the weights are those of the polynomial in the step size through all solutions, at zero.
_STEPS = (2, 4, 6, 8)
_WEIGHTS = np.array([math.prod(n / (n - m) for m in _STEPS if m != n) for n in _STEPS])


class OneCompartment(AbstractPosterior):
    r"""A drug that is absorbed at a constant rate and removed by an enzyme that saturates.

    $\dot C = \frac{D k_a}{V} e^{-k_a t} - \frac{V_m}{V} \frac{C}{K_m + C}$ with $C(0) = 0$. Measurements are
    log-normal around $C(t_n)$, with $\sigma$; all four parameters are half-Cauchy of scale 1, and the free
    coordinates are their logarithms.

    Attributes:
        times: Times of the measurements, in equal steps from zero.
        measured: Measured concentrations.
        dose: $D$.
        volume: $V$.
    """

    times: np.ndarray | Array
    measured: np.ndarray | Array
    dose: float = eqx.field(static=True)
    volume: float = eqx.field(static=True)

    def __check_init__(self):
        wanted = np.arange(1, len(self.times) + 1) * float(self.times[0])
        if not np.allclose(np.asarray(self.times), wanted):
            raise ValueError("`times` must go up in equal steps, the first of them from zero.")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one point."""
        return (4,)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return ("k_a", "K_m", "V_m", "sigma")

    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the log density of a free point."""
        log_measured = jnp.log(like(x, self.measured))
        residual = (log_measured - self.log_concentrations(x)) * jnp.exp(-x[3])
        fit = jnp.sum(-0.5 * residual**2 - log_measured - x[3] - 0.5 * LOG_2_PI)
        return fit + jnp.sum(cauchy_of_log(x, 1.0) + x)

    def log_concentrations(self, x: Float[Array, " dim"]) -> Float[Array, " times"]:
        """Return the logarithms of the concentrations at the times of the measurements.

        Extrapolated as logarithms, so that they stay positive however strange the parameters are.
        """
        number, steps = len(self.times), np.array(_STEPS)
        rate, half, speed = jnp.exp(x[0]), jnp.exp(x[1]), jnp.exp(x[2]) / self.volume
        # All solutions advance together. Those with fewer steps come to their end first, and then stay there.
        index = np.arange(number * max(_STEPS))[:, None]
        sizes = like(x, self.times[:1]) * like(x, np.where(index < number * steps, 1 / steps, 0.0))
        starts = like(x, self.times[:1]) * like(x, index / steps)
        # What is absorbed in each step is known exactly.
        absorbed = self.dose / self.volume * jnp.exp(-rate * starts) * -jnp.expm1(-rate * sizes)
        tiny = float(jnp.finfo(x.dtype).tiny) ** 0.5

        def step(before: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
            after = _positive_root(before + inputs[0] + tiny, half, inputs[1] * speed)
            return after, after

        start = jnp.zeros(len(_STEPS), x.dtype)
        solutions = jax.lax.scan(step, start, (absorbed, sizes))[1]
        ends = np.arange(1, number + 1)[:, None] * steps - 1
        return jnp.log(solutions[ends, np.arange(len(_STEPS))]) @ like(x, _WEIGHTS)

    def constrain(self, x: Float[Array, " dim"]) -> Float[Array, " columns"]:
        """Return the parameters."""
        return jnp.exp(x)

    def unconstrain(self, columns: Float[Array, " columns"]) -> Float[Array, " dim"]:
        """Return the logarithms of the parameters."""
        return jnp.log(columns)


def _positive_root(a: Array, half: Array, removed: Array) -> Array:
    """Return the positive solution of C = a - removed * C / (half + C), a quadratic equation."""
    b = half + removed - a
    root = jnp.sqrt(b**2 + 4 * a * half)
    # Each branch adds numbers of one sign. The other branch must not divide by zero in the gradient.
    return jnp.where(b > 0, 2 * a * half / jnp.where(b > 0, b + root, 1.0), 0.5 * (root - b))
