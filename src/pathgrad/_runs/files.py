"""Write files completely, or not at all."""

import contextlib
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

# The names of unfinished files.
TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}\.tmp")
_ABANDONED = 86_400.0  # seconds, after which an unfinished file is nobody's, where there are no locks


def write_atomically(path: Path, chunks: Iterable[Any]) -> None:
    """Write these bytes to a file, on the disk; if that fails, leave the file exactly as it was.

    Raises:
        OSError: If the system reports one; the unfinished file has been removed.
    """
    with replacing(path) as file:
        for chunk in chunks:
            file.write(chunk)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open an unfinished file beside a file, which takes its place on the disk once it is complete.

    If that fails, the file is left exactly as it was. A file name that is a link is replaced, not followed.
    Unfinished files that other processes left when they were killed are removed. Code that needs a path may
    write to `name` of the unfinished file.
    """
    sweep(path.parent, path.name)
    with _locked(path) as file:
        temporary = Path(file.name)
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            _close_on_windows(file)
            os.replace(temporary, path)
        except BaseException:
            _close_on_windows(file)
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    # The new name survives a power cut only once its folder is on the disk too. Some systems cannot
    # sync a folder; the file is in place all the same, so that is not a failure.
    with contextlib.suppress(OSError):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def sweep(folder: Path, name: str) -> None:
    """Remove unfinished files of this name (`*`: of all names) that no living process writes."""
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder):
            match = TEMPORARY.fullmatch(entry)
            if match and name in ("*", match["name"]):
                _remove_abandoned(folder / entry)


def _remove_abandoned(path: Path) -> None:
    # What somebody else may have put there under such a name is not waited for, and not followed.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    with contextlib.suppress(OSError), open(os.open(path, flags), "rb") as file:
        try:
            if fcntl is None:
                raise OSError
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # its process is alive
            return
        except OSError:  # a file system without locks
            if time.time() - os.fstat(file.fileno()).st_mtime < _ABANDONED:
                return
        _close_on_windows(file)
        path.unlink()


def _close_on_windows(file: IO[bytes]) -> None:
    """Close a file that is about to be renamed or removed, where that fails while it is open."""
    if fcntl is None:
        file.close()


def _locked(path: Path) -> IO[bytes]:
    """Open a new unfinished file, and lock it for as long as it is open."""
    while True:
        file = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp").open("x+b")
        with contextlib.suppress(OSError):  # a file system without locks
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # another process swept it before it was locked
