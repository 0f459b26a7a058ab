"""Run by `test_devices.py` in a process of its own that has two devices: the same work on one and on both."""

import dataclasses
import json
import re
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

import pathgrad as pg
from pathgrad._train import blocks
from pathgrad.experiments.vae.data.datasets import Dataset
from pathgrad.experiments.vae.evaluation import negative_elbos
from pathgrad.experiments.vae.importance import likelihoods
from pathgrad.experiments.vae.making import make_training
from pathgrad.experiments.vae.options import AutoencoderTrainOptions

from .helpers import bent_flow, skewed_target
from .vae_helpers import small_model

ONE, BOTH = jax.devices()[:1], jax.devices()


def distance(a, b):
    """The largest difference between the arrays of two trees."""
    pairs = zip(*(jax.tree.leaves(eqx.filter(t, eqx.is_inexact_array)) for t in (a, b)), strict=True)
    return max(float(np.abs(np.asarray(x) - np.asarray(y)).max()) for x, y in pairs)


def trained(flow, devices, estimator):
    method = pg.FirstOrder(optax.adam(1e-2), 16, block=20, devices=devices)
    objective = pg.ReverseKL(skewed_target(), estimator)
    return pg.fit(flow, objective, method, key=jr.key(3), steps=20)


def flows():
    """Fixed and adaptive steps, both adjoints, noise, and a base whose choices have no path."""
    plain = bent_flow()
    noisy = bent_flow("hutchinson", "dopri5", "backsolve")
    mixture = pg.NormalMixture.at(np.array([[0.0, 1.0], [1.0, -0.5]]))
    return {
        "fixed": (plain, pg.PathGradient()),
        "adaptive": (pg.Flow(mixture, noisy.transforms), pg.PathGradient()),
    }


def sharing():
    """Evidence that the work is shared at all: where things are, and what the compiled block exchanges."""
    method = pg.FirstOrder(optax.adam(1e-2), 16, block=2)
    trainer = pg.Trainer(pg.ReverseKL(skewed_target()), method, key=jr.key(0))
    state, _ = next(trainer.blocks(trainer.init(bent_flow()), 2))
    runner = trainer._runner
    assert isinstance(runner, blocks.CompiledRunner)
    text = runner._compiled[16][1].as_text()
    second = pg.fit(
        pg.Flow(pg.DiagonalNormal.standard((2,))),
        skewed_target(),
        pg.FirstOrder(optax.adam(1e-2), 16, devices=BOTH[1:]),
        key=jr.key(0),
        steps=2,
    )
    return {
        "devices": [len(state.step.sharding.device_set), trainer.devices],
        "reductions": len(re.findall(r" all-reduce(?:-start)?\(", text)),
        "gathers": len(re.findall(r" all-gather(?:-start)?\(", text)),
        "second": [device.id for device in second.state.step.sharding.device_set],
        "stages": stages(),
    }


def stages():
    """Gauss-Newton, which uses one device, after Adam on both: where the work of each was."""
    method = pg.Stages([(pg.FirstOrder(optax.adam(1e-2), 16, block=2), 2), (pg.GaussNewton(), 1)])
    trainer = pg.Trainer(pg.ReverseKL(skewed_target()), method, key=jr.key(0))
    flow = pg.Flow(pg.DiagonalNormal.standard((2,)))
    found = []
    for state, _ in trainer.blocks(trainer.init(flow), method.steps):
        leaf = state.model.base.mean
        found.append([trainer.devices, len(leaf.sharding.device_set)])
    return found


_COMPARED = ("loss", "ess", "gradient_norm", "gradient_snr", "evaluations_backward")


def _number(fit, name):
    found = fit.history[-1].value(name)
    assert found is not None
    return found


def training():
    for name, (flow, estimator) in flows().items():
        one, both = (trained(flow, devices, estimator) for devices in (ONE, BOTH))
        yield (
            name,
            {
                "moved": distance(flow, one.flow),
                "parameters": distance(one.flow, both.flow),
                "rows": [abs(_number(one, k) - _number(both, k)) for k in _COMPARED],
                "devices_of_result": len(jax.tree.leaves(both.flow)[0].sharding.device_set),
            },
        )


def evaluation():
    flow, target = bent_flow(), skewed_target()
    seen, shard_map = [], jax.shard_map
    jax.shard_map = lambda *given, **more: seen.append(more["mesh"].size) or shard_map(*given, **more)
    draws = pg.weighted_draws(flow, target, key=jr.key(5), n=33)
    jax.shard_map = shard_map
    # Independently of chunks and devices: by the keys alone.
    key = jr.fold_in(jr.fold_in(jr.key(5), 2**30), 0)
    x, log_q = flow.sample_and_log_prob(key=key, n=33)
    log_p = jax.vmap(target.log_prob)(x)
    yield (
        "evaluation",
        {"shared_by": seen, "x": distance(x, draws["x"]), "shape": draws["x"].shape}
        | {"log_weight": distance(log_p - log_q, draws["log_weight"])},
    )


def autoencoder():
    """Two epochs of which the last batch is odd, with validation, then evaluation."""
    model = small_model((8, 4))
    images = np.random.RandomState(0).randint(0, 2, (7, 8, 4)).astype(np.uint8)
    dataset = Dataset("made up", images, images[:5], images[:5], 2, False)
    options = AutoencoderTrainOptions(batch=4, learning_rate=1e-2, rate_warmup=2, validate=1)
    both = _autoencoder(model, dataset, options)
    kept, pg.devices.mesh_for = pg.devices.mesh_for, lambda *given: None
    blocks.mesh_for = pg.devices.mesh_for
    one = _autoencoder(model, dataset, options)
    blocks.mesh_for = pg.devices.mesh_for = kept
    yield (
        "autoencoder",
        {
            "moved": distance(model, one["model"]),
            "parameters": distance(one["model"], both["model"]),
            "rows": [abs(one["row"][k] - both["row"][k]) for k in one["row"]],
            "bound": distance(jnp.asarray(one["bound"]), jnp.asarray(both["bound"])),
            "likelihood": abs(one["likelihood"] - both["likelihood"]),
            "devices": [one["devices"], both["devices"]],
        },
    )


def _autoencoder(model, dataset, options):
    trainer = make_training(options, model, dataset).trainer(key=jr.key(2))
    *_, (state, row) = trainer.blocks(trainer.init(model), 4)
    (found,) = likelihoods(model, dataset.test[:1], key=jr.key(7), samples=7)
    return {
        "model": state.model,
        "row": dataclasses.replace(row, seconds=0.0).to_json(),
        "bound": negative_elbos(model, dataset.test, key=jr.key(6), batch=3).each,
        "likelihood": found.log_p,
        "devices": trainer.devices,
    }


def main():
    assert len(BOTH) == 2
    jax.config.update("jax_enable_x64", True)
    found = dict([*training(), *evaluation(), *autoencoder()])
    found["sharing"] = sharing()
    found["meshes"] = {str(n): getattr(pg.devices.mesh_for(n), "size", 1) for n in (7, 8)}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
