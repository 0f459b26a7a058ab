"""`pathgrad train toy`."""

import dataclasses
from pathlib import Path
from typing import Literal

from pathgrad.experiments.toy import PRESETS, ToyOptions

from .arguments import Where, check_resumed, for_optimizer, parse, peek, stored_options


@dataclasses.dataclass(frozen=True)
class TrainToy:
    """Fit a flow to a small target whose normaliser and draws are known exactly."""

    toy: ToyOptions = ToyOptions()
    preset: Literal["fast", "accurate"] = "fast"
    """Where the defaults come from: fast (seconds) or accurate (minutes)."""
    config: Path | None = None
    """Take the options of this config.toml (of an earlier run) as defaults, to repeat or vary it."""
    run: Where = Where()


def run(prog: str, words: list[str]) -> int:
    """Train, from the beginning or from a checkpoint."""
    stored = stored_options(words, "toy")
    preset = PRESETS.get(peek(words, "--preset") or "fast", ToyOptions())
    given = parse(TrainToy, prog, words, TrainToy(for_optimizer(words, stored or preset)))
    if given.run.resume:
        check_resumed(stored, given.toy)
    from .training import train

    return train("toy", given.toy, given.run)
