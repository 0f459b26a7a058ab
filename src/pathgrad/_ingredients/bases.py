"""Densities that can be sampled directly: the base of a flow, or a variational family on their own."""

import functools
import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Key

from .._words.arguments import number, positive, shape_of_point, share, shown
from .._words.errors import ArgumentError, named
from .._words.tree import Leaf, PerDraw, one_draw


class AbstractBase(eqx.Module):
    """A normalised density in closed form, with differentiable draws. Every method works on one point."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of one point."""

    @abstractmethod
    def draw(self, *, key: Key[Array, ""]) -> tuple[Float[Array, "*event"], Float[Array, ""] | None]:
        """Return one point and the log-probability of the discrete choice behind it.

        The point is a differentiable function of the parameters at fixed noise. A discrete choice (the
        component of a mixture) is not, so its log-probability is returned too; `None` if there is none.
        """

    @abstractmethod
    def log_prob(self, x: Float[Array, "*event"]) -> Float[Array, ""]:
        """Return the normalised log density."""


def floating(x: Any, name: str = "value") -> Array:
    """Return a floating-point array, also from integers, which could not be trained."""
    try:
        array = jnp.asarray(x)
    except (TypeError, ValueError):
        raise ArgumentError(f"{named(name)} must be an array of numbers, got {shown(x)}.") from None
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise ArgumentError(f"{named(name)} must be an array of real numbers, got {array.dtype}.")
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(jnp.result_type(float))


def trainable(name: str) -> Callable[[Any], Any]:
    """Return what turns numbers into an array, since only arrays are trained; `PerDraw` leaves stay."""
    return lambda leaf: leaf if isinstance(leaf, PerDraw) else floating(leaf, name)


_event_shape = functools.partial(shape_of_point, "event_shape")


def _checked_dtype(dtype: Any) -> Any:
    try:
        fits = dtype is None or jnp.issubdtype(jnp.dtype(dtype), jnp.floating)
    except TypeError:
        fits = False
    if not fits:
        raise ArgumentError(f"{named('dtype')} must be a floating-point type, got {shown(dtype)}.")
    return dtype


def standard_log_prob(z: Array) -> Array:
    """Return the log density of independent standard normals, summed over the coordinates."""
    return -0.5 * jnp.vdot(z, z) - 0.5 * math.log(2 * math.pi) * z.size


class StandardNormal(AbstractBase):
    """Independent standard normals, for points of any shape. It has no parameters.

    Attributes:
        event_shape: Shape of one point, such as `(2,)` or `(L, L)`.
        dtype: Precision of its draws; the default is that of JAX.
    """

    event_shape: tuple[int, ...] = eqx.field(static=True, converter=_event_shape)
    dtype: Any = eqx.field(static=True, default=None, converter=_checked_dtype)

    @property
    def shape(self):
        return self.event_shape

    def draw(self, *, key):
        return jr.normal(key, self.event_shape, _precision(self.dtype)), None

    def log_prob(self, x):
        return standard_log_prob(x)


def _precision(dtype: Any) -> Any:
    return float if dtype is None else dtype


