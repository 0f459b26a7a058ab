r"""Ways to compute the divergence $\nabla \cdot f$ of a field: exactly, with noise, or in closed form."""

from abc import abstractmethod
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from .._words.arguments import one_of, whole
from .fields import AbstractTractableField


class AbstractDivergence(eqx.Module):
    """A way to compute velocity and divergence of a field at one point, sharing as much work as possible."""

    @property
    @abstractmethod
    def is_noisy(self) -> bool:
        """Whether the divergence is only estimated."""

    def check(self, field: Any) -> None:
        """Raise a `ValueError` that says what to do if this cannot be used with the field. Most can."""

    def prepare(self, field: Any) -> PyTree:
        """Return what depends on the field's parameters only: computed once per solve, not per evaluation."""
        return None

    def noise(self, shape: tuple[int, ...], dtype: Any, *, key: Key[Array, ""]) -> Array | None:
        """Return the noise for one draw in one solve, or `None` if there is none."""
        return None

    @abstractmethod
    def __call__(
        self, field: Any, t: Array, x: Float[Array, "*event"], prepared: PyTree, noise: Array | None
    ) -> tuple[Float[Array, "*event"], Float[Array, ""]]:
        """Return the velocity and its divergence (or an unbiased estimate of it)."""

    def exact(self, field: Any) -> "AbstractDivergence":
        """Return the cheapest noise-free divergence for this field."""
        return exact_divergence(field)


def exact_divergence(field: Any) -> "AbstractDivergence":
    """Return the cheapest noise-free divergence that the field allows."""
    tractable = isinstance(field, AbstractTractableField) and field.why_not_tractable is None
    return ClosedForm() if tractable else Exact()


class Exact(AbstractDivergence):
    """The trace of the Jacobian by automatic differentiation: exact, one pass for each dimension."""

    @property
    def is_noisy(self):
        return False

    def __call__(self, field, t, x, prepared, noise):
        velocity, push = jax.linearize(lambda y: field(t, y), x)
        basis = jnp.eye(x.size, dtype=x.dtype).reshape(x.size, *x.shape)
        jacobian = jax.vmap(push)(basis).reshape(x.size, x.size)
        return velocity, jnp.trace(jacobian)


class Hutchinson(AbstractDivergence):
    r"""The estimate $\varepsilon^\top J \varepsilon$, averaged over `probes` independent vectors.

    Unbiased, for one extra forward pass per probe. The noise is sampled once per draw and solve; `log q`
    and the score share it, so that the score is the exact gradient of the noisy `log q`. The noise does not
    vanish at the optimum, and it biases importance weights: evaluate with `flow.exact()`.

    Attributes:
        probes: Number of noise vectors.
        noise_kind: `"rademacher"` (random signs; less variance) or `"gaussian"` (as in Vaitl et al. 2022).
    """

    probes: int = eqx.field(static=True)
    noise_kind: str = eqx.field(static=True)

    def __init__(self, probes: int = 1, noise: Literal["rademacher", "gaussian"] = "rademacher") -> None:
        """Choose the number of noise vectors and the kind of noise."""
        one_of("noise", noise, ("rademacher", "gaussian"))
        self.probes, self.noise_kind = whole("probes", probes), noise

    @property
    def is_noisy(self):
        return True

    def noise(self, shape, dtype, *, key):
        draw = jr.rademacher if self.noise_kind == "rademacher" else jr.normal
        return draw(key, (self.probes, *shape), dtype)

    def __call__(self, field, t, x, prepared, noise):
        assert noise is not None
        if self.probes == 1:
            # No probe axis here, so that mapping over the batch gives a plain matrix product.
            velocity, pushed = jax.jvp(lambda y: field(t, y), (x,), (noise[0],))
            return velocity, jnp.vdot(noise[0], pushed)
        velocity, push = jax.linearize(lambda y: field(t, y), x)
        products = jax.vmap(lambda e: jnp.vdot(e, push(e)))(noise)
        return velocity, jnp.mean(products)


class ClosedForm(AbstractDivergence):
    """The field's own formula for its divergence: exact, at about the cost of one Hutchinson probe."""

    @property
    def is_noisy(self):
        return False

    def check(self, field):
        if not isinstance(field, AbstractTractableField):
            raise ValueError(
                f"`ClosedForm` needs a field with a formula for its divergence, an `AbstractTractableField`; "
                f"got {type(field).__name__}. Use `Exact()` or `Hutchinson()`."
            )
        if field.why_not_tractable is not None:
            raise ValueError(
                f"This {type(field).__name__} has no closed-form divergence: {field.why_not_tractable} "
                "Use `Exact()` or `Hutchinson()`."
            )

    def prepare(self, field):
        return field.prepare()

    def __call__(self, field, t, x, prepared, noise):
        return field.velocity_and_divergence(t, x, prepared)
