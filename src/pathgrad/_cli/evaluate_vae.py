"""`pathgrad evaluate RUN` and `pathgrad sample RUN` for autoencoders."""

import math
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pathgrad._errors import UserError, as_options

from .processes import is_alone, is_first

if TYPE_CHECKING:
    import numpy as np

    from .loading import Trained

_SHOWN = 64  # images drawn for the picture
_SAMPLES = {"caltech": 2000}  # as published; 5000 elsewhere


def evaluate_autoencoder(
    trained: "Trained", *, samples: int | None, nll_images: int, seed: int, refine: int
) -> "Iterator[tuple[dict[str, Any], dict[str, np.ndarray]]]":
    """Yield what is to be written into the run, numbers and arrays: the bound first, it is quick.

    The likelihoods take long; Ctrl-C ends them, and what there is of them is kept.
    """
    import jax.random as jr
    import numpy as np

    from pathgrad.experiments.problem import evaluation_key
    from pathgrad.experiments.vae import evaluation

    keys = jr.split(evaluation_key(trained.options.training.seed, seed), 5)
    model, test = trained.model, trained.problem.dataset.test
    bound = evaluation.negative_elbos(
        model, test, key=keys[0], refine=refine, tell=progress("ELBO, images", len(test))
    )
    few = test[_chosen(len(test), 100, seed)]
    shift = _solver_shift(model, few, keys[4], refine)
    shown = test[_chosen(len(test), 10, seed + 1)]
    arrays = {
        "originals": shown,
        "reconstructions": np.asarray(evaluation.reconstructions(model, shown, key=keys[2])),
        "samples": np.asarray(evaluation.prior_draws(model, key=keys[3], n=_SHOWN)[1]),
        "levels": np.asarray(trained.problem.dataset.levels),
        "negative_elbo": bound.each,
    }
    draws = _SAMPLES.get(trained.problem.dataset.name, 5000) if samples is None else samples
    chosen = _chosen(len(test), nll_images, seed)
    result = _place(trained) | _bound_numbers(bound, test.shape) | shift
    found: list[Any] = []

    def told() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        whole = result | _likelihood_numbers(found, draws, test.shape)
        if found:  # the ELBO to compare the NLL with
            whole["nll_images_negative_elbo"] = float(bound.each[chosen[: len(found)]].mean())
        nll = -np.array([f.log_p for f in found])
        return _judged(whole), arrays | {"nll": nll, "nll_image": chosen[: len(found)]}

    yield told()
    each = evaluation.likelihoods(
        model,
        test[chosen],
        key=keys[1],
        samples=draws,
        refine=refine,
        tell=progress("NLL, draws", len(chosen) * draws),
    )
    try:
        found.extend(each)
    except KeyboardInterrupt:
        if not is_alone():  # the others are at another image, and would wait
            raise
        print(f"pathgrad: stopped after {len(found)} images", file=sys.stderr)
    if nll_images:
        yield told()


def _solver_shift(model: Any, images: Any, key: Any, refine: int) -> dict[str, float]:
    """Say how far the negative ELBOs move with twice the solver's accuracy."""
    import numpy as np

    from pathgrad.experiments.vae.evaluation import negative_elbos

    coarse, fine = (
        negative_elbos(model, images, key=key, refine=factor).each
        for factor in (refine, 2 * refine)
    )
    moved = fine - coarse
    return {
        "solver_shift": float(np.mean(moved)),
        "solver_shift_rms": float(np.sqrt(np.mean(moved**2))),
    }


