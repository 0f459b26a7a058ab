"""Amortised inference: one network that knows the posterior of every possible outcome of an experiment.

The experiment is that of own_density.py: four doses of a drug, five animals each. Its outcome is four counts
of deaths, so there are 6^4 = 1296 of them. An encoder turns counts into a flow, and is trained with path
gradients on outcomes simulated from the prior. Afterwards a posterior costs no training at all. It takes
about a minute. You should see posterior means off by about a twentieth of a standard deviation from the exact
ones, which are sums over a grid, and intervals made to hold 90 % of the posterior that hold about 90 %: the
number at the end.
"""

import argparse
import itertools
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
import optax

import pathgrad as pg

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out", help="folder of the picture")
out = parser.parse_args().out

DOSE, ANIMALS = np.array([-0.86, -0.30, -0.05, 0.73], np.float32), 5
STEPS, BATCH, SAMPLES = 4000, 256, 1000


def logits(z):
    """Return the log-odds of death at each dose from intercept and slope, scaled to a standard prior."""
    return 2 * z[..., :1] + (10 + 10 * z[..., 1:]) * DOSE


class Posterior(eqx.Module):
    """What `pg.NegativeELBO` trains: from counts to a flow; likelihood and prior are fixed."""

    encoder: eqx.nn.MLP
    field: pg.MLPField

    def __init__(self, *, key):
        encoder_key, field_key = jr.split(key)
        self.field = pg.MLPField(dim=2, width=32, depth=1, key=field_key)
        # Of the base: mean, diagonal and one number below it; and a bias of the field's 32 hidden units.
        self.encoder = eqx.nn.MLP(4, 2 + 2 + 1 + 32, width_size=64, depth=2, key=encoder_key)

    def posterior(self, counts):
        """Return a flow whose i-th draw is for the i-th row of counts."""
        numbers = jax.vmap(self.encoder)(counts / ANIMALS - 0.5)
        mean, log_diagonal, below, bias = jnp.split(numbers, [2, 4, 5], axis=1)
        lower = jnp.zeros((len(counts), 2, 2)).at[:, 1, 0].set(below[:, 0])
        # An ordinary base and field, in which some leaves are replaced: these have a value for each draw.
        own = pg.PerDraw(mean), pg.PerDraw(lower), pg.PerDraw(log_diagonal)
        base = eqx.tree_at(lambda b: (b.mean, b.lower, b.log_diagonal), pg.FullNormal.standard((2,)), own)
        field = eqx.tree_at(lambda f: f.layers[0].bias, self.field, pg.PerDraw(bias))
        return pg.Flow(base, [pg.CNF(field, integrator=pg.FixedStep(6))])

    def log_likelihood(self, z, counts):
        """Return the log-probability of each row of counts, but for the binomial coefficients."""
        odds = logits(z)
        return jnp.sum(counts * odds - ANIMALS * jax.nn.softplus(odds), axis=1)

    def log_prior(self, z):
        """Return the log density of one point before any animal is seen."""
        return pg.StandardNormal((2,)).log_prob(z)


# Simulated outcomes to train on: parameters from the prior, then counts.
rng = np.random.default_rng(0)
chance = np.asarray(jax.nn.sigmoid(logits(rng.normal(size=(20000, 2)).astype(np.float32))))
simulated = rng.binomial(ANIMALS, chance).astype(np.float32)

objective = pg.NegativeELBO(pg.Data(simulated), pg.PathGradient())
method = pg.FirstOrder(optax.adam(optax.cosine_decay_schedule(3e-3, STEPS)), n=BATCH)
model = pg.fit(Posterior(key=jr.key(0)), objective, method, key=jr.key(1), steps=STEPS).model

# The exact posterior of the slope for all outcomes, by sums over a grid, and how likely each outcome is.
outcomes = np.array(list(itertools.product(range(ANIMALS + 1), repeat=4)), np.float32)
line, gap = np.linspace(-5, 5, 121, dtype=np.float32, retstep=True)
grid = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
odds = np.asarray(logits(grid))
log_joint = outcomes @ odds.T - ANIMALS * np.logaddexp(0, odds).sum(1) - 0.5 * np.sum(grid**2, axis=1)
joint = np.exp(log_joint).reshape(-1, 121, 121).sum(axis=1, dtype=float)
exact = joint / joint.sum(axis=1, keepdims=True)  # an outcome in each row
weight = joint.sum(axis=1) * np.array([1, 5, 10, 10, 5, 1])[outcomes.astype(int)].prod(axis=1)
weight /= weight.sum()  # the array holds the binomial coefficients
exact_mean = exact @ line
exact_sd = np.sqrt(exact @ line**2 - exact_mean**2)

# The same from samples of the flows. Flows of many outcomes are one flow, with a row for each sample.
flow = model.posterior(np.repeat(outcomes, SAMPLES, axis=0))
z = np.asarray(flow.sample(key=jr.key(2), n=len(outcomes) * SAMPLES))
slope = z.reshape(len(outcomes), SAMPLES, 2)[..., 1]
off = np.sqrt(weight @ ((slope.mean(axis=1) - exact_mean) / exact_sd) ** 2)
ratio = weight @ (slope.std(axis=1) / exact_sd)
print(f"posterior means: off by {off:.3f} of the standard deviation; that is {ratio:.3f} times the exact one")

# How much of the exact posterior lies between the 5 % and the 95 % quantile of the flow's samples?
edges = np.append(line, line[-1] + gap) - gap / 2
below = np.concatenate([np.zeros((len(outcomes), 1)), np.cumsum(exact, axis=1)], axis=1)
low, high = np.quantile(slope, [0.05, 0.95], axis=1)
held = [np.interp(b, edges, c) - np.interp(a, edges, c) for a, b, c in zip(low, high, below, strict=True)]
coverage = weight @ held
spread = np.sqrt(weight @ (held - coverage) ** 2)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
size = 2 + 500 * weight
left.scatter(10 + 10 * exact_mean, 10 + 10 * slope.mean(1), size, color="tab:orange", label="mean")
left.scatter(10 * exact_sd, 10 * slope.std(1), size, color="tab:green", label="standard deviation")
left.axline((0, 0), slope=1, color="grey", lw=1)
left.set(xlabel="exact", ylabel="amortised flow", title="Slope, 1296 outcomes, the likely ones large")
left.legend()
row = int(np.flatnonzero((outcomes == [0, 1, 3, 5]).all(axis=1))[0])  # what really happened
right.hist(10 + 10 * slope[row], 25, density=True, color="tab:orange", alpha=0.5, label="amortised flow")
right.plot(10 + 10 * line, exact[row] / (10 * gap), color="tab:blue", label="exact")
right.set(xlabel="slope", xlim=(-5, 35), ylabel="density", title="Deaths 0, 1, 3, 5 of 5 each")
right.legend()
out.mkdir(parents=True, exist_ok=True)
figure.savefig(out / "amortised.png", dpi=120)

print(f"coverage of 90 % intervals: {coverage:.4f} +- {spread:.4f} (exact 0.9; +- between outcomes)")
