"""The problem of training an autoencoder on images: its evaluation, and draws from its prior."""

import functools
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

import pathgrad as pg
from pathgrad._data.files import data_folder
from pathgrad._words.memory import check_memory

from .data.datasets import Dataset, load
from .data.sources import find
from .evaluation import divergence_error, negative_elbos, prior_draws, reconstructions, traversals
from .importance import Likelihood, Solver, coarsest, likelihood_numbers, likelihoods
from .making import check_training, make_model, make_training
from .model import Autoencoder
from .options import AutoencoderEvaluateOptions, AutoencoderOptions, check_least, known_of
from .verdict import judge

_SHOWN = 64  # draws for the figure
_PAIRS = 10  # pairs of image and reconstruction for the figure
_FEW = 100  # images for the check of the solver
_CHECKED = 16  # images for the check of divergences
_MOVED = 6  # latent numbers that are moved for the figure
_PLACES = np.linspace(-2.5, 2.5, 9, dtype=np.float32)  # to which they are moved, in sd of the prior
_SAVED_EVERY = 120.0  # seconds between two savings of the likelihoods so far
_AT_ONCE = 250  # draws from the prior at a time


class AutoencoderProblem(pg.AbstractProblem):
    """A model to be trained on images, which are loaded only when needed."""

    def __init__(self, options: AutoencoderOptions) -> None:
        """Make the model, which needs only the size and levels of the images."""
        check_training(options.training)
        self.options, self._source = options, find(options.dataset)
        key = pg.run_keys(options.training.seed)[0]
        self.model = make_model(options, self._source.pixels, self._source.levels, key=key)

    def images(self, folder: Path | None = None) -> Dataset:
        """Load the images, from the given folder or else from the one used in training."""
        options = self.options
        return load(options.dataset, data_folder(folder or options.data), options.split_seed)

    @property
    def training(self) -> pg.Training:
        return self._training

    @functools.cached_property
    def _training(self) -> pg.Training:
        return make_training(self.options.training, self.model, self.images())

    def shell(self) -> pg.Training:
        """Return the training with a single blank image as data."""
        name, levels = self.options.dataset, self._source.levels
        blank = np.zeros((1, *self._source.pixels), np.uint8)
        images = Dataset(name, blank, blank, blank, levels, binarise_each_batch=False)
        return make_training(self.options.training, self.model, images)

    def evaluate(
        self,
        trained: pg.Trained,
        how: AutoencoderEvaluateOptions,
        *,
        key: Key[Array, ""],
        tell: Callable[[str, int, int], None],
    ) -> Iterator[pg.Findings]:
        """Yield the bound of all test images first, which is fast, then the likelihoods of some.

        Ctrl-C stops the likelihoods; those computed so far are kept.
        """
        _check(how)
        refine, images = how.refine or 1, self.images(how.data)
        model, test, keys = trained.model, images.test, jr.split(key, 5)
        bound = negative_elbos(
            model, test, key=keys[0], refine=refine, tell=lambda done: tell("ELBO, images", done, len(test))
        )
        few, shown = test[_chosen(test, _FEW, 0)], test[_chosen(test, _PAIRS, 1)]
        coarse, fine = (negative_elbos(model, few, key=keys[4], refine=k * refine) for k in (1, 2))
        numbers = self._place(trained, images) | {"refine": refine}
        numbers |= bound.numbers(math.prod(test.shape[1:])) | coarse.shift(fine)
        numbers["divergence_error"] = divergence_error(model, few[:_CHECKED], key=keys[4])
        z, means = reconstructions(model, jnp.asarray(shown), key=keys[2])
        moved, along = traversals(model, z[0], jnp.asarray(_PLACES), _MOVED)
        arrays = {
            "originals": shown,
            "reconstructions": np.asarray(means),
            "traversals": np.asarray(along),
            "traversed": np.asarray(moved),
            "traversal_values": _PLACES,
            "samples": np.asarray(prior_draws(model, key=keys[3], n=_SHOWN)[1]),
            "levels": np.asarray(images.levels),
            "negative_elbo": bound.each,
        }
        draws = known_of(images.name).samples if how.samples is None else how.samples
        yield _judged(numbers, arrays, [], np.arange(0), draws)
        if how.nll_images:
            yield from _with_likelihoods(model, test, how.nll_images, draws, keys[1], numbers, arrays, tell)

    def _place(self, trained: pg.Trained, images: Dataset) -> dict[str, Any]:
        """Return which step is evaluated: the best, or the last if there was no validation yet."""
        best, last = trained.state.best, int(trained.state.step)
        assert best is not None
        step = int(best.step) or last
        return {
            "dataset": images.name,
            "step": step,
            "epoch": step / math.ceil(len(images.train) / self.options.training.batch),
            "last_step": last,
            "best_validation": float(best.loss),
        }

    def sample(
        self, model: Autoencoder, *, key: Key[Array, ""], n: int, refine: int | None
    ) -> dict[str, np.ndarray]:
        """Draw images from the prior: `x` levels, `mean_pixel` from 0 to 1, and `z`."""
        if refine is not None:
            raise pg.ArgumentError(
                f"{pg.named('refine')} does not apply: drawing from the prior of an autoencoder solves no "
                "ODE. Leave it out."
            )
        check_memory(2 * n * math.prod(self._source.pixels), n=n)
        size = min(n, _AT_ONCE)
        parts = [prior_draws(model, key=jr.fold_in(key, i), n=size) for i in range(math.ceil(n / size))]
        z, mean, x = (np.concatenate([np.asarray(p[k]) for p in parts])[:n] for k in range(3))
        return {"x": x, "mean_pixel": mean, "z": z}


