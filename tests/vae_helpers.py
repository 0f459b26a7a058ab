"""Small images in files of their own, and run directories of autoencoders made up for tables and figures."""

import dataclasses
import functools
import hashlib
import math
import pickle
from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np

import pathgrad as pg
from pathgrad._data.files import File
from pathgrad._runs.rundir import RunDir
from pathgrad._train.row import Row
from pathgrad.experiments.vae.data.sources import SOURCES
from pathgrad.experiments.vae.making import make_model
from pathgrad.experiments.vae.options import (
    AmortisedFlowOptions,
    AutoencoderOptions,
    AutoencoderTrainOptions,
    NetworkOptions,
)

BITS = 560 * math.log(2)  # nats of an image, for one bit per pixel
STEPS = 16  # of made-up runs in an epoch, two rows each

# Dense networks: convolutions take long to compile, and have tests of their own.
NETWORK = NetworkOptions("mlp", channels=1, hidden=8)
TINY = AutoencoderOptions(
    latent=2,
    network=NETWORK,
    flow=AmortisedFlowOptions(cnfs=1, width=4, solver_steps=2),
    training=AutoencoderTrainOptions(
        batch=20, block=1, kl_warmup=0, warmup_epochs=2, rate_warmup=2, epochs=3, learning_rate=2e-3,
        validate=1, average=0.0,
    ),
)  # fmt: skip
IMAGES, PIXELS = (40, 20, 24), (8, 4)


def changed(options, **training):
    """Options with others of training."""
    return dataclasses.replace(options, training=dataclasses.replace(options.training, **training))


def solved(model, *parts):
    """Return a model with another divergence, integrator or adjoint."""
    kinds = {
        pg.AbstractDivergence: lambda m: m.flow.divergence,
        pg.AbstractIntegrator: lambda m: m.flow.integrator,
        pg.AbstractAdjoint: lambda m: m.flow.adjoint,
    }
    for part in parts:
        (kind,) = [kind for kind in kinds if isinstance(part, kind)]
        model = eqx.tree_at(kinds[kind], model, part, is_leaf=lambda x, kind=kind: isinstance(x, kind))
    return model


@functools.cache
def small_model(
    shape=(4, 4), *, levels=2, seed=0, latent=2, network=NETWORK, likelihood: Any = "softmax", **flow
):
    """Return an untrained model with small parts, with one flow of two solver steps if not told otherwise."""
    given: dict[str, Any] = {"cnfs": 1, "width": 4, "rank": 1, "solver_steps": 2} | flow
    options = AutoencoderOptions(
        latent=latent, likelihood=likelihood, network=network, flow=AmortisedFlowOptions(**given)
    )
    return eqx.filter_jit(lambda key: make_model(options, shape, levels, key=key))(jr.key(seed))


def amat(images):
    """Write binary images as text, an image a line."""
    return b"".join(b" ".join(b"%d" % p for p in image) + b"\n" for image in images)


def publish(patch, folder, name, contents, images, pixels, algorithm="sha256"):
    """Write files, and make them those that a data set is known to consist of."""
    files = {}
    for part, (path, data) in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
        digest = hashlib.new(algorithm, data).hexdigest()
        files[part] = (File(path, digest, len(data), algorithm=algorithm),)
    known = dataclasses.replace(SOURCES[name], files=files, images=images, pixels=pixels)
    patch.setitem(SOURCES, name, known)
    return folder


def publish_small(patch, folder):
    """Let `mnist` and `freyfaces` be a few stripes, and the data folder this one."""
    rows = [np.random.RandomState(i).binomial(1, 0.3, (n, 8, 1)) for i, n in enumerate(IMAGES)]
    stripes = [np.repeat(part, 4, axis=2).reshape(len(part), -1) for part in rows]
    parts = zip(("train", "validation", "test"), stripes, strict=True)
    digits = {part: (f"M/{part}.amat", amat(images)) for part, images in parts}
    publish(patch, folder, "mnist", digits, IMAGES, PIXELS)
    faces = (255 * np.concatenate(stripes)).astype(np.uint8)
    publish(patch, folder, "freyfaces", {"all": ("F/f.pkl", pickle.dumps(faces))}, IMAGES, PIXELS)
    patch.setenv("PATHGRAD_DATA", str(folder))


