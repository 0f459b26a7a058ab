"""The flows that the default fit chooses from, all of them for targets that are nearly standard normal."""

import enum
import math

import jax.random as jr
from jaxtyping import Array, Key

from .._flow.flow import Flow
from .._flow.transforms import CNF, AbstractTransform, coupling_transforms
from .._ingredients.bases import StandardNormal
from .._ingredients.fields import MLPField
from .._ingredients.tied_fields import TiedField
from .._solve.integrators import FixedStep

_COUPLED = 30  # dimensions up to which couplings come first
_SMOOTH = 10  # dimensions up to which a network as velocity field is worth its time


class Kind(enum.Enum):
    """A kind of flow. Each begins as the identity, or close to it."""

    COUPLINGS = "couplings"
    TIED = "tied field"
    COUPLINGS_TIED = "couplings, then a tied field"
    NETWORK = "network as velocity field"

    def transforms(self, shape: tuple[int, ...], *, key: Key[Array, ""]) -> list[AbstractTransform]:
        """Return the transforms of a new flow of this kind."""
        keys, dim = jr.split(key), math.prod(shape)
        couplings = lambda: coupling_transforms(shape, key=keys[0])  # noqa: E731
        tied = lambda: CNF(TiedField(dim, key=keys[1]), integrator=FixedStep(2))  # noqa: E731
        match self:
            case Kind.COUPLINGS:
                return couplings()
            case Kind.TIED:
                return [tied()]
            case Kind.COUPLINGS_TIED:
                return [*couplings(), tied()]
            case Kind.NETWORK:
                field = MLPField(dim, 64, 2, key=keys[0], output_scale=0.1)
                return [CNF(field, integrator=FixedStep(6))]

    def flow(self, shape: tuple[int, ...], *, key: Key[Array, ""]) -> Flow:
        """Return a new flow of this kind."""
        return Flow(StandardNormal(shape), self.transforms(shape, key=key))

    @property
    def learning_rate(self) -> float:
        """Adam's rate at its highest."""
        return 0.02 if self is Kind.NETWORK else 0.01


def first_kind(dim: int) -> Kind:
    """Return the kind that is tried first."""
    if dim == 1:
        return Kind.NETWORK
    return Kind.COUPLINGS if dim <= _COUPLED else Kind.TIED


def other_kinds(dim: int) -> list[Kind]:
    """Return the kinds to try if the first one falls short, the most promising first."""
    if dim == 1:
        return []
    others = [Kind.NETWORK] if dim <= _SMOOTH else []
    return [*others, Kind.COUPLINGS_TIED]
