"""Read data files, and only if their hashes are the known ones."""

import hashlib
from pathlib import Path

from pathgrad._words.errors import UserError, named

from .files import HOW_CHOSEN, File, Parts, addresses

_SHOWN = 12  # digits of a hash in a message


def present(files: tuple[File, ...], folder: Path) -> File | None:
    """Return the file that would be read for a part of a data set; `None` if there is none."""
    return next((file for file in files if (folder / file.path).is_file()), None)


def damage(file: File, folder: Path) -> str | None:
    """Return what is wrong with an existing file; `None` if nothing is."""
    path = folder / file.path
    try:
        size = path.stat().st_size
        if file.size not in (None, size):
            return f"has {size} bytes instead of {file.size}"
        with path.open("rb") as opened:
            digest = hashlib.file_digest(opened, file.algorithm).hexdigest()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None if digest == file.digest else _difference(file, digest)


def read(name: str, parts: Parts, part: str, folder: Path) -> tuple[Path, bytes]:
    """Return path and contents of one part of a data set; the hash must be the known one."""
    files = parts[part]
    file = present(files, folder)
    if file is None:
        names = " or ".join(form.path for form in files)
        address = next((form.address for form in files if form.address is not None), None)
        remedy = "It cannot be downloaded; put it there by hand."
        if address is not None:
            remedy = f"Run `pathgrad data download {name}`, or get it from {address}."
        raise UserError(
            f"The data set {name} needs {names}, which is not in {folder} (the folder is "
            f"{HOW_CHOSEN}). {remedy}"
        )
    path = folder / file.path
    try:
        # Hash the very bytes that are parsed, instead of reading the file twice.
        contents = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    digest = hashlib.new(file.algorithm, contents).hexdigest()
    if digest != file.digest:
        again = f"Run `pathgrad data download {name}` to fetch it again"
        remedy = again if addresses(parts) else "Replace it with an undamaged one"
        raise UserError(
            f"{path} is damaged, or a different file with that name: it {_difference(file, digest)}. "
            f"{remedy}, or choose another folder with {named('data')}."
        )
    return path, contents


def _difference(file: File, digest: str) -> str:
    return f"has {file.algorithm.upper()} {digest[:_SHOWN]}... instead of {file.digest[:_SHOWN]}..."