class DefensiveNormal(AbstractBase):
    r"""Independent standard normals, of which a small share of the draws is wider.

    $$q_0(x) = (1 - \alpha)\, N(x; 0, 1) + \alpha\, N(x; 0, f^2)$$

    A trained flow is often a little too narrow, and the largest importance weights come from beyond its tail.
    There the wide part dominates, so that weights stay bounded where the flow is too narrow by less than the
    factor. It costs at most the share $\alpha$ of the effective sample size of a perfect flow. It has no
    parameters; `pg.defended` gives it to a flow after training.

    Attributes:
        event_shape: Shape of one point.
        share: $\alpha$, the share of wide draws.
        factor: $f$, how much wider they are, in every direction.
        dtype: Precision of its draws; the default is that of JAX.
    """

    event_shape: tuple[int, ...] = eqx.field(static=True, converter=_event_shape)
    share: float = eqx.field(static=True, default=0.1, converter=functools.partial(share, "share"))
    factor: float = eqx.field(
        static=True,
        default=1.3,
        converter=lambda factor: number(
            "factor", factor, lambda f: 1 < f < math.inf, "larger than 1, so that the share is wider"
        ),
    )
    dtype: Any = eqx.field(static=True, default=None, converter=_checked_dtype)

    @property
    def shape(self):
        return self.event_shape

    def draw(self, *, key):
        # The noise of a `StandardNormal`, so that most draws stay what they were without defence. Neither the
        # noise nor the choice depends on parameters, so the choice has no gradient to give.
        noise = jr.normal(key, self.event_shape, _precision(self.dtype))
        is_wide = jr.bernoulli(jr.fold_in(key, 1), self.share)
        return jnp.where(is_wide, self.factor, 1.0).astype(noise.dtype) * noise, None

    def log_prob(self, x):
        # Of the two densities, the logarithm of the ratio depends on the distance alone.
        widening = x.size * math.log(self.factor)
        log_ratio = 0.5 * (1 - self.factor**-2) * jnp.vdot(x, x) - widening
        mixed = jnp.logaddexp(math.log1p(-self.share), math.log(self.share) + log_ratio)
        return standard_log_prob(x) + mixed


class DiagonalNormal(AbstractBase):
    """Independent normals with trainable mean and scale.

    Attributes:
        mean: Mean of each coordinate.
        log_scale: Logarithm of the standard deviation of each coordinate.
    """

    mean: Leaf = eqx.field(converter=trainable("mean"))
    log_scale: Leaf = eqx.field(converter=trainable("log_scale"))

    def __check_init__(self):
        one = one_draw(self)
        if one.mean.shape != one.log_scale.shape:
            raise ValueError(
                f"`mean` and `log_scale` must have the same shape, got {one.mean.shape} and "
                f"{one.log_scale.shape}."
            )

    @classmethod
    def standard(cls, shape: tuple[int, ...]) -> "DiagonalNormal":
        """Return a normal with mean zero and scale one."""
        shape = shape_of_point("shape", shape)
        return cls(jnp.zeros(shape), jnp.zeros(shape))

    @property
    def shape(self):
        return self.mean.shape

    def draw(self, *, key):
        noise = jr.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.exp(self.log_scale) * noise, None

    def log_prob(self, x):
        z = (x - self.mean) * jnp.exp(-self.log_scale)
        return standard_log_prob(z) - jnp.sum(self.log_scale)


