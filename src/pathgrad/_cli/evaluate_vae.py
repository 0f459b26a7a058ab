"""`pathgrad evaluate RUN` and `pathgrad sample RUN` for autoencoders."""

import math
import sys
from typing import TYPE_CHECKING, Any

from pathgrad._errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from .loading import Trained

_SHOWN = 64  # images drawn for the picture
_SAMPLES = {"caltech": 2000}  # as published; 5000 elsewhere


def evaluate_autoencoder(
    trained: "Trained", *, samples: int | None, nll_images: int, seed: int, refine: int, tell: Any
) -> "tuple[dict[str, Any], dict[str, np.ndarray]]":
    """Return what is to be written into the run: numbers, and arrays for the picture."""
    import jax.random as jr
    import numpy as np

    from pathgrad.experiments.problem import evaluation_key
    from pathgrad.experiments.vae import evaluation

    model, dataset = best_model(trained), trained.problem.dataset
    samples = _SAMPLES.get(dataset.name, 5000) if samples is None else samples
    chosen = _chosen(len(dataset.test), nll_images, seed)
    keys = jr.split(evaluation_key(trained.options.training.seed, seed), 5)
    test = dataset.test
    tell = tell(len(test) + len(chosen) * samples)
    bound = evaluation.negative_elbos(model, test, key=keys[0], refine=refine, tell=tell)
    result = _bound_numbers(bound, test.shape) | _place(trained)
    finer = evaluation.negative_elbos(model, test[:100], key=keys[0], refine=2 * refine)
    result["solver_shift"] = float(np.mean(finer.each - bound.each[:100]))
    found = list(
        evaluation.likelihoods(
            model,
            test[chosen],
            key=keys[1],
            samples=samples,
            refine=refine,
            tell=lambda done: tell(len(test) + done),
        )
    )
    result |= _likelihood_numbers(found, samples, test.shape)
    result["warnings"] = _warnings(result)
    shown = test[_chosen(len(test), 10, seed + 1)]
    arrays = {
        "originals": shown,
        "reconstructions": np.asarray(evaluation.reconstructions(model, shown, keys[2])),
        "samples": np.asarray(evaluation.prior_draws(model, keys[3], _SHOWN)[1]),
        "levels": np.asarray(dataset.levels),
    }
    return result, arrays


def best_model(trained: "Trained") -> Any:
    """Return the model with the best validation, or the last one where there was no validation yet."""
    state = trained.state
    return state.best if int(state.best_epoch) else state.moving.model


def _place(trained: "Trained") -> dict[str, Any]:
    """Say which step is looked at."""
    from pathgrad.experiments.vae.training import steps_an_epoch

    state, problem = trained.state, trained.problem
    an_epoch = steps_an_epoch(problem.dataset, problem.options.training)
    epoch = int(state.best_epoch) or int(state.step) / an_epoch
    return {
        "experiment": "vae",
        "dataset": problem.dataset.name,
        "step": round(epoch * an_epoch),
        "epoch": epoch,
        "last_step": int(state.step),
        "best_validation": float(state.best_validation),
    }


def _chosen(total: int, wanted: int, seed: int) -> Any:
    """Choose images at random: the test files are sorted by class."""
    import numpy as np

    return np.sort(np.random.RandomState(seed).permutation(total)[:wanted])


