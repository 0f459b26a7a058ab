"""Make references for the posteriors of `benchmarks.others`: means and standard deviations, by NUTS.

    python -m benchmarks.other_references
    python -m benchmarks.other_references twins weibull

It needs NumPyro, which is no dependency of this project. Chains run in double precision from points around
the warm start, or in relaxed coordinates where there are some; draws of a mixture are joined with their
twins. What is known already is kept, and only what is named is made again.
"""

import argparse
import importlib
import json
import shlex
import sys
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import pathgrad as pg
from pathgrad._runs.files import write_atomically
from pathgrad._runs.provenance import provenance

from .others import MODELS, NAMES, REFERENCES, Model

CHAINS, WARM_UP, DRAWS, SEED = 4, 700, 2500, 7


def main(words: list[str] | None = None) -> None:
    """Run the command."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("names", nargs="*", help="by default all that are missing")
    names = made.parse_args(words).names
    targets = json.loads(REFERENCES.read_text())["targets"] if REFERENCES.exists() else {}
    command = shlex.join(["python", "-m", "benchmarks.other_references", *(words or sys.argv[1:])])
    for name in names or [name for name in NAMES if name not in targets]:
        with jax.enable_x64(True):
            targets[name] = reference(dict(zip(NAMES, MODELS, strict=True))[name]())
        targets[name] |= {"seed": SEED, "commit": provenance()["commit"], "command": command}
        print({key: value for key, value in targets[name].items() if key not in ("mean", "sd")}, flush=True)
        text = json.dumps({"sampler": "NUTS of NumPyro 0.22.0", "targets": targets}, indent=1) + "\n"
        REFERENCES.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(REFERENCES, [text.encode()])


def reference(model: Model) -> dict[str, Any]:
    """Return moments of a posterior, and what tells whether they can be trusted."""
    infer, diagnostics = (importlib.import_module(f"numpyro.{part}") for part in ("infer", "diagnostics"))
    relaxed = model.relaxed or (lambda z: (z, jnp.zeros(())))

    def potential(z):
        x, log_det = relaxed(z)
        value = -model.log_prob(x) - log_det
        return jnp.where(jnp.isfinite(value), value, 1e12)

    kernel = infer.NUTS(potential_fn=potential, dense_mass=True, target_accept_prob=0.9)
    how = {"num_chains": CHAINS, "chain_method": "sequential", "progress_bar": False}
    sampler = infer.MCMC(kernel, num_warmup=WARM_UP, num_samples=DRAWS, **how)
    sampler.run(jr.key(SEED), init_params=_starts(model), extra_fields=("diverging",))
    z = sampler.get_samples(group_by_chain=True)
    x = np.asarray(jax.jit(jax.vmap(jax.vmap(lambda z: relaxed(z)[0])))(z))
    flat = x.reshape(-1, model.dim)
    joined = flat if model.twin is None else np.concatenate([flat, model.twin(flat)])
    return {
        "mean": joined.mean(axis=0).tolist(),
        "sd": joined.std(axis=0).tolist(),
        "largest_rhat": float(diagnostics.split_gelman_rubin(x).max()),
        "smallest_ess": float(diagnostics.effective_sample_size(x).min()),
        "divergences": int(sampler.get_extra_fields()["diverging"].sum()),
        "draws": len(flat),
    }


def _starts(model: Model) -> jax.Array:
    """Return a start for each chain."""
    noise = np.random.default_rng(SEED).standard_normal((CHAINS, model.dim))
    if model.relaxed is not None:
        return jnp.asarray(0.1 * noise)
    start = pg.warm_start(pg.LogDensity(model.log_prob, (model.dim,)), key=jr.key(SEED))
    return jnp.asarray(start.map.shift + 0.5 * noise @ np.asarray(start.map.matrix).T)


if __name__ == "__main__":
    main()
