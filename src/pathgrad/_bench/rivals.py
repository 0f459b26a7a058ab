"""The same lattice gradient in other packages, where they are installed: what one would otherwise pay.

`bijx`: its own lattice field (`ConvVF`) with our weights, its own Runge-Kutta solver (`ContFlowRK4`: the
classical method, as many steps, the state solved again on the way back) and the total gradient of its reverse
KL divergence, the only one it has. Before anything is timed, its velocity and divergence must equal ours.
(That solver is right on the interval [0, 1] only, which is the one used.)

`flowjax`: it has no continuous flow, so ours is made one of its distributions; its `ElboLoss` with
`stick_the_landing` then draws with live and evaluates with frozen parameters: two copies. Its interface is
of one draw, so that every draw is solved by itself.
"""

import importlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import pathgrad as pg
from pathgrad._errors import UserError, named
from pathgrad.experiments.phi4.field import LatticeField
from pathgrad.experiments.phi4.lattice import orbits

from .gradients import Say, cnfs, described, lattice_problem, precision, training_gradients
from .measure import RATIOS, Work, measure
from .options import LatticeOptions

RIVALS = ("bijx", "flowjax")


def installed() -> list[str]:
    """Return those of the packages that can be imported."""
    return [name for name in RIVALS if _import(name) is not None]


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def check_installed() -> None:
    """Raise unless there is at least one of the packages."""
    if not installed():
        raise UserError(
            f"{named('rivals')} compares with other packages, and none of them is installed: "
            "pip install bijx flowjax"
        )


def measure_rivals(options: LatticeOptions, say: Say) -> dict[str, Any]:
    """Return the record of a configuration, with the rivals' gradients beside ours.

    The base is the unit normal and the divergence closed, as in the rivals.
    """
    how = options.measure
    how.check()
    with precision(how.dtype):
        flow, target = lattice_problem(options)
        (cnf,) = cnfs(flow)
        cnf = cnf.replace(field=_rough(cnf.field), divergence=pg.ClosedForm())
        flow = pg.Flow(pg.StandardNormal(target.shape), [cnf])
        works = training_gradients(flow, target, how.estimators, how.batch)
        makers = {"bijx": bijx_gradient, "flowjax": flowjax_gradient}
        names = installed()
        works |= {name: makers[name](flow, target, how.batch) for name in names}
        pairs = (*RATIOS, *((name, "path") for name in names), *((n, "total") for n in names))
        measured = measure(works, repetitions=how.repetitions, seed=how.seed, say=say, pairs=pairs)
        versions = {name: getattr(_import(name), "__version__", None) for name in names}
        about = described("phi4", options, how, flow) | {"base": "unit", "divergence": "closed"}
        return about | {"rivals": versions} | measured


def _rough(field: LatticeField) -> LatticeField:
    """Return the field with weights other than zero, so that a comparison of values means something."""
    kernel = 0.1 * jr.normal(jr.key(1), field.kernel.shape, field.kernel.dtype)
    return eqx.tree_at(lambda f: f.kernel, field, kernel)


def bijx_gradient(flow: pg.Flow, target: Any, batch: int) -> Work:
    """Return value and total gradient of the reverse KL divergence by `bijx`."""
    import bijx  # pyright: ignore[reportMissingImports]
    from flax import nnx  # pyright: ignore[reportMissingImports]

    (cnf,) = cnfs(flow)
    field = bijx_field(cnf.field)
    _check_same(cnf.field, field)
    prior = bijx.IndependentNormal(target.shape, rngs=nnx.Rngs(0))
    model = bijx.Transformed(prior, bijx.ContFlowRK4(field, steps=_steps(cnf)))
    graph, parameters, rest = nnx.split(model, nnx.Param, ...)

    def loss(parameters: Any, key: Any) -> Any:
        x, log_q = nnx.merge(graph, parameters, rest).sample((batch,), rng=key)
        return jnp.mean(log_q - jax.vmap(target.log_prob)(x))

    def run(parameters: Any, key: Any) -> Any:
        return jax.value_and_grad(loss)(parameters, key), None

    return Work(run, parameters)


