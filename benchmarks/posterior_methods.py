"""What people use for posteriors: each method as a function that returns draws of one target.

Every method sees the same log density of the same free coordinates, in double precision, and nothing else:
NumPyro's guides as a model with one flat site and a factor. Times are CPU seconds of the process with all
compiling, which `benchmarks.posteriors` pins to one core.
"""

import dataclasses
import importlib
import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Key

import pathgrad as pg
from pathgrad.targets.known import BenchmarkTarget

from .variants import cpu_seconds

DRAWS = 16_384  # of everything but chains
CHAINS, CHAIN_DRAWS = 4, 1000
_RATE, _PARTICLES, _BLOCK = 0.01, 16, 200
_PATHS, _ITERATIONS = 4, 300


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Draws of a method.

    Attributes:
        x: Points, draws first.
        log_q: The method's log density there; `None` for chains.
        seconds: CPU seconds to get there, without the draws themselves.
        gradients: Gradients of the target.
        more: What else is worth keeping.
    """

    x: np.ndarray
    log_q: np.ndarray | None
    seconds: float
    gradients: int
    more: dict[str, Any] = dataclasses.field(default_factory=dict)


def pathgrad(target: BenchmarkTarget, key: Key[Array, ""], seconds: float | None) -> Drawn:
    """Fit with nothing chosen, in single precision where that does."""
    began = time.process_time()
    with jax.enable_x64(False):
        fit = cpu_seconds(target, key=key)
        took = time.process_time() - began
        found = fit._draws(DRAWS, jr.fold_in(key, 1))
    verdict = fit.evaluation.verdict.level.name
    return Drawn(found["x"], found["log_q"], took, fit.gradients, {"verdict": verdict})


def normal(target: BenchmarkTarget, key: Key[Array, ""], seconds: float | None) -> Drawn:
    """NumPyro's AutoMultivariateNormal."""
    return _guide("AutoMultivariateNormal", target, key, seconds)


def iaf(target: BenchmarkTarget, key: Key[Array, ""], seconds: float | None) -> Drawn:
    """NumPyro's AutoIAFNormal."""
    return _guide("AutoIAFNormal", target, key, seconds)


def bnaf(target: BenchmarkTarget, key: Key[Array, ""], seconds: float | None) -> Drawn:
    """NumPyro's AutoBNAFNormal."""
    return _guide("AutoBNAFNormal", target, key, seconds)


def _guide(kind: str, target: BenchmarkTarget, key: Key[Array, ""], seconds: float | None) -> Drawn:
    """Train a guide with Adam, whose rate falls to zero along a cosine by the end of the time."""
    assert seconds is not None
    infer, dist, numpyro = (importlib.import_module(f"numpyro{n}") for n in (".infer", ".distributions", ""))
    began, dim = time.process_time(), target.shape[0]

    def model():
        x: Any = numpyro.sample("x", dist.ImproperUniform(dist.constraints.real_vector, (), (dim,)))
        numpyro.factor("log_p", target.log_prob(x))

    guide = getattr(infer.autoguide, kind)(model)
    elbo = infer.Trace_ELBO(num_particles=_PARTICLES)
    svi = infer.SVI(model, guide, numpyro.optim.Adam(_RATE), elbo)
    init_key, train_key, draw_key = jr.split(key, 3)
    params = svi.optim.get_params(svi.init(init_key).optim_state)
    adam = optax.scale_by_adam()

    @jax.jit
    def block(params, moments, first, steps):
        def step(carry, i):
            params, moments = carry

            # The objects of NumPyro work on constrained parameters.
            def loss(params):
                return elbo.loss(jr.fold_in(train_key, i), svi.constrain_fn(params), model, guide)

            value, slope = jax.value_and_grad(loss)(params)
            change, moments = adam.update(slope, moments)
            rate = 0.5 * _RATE * (1 + jnp.cos(math.pi * jnp.minimum(1.0, i / steps)))
            return (jax.tree.map(lambda p, c: p - rate * c, params, change), moments), value

        return jax.lax.scan(step, (params, moments), first + jnp.arange(_BLOCK))

    def timed(state, first: int, steps: int):
        before = time.process_time()
        state, values = jax.block_until_ready(block(*state, first, steps))
        return state, float(values.mean()), time.process_time() - before

    state = (params, adam.init(params))
    timed(state, 0, 10**9)  # compiles
    cost = min(timed(state, 0, 10**9)[2] for _ in range(2))
    blocks = max(5, round((seconds - (time.process_time() - began)) / cost))
    loss = math.nan
    for i in range(blocks):
        state, loss, _ = timed(state, i * _BLOCK, blocks * _BLOCK)
    took = time.process_time() - began
    trained = svi.constrain_fn(state[0])
    transform, base = guide.get_transform(trained), guide.get_base_dist()

    @jax.jit
    def draws(key):
        z = base.sample(key, (DRAWS,))
        x = jax.vmap(transform)(z)
        return x, base.log_prob(z) - jax.vmap(transform.log_abs_det_jacobian)(z, x)

    x, log_q = draws(draw_key)
    gradients = _PARTICLES * _BLOCK * blocks
    return Drawn(np.asarray(x), np.asarray(log_q), took, gradients, {"steps": _BLOCK * blocks, "loss": loss})


