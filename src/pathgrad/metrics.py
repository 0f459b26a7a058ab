r"""Measures of how good an approximation is, from log-weights alone.

Throughout, `log_weight` is $\log w = \log p(x) - \log q(x)$, where $q$ is the normalised
approximation and $p$ the target, normalised or not: its constant is $Z = \int p$. Draws come from
$q$ unless a function's description says otherwise.

A weight of zero (`-inf`) is valid. A NaN makes the result NaN: draws are never dropped.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PyTree

_MIN_TAIL = 5  # fewest draws to which a generalised Pareto distribution is fitted


class LogZ(NamedTuple):
    r"""Estimate of the log normaliser $\log Z$, and its standard error."""

    value: Float[Array, ""]
    error: Float[Array, ""]


class ReverseKL(NamedTuple):
    r"""Estimate of $\mathrm{KL}(q\,\|\,p/Z)$ in nats, which is never negative, and its standard error."""

    value: Float[Array, ""]
    error: Float[Array, ""]


class Smoothed(NamedTuple):
    r"""Log-weights whose largest were smoothed, and the Pareto shape $\hat k$ of the tail they came from."""

    log_weight: Float[Array, " batch"]
    khat: Float[Array, ""]


class _Tail(NamedTuple):
    """A Pareto distribution fitted to the largest weights.

    Of the weights in descending order the first `size` are the tail. Their excess over the weight at the
    cut, in units of that weight, has this shape and scale. A shape that is not finite says that there is no
    fit.
    """

    shape: Float[Array, ""]
    scale: Float[Array, ""]
    cut: Float[Array, ""]
    size: Array


def _checked(log_weight: Any) -> Float[Array, "draws *batch"]:
    """Return log-weights as an array, which has at least one of them."""
    try:
        array = jnp.asarray(log_weight)
    except (TypeError, ValueError):
        given = "None" if log_weight is None else f"one of type {type(log_weight).__name__}"
        raise ValueError(f"`log_weight` must be an array of numbers, got {given}.") from None
    if not array.ndim or not array.shape[0]:
        raise ValueError(
            f"`log_weight` must have an entry for each draw, and at least one, got shape {array.shape}."
        )
    if jnp.issubdtype(array.dtype, jnp.integer):
        array = array.astype(jnp.result_type(float))
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise ValueError(f"`log_weight` must be floating-point numbers, got {array.dtype}.")
    return array


def _centre(log_weight: Float[Array, " batch"]) -> Float[Array, ""]:
    largest = jnp.max(log_weight)
    return jnp.where(jnp.isfinite(largest), largest, 0.0)


def _log_mean_exp(log_value: Float[Array, "draws *batch"]) -> Float[Array, "*batch"]:
    return logsumexp(log_value, axis=0) - math.log(log_value.shape[0])


def _log_relative_weight(log_weight: Float[Array, " batch"]) -> Float[Array, " batch"]:
    # log(w / mean(w)). The largest weight is divided out first: in float32 a log-weight of 1e4 is only
    # accurate to 1e-3, and a sum of such large numbers would lose the small differences.
    shifted = log_weight - _centre(log_weight)
    return shifted - _log_mean_exp(shifted)


def ess(log_weight: Float[Array, " batch"]) -> Float[Array, ""]:
    r"""Estimate the effective sample size per draw.

    $$\mathrm{ESS} = \frac{(\frac1N \sum_i w_i)^2}{\frac1N \sum_i w_i^2} \in [1/N, 1]$$

    One means $q = p/Z$; times $N$ it is a number of draws. It is blind to regions where $q$ never draws, and
    optimistic unless $N \gg 1/\mathrm{ESS}$: report it with the number of draws. NaN if all weights are zero.
    """
    log_weight = _checked(log_weight)
    # With r = w / mean(w) the mean of r is one, so mean(r^2) = 1 + mean((r - 1)^2): this form
    # cannot exceed one by rounding and keeps its digits when the weights are nearly equal.
    excess = jnp.expm1(_log_relative_weight(log_weight))
    return 1 / (1 + jnp.mean(excess**2))


def forward_ess(log_weight: Float[Array, " batch"]) -> Float[Array, ""]:
    r"""Estimate the effective sample size per draw of $q$ from draws of the target.

    $$\mathrm{ESS} = \frac{Z}{\mathbb E_p[w]} = \frac{1}{\mathbb E_p[w]\;\mathbb E_p[1/w]}$$

    The same fraction as `ess`, but estimated from draws of $p$ (from MCMC for instance): it detects regions
    of the target that $q$ has missed, and is zero if $q$ vanishes at a draw (`+inf`).
    """
    log_weight = _checked(log_weight)
    shifted = log_weight - _centre(log_weight)
    log_product = _log_mean_exp(shifted) + _log_mean_exp(-shifted)
    # Cauchy-Schwarz makes the product at least one; only rounding can put it below.
    return jnp.exp(-jnp.maximum(log_product, 0.0))


def log_z(log_weight: Float[Array, " batch"]) -> LogZ:
    r"""Estimate the log normaliser of the target.

    $$\log\hat Z = \log \frac1N \sum_i w_i, \qquad
      \mathrm{error}^2 = \frac{1}{N(N-1)} \sum_i \left(\frac{w_i}{\hat Z} - 1\right)^2$$

    The error is the delta method's, $\mathrm{sd}(w) / (\hat Z\sqrt N)$, and needs at least two draws. The
    estimate is low on average by about half the squared error.
    """
    log_weight = _checked(log_weight)
    n = log_weight.shape[0]
    excess = jnp.expm1(_log_relative_weight(log_weight))
    error = jnp.sqrt(jnp.mean(excess**2) / jnp.asarray(n - 1, excess.dtype))
    return LogZ(_log_mean_exp(log_weight), error)


def reverse_kl(log_weight: Float[Array, " batch"]) -> ReverseKL:
    r"""Estimate the reverse KL divergence between the approximation and the target.

    $$\mathrm{KL}(q\,\|\,p/Z) = \mathbb E_q[-\log w] + \log Z
      \approx \frac1N \sum_i \left(r_i - 1 - \log r_i\right), \qquad r_i = w_i / \hat Z$$

    Both terms use the same draws, so their errors largely cancel: with normally distributed log-weights of
    variance $\sigma^2$ the error is about $\sigma^2 / \sqrt{2N}$, not $\sigma / \sqrt N$. It needs at
    least two draws. A zero weight makes the value infinite.
    """
    log_weight = _checked(log_weight)
    # T = mean(-log w) + log mean(w). Moving the mass of draw i by h changes T by
    # h (-log w_i + w_i / Z - constant): the sum in the docstring is T itself, because mean(r) = 1,
    # and its summand is also the influence of a draw. So the spread of the summands is the
    # error, correlation included. As log r <= r - 1, only rounding can make a summand negative.
    log_ratio = _log_relative_weight(log_weight)
    summand = jnp.maximum(jnp.expm1(log_ratio) - log_ratio, 0.0)
    error = jnp.std(summand, ddof=1) / math.sqrt(log_weight.shape[0])
    return ReverseKL(jnp.mean(summand), error)


def elbo(log_weight: Float[Array, " batch"]) -> Float[Array, ""]:
    r"""Estimate the evidence lower bound, in nats: $\mathbb E_q[\log w] \le \log Z$.

    Rises as the approximation improves.
    """
    log_weight = _checked(log_weight)
    return jnp.mean(log_weight)


def importance_log_likelihood(log_weight: Float[Array, "draws *batch"]) -> Float[Array, "*batch"]:
    r"""Estimate the log evidence of every datum by importance sampling.

    $$\log p(y) \approx \log \frac1K \sum_{k=1}^K \frac{p(y, x_k)}{q(x_k \mid y)}$$

    In nats; a lower bound on average, which rises with the number of draws $K$. Here `log_weight` is
    $\log p(y, x) - \log q(x \mid y)$, with the draws along its first axis and the data along the others.
    """
    log_weight = _checked(log_weight)
    return _log_mean_exp(log_weight)


def khat(log_weight: Float[Array, " batch"], rounding: float = 0.0) -> Float[Array, ""]:
    r"""Estimate the Pareto shape $\hat k$ of the largest weights.

    A generalised Pareto distribution is fitted to the amounts by which the
    $M = \lceil\min(N/5, 3\sqrt N)\rceil$ largest weights exceed the next one (Vehtari et al. 2024, Pareto
    smoothed importance sampling). Moments of the weights exist up to order $1/k$. `pathgrad.khat_limit`
    returns the value below which averages are reliable.

    It is `+inf` if fewer than five draws are left for the fit: because $N \le 20$, or because a few draws
    carry all the weight. It is `-inf` if the largest weights are equal up to rounding: there is no tail.

    `rounding` is the accuracy of a log-weight, if that is worse than the precision of the numbers: where log
    densities are large, and have been subtracted from each other.
    """
    log_weight = _checked(log_weight)
    tail_size = _tail_size(log_weight)
    if tail_size is None:
        shape = jnp.asarray(jnp.inf, log_weight.dtype)
    else:
        largest = jax.lax.top_k(log_weight, tail_size + 1)[0]
        shape = _fit_tail(largest, jnp.asarray(rounding, log_weight.dtype)).shape
    return jnp.where(jnp.any(jnp.isnan(log_weight)), jnp.nan, shape)


def psis(log_weight: Float[Array, " batch"]) -> Smoothed:
    r"""Smooth the largest weights (Vehtari et al. 2024, Pareto smoothed importance sampling).

    The $M$ weights in the tail that `khat` looks at are replaced, in their order, by the expected order
    statistics of the fitted distribution, but by none larger than the largest weight. Averages get a small
    bias for much less variance where $\hat k$ is large. Where there is no tail to fit, and $\hat k$ is not
    finite, weights are returned as they are.

    The weights keep their common scale, so that every function here can be applied to the result. The log
    normaliser of smoothed weights is an estimate too, and often a better one.
    """
    log_weight = _checked(log_weight)
    tail_size = _tail_size(log_weight)
    if tail_size is None:
        return Smoothed(log_weight, khat(log_weight))
    largest, where = jax.lax.top_k(log_weight, tail_size + 1)
    tail = _fit_tail(largest, jnp.zeros((), log_weight.dtype))
    shape = jnp.where(jnp.any(jnp.isnan(log_weight)), jnp.nan, tail.shape)
    smoothed = jnp.where(jnp.isfinite(shape), _expected(tail, largest[:-1]), largest[:-1])
    return Smoothed(log_weight.at[where[:-1]].set(smoothed), shape)


def _tail_size(log_weight: Float[Array, " batch"]) -> int | None:
    """Return how many weights form the tail; `None` if there are too few to fit anything."""
    n = log_weight.shape[0]
    size = math.ceil(min(n / 5, 3 * math.sqrt(n)))
    return None if size < _MIN_TAIL else size


def _expected(tail: _Tail, largest: Float[Array, " rank"]) -> Float[Array, " rank"]:
    """Return the log-weights that a fitted tail would have, in descending order; those below stay."""
    rank = jnp.arange(largest.shape[0])
    log_above = jnp.log((rank + 0.5) / tail.size)  # of the fraction of the tail that is larger
    # The quantile (above^-k - 1) / k, whose limit for a shape of zero is that of the exponential.
    curved = jnp.where(tail.shape == 0, 1.0, tail.shape)
    quantile = jnp.where(tail.shape == 0, -log_above, jnp.expm1(-curved * log_above) / curved)
    log_weight = tail.cut + jnp.log1p(tail.scale * quantile)
    return jnp.where(rank < tail.size, jnp.minimum(log_weight, largest[0]), largest)


@jax.jit  # two dozen small operations: compiled one by one they take seconds
def _fit_tail(largest: Float[Array, " rank"], rounding: Float[Array, ""]) -> _Tail:
    # `largest` is in descending order, and its last entry is the cut. Weights below the square root of the
    # smallest normal number, in units of the largest, count as zero: their inverse must not overflow.
    floats = jnp.finfo(largest.dtype)
    top = largest[0]
    cut = jnp.maximum(largest[-1], top + 0.5 * math.log(floats.tiny))
    count = jnp.sum(largest > cut)  # ties with the cut are not part of the tail
    # The shape does not depend on the scale, so excesses are in units of the weight at the cut.
    excess = jnp.expm1(jnp.maximum(largest[:-1] - cut, 0.0))
    fitted, scale = _pareto_fit(excess, count)
    fitted = jnp.where(count < _MIN_TAIL, jnp.inf, fitted)
    # At least that of numbers about one: a constant may have been subtracted from log-weights.
    accuracy = jnp.maximum(jnp.maximum(jnp.abs(top), jnp.abs(cut)), 1.0) * floats.eps
    is_equal = top - cut <= 8 * jnp.maximum(accuracy, rounding)
    return _Tail(jnp.where(is_equal, -jnp.inf, fitted), scale, cut, count)


def _pareto_fit(excess: Float[Array, " rank"], count: Array) -> tuple[Float[Array, ""], Float[Array, ""]]:
    r"""Fit a generalised Pareto distribution, shape and scale, to the first `count` entries, which descend.

    Zhang and Stephens (2009): with $\theta = -k/\sigma$ the likelihood has one free parameter,
    because $k(\theta) = \mathrm{mean} \log(1 - \theta y)$; $\theta$ is averaged over a grid,
    weighted by the profile likelihood.
    """
    size = excess.shape[0]
    kept = jnp.arange(size) < count
    n = count.astype(excess.dtype)
    quartile = excess[count - jnp.floor(n / 4 + 0.5).astype(int)]
    num_nodes = 30 + jnp.floor(jnp.sqrt(n))
    node = jnp.arange(30 + math.isqrt(size)) + 0.5
    theta = 1 / excess[0] + (1 - jnp.sqrt(num_nodes / node)) / (3 * quartile)

    def shape_at(theta: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.sum(jnp.where(kept, jnp.log1p(-theta * excess), 0.0)) / n

    shape = jax.vmap(shape_at)(theta)

    def scale_of(theta: Array, shape: Array) -> Array:
        # At theta = 0 the distribution is exponential and -k/theta becomes the mean.
        mean = jnp.sum(jnp.where(kept, excess, 0.0)) / n
        return jnp.where(theta == 0, mean, -shape / jnp.where(theta == 0, 1.0, theta))

    log_likelihood = -n * (jnp.log(scale_of(theta, shape)) + shape + 1)
    weight = jax.nn.softmax(jnp.where(node < num_nodes, log_likelihood, -jnp.inf))
    mean_theta = jnp.vdot(weight, theta)
    fitted = shape_at(mean_theta)
    # Vehtari et al. (2024): a prior worth ten draws pulls the shape, but not the scale, towards 1/2.
    return (n * fitted + 5) / (n + 10), scale_of(mean_theta, fitted)


def gradient_norm(gradient: PyTree) -> Float[Array, ""]:
    r"""Compute the Euclidean norm over all entries of all leaves of a gradient; zero if there are none.

    Leaves that are not floating-point arrays, `None` among them, are ignored.
    """
    leaves = jax.tree.leaves(eqx.filter(gradient, eqx.is_inexact_array))
    return jnp.sqrt(sum((jnp.sum(jnp.square(leaf)) for leaf in leaves), start=0.0))


def gradient_snr(gradients: PyTree) -> Float[Array, ""]:
    r"""Estimate the signal-to-noise ratio of a stochastic gradient.

    $$\mathrm{SNR} = \frac{|\bar g|}{\sqrt{\mathrm{tr}\,\widehat{\mathrm{Cov}}\, g}}, \qquad
      \mathrm{tr}\,\widehat{\mathrm{Cov}}\, g = \frac{1}{R-1} \sum_{r=1}^R |g_r - \bar g|^2$$

    `gradients` is a tree whose floating-point leaves stack $R \ge 2$ independent gradients along their first
    axis; other leaves are ignored. Pure noise gives about $1/\sqrt R$, not zero, because $\bar g$ is noisy
    too. The ratio is `inf` if all gradients are equal, NaN if they are all zero or $R = 1$.
    """
    leaves = jax.tree.leaves(eqx.filter(gradients, eqx.is_inexact_array))
    repeats = {leaf.shape[:1] for leaf in leaves}
    if len(repeats) != 1 or repeats == {()}:
        raise ValueError(
            f"`gradients` needs leaves with one common first axis of repeats; got sizes {repeats}. "
            "Stack the gradients with `jax.vmap` over keys, for instance."
        )
    noise = sum(jnp.sum(jnp.var(leaf, axis=0, ddof=1)) for leaf in leaves)
    return gradient_norm([jnp.mean(leaf, axis=0) for leaf in leaves]) / jnp.sqrt(noise)
