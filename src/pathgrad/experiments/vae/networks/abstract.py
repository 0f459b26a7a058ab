"""What an autoencoder needs of its two networks."""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import Array, Float


class AbstractEncoder(eqx.Module):
    """From images to features, which the posterior is made of.

    Attributes:
        features: How many numbers an image becomes.
    """

    features: eqx.AbstractVar[int]

    @abstractmethod
    def __call__(self, images: Float[Array, "batch height width"]) -> Float[Array, "batch features"]:
        """Return the features of images whose pixels are between 0 and 1."""


class AbstractDecoder(eqx.Module):
    """From latent vectors to some numbers for each pixel, which the likelihood reads."""

    @abstractmethod
    def __call__(self, z: Float[Array, "batch latent"]) -> Float[Array, "batch height width outputs"]:
        """Return what the likelihood needs to know of each pixel."""
