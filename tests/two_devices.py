"""Run by `test_devices.py` in a process of its own that has two devices: the same work on one and on both."""

import json
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

import pathgrad as pg
from pathgrad.experiments.vae import convolution
from pathgrad.experiments.vae.evaluation import likelihoods, negative_elbos
from pathgrad.experiments.vae.model import Autoencoder
from pathgrad.experiments.vae.step import begin, take_step
from pathgrad.experiments.vae.training import validate

from .helpers import bent_flow, skewed_target

ONE, BOTH = jax.devices()[:1], jax.devices()


def distance(a, b):
    """The largest difference between the arrays of two trees."""
    pairs = zip(
        *(jax.tree.leaves(eqx.filter(t, eqx.is_inexact_array)) for t in (a, b)), strict=True
    )
    return max(float(np.abs(np.asarray(x) - np.asarray(y)).max()) for x, y in pairs)


def trained(flow, devices, estimator, **more):
    return pg.fit(
        flow,
        skewed_target(),
        key=jr.key(3),
        steps=20,
        n=16,
        block=20,
        optimizer=optax.adam(1e-2),
        estimator=estimator,
        devices=devices,
        **more,
    )


def flows():
    """Fixed and adaptive steps, both adjoints, noise, and a base whose choices have no path."""
    plain = bent_flow()
    noisy = bent_flow("hutchinson", "dopri5", "backsolve")
    mixture = pg.NormalMixture.at(np.array([[0.0, 1.0], [1.0, -0.5]]))
    return {
        "fixed": (plain, pg.PathGradient()),
        "adaptive": (pg.Flow(mixture, noisy.transforms), pg.PathGradient()),
    }


def training():
    for name, (flow, estimator) in flows().items():
        one, both = (trained(flow, devices, estimator) for devices in (ONE, BOTH))
        yield (
            name,
            {
                "moved": distance(flow, one.flow),
                "parameters": distance(one.flow, both.flow),
                "rows": [
                    abs(one.history[-1][k] - both.history[-1][k])
                    for k in ("loss", "ess", "gradient_norm", "gradient_snr", "evaluations")
                ],
                "devices_of_result": len(jax.tree.leaves(both.flow)[0].sharding.device_set),
            },
        )


def evaluation():
    flow, target = bent_flow(), skewed_target()
    draws = pg.weighted_draws(flow, target, key=jr.key(5), n=33)
    # Independently of chunks and devices: by the keys alone.
    key = jr.fold_in(jr.fold_in(jr.key(5), 2**30), 0)
    x, log_q = flow.sample_and_log_prob(key=key, n=33)
    log_p = jax.vmap(target.log_prob)(x)
    yield (
        "evaluation",
        {"x": distance(x, draws["x"]), "shape": draws["x"].shape}
        | {"log_weight": distance(log_p - log_q, draws["log_weight"])},
    )


def autoencoder():
    convolution._rewrites = lambda: False  # compiles faster
    options = {"channels": 1, "latent": 2, "cnfs": 1, "width": 4, "depth": 1, "rank": 1}
    model = Autoencoder(jr.key(0), (8, 4), levels=2, activation="tanh", **options)
    images = jr.bernoulli(jr.key(1), 0.4, (6, 8, 4)).astype(jnp.uint8)
    optimizer = optax.adam(1e-2)
    found = []
    for mesh in (None, pg.devices.mesh_for(6)):
        moving = pg.devices.replicated(begin(model, optimizer), mesh)
        given = pg.devices.replicated((images, jr.key(2), jnp.ones(())), mesh)
        run = eqx.filter_jit(take_step)
        found.append(run(moving, *given, optimizer, pg.PathGradient(), mesh))
    (one, few), (both, many) = found
    host = np.asarray(images)
    validations = [
        validate(model, host[:5], 4, jr.key(4), mesh) for mesh in (None, pg.devices.mesh_for(4))
    ]
    bound = negative_elbos(model, host[:5], key=jr.key(6), batch=3).each
    with jax.default_device(jax.devices()[0]):
        pg.devices.mesh_for, kept = (lambda n: None), pg.devices.mesh_for
        alone = negative_elbos(model, host[:5], key=jr.key(6), batch=3).each
        (single,) = likelihoods(model, host[:1], key=jr.key(7), samples=7)
        pg.devices.mesh_for = kept
    (shared,) = likelihoods(model, host[:1], key=jr.key(7), samples=7)
    yield (
        "autoencoder",
        {
            "moved": distance(model, one.model),
            "parameters": distance(one.model, both.model),
            "numbers": [abs(float(a) - float(b)) for a, b in zip(few, many, strict=True)],
            "validation": abs(validations[0] - validations[1]),
            "bound": distance(jnp.asarray(bound), jnp.asarray(alone)),
            "likelihood": abs(single.log_p - shared.log_p),
        },
    )


def main():
    assert len(BOTH) == 2
    jax.config.update("jax_enable_x64", True)
    found = dict([*training(), *evaluation(), *autoencoder()])
    found["meshes"] = {n: getattr(pg.devices.mesh_for(n), "size", 1) for n in (7, 8)}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
