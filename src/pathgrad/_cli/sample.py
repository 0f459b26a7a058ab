"""`pathgrad sample RUN --n N --out FILE.npz`."""

import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from pathgrad._errors import UserError

from .arguments import parse
from .evaluate import check_refine
from .evaluate_vae import sample_autoencoder

if TYPE_CHECKING:
    import numpy as np


@dataclasses.dataclass(frozen=True)
class Sample:
    """Draw from a trained flow.

    Writes arrays x, log_q and log_weight (log p - log q). Averages weighted by exp(log_weight),
    normalised, are averages over the target instead of over the flow. Of an autoencoder: images x drawn
    from the prior, mean_pixel (from 0 to 1) and the latent z.
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Directory of the run."""
    out: Path
    """File to write, .npz. One that exists is not touched without --overwrite."""
    n: int = 10000
    """Number of draws."""
    seed: int = 1
    """Decides the draws."""
    refine: int | None = None
    """Times the solver steps of training to take. By default what the experiment recommends: 2 for lattice
    runs, else 1."""
    data: Path | None = None
    """Of an autoencoder: folder of its images, if not where they were in training."""
    overwrite: bool = False
    """Replace the file."""


def run(prog: str, words: list[str]) -> int:
    """Draw and write."""
    given = parse(Sample, prog, words)
    if given.n < 1:
        raise UserError(f"--n must be at least 1, got {given.n}.")
    if given.out.suffix != ".npz":
        raise UserError(f"--out must end in .npz, got {given.out}.")
    if given.out.exists() and not given.overwrite:
        raise UserError(
            f"{given.out} exists. Choose another --out, or replace it with --overwrite."
        )
    if not given.out.absolute().parent.is_dir():
        raise UserError(f"There is no directory {given.out.absolute().parent} to write into.")
    check_refine(given.refine)
    import numpy as np

    arrays = _draw(given)
    try:
        _write(given.out, arrays)
    except OSError as error:
        raise UserError(f"{given.out} cannot be written: {error.strerror}.") from error
    log_weight = arrays.get("log_weight", np.zeros(given.n))
    failed = int(np.sum(np.isnan(log_weight) | (log_weight == np.inf)))
    print(f"{given.n} draws in {given.out}" + (f"; {failed} of them failed" if failed else ""))
    return 0


def _draw(given: Sample) -> "dict[str, np.ndarray]":
    """Draw into the arrays to be written: beside them, only a chunk of draws is in memory."""
    import numpy as np

    import pathgrad as pg
    from pathgrad.experiments.problem import evaluation_key

    from .loading import load_run

    trained = load_run(given.run, given.data)
    if trained.experiment == "vae":
        return sample_autoencoder(trained, given.n, given.seed)
    key = evaluation_key(trained.options.training.seed, given.seed)
    refine = trained.problem.evaluation_refine if given.refine is None else given.refine
    flow = trained.model.refined(refine)
    arrays: dict[str, np.ndarray] = {}
    done = 0
    for chunk in pg.weighted_chunks(flow, trained.problem.target, key=key, n=given.n):
        size = len(chunk["x"])
        for name in ("x", "log_q", "log_weight"):
            part = chunk[name]
            if name not in arrays:
                arrays[name] = np.empty((given.n, *part.shape[1:]), part.dtype)
            arrays[name][done : done + size] = part
        done += size
    return arrays


def _write(path: Path, arrays: "dict[str, np.ndarray]") -> None:
    """Compress on the disk, not in memory, where there would be everything twice."""
    import numpy as np

    from pathgrad._train.files import write_atomically

    with tempfile.TemporaryFile(dir=path.absolute().parent) as file:
        np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]
        file.seek(0)
        write_atomically(path, _pieces(file))


def _pieces(file) -> Iterator[bytes]:
    while piece := file.read(2**20):
        yield piece
