"""`pathgrad train phi4`."""

import dataclasses
from pathlib import Path
from typing import Any, Literal

from pathgrad._errors import UserError
from pathgrad.experiments.phi4.options import PRESETS, Phi4Options

from .arguments import Where, check_resumed, parse, peek, same_experiment, stored_options


@dataclasses.dataclass(frozen=True)
class TrainPhi4:
    """Fit a flow to lattice phi^4 theory in two dimensions, with the symmetries of the lattice built in."""

    phi4: Phi4Options = Phi4Options()
    preset: Literal["fast", "paper"] = "fast"
    """Where the defaults come from: fast (a free-field base and a small model, for a CPU) or paper (the
    published model and training, for a GPU and a day)."""
    config: Path | None = None
    """Take the options of this config.toml (of an earlier run) as defaults, to repeat or vary it."""
    run: Where = Where()


def run(prog: str, words: list[str]) -> int:
    """Train, from the beginning, from a smaller lattice, or from a checkpoint."""
    stored = stored_options(words, "phi4")
    given = parse(TrainPhi4, prog, words, TrainPhi4(stored or _defaults(words)))
    if given.run.resume:
        check_resumed(stored, given.phi4)
    from .training import train

    begin = None if given.phi4.init_from is None else _grown(given.phi4.init_from)
    return train("phi4", given.phi4, given.run, begin)


def _defaults(words: list[str]) -> Phi4Options:
    preset = PRESETS.get(peek(words, "--preset") or "fast", Phi4Options())
    source = peek(words, "--init-from")
    if source is None:
        return preset
    from pathgrad._train.rundir import RunDir

    options = same_experiment(RunDir.open(source).config, f"--init-from {source}", "phi4")
    begun = dataclasses.replace(options, training=preset.training, init_from=None)
    if peek(words, "--size") in (None, str(options.size)):
        return begun
    # The model goes on as it was; coupling and mass of the base belong to the lattice they were for.
    flow = dataclasses.replace(options.flow, base_mass_squared=None)
    return dataclasses.replace(begun, coupling=None, flow=flow)


def _grown(source: str) -> Any:
    """Return what makes the flow to begin with out of another run, and says what that run was."""

    def begin(flow: Any) -> Any:
        from pathgrad.experiments.phi4.transfer import grow

        from .loading import load_run

        trained = load_run(Path(source))
        if trained.experiment != "phi4":
            raise UserError(
                f"--init-from {source} is a run of {trained.experiment!r}, not of phi4."
            )
        try:
            grown = grow(trained.state.flow, flow)
        except ValueError as error:
            raise UserError(f"--init-from {source}: {error}") from error
        rows = trained.run.read_metrics()
        origin = {
            "init_from_step": int(trained.state.step),
            "init_from_seconds": rows[-1]["seconds"] if rows else 0.0,
            "init_from_commit": trained.run.config.get("provenance", {}).get("commit", ""),
        }
        return grown, origin

    return begin