def _bound_numbers(bound: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    import numpy as np

    images, pixels = shape[0], math.prod(shape[1:])
    mean = float(bound.each.mean())
    return {
        "images": images,
        "pixels": pixels,
        "negative_elbo": mean,
        # Of the mean over these images; it says nothing about another training.
        "negative_elbo_err": float(bound.each.std() / math.sqrt(images)),
        "negative_elbo_by_batch": bound.mean_of_batches(100),
        "reconstruction": float(bound.reconstruction.mean()),
        "kl": float(bound.kl.mean()),
        "bits_per_dim": mean / (pixels * math.log(2)),
        "evaluations": float(np.mean(bound.evaluations)),
    }


def _likelihood_numbers(found: Any, samples: int, shape: tuple[int, ...]) -> dict[str, Any]:
    import numpy as np

    names = ("nll", "nll_err", "nll_bits_per_dim", "nll_effective_samples")
    result: dict[str, Any] = {"nll_images": len(found), "nll_samples": samples if found else 0}
    if not found:
        return result | dict.fromkeys(names)
    nll = -np.array([f.log_p for f in found])
    mean = float(nll.mean())
    return result | {
        "nll": mean,
        "nll_err": float(nll.std() / math.sqrt(len(nll))),
        "nll_bits_per_dim": mean / (math.prod(shape[1:]) * math.log(2)),
        "nll_effective_samples": float(np.median([f.effective for f in found])),
    }


def _warnings(result: dict[str, Any]) -> list[str]:
    found = []
    if abs(result["solver_shift"]) > 0.1:
        found.append(
            f"Twice the solver's accuracy moves the negative ELBO by {result['solver_shift']:+.2f} nats: "
            "evaluate with --refine 2 or more."
        )
    few = result["nll_effective_samples"]
    if few is not None and few < 10:
        found.append(
            f"Half of the images have less than {few:.0f} effective draws behind their likelihood: the NLL "
            "is too high. More --samples lower it."
        )
    if result["dataset"] == "omniglot-rebuilt":
        found.append("Likelihoods of the rebuilt OMNIGLOT cannot be compared with published ones.")
    return found


def print_autoencoder(result: dict[str, Any]) -> None:
    """Print what was found."""
    bits = result["dataset"] == "freyfaces"

    def form(name: str, in_bits: str) -> str:
        own = f"{result[name]:.3f} ± {result[name + '_err']:.3f} nats"
        return f"{own}, {result[in_bits]:.4f} bits/dim" if bits else own

    rows = [
        ("data", f"{result['images']} test images of {result['dataset']}"),
        ("epoch", f"{result['epoch']:g} (best validation {result['best_validation']:.3f} nats)"),
        ("negative ELBO", form("negative_elbo", "bits_per_dim")),
        ("  by batch", f"{result['negative_elbo_by_batch']:.3f} nats, as the authors average"),
        ("  terms", f"reconstruction {result['reconstruction']:.3f}, KL {result['kl']:.3f}"),
        ("NLL", "not asked for: --nll-images N takes N test images"),
        ("solver", f"{result['evaluations']:.1f} evaluations; shift {result['solver_shift']:+.4f}"),
    ]
    if result["nll"] is not None:
        told = f"{result['nll_images']} images, {result['nll_samples']} draws each"
        rows[5] = ("NLL", f"{form('nll', 'nll_bits_per_dim')} ({told})")
    for name, value in rows:
        print(f"{name:>13}  {value}")
    for text in result["warnings"]:
        print(f"{'warning':>13}  {text}")
    print(f"{'picture':>13}  {result['run']}/evaluation.png")


def sample_autoencoder(trained: "Trained", n: int, seed: int) -> "dict[str, np.ndarray]":
    """Draw images from the prior: `x` levels, `mean_pixel` from 0 to 1, and `z`."""
    import jax.random as jr
    import numpy as np

    from pathgrad.experiments.problem import evaluation_key
    from pathgrad.experiments.vae.evaluation import prior_draws

    model = best_model(trained)
    key = evaluation_key(trained.options.training.seed, seed)
    size = min(n, 250)
    parts = [prior_draws(model, jr.fold_in(key, i), size) for i in range(math.ceil(n / size))]
    z, mean, x = (np.concatenate([np.asarray(p[k]) for p in parts])[:n] for k in range(3))
    return {"x": x, "mean_pixel": mean, "z": z}


def check_arguments(samples: int | None, nll_images: int) -> None:
    """Raise unless the numbers make sense."""
    if nll_images < 0:
        raise UserError(f"--nll-images must be at least 0, got {nll_images}.")
    if samples is not None and not nll_images:
        print(
            "pathgrad: --samples counts the draws behind the NLL; name the --nll-images too.",
            file=sys.stderr,
        )
