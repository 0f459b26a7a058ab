"""Write files completely, or not at all."""

import contextlib
import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# The names that `write_atomically` gives to unfinished files.
TEMPORARY = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}\.tmp")


def write_atomically(path: Path, chunks: Iterable[Any]) -> None:
    """Write these bytes to a file, on the disk; if that fails, leave the file exactly as it was.

    Raises:
        OSError: If the system reports one; the unfinished file has been removed.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
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