def progress(what: str, total: int) -> Any:
    """Return what reports progress in plain lines, at most every ten seconds."""
    began = last = time.monotonic()

    def tell(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > 10 and done < total and is_first():
            last = now
            left = (now - began) * (total - done) / done
            print(f"{what}: {done} of {total}, {left:.0f} s left", file=sys.stderr, flush=True)

    return tell


def _place(trained: "Trained") -> dict[str, Any]:
    """Say which step is looked at."""
    state, problem = trained.state, trained.problem
    assert state.best is not None
    # The best, or the last one where there was no validation yet.
    step = int(state.best.step) or int(state.step)
    return {
        "experiment": "vae",
        "dataset": problem.dataset.name,
        "step": step,
        "epoch": step / problem.steps_per_epoch,
        "last_step": int(state.step),
        "best_validation": float(state.best.loss),
    }


def _chosen(total: int, wanted: int, seed: int) -> Any:
    """Choose images at random: the test files are sorted by class."""
    import numpy as np

    return np.sort(np.random.RandomState(seed % 2**32).permutation(total)[:wanted])


def _bound_numbers(bound: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    import numpy as np

    pixels = math.prod(shape[1:])
    failed = int(np.sum(~np.isfinite(bound.each)))
    mean = float(bound.each.mean())
    return {
        "images": shape[0],
        "failed": failed,
        "pixels": pixels,
        "negative_elbo": mean,
        # Of the mean over these images; it says nothing about another training.
        "negative_elbo_err": float(bound.each.std() / math.sqrt(shape[0])),
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


def _judged(numbers: dict[str, Any]) -> dict[str, Any]:
    """Add what the numbers are worth: as names, and in sentences for readers."""
    from pathgrad.experiments.vae.verdict import judge

    verdict = judge(numbers)
    return numbers | {
        "warnings": verdict.explain(numbers, as_options),
        "verdict": verdict.to_json(),
    }


def print_autoencoder(result: dict[str, Any]) -> None:
    """Print what was found, the verdict last."""
    from pathgrad.experiments.vae.verdict import read_verdict

    verdict = read_verdict(result)
    bits = result["dataset"] == "freyfaces"

    def number(name: str, how: str = ".3f") -> str:
        return "-" if result[name] is None else format(result[name], how)

    def form(name: str, in_bits: str) -> str:
        own = f"{number(name)} ± {number(name + '_err')} nats"
        return f"{own}, {number(in_bits, '.4f')} bits/dim" if bits else own

    nll = "not asked for: --nll-images N takes N test images"
    if result["nll_images"]:
        nll = (
            f"{form('nll', 'nll_bits_per_dim')} ({result['nll_images']} images, {result['nll_samples']} "
            f"draws each; the negative ELBO of the same is {number('nll_images_negative_elbo')})"
        )
    rows = [
        ("data", f"{result['images']} test images of {result['dataset']}"),
        ("epoch", f"{number('epoch', '.4g')} (best validation {number('best_validation')} nats)"),
        ("negative ELBO", form("negative_elbo", "bits_per_dim")),
        ("by batch", f"{number('negative_elbo_by_batch')} nats, as the authors average"),
        ("terms", f"reconstruction {number('reconstruction')}, KL {number('kl')}"),
        ("NLL", nll),
        (
            "solver",
            f"{number('evaluations', '.1f')} evaluations; with twice the accuracy an ELBO moves by "
            f"{number('solver_shift_rms', '.1e')} nats",
        ),
        ("picture", f"{result['run']}/evaluation.png"),
        *([] if verdict is None else verdict.rows(result, as_options)),
    ]
    for name, value in rows:
        print(f"{name:>13}  {value}")


def sample_autoencoder(trained: "Trained", n: int, seed: int) -> "dict[str, np.ndarray]":
    """Draw images from the prior: `x` levels, `mean_pixel` from 0 to 1, and `z`."""
    import jax.random as jr
    import numpy as np

    from pathgrad.experiments.problem import evaluation_key
    from pathgrad.experiments.vae.evaluation import prior_draws

    key = evaluation_key(trained.options.training.seed, seed)
    size = min(n, 250)
    parts = [
        prior_draws(trained.model, key=jr.fold_in(key, i), n=size)
        for i in range(math.ceil(n / size))
    ]
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
