"""The contents of the files: read only if they are those that everybody else has."""

import hashlib
from pathlib import Path

from pathgrad._words.errors import UserError, named

from .sources import HOW_CHOSEN, SOURCES, File, Source

_SHOWN = 12  # digits of a hash in a message


def present(files: tuple[File, ...], folder: Path) -> File | None:
    """Return the file that would be read for a part of a data set, `None` if there is none."""
    return next((file for file in files if (folder / file.path).is_file()), None)


def resolve(name: str, folder: Path) -> str:
    """Return the name of what to begin a training with: the rebuilt OMNIGLOT where that is all there is.

    Not for what has begun: a model of the one must not be judged by the other.
    """
    only_rebuilt = not _there("omniglot", folder) and _there("omniglot-rebuilt", folder)
    return "omniglot-rebuilt" if name == "omniglot" and only_rebuilt else name


def _there(name: str, folder: Path) -> bool:
    return all(present(files, folder) is not None for files in SOURCES[name].files.values())


def damage(file: File, folder: Path) -> str | None:
    """Say what is wrong with a file that is there; `None` if it is as it should be."""
    path = folder / file.path
    try:
        size = path.stat().st_size
        if file.size not in (None, size):
            return f"has {size} bytes instead of {file.size}"
        with path.open("rb") as opened:
            found = hashlib.file_digest(opened, file.algorithm).hexdigest()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None if found == file.digest else _difference(file, found)


def read(name: str, source: Source, part: str, folder: Path) -> tuple[Path, bytes]:
    """Return the path and the contents of one part of a data set, which must be those that are known."""
    files = source.files[part]
    file = present(files, folder)
    if file is None:
        wanted = " or ".join(each.path for each in files)
        address = next((each.address for each in files if each.address is not None), None)
        remedy = "It cannot be downloaded; put it there by hand."
        if address is not None:
            remedy = f"Fetch it with `pathgrad data download {name}`, or by hand from {address}."
        raise UserError(
            f"The data set {name} needs {wanted}, and there is none in {folder} (the folder is "
            f"{HOW_CHOSEN}). {remedy}"
        )
    path = folder / file.path
    try:
        # Hashed is what is parsed, not a file of the same name that is read a second time.
        contents = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    found = hashlib.new(file.algorithm, contents).hexdigest()
    if found != file.digest:
        anew = f"`pathgrad data download {name}` fetches it anew"
        remedy = anew if source.addresses else "Put an undamaged one in its place"
        raise UserError(
            f"{path} is damaged, or another file of that name: it {_difference(file, found)}. "
            f"{remedy}; or name another folder by {named('data')}."
        )
    return path, contents


def _difference(file: File, found: str) -> str:
    return f"has {file.algorithm.upper()} {found[:_SHOWN]}... instead of {file.digest[:_SHOWN]}..."