def vae_rows(validation, seconds=10.0, warmup=2, evaluations=40.0):
    """Rows of so many epochs; the training loss is ten nats below the validation, the KL twenty."""
    rows = []
    for i in range(2 * len(validation)):
        epoch = (i + 1) / 2
        value = validation[i // 2]
        beta = min(math.ceil(epoch) / warmup, 1.0)
        row = {"step": STEPS * (i + 1) // 2, "epoch": epoch, "seconds": seconds * epoch}
        row |= {"reconstruction": value - 30.0, "kl": 20.0, "beta": beta, "gradient_norm": 1.0}
        row |= {"evaluations": evaluations + i, "evaluations_backward": evaluations - 6.0}
        row |= {"loss": row["reconstruction"] + beta * 20.0, "skipped": 0}
        if i % 2:
            row |= {"validation": value, "best_validation": min(validation[: i // 2 + 1])}
            row["waiting"] = i // 2 - int(np.argmin(validation[: i // 2 + 1]))
        rows.append(Row.of(row))
    return rows


def make_vae(path, rows, *, estimator="path", seed=0, dataset="freyfaces", **training):
    """Write a run of the paper's model, but for its width."""
    options = {"dataset": dataset, "split_seed": 123, "flow": {"width": 64}}
    options |= {"data": training.pop("data")} if "data" in training else {}
    known = {"optimizer": "adamax", "epochs": 9, "learning_rate": 5e-4, "patience": 100}
    options["training"] = known | {"estimator": estimator, "seed": seed} | training
    provenance = {"platform": "Linux", "cpus": 2, "command": str(path)}
    run = RunDir.create(path, {"experiment": "vae", "options": options, "provenance": provenance})
    for row in rows:
        run.append_metrics(row)
    return run


def evaluate_vae(run, *, step, dataset="freyfaces", arrays=True, **more):
    """Write what an evaluation writes."""
    rng = np.random.default_rng(3)
    levels, shape = (256, (28, 20)) if dataset == "freyfaces" else (2, (28, 28))
    result = {"experiment": "vae", "dataset": dataset, "step": step, "epoch": step / STEPS}
    result |= {"images": 200, "failed": 0, "pixels": math.prod(shape), "best_validation": 4.4 * BITS}
    result |= {"negative_elbo": 4.4 * BITS, "negative_elbo_err": 9.0, "evaluations": 99.0}
    result |= {"reconstruction": 1650.0, "kl": 58.0, "nll": None, "nll_err": None, "warnings": []}
    result |= {"bits_per_dim": 4.4, "solver_shift_rms": 1e-4} | more
    run.write_json("evaluation.json", result)
    kept = {
        "originals": rng.integers(levels, size=(6, *shape), dtype=np.uint8),
        "reconstructions": rng.random((6, *shape), dtype=np.float32),
        "samples": rng.random((9, *shape), dtype=np.float32),
        "traversals": rng.random((2, 3, *shape), dtype=np.float32),
        "traversed": np.array([5, 1]),
        "traversal_values": np.array([-2.5, 0.0, 2.5]),
        "levels": np.array(levels),
    }
    if arrays:
        np.savez(run.output("evaluation.npz"), **kept)
    return kept, result


def four_vaes(tmp_path):
    """Two estimators, two seeds each; the total gradient is quicker by a fifth."""
    ends = {("path", 0): 4.40, ("path", 1): 4.42, ("total", 0): 4.50, ("total", 1): 4.54}
    for (estimator, seed), end in ends.items():
        values = [BITS * bits for bits in (6.0, 4.6, end, end + 0.1)]
        rows = vae_rows(values, 10.0 if estimator == "path" else 8.0)
        make_vae(tmp_path / f"{estimator}{seed}", rows, estimator=estimator, seed=seed)
    return [tmp_path / f"{estimator}{seed}" for estimator, seed in ends]
