"""A user's own log density, named as MODULE:FUNCTION or FILE.py:FUNCTION."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array

import pathgrad as pg

from ..flows.making import make_flow, make_training
from ..flows.problem import FlowProblem
from .experiment import FitOptions

_PROBES = 256  # random points at which a density is tested before training


def load_density(spec: str) -> Callable[..., Array]:
    """Import the function that `MODULE:FUNCTION` or `FILE.py:FUNCTION` names."""
    module_name, colon, function = spec.rpartition(":")
    if not colon or not module_name or not function:
        raise pg.UserError(
            f"{spec!r} does not name a function: write MODULE:FUNCTION, or path/to/file.py:FUNCTION."
        )
    module = _load(module_name)
    density = getattr(module, function, None)
    if not callable(density):
        known = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise pg.UserError(
            f"{module_name} has no function {function!r}. It has: {', '.join(known) or 'none'}."
        )
    return density  # pyright: ignore[reportReturnType]


def _load(name: str) -> ModuleType:
    """Import a module by its name, or from a file."""
    path, is_file = Path(name).expanduser(), name.endswith(".py")
    if is_file and not path.is_file():
        raise pg.UserError(f"There is no file {name} (looked in {Path.cwd()}).")
    # As with `python file.py` and `python -m`, so that it can import the files beside it.
    sys.path.insert(0, str(path.absolute().parent if is_file else Path.cwd()))
    try:
        if not is_file:
            return importlib.import_module(name)
        # Under a different name, since an installed package may have the same one.
        spec = importlib.util.spec_from_file_location(f"_pathgrad_density_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # where its classes look for it
        spec.loader.exec_module(module)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        if is_file:
            raise pg.UserError(f"Importing {name} failed: {cause}") from error
        raise pg.UserError(
            f"Importing the module {name} failed: {cause}. For a file, write its path with `.py`."
        ) from error
    finally:
        sys.path.pop(0)
    return module


def build(options: FitOptions) -> FlowProblem:
    """Return the problem that the options describe."""
    if options.dim < 1:
        raise pg.ArgumentError(
            f"{pg.named('dim')}, the number of coordinates of a point, must be given: at least 1, got "
            f"{options.dim}."
        )
    target = _checked(load_density(options.density), options)
    flow = make_flow(options.flow, (options.dim,), key=pg.run_keys(options.training.seed)[0])
    return FlowProblem(make_training(options.training, flow, target))


def _checked(density: Callable[..., Array], options: FitOptions) -> pg.LogDensity:
    """Test the density before training on it, and report any problem in one line."""
    name = options.density
    try:
        target = pg.LogDensity(density, (options.dim,))
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else ""
        raise pg.UserError(
            f"{name} failed on one point of {options.dim} coordinates: {type(error).__name__}: {first}"
        ) from error
    points = jr.normal(jr.key(0), (_PROBES, options.dim))
    values, gradients = jax.vmap(jax.value_and_grad(target.log_prob))(points)
    for what, array in (("value", values), ("gradient", gradients)):
        bad = int(jnp.sum(~jnp.isfinite(array).reshape(_PROBES, -1).all(axis=1)))
        if bad:
            raise pg.UserError(
                f"The {what} of {name} is NaN or infinite at {bad} of {_PROBES} standard normal points. A "
                "flow can reach every point, so map bounded variables to the real line (log, logit) first."
            )
    return target
