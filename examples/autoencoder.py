"""Train an autoencoder whose posterior is a flow, on images drawn on the spot.

A square, a cross and a ring, each at 49 places: 147 images of 12 x 12 black and white pixels. A model that knew
nothing but them could give each a probability of 1/147, so no model can have a mean negative ELBO below
log 147 = 4.99 nats. Encoder, flow and decoder are trained together with path gradients. It takes about a minute.
You should see the bound fall from about 100 nats to a few above 4.99, and reconstructions like the images.
"""

import argparse
import itertools
import math
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
import optax

import pathgrad as pg
from pathgrad.experiments.vae.evaluation import negative_elbos, prior_draws, reconstructions
from pathgrad.experiments.vae.model import Autoencoder

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out", help="folder of the picture")
out = parser.parse_args().out

SIDE, STEPS, BATCH = 12, 1500, 63

LOUD=3.0

def draw_images():
    """Draw every rectangle and every ellipse with edges on even pixels: black and white, as 0 and 1."""
    y, x = np.mgrid[:SIDE, :SIDE] + 0.5  # centres of the pixels
    spans = list(itertools.combinations(range(0, SIDE + 1, 2), 2))
    images = []
    for (top, bottom), (left, right) in itertools.product(spans, spans):
        across = np.abs(2 * x - left - right) / (right - left)  # 1 at the edges
        along = np.abs(2 * y - top - bottom) / (bottom - top)
        images += [np.maximum(across, along) < 1]
    return np.stack(images).astype(np.uint8)


def bound(model):
    """Return the negative ELBO of all images in nats, the mean of 16 rounds, and its error."""
    rounds = [negative_elbos(model, images, key=jr.key(i)).each.mean() for i in range(16)]
    return np.mean(rounds), np.std(rounds) / 4


images = draw_images()
model = Autoencoder(
    (SIDE, SIDE),
    key=jr.key(0),
    levels=2,  # black and white
    channels=8,
    latent=4,
    cnfs=1,
    width=32,
    depth=1,
    rank=4,
    divergence=pg.ClosedForm(),
    integrator=pg.FixedStep(4),
)
# Six gated layers weaken a signal so much that a short training would not notice the images: begin with louder ones.
trunks = lambda m: (m.encoder.trunk, m.decoder.trunk)
model = eqx.tree_at(trunks, model, jax.tree.map(lambda w: LOUD * w, trunks(model)))
before, _ = bound(model)

# The KL term grows to its full weight over the first half: with it at once, the flow would ignore the shapes.
warm_up = optax.linear_schedule(0.1, 1.0, STEPS // 2)
objective = pg.NegativeELBO(pg.Data(images), pg.PathGradient(), beta=warm_up)
method = pg.FirstOrder(optax.adam(optax.cosine_decay_schedule(4e-3, STEPS)), n=BATCH)
fit = pg.fit(model, objective, method, key=jr.key(1), steps=STEPS)
after, error = bound(fit.model)
floor = math.log(len(images))
print(f"negative ELBO before: {before:.1f} nats; {STEPS} steps took {fit.seconds:.0f} s")

shown = images[np.random.default_rng(0).choice(len(images), 12, replace=False)]
again = reconstructions(fit.model, jnp.asarray(shown), key=jr.key(2))
_, new, _ = prior_draws(fit.model, key=jr.key(3), n=12)
figure, axes = plt.subplots(3, 12, figsize=(9, 2.9), layout="constrained")
rows = (("images", shown), ("reconstructed", again), ("samples", new))
for row, (name, pictures) in zip(axes, rows, strict=True):
    for axis, picture in zip(row, pictures, strict=True):
        axis.imshow(picture, cmap="gray_r", vmin=0, vmax=1)
        axis.set(xticks=[], yticks=[])
    row[0].set_ylabel(name)
figure.suptitle(f"147 images, negative ELBO {after:.2f} nats (no model is below {floor:.2f})")
out.mkdir(parents=True, exist_ok=True)
figure.savefig(out / "autoencoder.png", dpi=120)

print(f"negative ELBO: {after:.2f} +- {error:.2f} nats (at best {floor:.2f})")
