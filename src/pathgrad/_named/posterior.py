"""A density of named parameters as a target."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._ingredients.target import LogDensity
from .._words.arguments import function, shown
from .._words.errors import ArgumentError, named
from .abstract import AbstractNamedTarget, shapes_of, size_of
from .supports import AbstractSupport

Density = Callable[[dict[str, Array]], Any]
Derive = Callable[[dict[str, Array]], Mapping[str, Any]]


class Posterior(AbstractNamedTarget):
    """A target made from a log density of named parameters, such as a posterior.

    Each parameter has a support, and the flow works on a free vector, any point of which stands for allowed
    parameters. The log-determinants are added. The free vector has the parameters in the order of `supports`,
    and a bound may depend on the parameters before.

    Make it once: programs are compiled for each object anew.

    Attributes:
        density: The log density of a dictionary of parameters, up to a constant, as a scalar.
        derived: A function of that dictionary which returns further values to report.
    """

    density: Density
    derived: Derive | None
    _names: tuple[str, ...] = eqx.field(static=True)
    _supports: tuple[AbstractSupport, ...]
    _shapes: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True)

    def __init__(
        self, log_prob: Density, supports: Mapping[str, AbstractSupport], derived: Derive | None = None
    ) -> None:
        """Make a target.

        Args:
            log_prob: The log density of a dictionary of parameters, up to a constant, as a scalar.
            supports: Support of each parameter: `{"mean": real(), "rates": positive(3)}`.
            derived: A function of the same dictionary that returns a dictionary of further values, which
                summaries are to have as well.
        """
        function("log_prob", log_prob, "log_prob(parameters)")
        if derived is not None:
            function("derived", derived, "derived(parameters)")
        if not isinstance(supports, Mapping) or not supports:
            raise ArgumentError(
                f"{named('supports')} must be a dictionary with at least one parameter, such as "
                f'`{{"mean": real()}}`, got {shown(supports)}.'
            )
        for name, support in supports.items():
            if not isinstance(support, AbstractSupport):
                raise ArgumentError(
                    f"{named('supports')} must give a support for each parameter, such as `real()`; for "
                    f"{name!r} there is {shown(support)}."
                )
        # Not a dictionary: as part of a tree of arrays it would be sorted by name.
        self._names, self._supports = tuple(supports), tuple(supports.values())
        self.density, self.derived = log_prob, derived
        self._shapes = ()
        self._shapes = shapes_of(self.constrain, self.shape)
        LogDensity(self.log_prob, self.shape)  # checks the result

    @property
    def shape(self) -> tuple[int]:
        """Shape of a free vector."""
        return (sum(size_of(support.free_shape) for support in self._supports),)

    @property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters, and of what is derived from them."""
        return dict(self._shapes)

    def log_prob(self, x: Float[Array, " dim"]) -> Array:
        """Return the log density of a free vector, with the log-determinant of the map to the parameters."""
        values, log_det = self._parameters_of(x)
        return self.density(values) + log_det

    def constrain(self, x: Float[Array, " dim"]) -> dict[str, Array]:
        """Return the parameters of a free vector, and what is derived from them."""
        values, _ = self._parameters_of(x)
        if self.derived is None:
            return values
        # Given a copy, which a function may change.
        more = {name: jnp.asarray(value) for name, value in self.derived(dict(values)).items()}
        if twice := [name for name in more if name in values]:
            raise ArgumentError(f"{named('derived')} must not have names of parameters: {twice[0]!r}.")
        return values | more

    def unconstrain(self, values: Mapping[str, Any]) -> Float[Array, " dim"]:
        """Return the free vector of parameters; derived values are ignored."""
        if missing := [name for name in self._names if name not in values]:
            raise ArgumentError(f"{named('values')} must have all parameters; {missing[0]!r} is missing.")
        dtype = jnp.result_type(float, *(jnp.asarray(values[name]) for name in self._names))
        before, free = dict[str, Array](), list[Array]()
        for name, support in zip(self._names, self._supports, strict=True):
            value = jnp.asarray(values[name], dtype)
            if value.shape != support.shape:
                raise ArgumentError(f"{name!r} must have the shape {support.shape}, got {value.shape}.")
            free.append(jnp.ravel(support.unconstrain(value, before)))
            before[name] = value
        return jnp.concatenate(free)

    def _parameters_of(self, x: Array) -> tuple[dict[str, Array], Array]:
        values, log_det, begin = dict[str, Array](), jnp.zeros((), x.dtype), 0
        for name, support in zip(self._names, self._supports, strict=True):
            end = begin + size_of(support.free_shape)
            free = x[begin:end].reshape(support.free_shape)
            values[name], change = support.constrain(free, dict(values))
            log_det, begin = log_det + change, end
        return values, log_det
