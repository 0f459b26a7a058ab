"""Downloads, by pooch: a file gets its name only when all of it has come and it is the one that is known."""

from pathlib import Path
from typing import Any

import pooch

from pathgrad._words.errors import UserError

from .sources import File

_PIECE = 2**16  # bytes


def download(file: File, folder: Path, bar: Any = None, timeout: float = 30.0) -> None:
    """Fetch a file that has an address into its place below the folder, or leave all there as it was.

    The bar is told what has come, as pooch tells progress bars: by `total`, `update`, `reset`, `close`. After
    so many seconds without a byte (`timeout`), it gives up.
    """
    if file.address is None:
        raise UserError(f"{file.path} has no address to download it from; put it into {folder}.")
    path = folder / file.path
    again = f"Run the command again, or get the file elsewhere and put it into {path.parent}."
    http: Any = pooch.HTTPDownloader(
        progressbar=bar, chunk_size=_PIECE, timeout=timeout, headers={"User-Agent": "pathgrad"}
    )
    pooch.get_logger().setLevel("WARNING")  # what there is to say, the bar says
    known = f"{file.algorithm}:{file.digest}"
    try:
        pooch.retrieve(file.address, known, path.name, path.parent, downloader=http)
        path.chmod(0o644)  # pooch's temporary files are for their owner alone, and this was one
    except ValueError as error:
        raise UserError(f"{file.address} sent something else: {error} {again}") from error
    except OSError as error:  # of the network as of the disk
        raise UserError(
            f"{file.address} could not be fetched into {path.parent}: {_cause(error)}. {again}"
        ) from error


def _cause(error: BaseException) -> BaseException:
    """Return what it all began with: the outer errors of a request quote its objects and each other."""
    while error.__context__ is not None:
        error = error.__context__
    return error
