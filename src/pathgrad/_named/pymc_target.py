"""A model of PyMC as a target."""

from typing import Any

import jax

from .._words.arguments import shown
from .._words.errors import ArgumentError, named
from .._words.extras import needed
from .tree import TreeTarget, from_pytree


def from_pymc(model: Any = None) -> TreeTarget:
    """Return the posterior of a PyMC model, as a target with named parameters.

    The density is that of PyMC's own transformed variables, in JAX, with its constants. Parameters and
    deterministics are reported. Needs the extra `pymc`.

    Args:
        model: A `pymc.Model`; by default that of the `with` block around this call.
    """
    pymc, in_jax = needed("pymc", "pymc"), _pymc_in_jax()
    if model is not None and not hasattr(model, "discrete_value_vars"):
        raise ArgumentError(f"{named('model')} must be a `pymc.Model`, got {shown(model)}.")
    model = pymc.modelcontext(model)
    if discrete := [variable.name for variable in model.discrete_value_vars]:
        raise ArgumentError(
            f"The variable {discrete[0]!r} is discrete. Sum it out, with a mixture distribution or with "
            "`marginalize` of pymc-extras, or give it a continuous prior."
        )
    if not model.value_vars:
        raise ArgumentError("The model has no unknown variable: there is nothing to fit.")
    # Its argument `negative_logp` says the opposite of what it does: by default this is plus log p.
    log_prob = in_jax.get_jaxified_logp(model)
    names = [variable.name for variable in (*model.free_RVs, *model.deterministics)]
    recorded = {variable.name: variable for variable in model.unobserved_value_vars}
    values = in_jax.get_jaxified_graph(inputs=model.value_vars, outputs=[recorded[name] for name in names])
    point = model.initial_point()
    return from_pytree(
        lambda free: log_prob(free).reshape(()),
        [point[variable.name] for variable in model.value_vars],
        lambda free: dict(zip(names, values(*free), strict=True)),
    )


def _pymc_in_jax() -> Any:
    """Import PyMC's functions for JAX, which switch double precision on for everybody, and undo that."""
    before = bool(jax.config.read("jax_enable_x64"))
    try:
        return needed("pymc.sampling.jax", "pymc")
    finally:
        jax.config.update("jax_enable_x64", before)
