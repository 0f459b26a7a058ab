"""`pathgrad fit MODULE:FUNCTION --dim D`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from pathgrad.experiments.custom import CustomOptions
from pathgrad.experiments.options import FlowOptions, TrainOptions

from .arguments import Where, check_resumed, for_optimizer, parse, peek, stored_options


@dataclasses.dataclass(frozen=True)
class Fit:
    """Fit a flow to your own log density.

    The function takes one point, an array of D numbers, and returns the log density as a scalar JAX array,
    up to a constant. It must be finite everywhere.
    """

    density: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODULE:FUNCTION")]
    """The function: package.module:function, or path/to/file.py:function."""
    dim: int
    """Numbers in a point."""
    flow: FlowOptions = FlowOptions()
    training: TrainOptions = TrainOptions()
    config: Path | None = None
    """Take the options of this config.toml (of an earlier run) as defaults, to repeat or vary it."""
    run: Where = Where()


def run(prog: str, words: list[str]) -> int:
    """Train, from the beginning or from a checkpoint."""
    stored = stored_options(words, "fit")
    default = None
    if stored is not None:
        default = for_optimizer(
            words, Fit(stored.density, stored.dim, stored.flow, stored.training)
        )
    given = parse(Fit, prog, words, default)
    if stored is None and peek(words, "--steps") is None:
        steps = TrainOptions().with_optimizer(given.training.optimizer).steps
        given = dataclasses.replace(
            given, training=dataclasses.replace(given.training, steps=steps)
        )
    density = _absolute(given.density)
    options = CustomOptions(density, given.dim, given.flow, given.training)
    if given.run.resume:
        check_resumed(stored, options)
    from .training import train

    return train("fit", options, given.run)


def _absolute(density: str) -> str:
    """Make the path of a file independent of where the run is evaluated from."""
    file, colon, function = density.rpartition(":")
    if colon and file.endswith(".py"):
        return f"{Path(file).expanduser().absolute()}:{function}"
    return density
