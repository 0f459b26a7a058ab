"""A model of NumPyro as a target."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from .._words.arguments import function
from .._words.errors import ArgumentError, named
from .._words.extras import needed
from .abstract import AbstractNamedTarget, size_of
from .numpyro_checks import Sites, check_model, is_observed, likelihood_sites

Model = Callable[..., Any]


@dataclasses.dataclass(frozen=True, eq=False)
class _Called:
    """A model with its arguments.

    They stay what they are inside compiled programs: a model may loop over its data, or use NumPy.
    """

    model: Model
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    summed_out: tuple[str, ...]
    prepared: Model  # summing over discrete sites
    seeded: Model

    @classmethod
    def of(cls, model: Model, args: tuple[Any, ...], kwargs: dict[str, Any], sites: Sites) -> "_Called":
        """Prepare a model."""
        seed = needed("numpyro.handlers", "numpyro").seed
        if not sites.discrete:
            # Its own random numbers, if it draws any, are always the same.
            return cls(model, args, kwargs, (), seed(model, 0), seed(model, 0))
        contrib = needed("numpyro.contrib.funsor", "numpyro")
        marked = contrib.config_enumerate(model)
        prepared = contrib.enum(marked, -sites.plates - 1)
        return cls(model, args, kwargs, sites.discrete, prepared, seed(marked, 0))

    @property
    def rest(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments."""
        return self.args, self.kwargs


class NumpyroTarget(AbstractNamedTarget):
    """The posterior of a NumPyro model, as `from_numpyro` makes it.

    The free vector has the latent sites sorted by name, each in NumPyro's own free coordinates.
    """

    _called: _Called = eqx.field(static=True)
    _free: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True)
    _shapes: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True)

    @property
    def shape(self) -> tuple[int]:
        """Shape of a free vector."""
        return (sum(size_of(shape) for _, shape in self._free),)

    @property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of latent and deterministic sites, in the order of the model."""
        return dict(self._shapes)

    @property
    def summed_out(self) -> tuple[str, ...]:
        """Names of the discrete sites, over whose values the density is summed."""
        return self._called.summed_out

    @property
    def observed(self) -> dict[str, np.ndarray]:
        """The data, by site."""
        sites = likelihood_sites(self._called.model, *self._called.rest)
        return {name: np.asarray(value) for name, value in sites.items()}

    def log_prob(self, x: Float[Array, " dim"]) -> Array:
        """Return the log joint density of a free vector, with the log-determinant of the map to the sites."""
        called, is_summed = self._called, bool(self.summed_out)
        potential = _util().potential_energy(called.prepared, *called.rest, self._sites(x), enum=is_summed)
        return -potential

    def constrain(self, x: Float[Array, " dim"]) -> dict[str, Array]:
        """Return the values of latent and deterministic sites."""
        called = self._called
        # NumPyro's `postprocess_fn` would be wrong, silently, for some supports that depend on other sites.
        values = _util().constrain_fn(called.seeded, *called.rest, self._sites(x), return_deterministic=True)
        return {name: jnp.asarray(values[name]) for name in self.parameters}

    def unconstrain(self, values: Mapping[str, Any]) -> Float[Array, " dim"]:
        """Return the free vector of values of the latent sites; those of others are ignored."""
        called, latent = self._called, self._latent(values)
        free = _util().unconstrain_fn(called.seeded, *called.rest, latent)
        return jnp.concatenate([jnp.ravel(free[name]) for name, _ in self._free])

    def log_likelihood(self, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the log likelihood of each observation for draws of the parameters, draws first.

        Args:
            values: Draws by name, as `constrain` under `jax.vmap` returns them.
        """
        if self.summed_out:
            raise ArgumentError(
                f"Pointwise log likelihoods need a value of each site, and {self.summed_out[0]!r} is summed "
                "out. Write the model with a mixture distribution instead."
            )
        called, sites = self._called, self.observed
        infer = needed("numpyro.infer", "numpyro")
        found = infer.log_likelihood(called.seeded, self._latent(values), *called.args, **called.kwargs)
        return {name: np.asarray(found[name]) for name in sites}

    def predictive(
        self, values: Mapping[str, Any], *args: Any, key: Key[Array, ""] | None = None, **kwargs: Any
    ) -> dict[str, np.ndarray]:
        """Draw from the posterior predictive distribution: a data set for each draw of the parameters.

        Args:
            values: Draws by name, draws first.
            args: Arguments of the model for other data than those it was fitted to, such as new inputs. Give
                `None` for the observations. Without any arguments, the observed sites are drawn again.
            key: Source of the noise; by default `jax.random.key(0)`.
            kwargs: Keyword arguments of the model, likewise.
        """
        called, sites, infer = self._called, None, needed("numpyro.infer", "numpyro")
        model = called.model
        if not args and not kwargs:
            (args, kwargs), sites = called.rest, list(self.observed)
            model = _without_data(model)
        draw = infer.Predictive(model, self._latent(values), return_sites=sites)
        found = draw(jr.key(0) if key is None else key, *args, **kwargs)
        return {name: np.asarray(value) for name, value in found.items() if name not in self.parameters}

    def _latent(self, values: Mapping[str, Any]) -> dict[str, Array]:
        if missing := [name for name, _ in self._free if name not in values]:
            raise ArgumentError(f"{named('values')} must have all latent sites; {missing[0]!r} is missing.")
        latent = {name: jnp.asarray(values[name]) for name in dict(self._shapes) if name in dict(self._free)}
        dtype = jnp.result_type(float, *latent.values())
        return {name: value.astype(dtype) for name, value in latent.items()}

    def _sites(self, x: Array) -> dict[str, Array]:
        found, begin = dict[str, Array](), 0
        for name, shape in self._free:
            end = begin + size_of(shape)
            found[name], begin = x[begin:end].reshape(shape), end
        return found


def from_numpyro(model: Model, *args: Any, **kwargs: Any) -> NumpyroTarget:
    """Return the posterior of a NumPyro model, as a target with named parameters.

    The density is the joint density of all latent sites, with NumPyro's constants; discrete sites are summed
    out, where NumPyro can. Needs the extra `numpyro`.

    Make it once: programs are compiled for each object anew. Give data as NumPy arrays, which are used in the
    precision of the computation.

    Args:
        model: A function that calls `numpyro.sample`.
        args: Its arguments, such as data.
        kwargs: Its keyword arguments.
    """
    function("model", model, "model(*args, **kwargs)")
    sites = check_model(model, args, kwargs)
    called = _Called.of(model, args, kwargs, sites)
    free = jax.eval_shape(lambda v: _util().unconstrain_fn(called.seeded, args, kwargs, v), sites.latent)
    return NumpyroTarget(called, tuple((name, free[name].shape) for name in sorted(free)), sites.shapes)


def _without_data(model: Model) -> Model:
    """Return a model that draws its observations, in the shape of the data it was given."""
    handlers = needed("numpyro.handlers", "numpyro")

    class Drawn(handlers.uncondition):
        def process_message(self, msg):
            if is_observed(msg):
                shape = jnp.shape(msg["value"])
                # Without a plate, one distribution may stand for many observations.
                msg["fn"] = msg["fn"].expand(shape[: len(shape) - msg["fn"].event_dim])
                super().process_message(msg)

    return Drawn(model)


def _util() -> Any:
    return needed("numpyro.infer.util", "numpyro")
