import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from pathgrad import metrics

ALGEBRA = 1e-12


def gaussian_log_weight(seed, sigma, shape):
    """Log-weights of a normalised target, if log w is Gaussian: their mean must be -sigma^2/2."""
    return sigma * jr.normal(jr.key(seed), shape) - sigma**2 / 2


def midpoints(n):
    return (np.arange(n) + 0.5) / n


@jax.jit
def all_metrics(lw):
    z, kl = metrics.log_z(lw), metrics.reverse_kl(lw)
    return {
        "ess": metrics.ess(lw),
        "forward_ess": metrics.forward_ess(lw),
        "log_z": z.value,
        "log_z error": z.error,
        "reverse_kl": kl.value,
        "reverse_kl error": kl.error,
        "elbo": metrics.elbo(lw),
        "khat": metrics.khat(lw),
    }


def test_two_unequal_weights_by_hand():
    lw = jnp.log(jnp.array([1.0, 3.0]))
    assert metrics.ess(lw) == pytest.approx(2**2 / 5, abs=ALGEBRA)
    assert metrics.forward_ess(lw) == pytest.approx(1 / (2 * (2 / 3)), abs=ALGEBRA)
    value, error = metrics.log_z(lw)
    # w/Z = 1/2, 3/2: unbiased variance 1/2, halved for the mean of two.
    assert value == pytest.approx(math.log(2), abs=ALGEBRA)
    assert error == pytest.approx(0.5, abs=ALGEBRA)
    value, error = metrics.reverse_kl(lw)
    assert value == pytest.approx(math.log(2) - math.log(3) / 2, abs=ALGEBRA)
    summands = [-0.5 - math.log(0.5), 0.5 - math.log(1.5)]
    assert error == pytest.approx(abs(summands[0] - summands[1]) / 2, abs=ALGEBRA)
    assert metrics.elbo(lw) == pytest.approx(math.log(3) / 2, abs=ALGEBRA)


def test_gaussian_log_weights_have_known_ess_and_kl():
    sigma, n = 0.5, 200_000
    lw = gaussian_log_weight(0, sigma, (n,)) + 3.0
    e = math.exp(sigma**2)
    # Relative variance of (mean w)^2 / mean w^2 from lognormal moments E w^k = e^{k(k-1)/2}.
    ess_error = math.exp(-(sigma**2)) * math.sqrt((4 * (e - 1) + (e**4 - 1) - 4 * (e**2 - 1)) / n)
    result = all_metrics(lw)
    assert abs(result["ess"] - math.exp(-(sigma**2))) < 5 * ess_error
    assert abs(result["reverse_kl"] - sigma**2 / 2) < 5 * result["reverse_kl error"]
    assert result["reverse_kl error"] == pytest.approx(math.sqrt((e - 1 - sigma**2) / n), rel=0.05)
    assert abs(result["log_z"] - 3.0) < 5 * result["log_z error"]
    assert result["log_z error"] == pytest.approx(math.sqrt((e - 1) / n), rel=0.05)
    assert abs(result["elbo"] - (3.0 - sigma**2 / 2)) < 5 * sigma / math.sqrt(n)


def test_forward_ess_is_the_ess_seen_from_the_target():
    # Under p the same Gaussian log-weights have mean +sigma^2/2.
    sigma, n = 0.5, 200_000
    lw = gaussian_log_weight(0, sigma, (n,)) + sigma**2 - 7.0
    # Variance of log mean w + log mean 1/w; their correlation is that of w and 1/w.
    e = math.exp(sigma**2)
    error = math.exp(-(sigma**2)) * math.sqrt((2 * (e - 1) + 2 * (1 / e - 1)) / n)
    assert abs(all_metrics(lw)["forward_ess"] - math.exp(-(sigma**2))) < 5 * error


@pytest.mark.parametrize("name", ["log_z", "reverse_kl"])
def test_standard_errors_match_the_spread_over_repeats(name):
    repeats, sigma = 2000, 0.5
    lw = gaussian_log_weight(2, sigma, (repeats, 256))
    value, error = jax.jit(jax.vmap(getattr(metrics, name)))(lw)
    ratio = jnp.sqrt(jnp.mean(error**2)) / jnp.std(value, ddof=1)
    # A standard deviation over R near-Gaussian values is known to 1/sqrt(2R).
    assert abs(ratio - 1) < 5 / math.sqrt(2 * repeats)
    exact = {"log_z": 0.0, "reverse_kl": sigma**2 / 2}[name]
    bias = -(math.exp(sigma**2) - 1) / (2 * 256)  # of log Z, which is a term of the KL too
    assert abs(jnp.mean(value) - exact - bias) < 5 * jnp.std(value) / math.sqrt(repeats)