def _steps(cnf: pg.CNF) -> int:
    assert isinstance(cnf.integrator, pg.FixedStep)
    return cnf.integrator.steps


def bijx_field(field: LatticeField) -> Any:
    """Return the field of `bijx` with the sizes and the weights of ours."""
    from functools import partial

    import bijx  # pyright: ignore[reportMissingImports]
    from bijx.nn import embeddings  # pyright: ignore[reportMissingImports]
    from bijx.nn.features import (  # pyright: ignore[reportMissingImports]
        FourierFeatures,
        PolynomialFeatures,
    )
    from flax import nnx  # pyright: ignore[reportMissingImports]

    bonds, times = field.time_bond.shape
    channels, features = field.feature_bond.shape
    theirs = bijx.ConvVF.build(
        (field.size, field.size),
        time_kernel=embeddings.KernelFourier(times),
        time_kernel_reduced=bonds,
        features=(partial(FourierFeatures, features - 1), partial(PolynomialFeatures, (1,))),
        features_reduced=channels,
        use_bias=False,
        rngs=nnx.Rngs(0),
    )
    # They number the orbits otherwise, and have the origin in the middle: for an even size before it.
    centre = (field.size - 1) // 2
    number = np.roll(np.asarray(theirs.conv.orbits), (-centre, -centre), (0, 1))
    kernel = np.zeros(field.kernel.shape, field.kernel.dtype)
    kernel[number] = np.asarray(field.kernel)[orbits(field.size)[0]]
    theirs.conv.kernel_params.set_value(jnp.asarray(kernel))
    theirs.time_kernel.superposition.set_value(field.time_bond)
    theirs.feature_superposition.set_value(field.feature_bond)
    theirs.feature_map.features[0].phi_freq.set_value(field.omega[None])
    return theirs


def _check_same(ours: LatticeField, theirs: Any) -> None:
    x, t = jr.normal(jr.key(2), (ours.size, ours.size)), jnp.asarray(0.3)
    velocity, divergence = ours.velocity_and_divergence(t, x, ours.prepare())
    other, minus_divergence = theirs(t, x)
    # Single precision, and sums over the lattice in another order.
    for a, b in ((velocity, other), (divergence, -minus_divergence)):
        if not np.allclose(a, b, rtol=1e-3, atol=1e-4 * float(jnp.max(jnp.abs(a)))):
            raise UserError(
                "the lattice field of this version of bijx is not the one that ours was compared with "
                f"(1.3.2): its velocity or divergence differs. Leave {named('rivals')} out."
            )


def flowjax_gradient(flow: pg.Flow, target: Any, batch: int) -> Work:
    """Return value and two-copy gradient by `flowjax`'s loss, of our flow as one of its distributions."""
    from flowjax.distributions import (  # pyright: ignore[reportMissingImports]
        AbstractDistribution,
    )
    from flowjax.train.losses import ElboLoss  # pyright: ignore[reportMissingImports]

    class Distribution(AbstractDistribution):
        flow: pg.Flow
        shape: tuple[int, ...] = target.shape
        cond_shape: None = None

        def _sample(self, key: Any, condition: Any = None) -> Any:
            del condition
            return self.flow.sample(key=key, n=1)[0]

        def _log_prob(self, x: Any, condition: Any = None) -> Any:
            del condition
            return self.flow.log_prob(x[None])[0]

    parameters, static = eqx.partition(Distribution(flow), eqx.is_inexact_array)
    loss = ElboLoss(target.log_prob, batch, stick_the_landing=True)

    def run(parameters: Any, key: Any) -> Any:
        return jax.value_and_grad(lambda p: loss(p, static, key))(parameters), None

    return Work(run, parameters)
