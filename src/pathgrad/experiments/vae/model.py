"""The autoencoder: its encoder returns a flow, its decoder is part of the target."""

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, Float, Key, UInt8

import pathgrad as pg
from pathgrad._words.tree import Leaf

from .field import AmortisedField, Layer, layer_sizes, per_draw, per_draw_updates, shared_layers, update_size
from .networks import Decoder, Encoder, log_likelihood


class Joint(eqx.Module):
    r"""The target of an image's flow: $\ln p(x \mid z) + \ln p(z)$, with a standard normal prior."""

    decoder: Decoder
    image: Leaf  # one for each draw

    def log_prob(self, z: Float[Array, " latent"]) -> Float[Array, ""]:
        """Return the log density of one latent vector together with the image."""
        likelihood = log_likelihood(self.decoder(z[None]), self.image[None])[0]
        return likelihood + pg.StandardNormal(z.shape).log_prob(z)


class Autoencoder(eqx.Module):
    """A variational autoencoder whose posterior is a normal distribution transformed by continuous flows.

    Attributes:
        encoder: Maps images to the normal distribution q0 and to updates of the fields.
        decoder: Maps latent vectors to pixel logits.
        fields: Shared layers of each field.
        divergence: How the divergence is computed in training.
        integrator: How the ODE of each flow is solved.
        adjoint: How that solve is differentiated.
        end_time: End of the time interval of each flow, which starts at zero.
        rank: Rank of each image's updates of the layers.
        activation: Activation of the fields, `"softplus"` or `"tanh"`.
    """

    encoder: Encoder
    decoder: Decoder
    fields: tuple[tuple[Layer, ...], ...]
    divergence: pg.AbstractDivergence
    integrator: pg.AbstractIntegrator
    adjoint: pg.AbstractAdjoint
    end_time: float = eqx.field(static=True)
    rank: int = eqx.field(static=True)
    activation: str = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, int],
        *,
        key: Key[Array, ""],
        levels: int,
        channels: int = 32,
        latent: int = 64,
        cnfs: int = 2,
        width: int = 512,
        depth: int = 2,
        rank: int = 20,
        activation: str = "softplus",
        divergence: pg.AbstractDivergence = pg.Hutchinson(1, "gaussian"),
        integrator: pg.AbstractIntegrator = pg.Adaptive(),
        adjoint: pg.AbstractAdjoint = pg.Discrete(),
        end_time: float = 0.5,
    ) -> None:
        """Initialise as PyTorch does.

        Both sides of the images must be multiples of four; black-and-white pixels have two `levels`. The
        outermost convolutions have `channels` channels, and the latent vector has `latent` numbers. There are
        `cnfs` flows, one after the other, whose fields have `depth` hidden layers of `width` units.
        """
        if any(side < 4 or side % 4 for side in shape):
            raise ValueError(f"Both sides of the images must be multiples of four, got {shape}.")
        encoder_key, decoder_key, field_key = jr.split(key, 3)
        sizes = layer_sizes(latent, width, depth)
        network = {"levels": levels, "channels": channels, "latent": latent}
        updates = [update_size(sizes, rank)] * cnfs
        self.encoder = Encoder(shape, key=encoder_key, update_sizes=updates, **network)
        self.decoder = Decoder(shape, key=decoder_key, **network)
        self.fields = tuple(shared_layers(sizes, key=k) for k in jr.split(field_key, cnfs))
        self.divergence, self.integrator, self.adjoint = divergence, integrator, adjoint
        self.end_time, self.rank, self.activation = end_time, rank, activation

    def posterior(self, images: UInt8[Array, "batch height width"]) -> pg.Flow:
        """Return the flow of the images, with one draw per image, each from its own posterior."""
        mean, log_scale, numbers = self.encoder(images)
        base = pg.DiagonalNormal(per_draw(mean), per_draw(log_scale))
        transforms = []
        for layers, update in zip(self.fields, numbers, strict=True):
            sizes = [layer.weight.shape for layer in layers]
            field = AmortisedField(layers, per_draw_updates(update, sizes, self.rank), self.activation)
            transforms.append(pg.CNF(field, self.divergence, self.integrator, self.adjoint, t1=self.end_time))
        return pg.Flow(base, transforms)

    def joint(self, images: UInt8[Array, "batch height width"]) -> Joint:
        """Return the target of `posterior(images)`."""
        return Joint(self.decoder, per_draw(images))

    def log_likelihood(
        self, z: Float[Array, "batch latent"], images: UInt8[Array, "batch height width"]
    ) -> Float[Array, " batch"]:
        """Return the log-likelihood of each image given its latent vector, decoded as one batch."""
        return log_likelihood(self.decoder(z), images)

    def log_prior(self, z: Float[Array, " latent"]) -> Float[Array, ""]:
        """Return the prior log density of one latent vector."""
        return self.prior.log_prob(z)

    @property
    def prior(self) -> pg.StandardNormal:
        """The prior of the latent vector."""
        return pg.StandardNormal(self.encoder.mean.bias.shape)