def _check(how: AutoencoderEvaluateOptions) -> None:
    """Raise an error unless the numbers make sense."""
    check_least(0, nll_images=how.nll_images)
    check_least(1, samples=how.samples)
    if how.samples is not None and not how.nll_images:
        raise pg.ArgumentError(
            f"{pg.named('samples')} is the number of draws for the likelihood of an image. Also give "
            f"{pg.named('nll_images')}, the number of images, or leave it out."
        )


def _chosen(images: np.ndarray, wanted: int, seed: int) -> np.ndarray:
    """Choose images at random, since files are sorted by class; all runs choose the same, for comparison."""
    return np.sort(np.random.RandomState(seed).permutation(len(images))[:wanted])


def _with_likelihoods(
    model: Autoencoder,
    test: np.ndarray,
    wanted: int,
    draws: int,
    key: Key[Array, ""],
    numbers: dict[str, Any],
    arrays: dict[str, np.ndarray],
    tell: Callable[[str, int, int], None],
) -> Iterator[pg.Findings]:
    """Yield the findings again with the likelihoods so far, every few minutes and at the end."""
    rows, estimates, solver = _chosen(test, wanted, 0), [], None

    def findings() -> pg.Findings:
        return _judged(numbers, arrays, estimates, rows[: len(estimates)], draws, solver)

    def report(done: int) -> None:
        tell("NLL, images", done // draws, len(rows))

    saved = time.monotonic()
    try:
        solver = coarsest(
            model, test[rows], key=key, samples=draws, tell=lambda n: tell("NLL, solver check", n, n)
        )
        more = {"samples": draws, "refine": solver.refine, "rows": rows}
        for one in likelihoods(model, test[rows], key=key, tell=report, **more):
            estimates.append(one)
            if time.monotonic() - saved > _SAVED_EVERY:
                saved = time.monotonic()
                yield findings()
    except KeyboardInterrupt:
        if jax.process_count() > 1:  # the other processes are at another image, and would wait forever
            raise
    yield findings()


def _judged(
    numbers: dict[str, Any],
    arrays: dict[str, np.ndarray],
    estimates: list[Likelihood],
    rows: np.ndarray,
    draws: int,
    solver: Solver | None = None,
) -> pg.Findings:
    """Add the likelihoods so far, and the verdict on all results."""
    bound = arrays["negative_elbo"][rows]
    pixels = numbers["pixels"]
    results = numbers | likelihood_numbers(estimates, bound, solver, samples=draws, pixels=pixels)
    verdict = judge(results)
    results |= {"verdict": verdict.to_json(), "warnings": verdict.explain(results)}
    found = {"nll": -np.array([one.log_p for one in estimates]), "nll_image": rows}
    found["nll_effective"] = np.array([one.effective for one in estimates])
    return pg.Findings(results, arrays | found)
