"""A target of the benchmark: a density with everything that is known about it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .density import AbstractDensity, AbstractPosterior


@dataclasses.dataclass(frozen=True)
class Published:
    """A number that others have published for a target.

    Attributes:
        value: The number: the ELBO, unless `what` says something else.
        method: How they got it.
        source: Where it stands.
        what: What was measured.
        error: Its error, if they give one.
    """

    value: float
    method: str
    source: str
    what: str = "ELBO"
    error: float | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Reference:
    """Draws of a posterior that can be trusted, from very long runs of a sampler, and their summaries.

    Attributes:
        names: Names of the columns.
        draws: Draws, (chains, draws, columns); `None` if only their summaries are known.
        mean: Mean of each column.
        sd: Standard deviation of each column.
        heavy: Columns whose second moment does not exist, or hardly: compare their quantiles, not their sd.
        source: Where they come from.
    """

    names: tuple[str, ...]
    draws: np.ndarray | None
    mean: np.ndarray
    sd: np.ndarray
    heavy: tuple[str, ...]
    source: str


class BenchmarkTarget(eqx.Module):
    """A density of the benchmark, with everything that is known about it.

    Attributes:
        name: Its name in the benchmark.
        density: The density.
        log_z: Log of the normalising constant, if it is known.
        log_z_err: Its error; 0 if it is exact.
        published: What others have published, the best first.
        reference: Reference draws, if there are any.
    """

    name: str = eqx.field(static=True)
    density: AbstractDensity
    log_z: float | None = eqx.field(static=True, default=None)
    log_z_err: float | None = eqx.field(static=True, default=None)
    published: tuple[Published, ...] = eqx.field(static=True, default=())
    reference: Reference | None = eqx.field(static=True, default=None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one point."""
        return self.density.shape

    def log_prob(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        """Return the log density at one point."""
        return self.density.log_prob(x)

    @property
    def sample(self) -> Callable[..., Any] | None:
        """A function that returns one exact sample for a `key`; `None` if nobody knows how to make one."""
        return getattr(self.density, "sample", None)

    def constrain(self, x: Float[Array, " dim"]) -> Float[Array, " columns"]:
        """Return the named parameters of a point, the columns of the reference; else the point itself."""
        return self.density.constrain(x) if isinstance(self.density, AbstractPosterior) else x

    def reference_points(self) -> Float[Array, "draws dim"] | None:
        """Return the reference draws as points of the density; `None` without a reference."""
        if self.reference is None or self.reference.draws is None:
            return None
        assert isinstance(self.density, AbstractPosterior)
        columns = jnp.asarray(self.reference.draws, float).reshape(-1, len(self.reference.names))
        return jax.vmap(self.density.unconstrain)(columns)
