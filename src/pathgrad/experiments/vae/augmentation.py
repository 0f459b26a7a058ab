"""What is done to images each time they are seen: pixels are drawn, images shifted and flipped."""

import dataclasses

import jax.numpy as jnp
import jax.random as jr
from jax import lax
from jaxtyping import Array, Float, Key, UInt8


def draw_pixels(image: Float[Array, "height width"], *, key: Key[Array, ""]) -> UInt8[Array, "height width"]:
    """Draw a grey image black and white."""
    return jr.bernoulli(key, image).astype(jnp.uint8)


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Shifts and flips, so that few images are not learnt by heart.

    Attributes:
        shifts: Probability of a shift by -1, 0 or 1 pixels along each axis; edges are repeated.
        flips: Whether half of the images are turned left to right.
        until: Progress of the training, from 0 to 1, after which images are no longer shifted.
    """

    shifts: float
    flips: bool
    until: float

    @property
    def or_none(self) -> "Augmentation | None":
        """This, or `None` if it does nothing."""
        return self if self.shifts or self.flips else None

    def __call__(self, image: Array, *, key: Key[Array, ""], progress: Float[Array, ""]) -> Array:
        """Return the image as it is to be seen this time."""
        chance_key, shift_key, flip_key = jr.split(key, 3)
        if self.shifts:
            moves = jr.bernoulli(chance_key, self.shifts) & (progress < self.until)
            start = jnp.where(moves, jr.randint(shift_key, (2,), 0, 3), 1)
            image = lax.dynamic_slice(jnp.pad(image, 1, mode="edge"), start, image.shape)
        if self.flips:
            image = jnp.where(jr.bernoulli(flip_key), image[:, ::-1], image)
        return image
