"""`pathgrad train phi4`."""

import dataclasses
import shlex
import shutil
from pathlib import Path
from typing import Any, Literal

from pathgrad._errors import UserError
from pathgrad.experiments.phi4.options import LADDER_SIZES, PRESETS, Phi4Options, ladder

from .arguments import (
    Where,
    check_resumed,
    for_optimizer,
    parse,
    peek,
    same_experiment,
    stored_options,
)
from .processes import is_alone


@dataclasses.dataclass(frozen=True)
class TrainPhi4:
    """Fit a flow to lattice phi^4 theory in two dimensions, with the symmetries of the lattice built in."""

    phi4: Phi4Options = Phi4Options()
    preset: Literal["fast", "paper", "best"] = "fast"
    """Where the defaults come from: fast (a free-field base and a small model, for a CPU) or paper (the
    published model and training, for a GPU and a day). best is a ladder of runs by gauss-newton, from size 6
    to --size (6, 8, 12, 20 or 32) with a growing model, in one directory for each size below --out; of the
    other options it takes --seed and those of the run directory only."""
    config: Path | None = None
    """Take the options of this config.toml (of an earlier run) as defaults, to repeat or vary it."""
    run: Where = Where()


def run(prog: str, words: list[str]) -> int:
    """Train, from the beginning, from a smaller lattice, or from a checkpoint."""
    if peek(words, "--preset") == "best":
        return _climb(prog, words)
    stored = stored_options(words, "phi4")
    given = parse(
        TrainPhi4, prog, words, TrainPhi4(for_optimizer(words, stored or _defaults(words)))
    )
    if given.run.resume:
        check_resumed(stored, given.phi4)
    from .training import train

    begin = None if given.phi4.init_from is None else _grown(given.phi4.init_from)
    return train("phi4", given.phi4, given.run, begin)


def _climb(prog: str, words: list[str]) -> int:
    """Train the ladder: every rung a run of its own, that begins with the one below."""
    plain = Phi4Options()
    given = parse(TrainPhi4, prog, words, TrainPhi4(plain, "best"))
    asked = given.phi4
    given.run.together.join()
    if not is_alone():
        raise UserError("--preset best trains by gauss-newton, in one process. Start it once.")
    _refuse_what_a_ladder_ignores(words)
    rungs = ladder(asked.size, asked.training.seed)
    out = given.run.out or Path("runs") / f"phi4-best-s{asked.training.seed}"
    paths = [out / f"L{rung.size}" for rung in rungs]
    if given.run.overwrite:
        # All of them at once: what is left of an older ladder must not pass for a part of this one.
        for size in LADDER_SIZES:
            shutil.rmtree(out / f"L{size}", ignore_errors=True)
    again = (
        f"{prog} --preset best --size {asked.size} --seed {asked.training.seed} "
        f"--out {shlex.quote(str(out))} --resume"
    )
    below: str | None = None
    for rung, path in zip(rungs, paths, strict=True):
        code = _rung(dataclasses.replace(rung, init_from=below), given.run, path, again)
        if code:
            return code
        below = str(path)
    _tell_ladder(paths)
    return 0


_LADDER_TAKES = (
    "--preset",
    "--size",
    "--seed",
    "--out",
    "--resume",
    "--overwrite",
    "--checkpoint-seconds",
    "--processes",
)


def _refuse_what_a_ladder_ignores(words: list[str]) -> None:
    names = [w.partition("=")[0].replace("_", "-") for w in words if w.startswith("--")]
    ignored = [name for name in names if name not in _LADDER_TAKES]
    if ignored:
        raise UserError(
            f"--preset best sets model and training of its runs itself; got {', '.join(ignored)}. It takes "
            f"{', '.join(_LADDER_TAKES[1:])}. For more use another preset with --optimizer gauss-newton."
        )


def _rung(options: Phi4Options, where: Where, out: Path, again: str) -> int:
    from .training import train

    resume = where.resume and (out / "config.toml").exists()
    print(f"\n{out}: {options.size} x {options.size}", flush=True)
    if resume:
        stored: Any = stored_options(["--resume", "--out", str(out)], "phi4")
        # The rung below may have been written down by another path to the same place.
        check_resumed(dataclasses.replace(stored, init_from=options.init_from), options)
    begin = None if options.init_from is None else _grown(options.init_from)
    where = dataclasses.replace(where, out=out, resume=resume)
    return train("phi4", options, where, begin, again)


def _tell_ladder(paths: list[Path]) -> None:
    from pathgrad._train.rundir import RunDir

    print("\n  size   steps   seconds    in all   ESS of the last step's draws")
    in_all = 0.0
    for path in paths:
        row = RunDir.open(path).read_metrics()[-1]
        in_all += row.seconds
        print(
            f"{path.name:>6} {row.step:7d} {row.seconds:9.1f} {in_all:9.1f}   "
            + (f"{row.ess:.3%}" if row.ess is not None else "-")
        )
    print(f"Next: pathgrad evaluate {paths[-1]}")


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
            grown = grow(trained.model, flow)
        except ValueError as error:
            raise UserError(f"--init-from {source}: {error}") from error
        rows = trained.run.read_metrics()
        origin = {
            "init_from_step": int(trained.state.step),
            "init_from_seconds": rows[-1].seconds if rows else 0.0,
            "init_from_commit": trained.run.config.get("provenance", {}).get("commit", ""),
        }
        return grown, origin

    return begin
