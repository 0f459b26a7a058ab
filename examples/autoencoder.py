"""Train an autoencoder whose posterior is a flow, on images drawn on the spot.

The images are all 441 rectangles with edges on even pixels, 12 x 12 pixels, black and white. At best a model
gives each of them the probability 1/441, so no model can have a mean negative ELBO below log 441 = 6.09
nats. Encoder, flow and decoder are trained together with path gradients. It takes about half a minute. You
should see the negative ELBO fall from about 100 nats to less than 11, reconstructions that look like the
images, and samples many of which are rectangles.
"""

import argparse
import itertools
import math
from pathlib import Path

import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
import optax

import pathgrad as pg
from pathgrad.experiments.vae.amortised import AmortisedFlow, LogScaleHead
from pathgrad.experiments.vae.evaluation import negative_elbos, prior_draws, reconstructions
from pathgrad.experiments.vae.gates import Gates
from pathgrad.experiments.vae.layers import Affine
from pathgrad.experiments.vae.likelihoods import Bernoulli
from pathgrad.experiments.vae.model import Autoencoder
from pathgrad.experiments.vae.networks import MLPDecoder, MLPEncoder

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--out", type=Path, default=Path(__file__).parent / "out", help="folder of the picture")
out = parser.parse_args().out

SIDE, LATENT, WIDTH = 12, 4, 128
STEPS, BATCH, ROUNDS = 1200, 63, 16


def draw_rectangles():
    """Draw each rectangle once: pixels are whole numbers, 0 or 1."""
    images = []
    spans = list(itertools.combinations(range(0, SIDE + 1, 2), 2))
    for (top, bottom), (left, right) in itertools.product(spans, spans):
        image = np.zeros((SIDE, SIDE), np.uint8)
        image[top:bottom, left:right] = 1
        images.append(image)
    return np.stack(images)


def bound(model):
    """Return the mean negative ELBO of all images in nats, with fresh noise in each round, and its error."""
    rounds = [negative_elbos(model, images, key=jr.key(100 + i)).each.mean() for i in range(ROUNDS)]
    return np.mean(rounds), np.std(rounds) / math.sqrt(ROUNDS - 1)


images = draw_rectangles()
keys = jr.split(jr.key(0), 5)
encoder = MLPEncoder((SIDE, SIDE), key=keys[0], width=WIDTH)
decoder = MLPDecoder((SIDE, SIDE), LATENT, 1, key=keys[1], width=WIDTH)
# The encoder gives each image a normal density to begin with, and gates and biases of the units of a field.
base = LogScaleHead.normal(encoder.features, LATENT, key=keys[2])
field = Gates(LATENT, 32, key=keys[3])
head = Affine.normal(encoder.features, field.size, key=keys[4], scale=0.3)
flow = AmortisedFlow(base, [head], [field], integrator=pg.FixedStep(4))
model = Autoencoder(encoder, flow, decoder, Bernoulli(), levels=2)  # black and white
before, _ = bound(model)

# The KL term grows to its full weight over the first half: first learn to draw, then to be brief.
warm_up = optax.linear_schedule(0.1, 1.0, STEPS // 2)
objective = pg.NegativeELBO(pg.Data(images), pg.PathGradient(), beta=warm_up)
method = pg.FirstOrder(optax.adam(3e-3), n=BATCH, rate=pg.Trapezoid(warmup=50, hold=0.25))
model = pg.fit(model, objective, method, key=jr.key(1), steps=STEPS).model
after, error = bound(model)
floor = math.log(len(images))

shown = images[np.random.default_rng(0).choice(len(images), 12, replace=False)]
rebuilt = reconstructions(model, jnp.asarray(shown), key=jr.key(2))
_, samples, _ = prior_draws(model, key=jr.key(3), n=12)
figure, axes = plt.subplots(3, 12, figsize=(9, 2.9), layout="constrained")
rows = (("images", shown), ("rebuilt", rebuilt), ("samples", samples))
for row, (name, pictures) in zip(axes, rows, strict=True):
    for axis, picture in zip(row, pictures, strict=True):
        axis.imshow(picture, cmap="gray_r", vmin=0, vmax=1)
        axis.set(xticks=[], yticks=[])
    row[0].set_ylabel(name)
figure.suptitle(f"Negative ELBO {after:.2f} nats (no model is below {floor:.2f})")
out.mkdir(parents=True, exist_ok=True)
figure.savefig(out / "autoencoder.png", dpi=120)

print(f"negative ELBO: {after:.2f} +- {error:.2f} nats (at best {floor:.2f}, before training {before:.1f})")
