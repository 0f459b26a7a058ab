"""Downloads that can be broken off: what has come stays, and only what is right gets its name."""

import contextlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pathgrad._errors import UserError

from .contents import digest_of
from .sources import File

# Called with the bytes that are there and, if it is known, how many there will be.
Tell = Callable[[int, int | None], None]

_TIMEOUT = 30.0  # seconds without a byte
_PIECE = 2**16


def download(file: File, folder: Path, tell: Tell, timeout: float = _TIMEOUT) -> None:
    """Fetch a file into its place below the folder, going on where an earlier attempt ended.

    Raises:
        UserError: It cannot be fetched, or is not the file that is known. What stood in its place is there
            as before.
    """
    if file.address is None:
        raise UserError(f"{file.path} has no address to download it from; put it into {folder}.")
    path = folder / file.path
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        resumed = part.exists() and part.stat().st_size > 0
        _complete(file, part, tell, timeout)
        found = digest_of(part, file.algorithm)
        if found != file.digest and resumed:
            # The beginning may be of another file than the rest; this is known only now.
            part.unlink()
            _complete(file, part, tell, timeout)
            found = digest_of(part, file.algorithm)
        if found != file.digest:
            part.unlink()
            raise UserError(
                f"{file.address} sent something else than {path.name}: its {file.algorithm.upper()} is "
                f"{found[:12]}... instead of {file.digest[:12]}... It was not kept. Get the file elsewhere, "
                f"and put it into {path.parent}."
            )
        os.replace(part, path)
    except OSError as error:  # those of the network have been dealt with
        raise UserError(f"{path} cannot be written: {error.strerror}.") from error


def _complete(file: File, part: Path, tell: Tell, timeout: float) -> None:
    """Make the unfinished file as long as it should be."""
    have = part.stat().st_size if part.exists() else 0
    if file.size is not None and have >= file.size:
        return  # whether it is right, its hash tells
    try:
        with _open(file, have, timeout) as response:
            if response.status != http.HTTPStatus.PARTIAL_CONTENT:
                have = 0  # this server sends all or nothing
            length = response.headers.get("Content-Length")
            total = have + int(length) if length is not None and length.isdigit() else file.size
            received = _receive(response, part, have, total, file, tell)
    except urllib.error.HTTPError as error:
        # Nothing comes after what we have: it is whole, or of another file. Its hash tells.
        error.close()
        if have and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return
        raise _failed(file, part, f"{error.code} {error.reason}") from error
    except _Broken as error:
        raise _failed(file, part, str(error)) from error
    too_long = file.size is not None and received > file.size
    if total is not None and received < total and not too_long:
        raise _failed(file, part, f"the connection ended after {received} of {total} bytes")


def _open(file: File, have: int, timeout: float) -> http.client.HTTPResponse:
    """Ask for what is missing; for everything, if the server offers some other piece."""
    response = _request(file, {"Range": f"bytes={have}-"} if have else {}, timeout)
    offered = response.headers.get("Content-Range", "")
    if response.status == http.HTTPStatus.PARTIAL_CONTENT and not offered.startswith(
        f"bytes {have}-"
    ):
        response.close()
        response = _request(file, {}, timeout)
    return response


def _request(file: File, headers: dict[str, str], timeout: float) -> Any:
    assert file.address is not None
    request = urllib.request.Request(file.address, headers={"User-Agent": "pathgrad", **headers})
    with _network():
        return urllib.request.urlopen(request, timeout=timeout)


def _receive(
    response: Any, part: Path, have: int, total: int | None, file: File, tell: Tell
) -> int:
    """Write what comes, and return the length of the file."""
    with part.open("ab" if have else "wb") as out:
        tell(have, total)
        # No more than is wanted, or a server could fill the disk.
        while file.size is None or have <= file.size:
            with _network():
                piece = response.read(_PIECE)
            if not piece:
                break
            out.write(piece)
            have += len(piece)
            tell(have, total)
        out.flush()
        os.fsync(out.fileno())
    return have


class _Broken(Exception):
    """The network failed, as opposed to the disk."""


@contextlib.contextmanager
def _network():
    try:
        yield
    except urllib.error.HTTPError:
        raise
    except urllib.error.URLError as error:
        raise _Broken(error.reason) from error
    except TimeoutError as error:
        raise _Broken("no answer in time") from error
    except (OSError, http.client.HTTPException) as error:
        raise _Broken(error) from error


def _failed(file: File, part: Path, why: str) -> UserError:
    begun = part.exists() and part.stat().st_size > 0
    again = "Run the command again to go on from there" if begun else "Run the command again later"
    return UserError(
        f"{file.address} could not be fetched: {why}. {again}, or put the file into {part.parent} by hand."
    )
