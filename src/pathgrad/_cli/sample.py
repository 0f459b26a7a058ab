"""`pathgrad sample RUN --n N --out FILE.npz`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from pathgrad._errors import UserError

from .arguments import parse


@dataclasses.dataclass(frozen=True)
class Sample:
    """Draw from a trained flow.

    Writes arrays x, log_q and log_weight (log p - log q). Averages weighted by exp(log_weight),
    normalised, are averages over the target instead of over the flow.
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Directory of the run."""
    out: Path
    """File to write, .npz. One that exists is not touched without --overwrite."""
    n: int = 10000
    """Number of draws."""
    seed: int = 1
    """Decides the draws."""
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
    import io

    import numpy as np

    import pathgrad as pg
    from pathgrad._train.files import write_atomically
    from pathgrad.experiments.problem import evaluation_key

    from .loading import load_run

    trained = load_run(given.run)
    key = evaluation_key(trained.options.training.seed, given.seed)
    draws = pg.weighted_draws(trained.state.flow, trained.problem.target, key=key, n=given.n)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=draws["x"], log_q=draws["log_q"], log_weight=draws["log_weight"])
    try:
        write_atomically(given.out, [buffer.getvalue()])
    except OSError as error:
        raise UserError(f"{given.out} cannot be written: {error.strerror}.") from error
    failed = int(np.sum(np.isnan(draws["log_weight"])))
    print(f"{given.n} draws in {given.out}" + (f"; {failed} of them failed" if failed else ""))
    return 0
