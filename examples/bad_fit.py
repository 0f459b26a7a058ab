"""How a bad fit shows, and what helps: a target with two modes of which the flow finds only one.

The flow begins near one mode and never visits the other, so its own samples show nothing wrong: the verdict
is "good". Give `evaluate` exact samples of the target (`sample_target`) and it turns to "unreliable", because
the flow misses a mode. The remedy is a base with a component near each mode. It takes about 20 seconds. You
should see three verdicts, and log Z, which is 0 for this target, come out near log 0.6 = -0.51 before and 0
after.
"""

import argparse
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import optax

import pathgrad as pg

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out", help="folder of the picture")
out = parser.parse_args().out

LEFT, RIGHT = jnp.array([-2.0, 0.0]), jnp.array([2.0, 0.0])  # where the two modes are
SHARE = 0.6  # how much of the target is in the left one
FLIP = jnp.array([1.0, -1.0])  # the right one is upside down
STEPS = 1500


def log_blob(x):
    """Return the log density of one mode: a square with soft sides, bent, and normalised."""
    return -(x[0] ** 4) - (x[1] - 0.5 * jnp.tanh(x[0])) ** 4 - 2 * math.log(2 * math.gamma(1.25))


def log_prob(x):
    """Return the log density of the target: both modes together, so log Z = 0."""
    left, right = log_blob(x - LEFT), log_blob(FLIP * (x - RIGHT))
    return jnp.logaddexp(math.log(SHARE) + left, math.log(1 - SHARE) + right)


def sample_target(*, key):
    """Return one exact sample. Where there are none, samples of a long Markov chain do as well."""
    mode_key, noise_key = jr.split(key)
    z = jr.generalized_normal(noise_key, 4.0, (2,))  # with density proportional to exp(-z^4)
    x = jnp.array([z[0], z[1] + 0.5 * jnp.tanh(z[0])])
    return jnp.where(jr.bernoulli(mode_key, SHARE), LEFT + x, RIGHT + FLIP * x)


def train(base):
    """Fit a flow that begins with this base."""
    field = pg.MLPField(dim=2, width=32, depth=2, key=jr.key(0))
    flow = pg.Flow(base, [pg.CNF(field, integrator=pg.FixedStep(8))])
    rate = optax.cosine_decay_schedule(1e-2, STEPS)
    return pg.fit(flow, target, key=jr.key(1), steps=STEPS, optimizer=optax.adam(rate)).flow


target = pg.LogDensity(log_prob, shape=(2,))
lost = train(pg.DiagonalNormal(LEFT, jnp.full(2, math.log(0.5))))  # knows of one mode
found = train(pg.NormalMixture.at(jnp.stack([LEFT, RIGHT]), scale=0.5))  # knows of both

fooled = pg.evaluate(lost, target, key=jr.key(2))
before = pg.evaluate(lost, target, key=jr.key(2), sample_target=sample_target)
after = pg.evaluate(found, target, key=jr.key(2), sample_target=sample_target)
print(f"One normal as base, judged by the flow's own samples:\n{fooled}\n")
print(f"The same flow, judged by samples of the target too:\n{before}\n")
print(f"A mixture as base, judged by both:\n{after}\n")
assert fooled.verdict.level is pg.Level.GOOD
assert pg.Reason.MISSED_MODE in before.verdict.reasons
assert after.verdict.level is pg.Level.GOOD

figure, axes = plt.subplots(2, 1, figsize=(7, 6), sharex=True, sharey=True, layout="constrained")
exact = jax.vmap(lambda key: sample_target(key=key))(jr.split(jr.key(3), 1000))
rows = (lost, "One normal as base", before), (found, "A mixture as base", after)
for axis, (flow, name, found_out) in zip(axes, rows, strict=True):
    axis.scatter(*exact.T, s=14, color="lightgrey", label="target")
    axis.scatter(*flow.sample(key=jr.key(4), n=1000).T, s=3, color="tab:orange", label="flow")
    axis.set(title=f"{name}: {found_out.verdict.level.name.lower()}", ylabel="second coordinate")
axes[0].legend(title="1000 samples of", loc="lower center")
axes[1].set_xlabel("first coordinate")
out.mkdir(parents=True, exist_ok=True)
figure.savefig(out / "bad_fit.png", dpi=120)

print(f"log Z: {after.log_z:.4f} +- {after.log_z_err:.4f} (exact 0; with one mode {before.log_z:.4f})")
