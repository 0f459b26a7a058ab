"""The contents of the files: read only if they are those that everybody else has."""

import hashlib
from pathlib import Path

from pathgrad._errors import UserError, named

from .sources import HOW_CHOSEN, File, Source

_SHOWN = 12  # digits of a hash in a message


def digest_of(path: Path, algorithm: str) -> str:
    """Return the hash of a file, without having all of it in memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def present(files: tuple[File, ...], folder: Path) -> File | None:
    """Return the file that would be read for a part of a data set, `None` if there is none."""
    return next((file for file in files if (folder / file.path).is_file()), None)


def damage(file: File, folder: Path) -> str | None:
    """Say what is wrong with a file that is there; `None` if it is as it should be."""
    path = folder / file.path
    try:
        size = path.stat().st_size
        found = digest_of(path, file.algorithm) if file.size in (None, size) else None
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if found is None:
        return f"has {size} bytes instead of {file.size}"
    return None if found == file.digest else _difference(file, found)


def read(name: str, source: Source, part: str, folder: Path) -> tuple[Path, bytes]:
    """Return the path and the contents of one part of a data set.

    Raises:
        UserError: There is no such file, or its contents are not those that are known.
    """
    files = source.files[part]
    file = present(files, folder)
    if file is None:
        raise UserError(_missing(name, files, folder))
    path = folder / file.path
    try:
        # Hashed is what is parsed, not a file of the same name that is read a second time.
        contents = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    found = hashlib.new(file.algorithm, contents).hexdigest()
    if found != file.digest:
        if source.addresses:
            remedy = f"`pathgrad data download {name}` fetches it anew"
        else:
            remedy = "Put an undamaged one in its place"
        raise UserError(
            f"{path} is damaged, or another file of that name: it {_difference(file, found)}. "
            f"{remedy}; or name another folder by {named('data')}."
        )
    return path, contents


def _difference(file: File, found: str) -> str:
    kind = file.algorithm.upper()
    return f"has {kind} {found[:_SHOWN]}... instead of {file.digest[:_SHOWN]}..."


def _missing(name: str, files: tuple[File, ...], folder: Path) -> str:
    wanted = " or ".join(file.path for file in files)
    address = next((file.address for file in files if file.address is not None), None)
    if address is None:
        remedy = "It cannot be downloaded; put it there by hand."
    else:
        remedy = f"Fetch it with `pathgrad data download {name}`, or by hand from {address}."
    return (
        f"The data set {name} needs {wanted}, and there is none in {folder} (the folder is {HOW_CHOSEN}). "
        f"{remedy}"
    )
