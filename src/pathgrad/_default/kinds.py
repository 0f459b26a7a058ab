"""The flows that the default fit chooses from, all of them for targets that are nearly standard normal."""

import enum
import math
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from .._flow.flow import Flow
from .._flow.transforms import CNF, AbstractBijection, AbstractTransform, FullAffine, coupling_transforms
from .._ingredients.bases import StandardNormal
from .._ingredients.fields import MLPField
from .._ingredients.tied_fields import CorrelatedField, TiedField
from .._solve.integrators import FixedStep
from .._words.constant import Constant

_COUPLED = 30  # dimensions up to which couplings come first
_LEARNED = 200  # dimensions up to which the directions of a tied field are learned
_SMOOTH = 10  # dimensions up to which a network as velocity field is worth its time


class Kind(enum.Enum):
    """A kind of flow. Each begins as the identity, or close to it."""

    COUPLINGS = "couplings"
    TIED = "tied field"
    COUPLINGS_TIED = "couplings, then a tied field"
    NETWORK = "network as velocity field"

    def transforms(
        self, shape: tuple[int, ...], to_target: AbstractBijection | None = None, *, key: Key[Array, ""]
    ) -> Sequence[AbstractTransform]:
        """Return the transforms of a new flow of this kind; `to_target` leads from it to the target."""
        keys, dim = jr.split(key), math.prod(shape)
        couplings = lambda: coupling_transforms(shape, key=keys[0])  # noqa: E731
        tied = lambda: _tied(dim, to_target, key=keys[1])  # noqa: E731
        match self:
            case Kind.COUPLINGS:
                return [*couplings()]
            case Kind.TIED:
                return [tied()]
            case Kind.COUPLINGS_TIED:
                return [*couplings(), tied()]
            case Kind.NETWORK:
                field = MLPField(dim, 64, 2, key=keys[0], output_scale=0.1)
                return [CNF(field, integrator=FixedStep(6))]

    def flow(
        self, shape: tuple[int, ...], to_target: AbstractBijection | None = None, *, key: Key[Array, ""]
    ) -> Flow:
        """Return a new flow of this kind; `to_target` leads from its coordinates to those of the target."""
        return Flow(StandardNormal(shape), self.transforms(shape, to_target, key=key))

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
    if dim == 1 or dim > _LEARNED:
        return []
    others = [Kind.NETWORK] if dim <= _SMOOTH else []
    return [*others, Kind.COUPLINGS_TIED]


def new_flow(
    kind: Kind, shape: tuple[int, ...], to_target: AbstractBijection | None, *, key: Key[Array, ""]
) -> Flow:
    """Return an untrained flow of a kind, with the map of a warm start behind it."""
    key = jr.fold_in(key, 1 + list(Kind).index(kind))
    return with_map(kind.flow(shape, to_target, key=key), to_target)


def with_map(flow: Flow, to_target: AbstractBijection | None) -> Flow:
    """Return a flow with a further map behind it."""
    return flow if to_target is None else Flow(flow.base, [*flow.transforms, to_target])


def _tied(dim: int, to_target: AbstractBijection | None, *, key: Key[Array, ""]) -> CNF:
    """Return a tied field: with learned directions, or in many dimensions the target's own coordinates."""
    if dim <= _LEARNED:
        return CNF(TiedField(dim, key=key), integrator=FixedStep(2))
    if isinstance(to_target, FullAffine):
        rows = to_target.matrix / np.linalg.norm(to_target.matrix, axis=1, keepdims=True)
        return CNF(TiedField(dim, Constant(rows.astype(np.float32))), integrator=FixedStep(1))
    return CNF(CorrelatedField(_Identity(dim)), integrator=FixedStep(1))


class _Identity(eqx.Module):
    """The correlations of independent coordinates."""

    dim: int = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        return x

    def diagonal(self) -> Array:
        return jnp.ones(self.dim)
