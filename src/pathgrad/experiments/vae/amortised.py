"""From the features of images to the flows of their posteriors."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

import pathgrad as pg

from .layers import Affine

# Of the variance of q0, for grey images; as in the authors' code.
_GREY_VARIANCE = (0.01, 7.0)


def per_draw(values: Array) -> Any:
    """Mark values as one for each draw; of no type, since it stands where one value is read."""
    return pg.PerDraw(values)


class AbstractFieldFamily(eqx.Module):
    """What all images share of a field, and how the numbers of an image complete it."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many numbers complete a field."""

    @property
    @abstractmethod
    def prepared_size(self) -> int:
        """How many numbers an exact divergence needs for each image."""

    @abstractmethod
    def __call__(self, numbers: Float[Array, "batch size"]) -> eqx.Module:
        """Return a field with `PerDraw` leaves: one for each row of numbers."""


class AbstractBaseHead(eqx.Module):
    """From features to q0, a normal with independent coordinates.

    Attributes:
        mean: To the mean.
        scale: To what the standard deviation is made of.
    """

    mean: eqx.AbstractVar[Affine]
    scale: eqx.AbstractVar[Affine]

    @abstractmethod
    def log_scale(self, features: Float[Array, "batch features"]) -> Float[Array, "batch latent"]:
        """Return the log standard deviations."""


class VarianceHead(AbstractBaseHead):
    """The variance is a softplus, for grey images between two bounds: the published one."""

    mean: Affine
    scale: Affine
    is_grey: bool = eqx.field(static=True)

    def log_scale(self, features):
        a = self.scale(features)
        if self.is_grey:
            return 0.5 * jnp.log(jnp.clip(jax.nn.softplus(a), *_GREY_VARIANCE))
        # ln softplus(a) tends to a, where softplus itself would underflow.
        far = a < -15
        return 0.5 * jnp.where(far, a, jnp.log(jax.nn.softplus(jnp.where(far, 0.0, a))))


class LogScaleHead(AbstractBaseHead):
    """The log standard deviation is affine in the features, and begins a little below zero."""

    mean: Affine
    scale: Affine

    @classmethod
    def normal(cls, features: int, latent: int, *, key: Key[Array, ""]) -> "LogScaleHead":
        """Begin with small weights, and standard deviations of 0.6."""
        keys = jax.random.split(key)
        mean = Affine.normal(features, latent, key=keys[0], scale=0.5)
        scale = Affine.normal(features, latent, key=keys[1], scale=0.1)
        return cls(mean, Affine(scale.weight, scale.bias - 0.5))

    def log_scale(self, features):
        return self.scale(features)


class AmortisedFlow(eqx.Module):
    """The posterior of any image: a normal, carried by continuous flows, all of them made of its features.

    Attributes:
        base: To q0.
        heads: To the numbers that complete each field.
        families: What all images share of each field.
        divergence: Divergence used in training.
        integrator: ODE solver of the flows.
        adjoint: How gradients are propagated through the solver.
        end_time: Each field is followed from time zero to this.
        solver_steps: The integrator's fixed steps (0 if it has none), as an array: training may take more,
            and a checkpoint holds arrays alone.
    """

    base: AbstractBaseHead
    heads: tuple[Affine, ...]
    families: tuple[AbstractFieldFamily, ...]
    divergence: pg.AbstractDivergence
    integrator: pg.AbstractIntegrator
    adjoint: pg.AbstractAdjoint
    end_time: float = eqx.field(static=True)
    solver_steps: Int[Array, ""]

    def __init__(
        self,
        base: AbstractBaseHead,
        heads: Sequence[Affine],
        families: Sequence[AbstractFieldFamily],
        *,
        divergence: pg.AbstractDivergence = pg.ClosedForm(),
        integrator: pg.AbstractIntegrator = pg.FixedStep(3),
        adjoint: pg.AbstractAdjoint = pg.Discrete(),
        end_time: float = 1.0,
    ) -> None:
        """Put the parts together; a head and a family for each flow."""
        self.base, self.heads, self.families = base, tuple(heads), tuple(families)
        self.divergence, self.integrator, self.adjoint = divergence, integrator, adjoint
        self.end_time = end_time
        self.solver_steps = jnp.asarray(getattr(integrator, "steps", 0), jnp.int32)

    def __check_init__(self):
        sizes = [head.bias.size for head in self.heads]
        needed = [family.size for family in self.families]
        if sizes != needed:
            raise ValueError(f"The heads give {sizes} numbers, and the fields need {needed}.")

    def with_steps(self, steps: int) -> "AmortisedFlow":
        """Return the same flow, solved with so many fixed steps."""
        integrator, count = pg.FixedStep(steps), jnp.asarray(steps, jnp.int32)
        parts = lambda flow: (flow.integrator, flow.solver_steps)  # noqa: E731
        return eqx.tree_at(parts, self, (integrator, count), is_leaf=lambda x: x is self.integrator)

    @property
    def latent(self) -> int:
        """Size of the latent vector."""
        return self.base.mean.bias.size

    def __call__(self, features: Float[Array, "batch features"]) -> pg.Flow:
        """Return the flow of some images: as many draws as images, each of its own posterior."""
        mean, log_scale = self.base.mean(features), self.base.log_scale(features)
        transforms = [
            pg.CNF(family(head(features)), self.divergence, self.integrator, self.adjoint, t1=self.end_time)
            for head, family in zip(self.heads, self.families, strict=True)
        ]
        return pg.Flow(pg.DiagonalNormal(per_draw(mean), per_draw(log_scale)), transforms)
