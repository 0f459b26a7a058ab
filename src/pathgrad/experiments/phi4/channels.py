"""Channel functions: mixtures of sines, whose derivatives have the same form, fast on a CPU."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Nearly optimal polynomials in the squared angle on [-pi, pi], with errors of 1e-7 and 1e-8.
_SINE = (0.9999995827674866, -0.16666553914546967, 0.008332408033311367, -0.0001980873930733651,
         2.6998227440344635e-06, -2.036622781531605e-08)  # fmt: skip
_COSINE = (1.0, -0.49999988079071045, 0.04166648909449577, -0.0013887807726860046, 2.4769966330495663e-05,
           -2.707977557747654e-07, 1.724760334553821e-09)  # fmt: skip
_TURN = 6.28125  # 2 pi with few bits, so that its multiples are exact; the rest is subtracted afterwards


def _reduce_angle(x: Array) -> Array:
    turns = jnp.round(x * np.float32(1 / (2 * np.pi)))
    return (x - turns * np.float32(_TURN)) - turns * np.float32(2 * np.pi - _TURN)


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    out = jnp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        out = out * x + np.float32(coefficient)
    return out


def sine(x: Array) -> Array:
    """Return the sine; in single precision with an error of 6e-7, by a polynomial without branches.

    XLA's own sine costs several times as much on a CPU; other precisions use it. (Storing the sines for reuse
    gains nothing: XLA computes them again wherever they are used, even with optimisation barriers.)
    """
    if x.dtype != jnp.float32:
        return jnp.sin(x)
    x = _reduce_angle(x)
    return x * _polynomial(_SINE, x * x)


def cosine(x: Array) -> Array:
    """Return the cosine, like `sine`."""
    if x.dtype != jnp.float32:
        return jnp.cos(x)
    x = _reduce_angle(x)
    return _polynomial(_COSINE, x * x)


def _wave(order: int, phi, omega):
    """Return the derivative of the given order of the sine, at each frequency and site."""
    angle = omega[:, None, None] * phi
    wave = cosine(angle) if order % 2 else sine(angle)
    return -wave if order % 4 >= 2 else wave


def _mix(matrix, waves):
    return jnp.einsum("cf,fxy->cxy", matrix, waves)


def _linear(order: int, phi, slope):
    """Return the derivative of the linear feature: itself (order 0), its slope (1), or zero."""
    return slope[:, None, None] * (phi if order == 0 else jnp.full_like(phi, float(order == 1)))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def channels(
    order: int,
    phi: Float[Array, "size size"],
    omega: Float[Array, " sine"],
    bond: Float[Array, "channel sine"],
    slope: Float[Array, " channel"],
) -> Float[Array, "channel size size"]:
    r"""Return a derivative of $h_c(\phi) = \sum_f b_{cf} \sin(\omega_f \phi) + a_c \phi$ at each site.

    Plain automatic differentiation would give the same result, but it sums sines over features, sites and
    draws in loops that are slow on a CPU. Here every such sum is a matrix product; only a sum over the few
    channels is left, and is written out. Order 0 is the function itself; $b$ is `bond`, $a$ is `slope`.
    """
    out = _mix(bond * omega**order, _wave(order, phi, omega))
    return out + _linear(order, phi, slope) if order < 2 else out


@functools.partial(channels.defjvp, symbolic_zeros=True)
def _channels_jvp(order, primals, tangents):
    phi, omega, bond, _ = primals
    phi_tangent, omega_tangent, bond_tangent, slope_tangent = tangents
    zero = jax.custom_derivatives.SymbolicZero
    phi_moves, omega_moves, bond_moves, slope_moves = (not isinstance(tangent, zero) for tangent in tangents)
    out = channels(order, *primals)
    parts = []
    if phi_moves:
        parts.append(jnp.stack([slope * phi_tangent for slope in channels(order + 1, *primals)]))
    if bond_moves:
        parts.append(_mix(bond_tangent * omega**order, _wave(order, phi, omega)))
    if omega_moves:
        if order:
            change = order * omega ** (order - 1) * omega_tangent
            parts.append(_mix(bond * change, _wave(order, phi, omega)))
        parts.append(_mix(bond * (omega**order * omega_tangent), phi * _wave(order + 1, phi, omega)))
    if slope_moves and order < 2:
        parts.append(_linear(order, phi, slope_tangent))
    return out, sum(parts[1:], start=parts[0]) if parts else jnp.zeros_like(out)


def weighted_sum(weight: Float[Array, "channel *rest"], x: Float[Array, "channel *rest"]) -> Array:
    """Return the sum over the channels, written out because XLA reduces a leading axis slowly on a CPU."""
    return sum((w * y for w, y in zip(weight[1:], x[1:], strict=True)), start=weight[0] * x[0])
