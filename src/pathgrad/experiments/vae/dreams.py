"""Let the encoder learn from images that the model makes up, too: of those there are as many as one likes."""

import equinox as eqx
import jax
import jax.random as jr
from jaxtyping import Array, Key, UInt8

import pathgrad as pg
from pathgrad._words.outcome import first_failure
from pathgrad._words.tree import freeze

from .model import Autoencoder

_DREAM = 0x647265  # folded into the keys of a batch


class Dreaming(pg.AbstractObjective):
    """The negative ELBO of data, and that of images of the model, which only its posterior learns from.

    Few images are soon learnt by heart, and by the encoder first: the ELBO of new images then suffers from
    posteriors that do not fit them, though the decoder would. Images made by decoding draws from the prior
    ask the same of the encoder, and never come back. The decoder, for which they are no evidence, is frozen
    in their part of the loss, so that for it nothing changes.

    Attributes:
        real: The negative ELBO of the data.
    """

    real: pg.NegativeELBO

    def __call__(self, model: Autoencoder, batch: pg.Batch) -> pg.Estimate:
        real = self.real(model, batch)
        keys = jax.vmap(lambda key: jr.split(jr.fold_in(key, _DREAM)))(batch.keys)
        asleep = eqx.tree_at(lambda m: (m.decoder, m.likelihood), model, replace_fn=freeze)
        images = made_up(asleep, keys[:, 0])
        dream = self.real(asleep, pg.Batch(keys[:, 1], images, batch.step, batch.tally))
        solve = real.solve
        if solve is not None and dream.solve is not None:
            evaluations = solve.evaluations + dream.solve.evaluations
            solve = type(solve)(evaluations, first_failure(solve.outcome, dream.solve.outcome))
        outcome = first_failure(real.outcome, dream.outcome)
        numbers = real.numbers | {"dream": freeze(dream.loss)}
        # The losses of the data alone, which can be compared with other trainings.
        loss = real.loss + dream.loss - freeze(dream.loss)
        return pg.Estimate(loss, real.each, outcome, solve, numbers)

    @property
    def data(self):
        return self.real.data


def made_up(model: Autoencoder, keys: Key[Array, " n"]) -> UInt8[Array, "n height width"]:
    """Draw an image from the model with each key."""
    keys = jax.vmap(jr.split)(keys)
    z = jax.vmap(lambda key: model.prior.draw(key=key)[0])(keys[:, 0])
    draw = jax.vmap(lambda outputs, key: model.likelihood.sample(outputs[None], key=key)[0])
    return draw(freeze(model.decoder(z)), keys[:, 1])
