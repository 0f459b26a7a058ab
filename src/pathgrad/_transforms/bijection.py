"""Maps in closed form both ways. They write down the map; what becomes of a draw is written here."""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._draw import Draw
from .._tree import freeze, one_draw, over_draws
from .abstract import AbstractTransform

# A point, and the log |det| of the Jacobian of the map that led there.
Mapped = tuple[Float[Array, "*event"], Float[Array, ""]]


class AbstractBijection(AbstractTransform):
    r"""A map that is known in closed form in both directions, such as a coupling layer.

    It speaks of one point: write `forward` and `inverse`, and everything else follows, for all
    estimators. What it does to the score needs no rule of its own. With $y = g(x)$ and
    $\ln q_y(y) = \ln q_x(g^{-1}(y)) + \ln |\det \partial g^{-1}/\partial y|$,

    $$\nabla_y \ln q_y = \nabla_x \ln q_x\, \frac{\partial g^{-1}}{\partial y}
      + \nabla_y \ln \left|\det \frac{\partial g^{-1}}{\partial y}\right|,$$

    one vector-Jacobian product of `inverse`. Where both directions evaluate the same network at the same
    numbers, as couplings do, it is evaluated once.

    The maps should be smooth, since the score has second derivatives of them, and `inverse` must undo
    `forward` to rounding.
    """

    @abstractmethod
    def forward(self, x: Float[Array, "*event"]) -> Mapped:
        r"""Map one point towards the target; also return $\ln |\det \partial y/\partial x|$."""

    @abstractmethod
    def inverse(self, y: Float[Array, "*event"]) -> Mapped:
        r"""Map one point towards the base; also return $\ln |\det \partial x/\partial y|$."""

    def check(self, shape):
        own = one_draw(self)
        for name, mapping in (("forward", own.forward), ("inverse", own.inverse)):
            _check(f"{type(self).__name__}.{name}", mapping, shape)

    def push(self, draw, *, keys):
        del keys
        x, log_det = over_draws(lambda b, x: b.forward(x), self, draw.x)
        if draw.log_q is None:
            return Draw(x, None, None, draw.log_choice, draw.solve)
        if draw.score is None:
            return Draw(x, draw.log_q - log_det, None, draw.log_choice, draw.solve)
        # Along the path, density and score are numbers, not functions of the parameters.
        score = over_draws(_carry_score, *freeze((self, x, draw.score)))
        return Draw(x, freeze(draw.log_q - log_det), score, draw.log_choice, draw.solve)

    def pull(self, x, *, keys):
        del keys
        x, log_det = over_draws(lambda b, y: b.inverse(y), self, x)
        return x, -log_det, None

    @property
    def is_noisy(self):
        return False

    @property
    def is_solved(self):
        return False

    def exact(self):
        return self

    def refined(self, factor):
        del factor
        return self

    def tallied(self, tally):
        del tally
        return self


def _carry_score(bijection: AbstractBijection, y: Array, score: Array) -> Array:
    # In one computation with the map itself, and from the points that it made: only there does the compiler
    # see that both read the same half, and evaluate a coupling's network once (`tests/test_costs.py`).
    (_, log_det), vjp = jax.vjp(bijection.inverse, y)
    (carried,) = vjp((score, jnp.ones_like(log_det)))
    return carried


def _check(name: str, mapping: Callable[[Array], Mapped], shape: tuple[int, ...]) -> None:
    """Raise unless a direction takes a point and returns one like it, and a scalar."""
    point = jax.ShapeDtypeStruct(shape, jnp.result_type(float))
    try:
        found = eqx.filter_eval_shape(mapping, point)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{name}` does not take a point of shape {shape}: {error}") from error
    parts = found if isinstance(found, tuple) else (found,)
    shapes = [getattr(part, "shape", type(part).__name__) for part in parts]
    if shapes != [shape, ()]:
        raise ValueError(
            f"`{name}` must return two things, a point of the shape {shape} of the one it is given and the "
            f"log-determinant, a scalar; it returned {', '.join(map(str, shapes))}."
        )
