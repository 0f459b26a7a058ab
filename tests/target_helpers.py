"""Log densities of the benchmark's targets written a second time, with NumPy and SciPy and in another way.

Those of posteriors are densities of the named parameters, so that the Jacobian is not part of them.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats
from scipy.integrate import solve_ivp

HERE = Path(os.environ.get("PATHGRAD_DATA", "missing"))

needs_data = pytest.mark.skipif(
    not (HERE / "targets").is_dir() or not (HERE / "posteriors").is_dir(),
    reason="needs the data of targets (`pathgrad data download targets`), and PATHGRAD_DATA",
)


def data_of(name):
    return json.loads((HERE / "posteriors" / name / "data.json").read_text())


def seeds(x):
    a0, a1, a12, a2, b, tau = x[0], x[1], x[2], x[3], x[4:25], np.exp(x[25])
    hits = np.array([10, 23, 23, 26, 17, 5, 53, 55, 32, 46, 10, 8, 10, 8, 23, 0, 3, 22, 15, 32, 3])
    tried = np.array([39, 62, 81, 51, 39, 6, 74, 72, 51, 79, 13, 16, 30, 28, 45, 4, 12, 41, 30, 51, 7])
    kind = (np.arange(1, 22) >= 12) * 1.0
    extract = np.array([6 <= j <= 11 or 17 <= j <= 21 for j in range(1, 22)]) * 1.0
    share = special.expit(a0 + a1 * kind + a2 * extract + a12 * kind * extract + b)
    return (
        stats.binom.logpmf(hits, tried, share).sum()
        + stats.norm.logpdf([a0, a1, a2, a12], 0, 10).sum()
        + stats.norm.logpdf(b, 0, tau**-0.5).sum()
        + stats.gamma.logpdf(tau, 0.01, scale=1 / 0.01)
        + np.log(tau)
    )


def credit(x, prior):
    table = np.loadtxt(HERE / "targets" / "german.data-numeric")
    features = np.c_[np.ones(1000), table[:, :24] / table[:, :24].std(axis=0)]
    value = stats.bernoulli.logpmf(table[:, 24] == 1, special.expit(features @ x)).sum()
    return value + (stats.norm.logpdf(x, 0, 10).sum() if prior else 0.0)


def labelled(x, name):
    with np.load(HERE / "targets" / f"{name}.npz") as arrays:
        features, labels = arrays["x"], arrays["y"]
    spread = features.std(axis=0)
    spread[spread == 0] = 1
    logits = x[0] + (features - features.mean(axis=0)) / spread @ x[1:]
    return special.log_expit(labels * logits).sum() + stats.norm.logpdf(x).sum()


def cox(x, points, cells):
    counts = np.histogram2d(*points.T, bins=cells, range=[[0, 1], [0, 1]])[0].ravel()
    place = np.array([(i, j) for i in range(cells) for j in range(cells)]) / cells
    distance = np.hypot(*(place[:, None, k] - place[:, k] for k in (0, 1)))
    covariance = 1.91 * np.exp(-33 * distance)
    mean = np.full(cells**2, np.log(126) - 1.91 / 2)
    # Poisson counts, but without the factorials, and with intensities per unit area in the power.
    poisson = stats.poisson.logpmf(counts, np.exp(x) / cells**2) + special.gammaln(counts + 1)
    value = (poisson + counts * np.log(cells**2)).sum()
    return value + stats.multivariate_normal.logpdf(x, mean, covariance)


def eight_schools_noncentered(columns):
    data = data_of("eight_schools_noncentered")
    theta, mu, tau = columns[:8], columns[8], columns[9]
    value = stats.norm.logpdf(data["y"], theta, data["sigma"]).sum() + stats.norm.logpdf(theta, mu, tau).sum()
    return value + stats.norm.logpdf(mu, 0, 5) + stats.cauchy.logpdf(tau, 0, 5)


def arK(columns):
    y, (alpha, *beta, sigma) = np.array(data_of("arK")["y"]), columns
    value = sum(
        stats.norm.logpdf(y[t], alpha + sum(beta[k] * y[t - 1 - k] for k in range(5)), sigma)
        for t in range(5, 200)
    )
    return value + stats.norm.logpdf(columns[:6], 0, 10).sum() + stats.cauchy.logpdf(sigma, 0, 2.5)


def garch11(columns):
    data = data_of("garch11")
    mu, alpha0, alpha1, beta1 = columns
    sd, value, before = data["sigma1"], 0.0, None
    for y in data["y"]:
        if before is not None:
            sd = np.sqrt(alpha0 + alpha1 * (before - mu) ** 2 + beta1 * sd**2)
        value += stats.norm.logpdf(y, mu, sd)
        before = y
    return value


def one_comp_mm_elim_abs(columns):
    data = data_of("one_comp_mm_elim_abs")
    rate, half, speed, sigma = columns

    def slope(t, c):
        return data["D"] * rate * np.exp(-rate * t) / data["V"] - speed / data["V"] * c / (half + c)

    times = np.array(data["times"], float)
    solved = solve_ivp(slope, (0, times[-1]), [0.0], "LSODA", times, rtol=1e-10, atol=1e-12)
    value = stats.lognorm.logpdf(data["C_hat"], sigma, scale=solved.y[0]).sum()
    return value + stats.cauchy.logpdf(columns).sum()


def low_dim_gauss_mix(columns):
    y, (mu1, mu2, sigma1, sigma2, theta) = np.array(data_of("low_dim_gauss_mix")["y"]), columns
    mixed = theta * stats.norm.pdf(y, mu1, sigma1) + (1 - theta) * stats.norm.pdf(y, mu2, sigma2)
    prior = stats.norm.logpdf(columns[:4], 0, 2).sum() + stats.beta.logpdf(theta, 5, 5)
    return np.log(mixed).sum() + prior


def hmm_example(columns):
    y, mu = np.array(data_of("hmm_example")["y"]), columns[4:]
    transition = columns[:4].reshape(2, 2)
    alive, value = np.ones(2), 0.0
    for t in range(len(y)):
        alive = (alive if t == 0 else alive @ transition) * stats.norm.pdf(y[t], mu, 1)
        value += np.log(alive.sum())
        alive = alive / alive.sum()
    return value + stats.norm.logpdf(mu, [3, 10], 1).sum()


def logearn_design():
    data = data_of("logearn_interaction")
    rows = [[1, h, m, h * m] for h, m in zip(data["height"], data["male"], strict=True)]
    return np.array(rows, float), np.log(data["earn"])


def nes_design():
    data = data_of("nes2000")
    names = ("real_ideo", "race_adj", "age_discrete", "educ1", "gender", "income")
    rows = [
        [1, ideology, race, age == 2, age == 3, age == 4, *rest]
        for ideology, race, age, *rest in zip(*(data[n] for n in names), strict=True)
    ]
    return np.array(rows, float), np.array(data["partyid7"], float)


DESIGNS = {"logearn_interaction": logearn_design, "nes2000": nes_design}


def regression(name):
    def log_density(columns):
        x, y = DESIGNS[name]()
        return stats.norm.logpdf(y, x @ columns[:-1], columns[-1]).sum()

    return log_density


POSTERIORS = {
    f.__name__: f
    for f in (
        eight_schools_noncentered, arK, garch11, one_comp_mm_elim_abs, low_dim_gauss_mix, hmm_example,
    )
} | {name: regression(name) for name in DESIGNS}  # fmt: skip