def test_reverse_kl_equals_its_textbook_form_and_is_not_negative():
    lw = 1e-6 * jr.normal(jr.key(3), (400,)) + 20.0
    assert all_metrics(lw)["reverse_kl"] >= 0
    assert all_metrics(lw.astype(jnp.float32))["reverse_kl"] >= 0
    wide = all_metrics(gaussian_log_weight(4, 2.0, (400,)))
    textbook = float(wide["log_z"] - wide["elbo"])
    assert wide["reverse_kl"] == pytest.approx(textbook, abs=ALGEBRA)


@pytest.mark.parametrize("shift", [-1e4, 1e4])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_shift_moves_only_log_z_and_elbo(dtype, shift):
    # Multiples of 2^-9 survive a shift by 1e4 exactly, in float32 as well.
    lw = jnp.round(gaussian_log_weight(5, 0.7, (400,)) * 512) / 512
    shifted = (lw + shift).astype(dtype)
    # A float32 near 1e4 has steps of 1e-3, and the mean adds 400 of them.
    at_height, relative = (5e-3, 2e-5) if dtype == jnp.float32 else (1e-8, 1e-10)
    expected = all_metrics(lw)
    for name, result in all_metrics(shifted).items():
        assert result.dtype == dtype, name
        if name in ("log_z", "elbo"):
            assert result == pytest.approx(float(expected[name]) + shift, abs=at_height), name
        else:
            assert result == pytest.approx(float(expected[name]), rel=relative), name


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_one_dominating_weight(dtype):
    n = 400
    lw = jnp.full((n,), -1e4, dtype).at[17].set(1e4)
    result = all_metrics(lw)
    assert result["ess"] == pytest.approx(1 / n, rel=1e-6)
    assert result["log_z"] == pytest.approx(1e4 - math.log(n), rel=1e-6)
    assert result["log_z error"] == pytest.approx(1.0, rel=1e-6)  # w/Z is n once, else 0
    assert result["reverse_kl"] == pytest.approx(2e4 * (1 - 1 / n) - math.log(n), rel=1e-6)
    assert result["forward_ess"] == 0.0
    assert result["khat"] == jnp.inf


def test_zero_weights_count_as_draws():
    lw = jnp.log(jnp.array([0.0, 0.0, 2.0, 2.0]))
    assert metrics.ess(lw) == pytest.approx(0.5, abs=ALGEBRA)
    value, error = metrics.log_z(lw)
    assert value == pytest.approx(0.0, abs=ALGEBRA)
    assert error == pytest.approx(math.sqrt(1 / 3), abs=ALGEBRA)
    assert metrics.reverse_kl(lw).value == jnp.inf
    assert metrics.log_z(jnp.full(4, -jnp.inf)).value == -jnp.inf
    assert jnp.isnan(metrics.ess(jnp.full(4, -jnp.inf)))
    # q vanishes at a draw of p: the worst mode dropping there is.
    assert metrics.forward_ess(jnp.array([0.0, 1.0, jnp.inf])) == 0.0


def test_nan_gives_nan():
    lw = gaussian_log_weight(6, 1.0, (400,))
    assert not any(jnp.isnan(value) for value in all_metrics(lw).values())
    spoilt = all_metrics(lw.at[3].set(jnp.nan))
    assert all(jnp.isnan(value) for value in spoilt.values()), spoilt


def test_importance_log_likelihood_averages_over_draws_only():
    weight = np.array([[[1.0, 2.0, 0.0]], [[3.0, 2.0, 5.0]]])
    result = metrics.importance_log_likelihood(jnp.log(weight) - 2e3)
    np.testing.assert_allclose(result, np.log([[2.0, 2.0, 2.5]]) - 2e3, rtol=ALGEBRA)


