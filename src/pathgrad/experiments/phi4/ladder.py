"""The preset `best`: a ladder of runs, from a small lattice to a large one. No JAX here."""

import dataclasses
from pathlib import Path

import pathgrad as pg
from pathgrad._runs.options import changes

from ..options import TrainOptions
from .options import PRESETS, LatticeFlowOptions, Phi4Options

_SMALL = LatticeFlowOptions(time_kernels=3, time_bond=3, features=12, channels=6, solver_steps=6)
_LARGE = LatticeFlowOptions(time_kernels=5, time_bond=5, features=16, channels=8, solver_steps=8)
# Lattice size, model, Gauss-Newton steps. Each rung but the first starts from the flow of the rung below, so
# that large lattices need few of their expensive steps.
_RUNGS = {6: (_SMALL, 14), 8: (_LARGE, 10), 12: (_LARGE, 24), 20: (_LARGE, 12), 32: (_LARGE, 5)}
SIZES = tuple(_RUNGS)
_TAKES = ("size", "training.seed")


def ladder(size: int, seed: int) -> list[Phi4Options]:
    """Return the options of each rung, from the smallest lattice to the requested one."""
    if size not in _RUNGS:
        raise pg.ArgumentError(
            f"{pg.named('size')} of the preset `best` must be one of {', '.join(map(str, _RUNGS))}, got "
            f"{size}."
        )
    return [
        Phi4Options(rung, flow=flow, training=TrainOptions("gauss-newton", steps=steps, seed=seed))
        for rung, (flow, steps) in _RUNGS.items()
        if rung <= size
    ]


def planned(options: Phi4Options, out: Path) -> list[tuple[Path, Phi4Options]]:
    """Return the runs of the ladder with their directories; each starts from the one below."""
    ignored = [name for name in changes(PRESETS["best"], options) if name not in _TAKES]
    if ignored:
        given = ", ".join(pg.named(name.rpartition(".")[2]) for name in ignored)
        raise pg.ArgumentError(
            f"{pg.named('preset')} best sets the model and training of its runs itself; got {given}. Give "
            f"only {pg.named('size')} and {pg.named('seed')}, or use another preset with "
            f"{pg.named('optimizer')} gauss-newton."
        )
    plan, below = [], None
    for rung in ladder(options.size, options.training.seed):
        path = out / f"L{rung.size}"
        plan.append((path, dataclasses.replace(rung, init_from=below)))
        below = str(path.absolute())
    return plan
