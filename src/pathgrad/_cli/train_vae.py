"""`pathgrad train vae`."""

import dataclasses
import sys
from pathlib import Path
from typing import Literal

from pathgrad.experiments.vae.options import AutoencoderOptions, preset

from .arguments import Where, check_resumed, parse, peek, stored_options

# A checkpoint holds the weights four times: now, at their best, and the optimiser's two moments (and a fifth
# time where their average is kept).
_WHERE = Where(checkpoint_seconds=300.0)


@dataclasses.dataclass(frozen=True)
class TrainVae:
    """Train a variational autoencoder on images; its posterior is a normal carried by continuous flows.

    The encoder gives every image a low-rank update of the flow's layers. Loss and validation are in nats per
    image. `pathgrad evaluate` then gives ELBO and likelihood of the test images, with exact divergences.
    """

    vae: AutoencoderOptions = AutoencoderOptions()
    preset: Literal["small", "paper"] = "small"
    """Where the defaults come from: small (a smaller model for a CPU, with a short warm-up of the KL term)
    or paper (the published model and training of the data set: for a GPU and a day)."""
    config: Path | None = None
    """Take the options of this config.toml (of an earlier run) as defaults, to repeat or vary it."""
    run: Where = _WHERE


def run(prog: str, words: list[str]) -> int:
    """Train, from the beginning or from a checkpoint."""
    stored = stored_options(words, "vae")
    given = parse(TrainVae, prog, words, TrainVae(stored or _defaults(words)))
    options = given.vae
    if options.data is not None:  # a run is evaluated from other places than it was trained from
        options = dataclasses.replace(options, data=str(Path(options.data).expanduser().resolve()))
    if given.run.resume:
        check_resumed(stored, options)
    else:
        options = _resolved(options)
    from .training import train

    return train("vae", options, given.run)


def _resolved(options: AutoencoderOptions) -> AutoencoderOptions:
    """Name the data that is there, and say so where it is not what was asked for."""
    from pathgrad.experiments.vae.data.datasets import resolve
    from pathgrad.experiments.vae.data.sources import data_folder

    found = resolve(options.dataset, data_folder(options.data))
    if found == options.dataset:
        return options
    print(
        f"pathgrad: chardata.mat of {options.dataset} is not there; training on {found}, whose likelihoods "
        "cannot be compared with published ones.",
        file=sys.stderr,
    )
    return dataclasses.replace(options, dataset=found)  # pyright: ignore[reportArgumentType]


def _defaults(words: list[str]) -> AutoencoderOptions:
    dataset = peek(words, "--dataset") or AutoencoderOptions().dataset
    return preset(peek(words, "--preset") or "small", dataset)