GRID = midpoints(1000)
# Shapes reported by ArviZ 0.23.4 (`psislw`) for the same closed-form inputs.
ARVIZ = {
    "pareto 0.3": (-0.3 * np.log1p(-GRID), 0.3235606438260692),
    "pareto 1.5": (-1.5 * np.log1p(-GRID), 1.3650358987029836),
    "uniform": (np.log(GRID), -0.8192112494404742),
    "exponential": (np.log(-np.log1p(-GRID)), 0.06303007987265678),
    "bounded": (3 * np.sin(1.0 + np.arange(1000.0) ** 1.3), -1.4739686102996385),
    "ties": (np.floor(-10 * np.log1p(-GRID)) / 10, 0.8738562295315307),
    "zero weights": (np.where(np.arange(1000) % 3 == 0, -np.inf, -0.6 * np.log1p(-GRID)), 0.5430267805520489),
    "high": (1e4 + 0.5 * np.log(GRID / (1 - GRID)), 0.483707485893828),
    "smallest": (2 * np.log(midpoints(21) / (1 - midpoints(21))), 0.9168228417065595),
    "long": (-0.7 * np.log1p(-midpoints(10_000)), 0.689982034898981),
}


@pytest.mark.parametrize("name", ARVIZ)
def test_khat_agrees_with_arviz(name):
    log_weight, expected = ARVIZ[name]
    shuffled = np.random.default_rng(0).permutation(log_weight)
    assert metrics.khat(jnp.asarray(shuffled)) == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("shape", [-0.5, 0.2, 0.7, 1.2])
def test_khat_recovers_the_shape_of_exact_quantiles(shape):
    # The tail of a generalised Pareto distribution is one again, with the same shape.
    n = 10_000
    log_weight = np.log1p((1 - midpoints(n)) ** -shape / shape - 1 / shape)
    tail = 300
    expected = (tail * shape + 10 * 0.5) / (tail + 10)
    # Equidistant quantiles lack the extremes of random draws, a pull of order 1/tail.
    assert metrics.khat(jnp.asarray(log_weight)) == pytest.approx(expected, abs=0.02)


def test_khat_without_a_tail_to_fit():
    assert all_metrics(jnp.zeros(400))["khat"] == -jnp.inf
    assert all_metrics(jnp.full(400, 123.4))["khat"] == -jnp.inf
    # Equal but for the last bit: no tail either, where a plain fit would see one lone outlier.
    nearly = jnp.full(400, 1e3, jnp.float32).at[4].set(np.nextafter(np.float32(1e3), 2e3))
    assert all_metrics(nearly)["khat"] == -jnp.inf
    assert metrics.khat(jnp.arange(20.0)) == jnp.inf
    assert jnp.isnan(metrics.khat(jnp.full(20, jnp.nan)))


def test_gradient_norm_by_hand():
    gradient = {"a": jnp.array([[3.0, 0.0], [0.0, -4.0]]), "b": None, "c": (jnp.array(12.0), "word")}
    assert metrics.gradient_norm(gradient) == pytest.approx(13.0, abs=ALGEBRA)
    assert metrics.gradient_norm({"b": None}) == 0.0
    assert jnp.isnan(metrics.gradient_norm([jnp.array([jnp.nan, 1.0])]))


def test_gradient_snr_by_hand():
    # Mean (1, 2), deviations (-1, 1) and (-2, 2): trace 2 + 8.
    gradients = {"a": jnp.array([0.0, 2.0]), "b": jnp.array([[0.0], [4.0]]), "c": None}
    assert metrics.gradient_snr(gradients) == pytest.approx(math.sqrt(5 / 10), abs=ALGEBRA)
    assert metrics.gradient_snr(jnp.ones((4, 3))) == jnp.inf
    assert jnp.isnan(metrics.gradient_snr(jnp.zeros((4, 3))))


def test_gradient_snr_of_gaussian_vectors():
    repeats, mean, scale = 50_000, jnp.array([1.0, -2.0, 0.5]), jnp.array([2.0, 1.0, 0.5])
    gradients = mean + scale * jr.normal(jr.key(7), (repeats, 3))
    noise = jnp.sum(scale**2)
    exact = jnp.linalg.norm(mean) / jnp.sqrt(noise)
    # Delta method: the mean and the variance of Gaussian draws are independent.
    signal_variance = jnp.sum((mean * scale) ** 2) / jnp.sum(mean**2) ** 2
    noise_variance = jnp.sum(2 * scale**4) / (4 * noise**2)
    error = exact * jnp.sqrt((signal_variance + noise_variance) / repeats)
    assert abs(metrics.gradient_snr(gradients) - exact) < 5 * error


@pytest.mark.parametrize("gradients", [None, jnp.array(1.0), [jnp.ones(2), jnp.ones(3)]])
def test_gradient_snr_needs_one_axis_of_repeats(gradients):
    with pytest.raises(ValueError, match="common first axis of repeats"):
        metrics.gradient_snr(gradients)
