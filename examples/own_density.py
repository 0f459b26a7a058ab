"""Fit a flow to a density of your own: the posterior of a small Bayesian regression.

Twenty animals got four doses of a drug, five each; 0, 1, 3 and 5 of them died (Racine et al. 1986, a textbook
example). How likely is death at which dose? The posterior of intercept and slope is skewed, so that no normal
fits it. The script trains a flow, asks whether the result can be trusted, and compares the weighted mean with
the sum over a fine grid. It takes about ten seconds. You should see the verdict "good", and a mean slope that
agrees with the grid's within about two of its errors.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import pathgrad as pg

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out", help="folder of the picture")
out = parser.parse_args().out

dose = jnp.array([-0.86, -0.30, -0.05, 0.73])  # logarithm of the dose
died, animals = jnp.array([0, 1, 3, 5]), 5


def log_posterior(x):
    """Return the log density of one point (intercept, slope), up to a constant."""
    logit = x[0] + x[1] * dose
    log_likelihood = jnp.sum(died * logit - animals * jax.nn.softplus(logit))
    return log_likelihood - 0.5 * (x[0] / 2) ** 2 - 0.5 * ((x[1] - 10) / 10) ** 2  # and a wide prior


target = pg.LogDensity(log_posterior, shape=(2,))
init_key, fit_key, test_key = jax.random.split(jax.random.key(0), 3)

# The field works with numbers of about one; the last transform brings them to the scale of the problem.
field = pg.MLPField(dim=2, width=32, depth=1, key=init_key)
scale = pg.Affine(jnp.array([1.0, 10.0]), jnp.log(jnp.array([1.0, 5.0])))
flow = pg.Flow(pg.StandardNormal((2,)), [pg.CNF(field, integrator=pg.FixedStep(6)), scale])
fit = pg.fit(flow, target, key=fit_key, steps=1000, optimizer=optax.adam(1e-2))

draws = pg.weighted_draws(fit.flow, target, key=test_key, n=65536)
print(pg.evaluate(fit.flow, target, key=test_key, draws=draws))  # a table; its last line is the verdict

# Weights turn samples of the flow into averages over the posterior, with an error.
x, weight = draws["x"], np.exp(draws["log_weight"] - draws["log_weight"].max())
weight /= weight.sum()
mean = weight @ x[:, 1]
error = np.sqrt(np.sum((weight * (x[:, 1] - mean)) ** 2))

grid = np.meshgrid(np.linspace(-6, 10, 400), np.linspace(-20, 60, 400))
density = np.exp(jax.vmap(log_posterior)(jnp.stack([g.ravel() for g in grid], axis=1)).reshape(400, 400))
exact = np.sum(density * grid[1]) / np.sum(density)

plt.figure(figsize=(6, 4.5), layout="constrained")
plt.scatter(*x[:1500].T, s=5, color="tab:orange", label="samples of the flow")
plt.contour(*grid, density / density.max(), [0.01, 0.1, 0.3, 0.6, 0.9], colors="tab:blue")
plt.plot([], color="tab:blue", label="posterior, contours")
plt.axhline(exact, color="grey", ls="--", lw=1, label=f"mean slope, {exact:.2f}")
plt.gca().set(xlabel="intercept", ylabel="slope", xlim=(-2, 6), ylim=(-2, 40))
plt.title("A posterior, and the flow that learnt it")
plt.legend(loc="lower right")
out.mkdir(parents=True, exist_ok=True)
plt.savefig(out / "own_density.png", dpi=120)

print(f"mean slope: {mean:.3f} +- {error:.3f} (exact, by the grid, {exact:.3f})")
