"""The interface of all integrators."""

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree, Scalar

from ..._words.draw import SolveInfo
from ...devices import average

# motion(t, state, args) -> time derivative of the state, of the same structure
Motion = Callable[[Float[Scalar, ""], PyTree, PyTree], PyTree]
Norm = Callable[[PyTree], Float[Scalar, ""]]


class Tableau(NamedTuple):
    """Butcher tableau of an explicit method: `a` strictly lower rows, weights `b`, nodes `c`."""

    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    c: tuple[float, ...]


class Trajectory(eqx.Module):
    """The steps a solve took: where each began, how long it was, and (part of) the state there."""

    times: Float[Array, " step"]
    lengths: Float[Array, " step"]  # negative when time runs backwards
    states: PyTree  # step axis first
    count: int | Int[Array, ""]  # number of steps taken; entries beyond it are unused


class AbstractIntegrator(eqx.Module):
    """A way to solve $dy/dt = motion(t, y)$ from `t0` to `t1`, in either direction."""

    @property
    @abstractmethod
    def tableau(self) -> Tableau:
        """The Runge-Kutta method behind the steps."""

    @abstractmethod
    def integrate(
        self, motion: Motion, state: PyTree, args: PyTree, t0: float, t1: float, norm: Norm
    ) -> tuple[PyTree, SolveInfo]:
        """Return the state at `t1`. `norm` measures the error that adaptive steps control."""

    @abstractmethod
    def integrate_recorded(
        self,
        motion: Motion,
        state: PyTree,
        args: PyTree,
        t0: float,
        t1: float,
        norm: Norm,
        keep: Callable[[PyTree], PyTree],
        bound: int,
    ) -> tuple[PyTree, SolveInfo, Trajectory]:
        """Do as `integrate`, and record `keep(state)` at the start of each of at most `bound` steps."""

    @abstractmethod
    def refined(self, factor: int) -> "AbstractIntegrator":
        """Return this integrator with the accuracy of `factor` times the steps."""


def largest_rms(state: PyTree) -> Float[Scalar, ""]:
    """Return the largest root mean square among the components of the state.

    One norm over everything would let a component with many entries dilute the error of a small one
    (`log q` has one number per draw, a lattice thousands). The average is over all devices that share a
    batch, so that the steps do not depend on their number.
    """
    rms = [jnp.sqrt(average(jnp.mean(jnp.square(leaf)))) for leaf in jax.tree.leaves(state)]
    return jnp.max(jnp.stack(rms))
