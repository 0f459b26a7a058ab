"""`pathgrad sample RUN --n N --out FILE.npz`, or a file for ArviZ."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

import pathgrad as pg
from pathgrad._runs.files import write_atomically
from pathgrad._runs.machine import check_devices
from pathgrad._words.errors import UserError

from .arguments import parse
from .outputs import check_output, writing
from .trusting import Trusting, check_notes, tell_notes


@dataclasses.dataclass(frozen=True)
class Sample:
    """Draw from a trained run.

    A flow gives arrays x, log_q and log_weight (log p - log q). Averages weighted by exp(log_weight),
    normalised, are averages over the target instead of the flow. An autoencoder gives images x drawn from
    the prior, mean_pixel (from 0 to 1) and the latent z; the images it was trained on are not needed.

    Parameters that have names are added by name. A file for ArviZ (.nc, netCDF) holds draws that are
    resampled by their weights, as many as they are worth, and the verdict; it needs the package arviz.
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Directory of the run."""
    out: Path
    """File to write (.npz, or .nc for ArviZ). An existing file is not touched without --overwrite."""
    n: int = 10000
    """Number of draws."""
    seed: int = 1
    """Seed of the draws."""
    refine: int | None = None
    """Take this many times the solver steps of training. By default what the experiment recommends."""
    overwrite: bool = False
    """Replace an existing file."""
    trusting: Trusting = Trusting()


def run(prog: str, words: list[str]) -> int:
    """Draw and write."""
    given = parse(Sample, prog, words)
    check_output(given.out, ".npz", ".nc")
    if given.out.exists() and not given.overwrite:
        raise UserError(f"{given.out} already exists. Choose another --out, or replace it with --overwrite.")
    opened = given.trusting.open(given.run)
    check_notes(opened)
    check_devices()
    tell_notes(opened)
    arrays = opened.sample(given.n, seed=given.seed, refine=given.refine)
    target = getattr(opened.problem(), "target", None)
    if given.out.suffix == ".nc":
        return _write_arviz(opened, target, arrays, given.out)
    if isinstance(target, pg.AbstractNamedTarget):
        arrays = {**pg.named_values(target, arrays["x"]), **arrays}
    # Compress on the disk: in memory, everything would be there twice.
    with writing(given.out), tempfile.TemporaryFile(dir=given.out.absolute().parent) as file:
        np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]
        file.seek(0)
        write_atomically(given.out, iter(lambda: file.read(2**20), b""))
    log_weight = arrays.get("log_weight", np.zeros(given.n))
    failed = int(np.sum(np.isnan(log_weight) | (log_weight == np.inf)))
    print(f"{given.n} draws in {given.out}" + (f"; {failed} of them failed" if failed else ""))
    return 0


def _write_arviz(opened: pg.Run, target: Any, arrays: dict[str, np.ndarray], out: Path) -> int:
    """Write a netCDF file that ArviZ reads."""
    if "log_weight" not in arrays:
        raise UserError(f"{opened.path} has no weighted draws, which only flows have: write an .npz file.")
    said = None if opened.verdict is None else opened.verdict.sentence(opened.evaluation)
    made = pg.to_arviz(target, arrays, verdict=said)
    # Complete before it is there. (The library for such files needs a path, and locks it.)
    with (
        writing(out),
        tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.absolute().parent) as folder,
    ):
        made.to_netcdf(str(Path(folder) / out.name))
        with (Path(folder) / out.name).open("rb") as file:
            write_atomically(out, iter(lambda: file.read(2**20), b""))
    posterior = made["posterior"]
    count, distinct = posterior.sizes["draw"], posterior.attrs["distinct_draws"]
    print(f"{count} draws in {out}, resampled from {len(arrays['x'])}; {distinct} of them are distinct")
    return 0
