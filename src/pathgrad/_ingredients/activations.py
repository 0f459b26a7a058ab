"""Smooth functions that networks and fields are made of."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@jax.custom_jvp
def tanh_log_cosh(x: Float[Array, "*shape"]) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    r"""Return $\tanh x$ and $\ln\cosh x$ of every entry, without overflow.

    $$\ln\cosh x = |x| - \ln(1 + |\tanh x|)$$

    The first is the derivative of the second, so neither costs anything more to differentiate. Differentiated
    automatically, the absolute value would make the second derivative zero at zero, where it is one.
    """
    slope = jnp.tanh(x)
    return slope, jnp.abs(x) - jnp.log1p(jnp.abs(slope))


@tanh_log_cosh.defjvp
def _tanh_log_cosh_jvp(primals, tangents):
    (tangent,) = tangents
    slope, value = tanh_log_cosh(*primals)
    return (slope, value), ((1 - slope**2) * tangent, slope * tangent)


def tanh_and_log_cosh(units: Float[Array, " units"]) -> Float[Array, " twice"]:
    r"""Return two features of every hidden unit, $\tanh h$ and $\frac12\ln\cosh h$, as one vector.

    The first is bounded. The second grows like the unit, so that a network with one hidden layer can bend
    without end: a banana, or the wide part of a funnel, needs that.
    """
    slope, value = tanh_log_cosh(units)
    return jnp.concatenate([slope, 0.5 * value])