class FullNormal(AbstractBase):
    r"""A normal with trainable mean and full covariance $L L^\top$.

    Attributes:
        mean: The mean, with the shape of a point.
        lower: Entries of $L$ below the diagonal; the rest of this matrix is ignored.
        log_diagonal: Logarithm of the diagonal of $L$.
    """

    mean: Leaf = eqx.field(converter=trainable("mean"))
    lower: Leaf = eqx.field(converter=trainable("lower"))
    log_diagonal: Leaf = eqx.field(converter=trainable("log_diagonal"))

    def __check_init__(self):
        one = one_draw(self)
        size = one.mean.size
        if one.lower.shape != (size, size) or one.log_diagonal.shape != (size,):
            raise ValueError(
                f"A mean of {size} numbers needs `lower` of shape {(size, size)} and `log_diagonal` of shape "
                f"{(size,)}, got {one.lower.shape} and {one.log_diagonal.shape}."
            )

    @classmethod
    def standard(cls, shape: tuple[int, ...]) -> "FullNormal":
        """Return a normal with mean zero and unit covariance."""
        shape = shape_of_point("shape", shape)
        size = math.prod(shape)
        return cls(jnp.zeros(shape), jnp.zeros((size, size)), jnp.zeros(size))

    @classmethod
    def from_covariance(cls, mean: Any, covariance: Any) -> "FullNormal":
        """Return the normal with a given mean and covariance."""
        mean, covariance = floating(mean, "mean"), floating(covariance, "covariance")
        if covariance.shape != (mean.size, mean.size):
            raise ArgumentError(
                f"{named('covariance')} must have shape {(mean.size, mean.size)} for a {named('mean')} of "
                f"{mean.size} numbers, got {covariance.shape}."
            )
        factor = jnp.linalg.cholesky(covariance)
        if not isinstance(factor, Tracer) and not jnp.isfinite(factor).all():
            raise ArgumentError(f"{named('covariance')} must be positive definite, and it is not.")
        return cls(mean, jnp.tril(factor, -1), jnp.log(jnp.diagonal(factor)))

    @property
    def shape(self):
        return self.mean.shape

    @property
    def factor(self) -> Float[Array, "size size"]:
        """The Cholesky factor of the covariance."""
        return jnp.tril(self.lower, -1) + jnp.diag(jnp.exp(self.log_diagonal))

    def draw(self, *, key):
        noise = jr.normal(key, self.log_diagonal.shape, self.mean.dtype)
        return self.mean + (self.factor @ noise).reshape(self.mean.shape), None

    def log_prob(self, x):
        z = solve_triangular(self.factor, (x - self.mean).ravel(), lower=True)
        return standard_log_prob(z) - jnp.sum(self.log_diagonal)


class NormalMixture(AbstractBase):
    """A mixture of diagonal normals with trainable weights, means and scales.

    A draw picks a component, then a point from it. The point is differentiated along its path; the
    pick, which has no path, through its log-probability (`Draw.log_choice`).

    Attributes:
        logits: Logarithms of the weights, up to a common constant.
        means: One mean for each component, component axis first.
        log_scales: Logarithms of the standard deviations.
    """

    logits: Leaf = eqx.field(converter=trainable("logits"))
    means: Leaf = eqx.field(converter=trainable("means"))
    log_scales: Leaf = eqx.field(converter=trainable("log_scales"))

    @classmethod
    def at(cls, means: Any, scale: Any = 1.0) -> "NormalMixture":
        """Return a mixture with equal weights, the given means and one common scale, or one for each axis."""
        means, scale = floating(means, "means"), floating(scale, "scale")
        try:
            scale = jnp.broadcast_to(scale, means.shape)
        except ValueError:
            raise ArgumentError(
                f"{named('scale')} must be one number, or fit {named('means')} of shape {means.shape}, got "
                f"shape {scale.shape}."
            ) from None
        if not isinstance(scale, Tracer):
            _ = [positive("scale", one) for one in np.ravel(scale).tolist()]
        return cls(jnp.zeros(means.shape[0], means.dtype), means, jnp.log(scale).astype(means.dtype))

    def __check_init__(self):
        one = one_draw(self)
        if one.means.shape != one.log_scales.shape or one.logits.shape != one.means.shape[:1]:
            raise ValueError(
                "A mixture needs one logit, one mean and one log-scale for each component; got shapes "
                f"`logits` {one.logits.shape}, `means` {one.means.shape} and `log_scales` "
                f"{one.log_scales.shape}."
            )

    @property
    def shape(self):
        return self.means.shape[1:]

    def draw(self, *, key):
        pick_key, point_key = jr.split(key)
        pick = jr.categorical(pick_key, jax.lax.stop_gradient(self.logits))
        x, _ = DiagonalNormal(self.means[pick], self.log_scales[pick]).draw(key=point_key)
        return x, jax.nn.log_softmax(self.logits)[pick]

    def log_prob(self, x):
        log_probs = jax.vmap(lambda m, s: DiagonalNormal(m, s).log_prob(x))(self.means, self.log_scales)
        return jax.nn.logsumexp(jax.nn.log_softmax(self.logits) + log_probs)
