"""Downloads with pooch: a file gets its name only once it is complete and its hash is the known one."""

import hashlib
import importlib
import tempfile
from pathlib import Path
from typing import Any

import pooch

from pathgrad._runs.files import write_atomically
from pathgrad._words.errors import UserError

from .files import File

_PIECE = 2**16  # bytes


def download(file: File, folder: Path, bar: Any = None, timeout: float = 30.0) -> None:
    """Download a file to its place in the folder, or leave the folder unchanged on failure.

    `bar` is a progress bar as pooch expects, with `total`, `update`, `reset` and `close`. The download fails
    after `timeout` seconds without data.
    """
    if file.address is None:
        raise UserError(f"{file.path} has no address to download it from; put it into {folder}.")
    path = folder / file.path
    again = f"Run the command again, or get the file elsewhere and put it into {path.parent}."
    http: Any = pooch.HTTPDownloader(
        progressbar=bar, chunk_size=_PIECE, timeout=timeout, headers={"User-Agent": "pathgrad"}
    )
    pooch.get_logger().setLevel("WARNING")  # the bar shows progress instead
    known = f"{file.algorithm}:{file.digest}"
    try:
        if file.conversion is None:
            pooch.retrieve(file.address, known, path.name, path.parent, downloader=http)
        else:
            _retrieve_converted(file, path, http)
        path.chmod(0o644)  # pooch's temporary file was readable by its owner only
    except ValueError as error:
        raise UserError(f"{file.address} sent a different file: {error} {again}") from error
    except OSError as error:  # from the network or the disk
        raise UserError(
            f"{file.address} could not be fetched into {path.parent}: {_cause(error)}. {again}"
        ) from error


def _retrieve_converted(file: File, path: Path, http: Any) -> None:
    """Download what a file is made from, and make it: the known hash is that of the result."""
    assert file.conversion is not None
    assert file.address is not None
    with tempfile.TemporaryDirectory() as folder:
        raw = pooch.retrieve(file.address, None, "download", folder, downloader=http)
        # Only here, since it needs NumPy, and the help of the command should not wait for that.
        conversions = importlib.import_module(f"{__package__}.conversions").CONVERSIONS
        contents = conversions[file.conversion](Path(raw).read_bytes(), file.columns)
    digest = hashlib.new(file.algorithm, contents).hexdigest()
    if digest != file.digest:
        raise ValueError(f"what is made from it has the hash {digest}, expected {file.digest}.")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, [contents])


def _cause(error: BaseException) -> BaseException:
    """Return the original error: the outer errors of a request only quote each other."""
    while error.__context__ is not None:
        error = error.__context__
    return error
