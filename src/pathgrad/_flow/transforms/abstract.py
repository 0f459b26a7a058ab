"""What every transform offers; of maps in closed form both ways, bijections, most of it is written here."""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from ..._words.draw import Draw, SolveInfo, Tally
from ..._words.tree import freeze, one_draw, over_draws

# A point, and the log |det| of the Jacobian of the map that led there.
Mapped = tuple[Float[Array, "*event"], Float[Array, ""]]


class AbstractTransform(eqx.Module):
    """An invertible map of a batch of points, which knows what it does to density and score.

    `push` carries whatever the draw carries, and differentiates it as `Draw` says. A map that is known in
    closed form both ways is an `AbstractBijection`, which has all of this from two methods.
    """

    @abstractmethod
    def check(self, shape: tuple[int, ...]) -> None:
        """Raise a `ValueError` if points of this shape cannot be served."""

    @abstractmethod
    def push(self, draw: Draw, *, keys: Key[Array, " batch"]) -> Draw:
        """Carry a draw forwards. Each draw has a key of its own, for noise."""

    @abstractmethod
    def pull(
        self, x: Float[Array, "batch *event"], *, keys: Key[Array, " batch"]
    ) -> tuple[Float[Array, "batch *event"], Float[Array, " batch"], SolveInfo | None]:
        """Carry points backwards. Also return log |det| of the *forward* map at them."""

    @property
    @abstractmethod
    def is_noisy(self) -> bool:
        """Whether `log q` is only estimated, so that keys are needed."""

    @property
    @abstractmethod
    def is_solved(self) -> bool:
        """Whether an ODE solver stands behind it, so that refining it can change its numbers."""

    @abstractmethod
    def exact(self) -> "AbstractTransform":
        """Return the same map with its density computed without noise."""

    @abstractmethod
    def refined(self, factor: int) -> "AbstractTransform":
        """Return the same map, solved as accurately as with `factor` times the steps."""

    @abstractmethod
    def tallied(self, tally: Tally) -> "AbstractTransform":
        """Return the same map, which counts the field evaluations of its backward pass in a tally."""


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
        x, log_det = over_draws(lambda b, x: b.forward(x), self, draw.x)
        log_q, score = None if draw.log_q is None else draw.log_q - log_det, None
        if draw.score is not None:
            # Along the path, density and score are numbers, not functions of the parameters.
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
