"""A user's own log density, named as MODULE:FUNCTION or FILE.py:FUNCTION."""

import dataclasses
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from pathgrad._errors import ArgumentError, UserError, named

from .options import FlowOptions, TrainOptions

_PROBES = 256  # draws at which a density is tried before anything is trained on it


@dataclasses.dataclass(frozen=True)
class CustomOptions:
    """Fit a flow to your own log density: a JAX function of one point, up to a constant."""

    density: str = ""
    dim: int = 0
    flow: FlowOptions = FlowOptions()
    training: TrainOptions = TrainOptions()

    @property
    def name(self) -> str:
        """For the run directory."""
        function = self.density.rpartition(":")[2]
        return f"fit-{function}-{self.training.method}-s{self.training.seed}"


def load_density(spec: str) -> Any:
    """Import the function that `MODULE:FUNCTION` or `FILE.py:FUNCTION` names."""
    module_name, colon, function = spec.rpartition(":")
    if not colon or not module_name or not function:
        raise UserError(
            f"{spec!r} does not name a function: write MODULE:FUNCTION, or path/to/file.py:FUNCTION."
        )
    module = _load_file(module_name) if module_name.endswith(".py") else _load_module(module_name)
    density = getattr(module, function, None)
    if not callable(density):
        known = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise UserError(
            f"{module_name} has no function {function!r}. It has: {', '.join(known) or 'none'}."
        )
    return density


def _load_file(name: str) -> Any:
    path = Path(name).expanduser()
    if not path.is_file():
        raise UserError(f"There is no file {name} (looked in {Path.cwd()}).")
    # Not under its own name, which may be that of an installed package.
    spec = importlib.util.spec_from_file_location(f"_pathgrad_density_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # As `python file.py` would: its classes can find their module, and it the files beside it.
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.absolute().parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"Importing {name} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    return module


def _load_module(name: str) -> Any:
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise UserError(
            f"Importing the module {name} failed: {type(error).__name__}: {error}. "
            "For a file, write its path with `.py`."
        ) from error
    finally:
        sys.path.pop(0)


def build(options: CustomOptions) -> Any:
    """Return the `Problem` the options describe."""
    from .problem import Problem, keys, make_flow, make_training

    if options.dim < 1:
        raise ArgumentError(f"{named('dim')} must be at least 1, got {options.dim}.")
    density = load_density(options.density)
    target = _checked(density, options)
    flow_key, _, _ = keys(options.training.seed)
    flow = make_flow(options.flow, (options.dim,), key=flow_key)
    return Problem(make_training(options.training, flow, target))


def _checked(density: Any, options: CustomOptions) -> Any:
    """Try the density before training on it, and say what is wrong with it in one line."""
    import jax
    import jax.numpy as jnp
    import jax.random as jr

    import pathgrad as pg

    name = options.density
    try:
        target = pg.LogDensity(density, (options.dim,))
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else ""
        raise UserError(
            f"{name} cannot take one point of {options.dim} numbers: {type(error).__name__}: {first}"
        ) from error
    points = jr.normal(jr.key(0), (_PROBES, options.dim))
    values, gradients = jax.vmap(jax.value_and_grad(target.log_prob))(points)
    for what, array in (("value", values), ("gradient", gradients)):
        bad = int(jnp.sum(~jnp.isfinite(array).reshape(_PROBES, -1).all(axis=1)))
        if bad:
            raise UserError(
                f"The {what} of {name} is NaN or infinite at {bad} of {_PROBES} standard normal points. A "
                "flow reaches every point: map bounded variables to the whole line (log, logit) first."
            )
    return target
