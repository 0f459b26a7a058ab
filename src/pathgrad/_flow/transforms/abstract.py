"""The interface of all transforms, and most of its implementation for bijections."""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from ..._words.draw import Draw, SolveInfo, Tally
from ..._words.tree import freeze, one_draw, over_draws

# A point, and log |det| of the Jacobian of the map that led there.
Mapped = tuple[Float[Array, "*event"], Float[Array, ""]]


class AbstractTransform(eqx.Module):
    """An invertible map of a batch of points, and of their density and score.

    `push` transforms whatever the draw carries, differentiable as `Draw` describes. For a map that is known
    in closed form in both directions, write an `AbstractBijection`, which needs only two methods.
    """

    @abstractmethod
    def check(self, shape: tuple[int, ...]) -> None:
        """Raise a `ValueError` if the map cannot take points of this shape."""

    @abstractmethod
    def push(self, draw: Draw, *, keys: Key[Array, " batch"]) -> Draw:
        """Map draws forward, towards the target. Each draw has its own key for noise."""

    @abstractmethod
    def pull(
        self, x: Float[Array, "batch *event"], *, keys: Key[Array, " batch"]
    ) -> tuple[Float[Array, "batch *event"], Float[Array, " batch"], SolveInfo | None]:
        """Map points backward, towards the base. Also return log |det| of the *forward* map at them."""

    @property
    @abstractmethod
    def is_noisy(self) -> bool:
        """Whether `log q` is only estimated, so that keys are needed."""

    @property
    @abstractmethod
    def is_solved(self) -> bool:
        """Whether it uses an ODE solver, so that refining it can change its results."""

    @abstractmethod
    def exact(self) -> "AbstractTransform":
        """Return the same map with its density computed without noise."""

    @abstractmethod
    def refined(self, factor: int) -> "AbstractTransform":
        """Return the same map, solved as accurately as with `factor` times the steps."""

    @abstractmethod
    def tallied(self, tally: Tally) -> "AbstractTransform":
        """Return the same map, with the field evaluations of its backward pass counted in a tally."""


class AbstractBijection(AbstractTransform):
    r"""A map that is known in closed form in both directions, such as a coupling layer.

    Write `forward` and `inverse` for one point; everything else follows, for all estimators. The
    score needs no rule of its own. With $y = g(x)$ and
    $\ln q_y(y) = \ln q_x(g^{-1}(y)) + \ln |\det \partial g^{-1}/\partial y|$,

    $$\nabla_y \ln q_y = \nabla_x \ln q_x\, \frac{\partial g^{-1}}{\partial y}
      + \nabla_y \ln \left|\det \frac{\partial g^{-1}}{\partial y}\right|,$$

    one vector-Jacobian product of `inverse`. If both directions evaluate the same network at the same
    numbers, as couplings do, it is evaluated only once.

    The maps should be smooth, since the score contains their second derivatives, and `inverse` must undo
    `forward` up to rounding.
    """

    @abstractmethod
    def forward(self, x: Float[Array, "*event"]) -> Mapped:
        r"""Map one point towards the target; also return $\ln |\det \partial y/\partial x|$."""

    @abstractmethod
    def inverse(self, y: Float[Array, "*event"]) -> Mapped:
        r"""Map one point towards the base; also return $\ln |\det \partial x/\partial y|$."""

    def check(self, shape):
        one = one_draw(self)
        for name, mapping in (("forward", one.forward), ("inverse", one.inverse)):
            _check(f"{type(self).__name__}.{name}", mapping, shape)

    def push(self, draw, *, keys):
        x, log_det = over_draws(lambda b, x: b.forward(x), self, draw.x)
        log_q, score = None if draw.log_q is None else draw.log_q - log_det, None
        if draw.score is not None:
            # Along the path, density and score are constants, not functions of the parameters.
            log_q, score = freeze(log_q), over_draws(_carry_score, *freeze((self, x, draw.score)))
        return Draw(x, log_q, score, draw.log_choice, draw.solve)

    def pull(self, x, *, keys):
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
        return self

    def tallied(self, tally):
        return self


def _carry_score(bijection: AbstractBijection, y: Array, score: Array) -> Array:
    # In one computation with the map itself, and from the points it returned: only then does the compiler
    # see that both read the same half, and evaluate a coupling's network once (`tests/test_costs.py`).
    (_, log_det), vjp = jax.vjp(bijection.inverse, y)
    (carried,) = vjp((score, jnp.ones_like(log_det)))
    return carried


def _check(name: str, mapping: Callable[[Array], Mapped], shape: tuple[int, ...]) -> None:
    """Raise unless a mapping takes a point of this shape and returns another one and a scalar."""
    point = jax.ShapeDtypeStruct(shape, jnp.result_type(float))
    try:
        result = eqx.filter_eval_shape(mapping, point)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`{name}` does not take a point of shape {shape}: {error}") from error
    parts = result if isinstance(result, tuple) else (result,)
    shapes = [getattr(part, "shape", type(part).__name__) for part in parts]
    if shapes != [shape, ()]:
        raise ValueError(
            f"`{name}` must return two things, a point of the same shape {shape} as its argument and the "
            f"log-determinant, a scalar; it returned {', '.join(map(str, shapes))}."
        )
