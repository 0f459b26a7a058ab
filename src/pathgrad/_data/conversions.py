"""What is done to a download before it is kept: each makes bytes whose hash can be known in advance."""

import io
import json
import zipfile
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from .pickles import unpickled


def member(contents: bytes, columns: Sequence[str] = ()) -> bytes:
    """Return the only file in a zip archive, as it was packed."""
    try:
        with zipfile.ZipFile(io.BytesIO(contents)) as archive:
            names = [name for name in archive.namelist() if not name.startswith("__MACOSX/")]
            if len(names) != 1:
                raise ValueError(f"it must be a zip archive with one file in it, got {len(names)} files.")
            return archive.read(names[0])
    except (zipfile.BadZipFile, zlib.error, RuntimeError) as error:
        raise ValueError(f"it is no zip archive that can be read: {error}.") from error


def draws(contents: bytes, columns: Sequence[str]) -> bytes:
    """Return the draws in zipped JSON, a list of chains by column, as an .npy file in single precision.

    The array is (chains, draws, columns), with the columns in the order that is asked for.
    """
    try:
        chains = json.loads(member(contents))
        stacked = np.array([[chain[name] for name in columns] for chain in chains], np.float32)
    except (KeyError, TypeError) as error:
        raise ValueError(f"it must be a list of chains with the columns {', '.join(columns)}.") from error
    return _npy(stacked.swapaxes(1, 2))


def labelled(contents: bytes, columns: Sequence[str] = ()) -> bytes:
    """Return the features and labels that a pickle holds as a pair: one .npy file, labels last."""
    try:
        features, labels = unpickled(contents)
        return _npy(np.column_stack([features, labels]).astype(np.float64))
    except Exception as error:  # a bad pickle can raise anything
        raise ValueError(f"it must be a pickled pair of features and labels: {error}.") from error


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, np.ascontiguousarray(array), allow_pickle=False)
    return file.getvalue()


CONVERSIONS: dict[str, Callable[[bytes, Sequence[str]], bytes]] = {
    "member": member,
    "draws": draws,
    "labelled": labelled,
}
