"""The autoencoder: an encoder that leads to a flow, a decoder that is part of the target."""

import equinox as eqx
from jaxtyping import Array, Float, UInt8

import pathgrad as pg
from pathgrad._words.tree import Leaf

from .amortised import AmortisedFlow, per_draw
from .likelihoods import AbstractLikelihood
from .networks import AbstractDecoder, AbstractEncoder


class Joint(eqx.Module):
    r"""The target of an image's flow: $\ln p(x \mid z) + \ln p(z)$, with a standard normal prior."""

    decoder: AbstractDecoder
    likelihood: AbstractLikelihood
    image: Leaf  # one for each draw

    def log_prob(self, z: Float[Array, " latent"]) -> Float[Array, ""]:
        """Return the log density of one latent vector together with the image."""
        likelihood = self.likelihood.log_prob(self.decoder(z[None]), self.image[None])[0]
        return likelihood + pg.StandardNormal(z.shape).log_prob(z)


class Autoencoder(eqx.Module):
    """A variational autoencoder whose posterior is a normal distribution transformed by continuous flows.

    Its parts can be chosen by themselves; what `pathgrad train vae` offers is put together in `making`.

    Attributes:
        encoder: From images to features.
        flow: From features to the flow of the posterior.
        decoder: From latent vectors to outputs for each pixel.
        likelihood: From these to the probability of an image.
        levels: Values of a pixel: two for black and white, 256 for grey.
    """

    encoder: AbstractEncoder
    flow: AmortisedFlow
    decoder: AbstractDecoder
    likelihood: AbstractLikelihood
    levels: int = eqx.field(static=True)

    def posterior(self, images: UInt8[Array, "batch height width"]) -> pg.Flow:
        """Return the flow of the images: as many draws as images, each of its own posterior."""
        bright = images.astype(self.flow.base.mean.weight.dtype) / (self.levels - 1)
        return self.flow(self.encoder(bright))

    def joint(self, images: UInt8[Array, "batch height width"]) -> Joint:
        """Return the target that belongs to `posterior(images)`."""
        return Joint(self.decoder, self.likelihood, per_draw(images))

    def log_likelihood(
        self, z: Float[Array, "batch latent"], images: UInt8[Array, "batch height width"]
    ) -> Float[Array, " batch"]:
        """Return the log-likelihood of each image given its latent vector: the decoder sees all at once."""
        return self.likelihood.log_prob(self.decoder(z), images)

    def log_prior(self, z: Float[Array, " latent"]) -> Float[Array, ""]:
        """Return the prior log density of one latent vector."""
        return self.prior.log_prob(z)

    @property
    def prior(self) -> pg.StandardNormal:
        """The standard normal of the last latent vector."""
        return pg.StandardNormal((self.flow.latent,))