def pathfinder(target: BenchmarkTarget, key: Key[Array, ""], seconds: float | None) -> Drawn:
    """BlackJAX's Pathfinder, the best of four by ELBO, from Stan's starts."""
    vi = importlib.import_module("blackjax.vi.pathfinder")
    began = time.process_time()
    start_key, path_key, draw_key = jr.split(key, 3)
    starts = jr.uniform(start_key, (_PATHS, *target.shape), minval=-2.0, maxval=2.0)

    @jax.jit
    def path(key, start):
        return vi.approximate(key, target.log_prob, start, maxiter=_ITERATIONS)[0]

    states = [path(one, start) for one, start in zip(jr.split(path_key, _PATHS), starts, strict=True)]
    elbos = np.array([float(state.elbo) for state in states])
    best = states[int(np.argmax(np.where(np.isfinite(elbos), elbos, -np.inf)))]
    took = time.process_time() - began
    x, log_q = vi.sample(draw_key, best, DRAWS)
    return Drawn(np.asarray(x), np.asarray(log_q), took, 0, {"elbos": [str(round(e, 2)) for e in elbos]})


def nuts(target: BenchmarkTarget, key: Key[Array, ""], seconds: float | None) -> Drawn:
    """NumPyro's NUTS with its defaults, four chains one after the other, of 1000 draws after as many."""
    infer, diagnostics = (importlib.import_module(f"numpyro.{part}") for part in ("infer", "diagnostics"))
    began = time.process_time()
    kernel = infer.NUTS(potential_fn=lambda x: -target.log_prob(x))
    how = {"num_chains": CHAINS, "chain_method": "sequential", "progress_bar": False}
    chains = infer.MCMC(kernel, num_warmup=CHAIN_DRAWS, num_samples=CHAIN_DRAWS, **how)
    start_key, run_key = jr.split(key)
    starts = jr.uniform(start_key, (CHAINS, *target.shape), minval=-2.0, maxval=2.0)
    fields = ("num_steps", "diverging")
    chains.warmup(run_key, init_params=starts, extra_fields=fields, collect_warmup=True)
    warming = int(chains.get_extra_fields()["num_steps"].sum())
    chains.run(run_key, extra_fields=fields)
    grouped = np.asarray(chains.get_samples(group_by_chain=True))
    took, extra = time.process_time() - began, chains.get_extra_fields()
    more = {
        "effective": float(diagnostics.effective_sample_size(grouped).min()),
        "largest_rhat": float(diagnostics.split_gelman_rubin(grouped).max()),
        "divergences": int(extra["diverging"].sum()),
    }
    return Drawn(
        grouped.reshape(-1, *target.shape), None, took, warming + int(extra["num_steps"].sum()), more
    )


METHODS = {
    "pathgrad": (pathgrad, "pathgrad, nothing chosen"),
    "normal": (normal, "AutoMultivariateNormal"),
    "iaf": (iaf, "AutoIAFNormal"),
    "bnaf": (bnaf, "AutoBNAFNormal"),
    "pathfinder": (pathfinder, "Pathfinder"),
    "nuts": (nuts, "NUTS, 4 x (1000 + 1000)"),
}


def measured(target: BenchmarkTarget, drawn: Drawn) -> dict[str, Any]:
    """Return errors of means and standard deviations, in those of the reference, and what weights say.

    Errors are the largest among the reference's columns. Of columns with heavy tails logarithms are compared.
    """
    assert target.reference is not None
    assert target.reference.draws is not None
    names, heavy = target.reference.names, target.reference.heavy
    truth = target.reference.draws.reshape(-1, len(names)).astype(float)
    logs = np.array([name in heavy for name in names])

    def shown(columns: np.ndarray) -> np.ndarray:
        return np.where(logs, np.log(np.where(logs, columns, 1.0)), columns)

    columns, truth = (
        shown(np.asarray(jax.jit(jax.vmap(target.constrain))(jnp.asarray(drawn.x)))),
        shown(truth),
    )
    mean, sd = truth.mean(axis=0), truth.std(axis=0)

    def errors(weight: np.ndarray) -> tuple[float, float]:
        with np.errstate(all="ignore"):
            found = weight @ columns
            deviation = np.sqrt(weight @ (columns - found) ** 2)
            both = np.abs(found - mean) / sd, np.abs(deviation - sd) / sd
        return tuple(float(np.nan_to_num(np.max(e), nan=math.inf)) for e in both)  # pyright: ignore

    n = len(columns)
    raw = errors(np.full(n, 1 / n))
    numbers = {"mean_error": raw[0], "sd_error": raw[1]}
    if drawn.log_q is None:
        return numbers | {"ess": drawn.more["effective"] / n}
    log_p = np.asarray(jax.jit(jax.vmap(target.log_prob))(jnp.asarray(drawn.x)))
    log_weight = log_p - drawn.log_q
    found = pg.Weighted.smoothed(drawn.x, log_weight)
    weighted = errors(found.weight)
    numbers |= {"mean_error_weighted": weighted[0], "sd_error_weighted": weighted[1]}
    shifted = jnp.asarray(log_weight - log_weight.max())
    return numbers | {"ess": float(pg.metrics.ess(shifted)), "khat": found.khat}
