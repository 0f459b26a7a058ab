"""The coordinates in which a flow of a target is trained, and what is minimised there."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._flow.flow import Flow
from .._flow.transforms import AbstractBijection
from .._flow.whitened import Whitened
from .._gradients.estimators import AbstractEstimator, PathGradient
from .._gradients.objectives import AbstractObjective, ReverseKL
from .._ingredients.precise import Precise
from .._ingredients.target import Target
from .._numbers.evaluate import Evaluation
from .centred import Centred


class Inside(eqx.Module):
    """A target as its flows see it: through their own last transform, near zero, and precisely enough.

    The whole flow is what is trained and stored, and its last transform leads to the coordinates of the
    target. But log densities and gradients are computed before that transform, where numbers are about one.

    Attributes:
        target: An object with `log_prob(x)` for one point.
        is_mapped: Whether flows end with the map of a warm start.
        centre: What is subtracted from the log density.
        is_double: Whether the target is evaluated in double precision.
    """

    target: Target
    is_mapped: bool = eqx.field(static=True)
    centre: float = eqx.field(static=True)
    is_double: bool = eqx.field(static=True)

    def of(self, flow: Flow) -> tuple[Flow, Target]:
        """Return a flow without its map, and the target in the coordinates before it."""
        target = self.target
        if self.is_mapped:
            *inner, to_target = flow.transforms
            flow, target = Flow(flow.base, inner), Whitened(target, to_target)  # pyright: ignore
        target = Centred(target, self.centre)
        return flow, Precise(target) if self.is_double else target

    def outside(self, flow: Flow, z: Any) -> tuple[np.ndarray, Any]:
        """Return points of the flow without its map in the coordinates of the target, as doubles.

        Also the log-determinants there. In single precision, points far from zero lose their digits.
        """
        return self._through(flow, "forward", z)

    def within(self, flow: Flow, x: Any) -> tuple[np.ndarray, Any]:
        """Return points in the coordinates of the target in those before the flow's map; see `outside`."""
        return self._through(flow, "inverse", x)

    def outward(self, flow: Flow, draws: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return `x`, `log_q` and `log_weight` of draws of the flow without its map, as of the whole flow.

        Weights are those of the coordinates in which the flow was trained, where they keep their digits.
        """
        x, log_det = self.outside(flow, draws["x"])
        log_weight = draws["log_weight"].astype(np.float64) + self.centre
        return {"x": x, "log_q": draws["log_q"] - log_det, "log_weight": log_weight}

    def log_prob(self, flow: Flow, x: Any) -> np.ndarray:
        """Return the log density of a flow at points in the coordinates of the target, given as doubles."""
        z, log_det = self.within(flow, x)
        return np.asarray(self.of(flow)[0].log_prob(jnp.asarray(z, float)), np.float64) + log_det

    def _through(self, flow: Flow, direction: str, points: Any) -> tuple[np.ndarray, Any]:
        points = np.asarray(points, np.float64)
        if not self.is_mapped:
            return points, 0.0
        to_target = flow.transforms[-1]
        assert isinstance(to_target, AbstractBijection)
        with jax.enable_x64(True):
            moved, log_det = jax.jit(jax.vmap(getattr(to_target, direction)))(jnp.asarray(points))
            return np.asarray(moved), np.asarray(log_det)

    def shifted(self, found: Evaluation) -> Evaluation:
        """Return an evaluation of the target near zero as one of the target itself."""
        log_z = found.log_z + self.centre
        # Where the target is computed in single precision, it is so before the centre is subtracted.
        rounding = found.rounding if self.is_double else float(jnp.finfo(float).eps) * abs(log_z)
        return dataclasses.replace(found, elbo=found.elbo + self.centre, log_z=log_z, rounding=rounding)


class InsideKL(AbstractObjective):
    """The reverse KL divergence of a flow, computed in the coordinates before its last transform.

    The loss is lower than that of `ReverseKL` by the centre that was subtracted; ESS and KL are the same.

    Attributes:
        inside: The target.
        estimator: The estimator of the gradient.
    """

    inside: Inside
    estimator: AbstractEstimator = PathGradient()

    def __call__(self, model, batch):
        flow, target = self.inside.of(model)
        return ReverseKL(target, self.estimator)(flow, batch)

    def summary(self, each):
        numbers = dict(ReverseKL().summary(each))
        return numbers | {"log_z": float(numbers["log_z"]) + self.inside.centre}
