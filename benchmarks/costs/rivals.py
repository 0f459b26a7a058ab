"""The cost of the same lattice gradient in other packages, if they are installed."""

import importlib
from types import ModuleType

import equinox as eqx
import jax
import jax.random as jr

import pathgrad as pg
from pathgrad._bench.gradients import gradient
from pathgrad._bench.measure import RATIOS, Work
from pathgrad._bench.options import MeasureOptions
from pathgrad._bench.record import Record, Say
from pathgrad._words.errors import UserError
from pathgrad.experiments.flows.making import ESTIMATORS
from pathgrad.experiments.phi4.field import LatticeField
from pathgrad.experiments.phi4.options import Phi4Options
from pathgrad.experiments.phi4.theory import Phi4

from .lattice import lattice_problem, only_cnf
from .measure import gradients_of, measured

# For each package, the module here that adapts and imports it.
ADAPTERS = {"bijx": ".bijx_rival", "flowjax": ".flowjax_rival"}


def installed() -> dict[str, ModuleType]:
    """Return the packages that can be imported."""
    return {name: module for name in ADAPTERS if (module := _import(name)) is not None}


def _import(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def check_installed() -> None:
    """Raise an error unless at least one of the packages is installed."""
    if not installed():
        raise UserError(
            "--rivals compares with other packages, but none is installed. Run `pip install bijx flowjax`."
        )


def measure_rivals(options: Phi4Options, how: MeasureOptions, say: Say) -> Record:
    """Return the costs of our gradients and of those of other packages, for one configuration.

    The base is a standard normal and the divergence in closed form, as in the other packages.
    """
    batch, packages = options.training.batch, installed()
    with jax.enable_x64(False):
        flow, target = lattice_problem(options)
        cnf = only_cnf(flow)
        cnf = cnf.replace(field=_rough(cnf.field), divergence=pg.ClosedForm())
        flow = pg.Flow(pg.StandardNormal(target.shape), [cnf])
        works = {n: gradient(flow, pg.ReverseKL(target, ESTIMATORS[n]()), batch) for n in how.estimators}
        works |= {name: _gradient(name, flow, target, batch) for name in packages}
        pairs = (*RATIOS, *((name, ours) for ours in ("path", "total") for name in packages))
        versions = {name: getattr(module, "__version__", None) for name, module in packages.items()}
        about, _ = gradients_of(options, how)
        about |= {"base": "unit", "divergence": "closed", "rivals": versions}
        return about | measured(works, how, say, seed=options.training.seed, pairs=pairs)


def _gradient(name: str, flow: pg.Flow, target: Phi4, batch: int) -> Work:
    return importlib.import_module(ADAPTERS[name], __package__).gradient(flow, target, batch)


def _rough(field: LatticeField) -> LatticeField:
    """Return the field with nonzero weights, so that a comparison of values is meaningful."""
    kernel = 0.1 * jr.normal(jr.key(1), field.kernel.shape, field.kernel.dtype)
    return eqx.tree_at(lambda f: f.kernel, field, kernel)
