"""A velocity field with all the symmetries of the lattice, and its divergence in closed form."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

import pathgrad as pg

from .channels import channels, weighted_sum
from .lattice import orbits, spectrum, transform


class LatticeField(pg.AbstractTractableField):
    r"""One convolution with a kernel as large as the lattice (Gerdes et al. 2022, de Haan et al. 2021).

    $$v_x(\phi, t) = \sum_c \sum_y K_c(t, x - y)\, h_c(\phi_y), \qquad
      h_c(\phi) = \frac1F \Big(\sum_f B_{cf} \sin(\omega_f \phi) + B_{cF}\, \phi\Big),$$

    $$K_c(t, \Delta) = \sum_d w_{[\Delta] c d}\, s_d(t), \qquad s(t) = \frac1D A\, \tau(t),$$

    where $[\Delta]$ is the orbit of a displacement under reflections and rotations, and $\tau$ contains sines
    and cosines of $2\pi k t$ and a constant. So $v$ commutes with translations, the eight point operations
    and $\phi \to -\phi$, and

    $$\nabla\cdot v = \sum_x \sum_c K_c(t, 0)\, h_c'(\phi_x).$$

    With `transform`, the convolutions cost $O(V^{3/2})$.

    Initially $w$ is zero: the flow starts as the identity, and only $w$ changes in the first step.
    """

    size: int = eqx.field(static=True)  # sites along an axis
    omega: Float[Array, " sine"]
    time_bond: Float[Array, "bond time"]  # A
    feature_bond: Float[Array, "channel feature"]  # B; its last column belongs to the linear feature
    kernel: Float[Array, "orbit channel bond"]  # w

    @classmethod
    def zero(
        cls,
        size: int,
        *,
        time_kernels: int,
        time_bond: int,
        features: int,
        channels: int,
        key: Key[Array, ""],
    ) -> "LatticeField":
        r"""Return a field with zero velocity; its bonds and frequencies are random.

        `time_bond` is the number of mixtures of the `time_kernels` functions of time in $\tau$; `channels` is
        the number of mixtures of the `features`: the sines, and the field itself.
        """
        if time_kernels < 1 or time_kernels % 2 == 0:
            raise pg.ArgumentError(
                f"{pg.named('time_kernels')} must be odd (sines, cosines, a constant), got {time_kernels}."
            )
        least = {"size": 2, "time_bond": 1, "features": 2, "channels": 1}
        for name, value in zip(least, (size, time_bond, features, channels), strict=True):
            if value < least[name]:
                raise pg.ArgumentError(f"{pg.named(name)} must be at least {least[name]}, got {value}.")
        omega_key, time_key, feature_key = jr.split(key, 3)
        orthogonal = jax.nn.initializers.orthogonal()
        return cls(
            size,
            jr.uniform(omega_key, (features - 1,), maxval=5.0),
            orthogonal(time_key, (time_bond, time_kernels)),
            orthogonal(feature_key, (channels, features)),
            jnp.zeros((orbits(size)[1], channels, time_bond)),
        )

    @property
    def fastest_frequency(self) -> int:
        """Periods of the fastest time kernel in unit time, which the solver steps must resolve."""
        return (self.time_bond.shape[1] - 1) // 2

    def _strengths(self, t: Float[Array, ""]) -> Float[Array, " bond"]:
        phase = 2 * math.pi * jnp.arange(1, self.fastest_frequency + 1, dtype=t.dtype) * t
        tau = jnp.concatenate([jnp.sin(phase), jnp.cos(phase), jnp.ones(1, t.dtype)])
        return self.time_bond @ tau / self.time_bond.shape[1]

    def _channel_functions(self):
        """Return frequencies, sine and linear coefficients of the channel functions."""
        bond = self.feature_bond / self.feature_bond.shape[1]
        return self.omega, bond[:, :-1], bond[:, -1]

    def _unfolded(self, taps: Float[Array, "orbit ..."]) -> Float[Array, "... size size"]:
        """Return kernels on the lattice from their values on the orbits."""
        return jnp.moveaxis(taps, 0, -1)[..., orbits(self.size)[0]]

    def __call__(self, t, x):
        taps = self.kernel @ self._strengths(t)
        h = channels(0, x, *self._channel_functions())
        return _convolved(spectrum(self._unfolded(taps)), h)

    def prepare(self):
        return spectrum(self._unfolded(self.kernel))

    def velocity_and_divergence(self, t, x, prepared):
        strengths = self._strengths(t)
        omega, bond, slope = self._channel_functions()
        h = channels(0, x, omega, bond, slope)
        velocity = _convolved(jnp.einsum("cdxy,d->cxy", prepared, strengths), h)
        origin = self.kernel[0] @ strengths  # K_c(t, 0)
        # K_c(t, 0) is the same at all sites: mix the channels first, and differentiate a single function.
        mixed = channels(1, x, omega, (origin @ bond)[None], (origin @ slope)[None])
        return velocity, jnp.sum(mixed)


def _convolved(spectra: Float[Array, "channel x y"], h: Float[Array, "channel x y"]) -> Array:
    """Convolve each channel with the kernel of the given spectrum, and sum the results."""
    return transform(weighted_sum(spectra, transform(h)))
