"""How a bad fit shows, and what helps: a target with two modes far apart, of which a flow finds only one.

Everything that draws of the flow can say looks fine, since none of them ever visits the other mode. Draws of
the target from elsewhere give it away: the verdict turns from "good" to "unreliable" when `evaluate` is given
`sample_target`. The remedy is to begin with a mixture, one component near each mode. It takes about half a
minute. You should see three verdicts, and log Z, which is 0, come out as about -0.51 before and 0 after.
"""

import argparse
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

SHARE, APART = 0.6, 8.0  # how much of the target is in the first mode; how far away the second one is
STEPS = 800


def bent_normal(x):
    """Return the log density of a normal that is bent like a wave."""
    return -0.5 * x[0] ** 2 - 2.0 * (x[1] - jnp.sin(x[0])) ** 2 - jnp.log(jnp.pi)


def log_prob(x):
    """Return the log density of two of them, one upside down; it is normalised, so log Z = 0."""
    second = bent_normal(jnp.array([x[0] - APART, -x[1]]))
    return jnp.logaddexp(jnp.log(SHARE) + bent_normal(x), jnp.log(1 - SHARE) + second)


def sample_target(*, key):
    """Make one exact draw of the target. Draws of a long Markov chain would do as well."""
    pick_key, noise_key = jr.split(key)
    z = jr.normal(noise_key, (2,))
    x = jnp.array([z[0], 0.5 * z[1] + jnp.sin(z[0])])
    return jnp.where(jr.bernoulli(pick_key, SHARE), x, jnp.array([APART + x[0], -x[1]]))


def train(base):
    """Fit a flow that begins with this base."""
    field = pg.MLPField(dim=2, width=32, depth=1, key=jr.key(0))
    flow = pg.Flow(base, [pg.CNF(field, integrator=pg.FixedStep(8))])
    rate = optax.cosine_decay_schedule(1e-2, STEPS)
    return pg.fit(flow, target, key=jr.key(1), steps=STEPS, optimizer=optax.adam(rate)).flow


target = pg.LogDensity(log_prob, shape=(2,))
lost = train(pg.DiagonalNormal.standard((2,)))
found = train(pg.NormalMixture.at([[0.0, 0.0], [APART, 0.0]]))  # roughly where the modes are

fooled = pg.evaluate(lost, target, key=jr.key(2))
before = pg.evaluate(lost, target, key=jr.key(2), sample_target=sample_target)
after = pg.evaluate(found, target, key=jr.key(2), sample_target=sample_target)
print(f"one normal, judged by its own draws:\n{fooled}\n")
print(f"one normal, judged by draws of the target too:\n{before}\n")
print(f"a mixture of two, judged by both:\n{after}\n")
assert pg.Reason.MISSED_MODE in before.verdict.reasons

figure, axes = plt.subplots(2, 1, figsize=(7, 6), sharex=True, sharey=True, layout="constrained")
exact = jax.vmap(lambda key: sample_target(key=key))(jr.split(jr.key(3), 1000))
titles = f"Before, one normal as base: {before.verdict.level.name}", f"After, a mixture: {after.verdict.level.name}"
for axis, flow, title in zip(axes, (lost, found), titles, strict=True):
    axis.scatter(*exact.T, s=12, color="lightgrey", label="draws of the target")
    axis.scatter(*flow.sample(key=jr.key(4), n=1000).T, s=3, color="tab:orange", label="draws of the flow")
    axis.set(title=title, ylabel="second coordinate")
axes[0].legend()
axes[1].set_xlabel("first coordinate")
out.mkdir(parents=True, exist_ok=True)
figure.savefig(out / "bad_fit.png", dpi=120)

print(f"log Z, should be 0: {after.log_z:.4f} +- {after.log_z_err:.4f} (before {before.log_z:.4f})")
