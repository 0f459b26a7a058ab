"""Downloads with pooch: a file gets its name only once it is complete and its hash is the known one."""

import hashlib
import importlib
import io
from pathlib import Path
from typing import IO, Any

import pooch

from pathgrad._runs.files import replacing, write_atomically
from pathgrad._words.errors import UserError

from .files import File

_PIECE = 2**16  # bytes
_MOST = 2**30  # bytes, where the size of a file is not known


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
    try:
        if file.conversion is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            # An unfinished file has a name that nobody can know, so nobody can have put a link there.
            with replacing(path) as opened:
                received = _Received(opened, file.algorithm, file.size or _MOST)
                http(file.address, received, None)
                _check(file, received.digest.hexdigest())
        else:
            contents = _converted(file, http)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, [contents])
    except ValueError as error:
        raise UserError(f"{file.address} sent a different file: {error} {again}") from error
    except OSError as error:  # from the network or the disk
        raise UserError(
            f"{file.address} could not be fetched into {path.parent}: {_cause(error)}. {again}"
        ) from error


def _converted(file: File, http: Any) -> bytes:
    """Download what a file is made from, and make it: the known hash is that of the result."""
    assert file.conversion is not None
    raw = io.BytesIO()
    http(file.address, _Received(raw, file.algorithm, _MOST), None)
    # Only here, since it needs NumPy, and the help of the command should not wait for that.
    conversions = importlib.import_module(f"{__package__}.conversions").CONVERSIONS
    contents = conversions[file.conversion](raw.getvalue(), file.columns)
    _check(file, hashlib.new(file.algorithm, contents).hexdigest())
    return contents


class _Received:
    """Take what a server sends, up to a limit: no server may fill the disk."""

    def __init__(self, file: IO[bytes] | io.BytesIO, algorithm: str, most: int) -> None:
        self.file, self.digest, self.most = file, hashlib.new(algorithm), most

    def write(self, piece: bytes) -> None:
        self.digest.update(piece)
        if self.file.tell() + len(piece) > self.most:
            raise ValueError(f"it is longer than the {self.most:,} bytes that were expected at most.")
        self.file.write(piece)

    def flush(self) -> None:
        """Do nothing: the whole file is synced at the end."""


def _check(file: File, digest: str) -> None:
    if digest != file.digest:
        made = "it" if file.conversion is None else "what is made from it"
        raise ValueError(f"{made} has the hash {digest}, expected {file.digest}.")


def _cause(error: BaseException) -> BaseException:
    """Return the original error: the outer errors of a request only quote each other."""
    while error.__context__ is not None:
        error = error.__context__
    return error
