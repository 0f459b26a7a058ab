"""A first look at a NumPyro model: its sites, and a sentence for each reason why it is no target."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array

from .._words.errors import ArgumentError
from .._words.extras import needed

Model = Callable[..., Any]
Trace = Mapping[str, Any]


class Sites(NamedTuple):
    """What a model samples.

    Attributes:
        latent: A value of each continuous latent site.
        discrete: Names of the discrete latent sites.
        shapes: Names and shapes of continuous latent and of deterministic sites, in the order of the model.
        plates: How many plates are nested, at most.
    """

    latent: dict[str, Array]
    discrete: tuple[str, ...]
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    plates: int


def check_model(model: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sites:
    """Run a model once, and return its sites; raise if its density cannot be fitted."""
    handlers, infer = needed("numpyro.handlers", "numpyro"), needed("numpyro.infer", "numpyro")
    started = handlers.substitute(handlers.seed(model, 0), substitute_fn=infer.init_to_uniform)
    trace = handlers.trace(started).get_trace(*args, **kwargs)
    call = _arguments_without_value(model, args, kwargs)
    if call is not None:
        _check_observations(model, call, trace)
    for name, site in trace.items():
        _check_site(name, site)
    latent = {name: site for name, site in trace.items() if _is_latent(site)}
    discrete = tuple(name for name, site in latent.items() if site["fn"].support.is_discrete)
    values = {name: site["value"] for name, site in latent.items() if name not in discrete}
    if not values:
        what = "only discrete ones, which are summed out" if discrete else "none"
        raise ArgumentError(
            f"The model has no continuous latent site ({what}): there is nothing to fit. Its unknowns must "
            "be `numpyro.sample` statements without `obs`."
        )
    if discrete:
        needed("funsor", "numpyro")
    shown = [n for n, site in trace.items() if n in values or site["type"] == "deterministic"]
    shapes = tuple((name, np.shape(trace[name]["value"])) for name in shown)
    frames = [f for site in trace.values() for f in site.get("cond_indep_stack", ())]
    return Sites(values, discrete, shapes, -min([0, *(f.dim for f in frames if f.dim is not None)]))


def likelihood_sites(model: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the data of observed sites by name, without factors, which are none."""
    handlers, infer = needed("numpyro.handlers", "numpyro"), needed("numpyro.infer", "numpyro")
    started = handlers.substitute(handlers.seed(model, 0), substitute_fn=infer.init_to_uniform)
    trace = handlers.trace(started).get_trace(*args, **kwargs)
    return {name: site["value"] for name, site in trace.items() if is_observed(site)}


def _is_latent(site: Any) -> bool:
    return site["type"] == "sample" and not site["is_observed"]


def is_observed(site: Any) -> bool:
    """Return whether a site has data; a factor has none."""
    return site["type"] == "sample" and site["is_observed"] and type(site["fn"]).__name__ != "Unit"


def _check_site(name: str, site: Any) -> None:
    if site["type"] == "param":
        raise ArgumentError(
            f"The model has `numpyro.param({name!r})`, which nothing here would train. Give it a prior with "
            "`numpyro.sample`, or make it a constant."
        )
    if site["type"] == "plate" and site["args"][1] not in (None, site["args"][0]):
        size, part = site["args"][:2]
        raise ArgumentError(
            f"The plate {name!r} takes {part} of {size} data at random, so that the density would be "
            "random. Leave `subsample_size` out."
        )
    if is_observed(site):
        _check_data(name, np.asarray(site["value"]))
    if not _is_latent(site):
        return
    kind = type(site["fn"]).__name__
    if kind == "Delta":
        raise ArgumentError(
            f"The site {name!r} has a `Delta` distribution, which is no density. Write "
            f"`numpyro.deterministic({name!r}, ...)` instead."
        )
    if site["fn"].support.is_discrete and not site["fn"].has_enumerate_support:
        raise ArgumentError(
            f"The site {name!r} is discrete, and {kind} has no finite list of values to sum over. Sum it out "
            "by hand, or give it a continuous prior."
        )


def _check_data(name: str, value: np.ndarray) -> None:
    bad = int(np.sum(np.isnan(value))) if value.dtype.kind == "f" else 0
    if bad:
        raise ArgumentError(
            f"The observed site {name!r} has NaN in {bad} of {value.size} numbers. Leave out what is "
            "missing, or make it a latent site."
        )


class _Missing:
    """Stands for data that were not given."""


def _check_observations(model: Model, call: "_Call", trace: Trace) -> None:
    """Raise if a site is to be observed, but its data are an argument that was not given.

    NumPyro then takes it for one more unknown, without a word.
    """
    handlers, infer = needed("numpyro.handlers", "numpyro"), needed("numpyro.infer", "numpyro")
    for name in call.missing:
        if name in trace and _is_latent(trace[name]):
            raise _without_data(name, name)
        missing = _Missing()
        started = handlers.substitute(handlers.seed(model, 0), substitute_fn=infer.init_to_uniform)
        try:
            found = handlers.trace(started).get_trace(**(call.arguments | {name: missing}))
        except Exception:  # whatever the model does with its data
            continue
        for site, message in found.items():
            if is_observed(message) and message["value"] is missing:
                raise _without_data(site, name)
    given = [site for site in trace.values() if site["type"] == "sample" and site["is_observed"]]
    if call.missing and not given:
        raise ArgumentError(
            f"Nothing in the model is observed, and the argument `{call.missing[0]}` was not given. Give the "
            f"data: `{call.missing[0]}=...`."
        )


def _without_data(site: str, argument: str) -> ArgumentError:
    return ArgumentError(
        f"The site {site!r} is observed as the argument `{argument}`, which was not given, so it would be "
        f"one more unknown. Give its data: `{argument}=...`."
    )


class _Call(NamedTuple):
    arguments: dict[str, Any]
    missing: list[str]


def _arguments_without_value(model: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call | None:
    """Return the arguments of a call by name, and which of them are `None`; `None` if they have no names."""
    try:
        bound = inspect.signature(model).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return None
    bound.apply_defaults()
    kinds = {p.kind for p in bound.signature.parameters.values()}
    if kinds & {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL}:
        return None
    arguments = dict(bound.arguments)
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            arguments |= arguments.pop(name)
    return _Call(arguments, [name for name, value in arguments.items() if value is None])
