"""Save a tree of arrays to one file, and get it back to the same bits or not at all.

A checkpoint is two lines of text and then bytes; the two checksums cover every one of them:

    pathgrad checkpoint <sha256 of the second line>
    {"format": 2, "step": 1000, ..., "sha256": <of the payload>, "leaves": {...}}
    <payload: the bytes of every array leaf, one after the other, little-endian>
"""

# A plain concatenation and not `equinox.tree_serialise_leaves`: that stream knows a leaf only by
# its place, so a file of another model fails half way, with two shapes and no name. Here the header
# names every leaf, and all are compared before the first byte of an array is read.

import contextlib
import dataclasses
import hashlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._errors import UserError
from .files import write_atomically
from .rundir import package_version

FORMAT = 2  # 1 was of pathgrad 0.1, whose training states had other parts
_MAGIC = b"pathgrad checkpoint "
_STORED = jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct


class CheckpointError(UserError):
    """A checkpoint could not be written, read, or used for the tree that asked for it."""


class DamagedCheckpoint(CheckpointError):
    """The file is cut short or its bytes have changed."""

    def __init__(self, path: Path, why: str):
        super().__init__(f"{path} is {why}. It was left as it is. Use another checkpoint.")


@dataclasses.dataclass(frozen=True)
class Header:
    """Describe a checkpoint without its arrays.

    Attributes:
        format: Version of the file format.
        library: Version of pathgrad that wrote the file.
        step: Training step, as given to `save`.
        meta: The user's own JSON data, as given to `save`.
        payload_bytes: Length of the payload.
        sha256: Checksum of the payload, in hexadecimal.
        leaves: The stored arrays in the order of the payload: path in the tree, and dtype and
            shape as in `float32[2,3]` or, for typed PRNG keys, `key<threefry2x32>[]`.
    """

    format: int
    library: str
    step: int
    meta: dict[str, Any]
    payload_bytes: int
    sha256: str
    leaves: dict[str, str]


def save(path: str | os.PathLike[str], tree: PyTree, *, step: int, meta: dict[str, Any]) -> None:
    """Write the arrays of a tree to `path`, whole or not at all.

    Stored are JAX and NumPy arrays, NumPy scalars and typed PRNG keys. Python numbers, functions
    and other leaves belong to the configuration; `load` takes them from its `like`.

    Args:
        path: File to write or replace. Its folder is made if need be.
        tree: Any pytree of concrete arrays.
        step: Training step that the tree belongs to.
        meta: Anything that JSON can hold (tuples come back as lists); `read_header` returns it.

    Raises:
        CheckpointError: The file cannot be written, or a leaf cannot be stored. Whatever was at
            `path` before is untouched.
    """
    path = Path(path)
    leaves = _describe(tree)
    chunks = [_bytes_of(leaf) for leaf in jax.tree.leaves(tree) if isinstance(leaf, _STORED)]
    checksum = hashlib.sha256()
    for chunk in chunks:
        checksum.update(chunk)
    size = sum(chunk.nbytes for chunk in chunks)
    version = package_version("pathgrad") or "unknown"
    header = Header(FORMAT, version, step, meta, size, checksum.hexdigest(), leaves)
    # Not-a-number is written in Python's dialect of JSON, so that `meta` comes back as it was.
    second = json.dumps(dataclasses.asdict(header)).encode() + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, [_first_line(second), second, *chunks])
    except OSError as error:
        raise CheckpointError(
            f"Could not write the checkpoint {path}: {error.strerror}. Older checkpoints are "
            "untouched. Free space on the disk or make the folder writable, and resume from them."
        ) from error


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read what a checkpoint says about itself, without a tree; fails as `load` does."""
    with _opened(Path(path)) as (_, header):
        return header


def load(path: str | os.PathLike[str], like: PyTree) -> PyTree:
    """Return the tree `like` with the arrays of a checkpoint in place of its own.

    Arrays go to the devices that those of `like` are committed to. They are never weakly typed,
    even if the saved ones were: JAX has no public way to make such an array from bytes.

    Args:
        path: File that `save` wrote. It is only read.
        like: Tree of the same structure; its array leaves may be `jax.ShapeDtypeStruct`.

    Raises:
        CheckpointError: The file cannot be read, is no checkpoint, is cut short or damaged, or
            belongs to a tree with other leaves than `like`.
    """
    path = Path(path)
    wanted = _describe(like)
    leaves, structure = jax.tree.flatten(like)
    with _opened(path) as (file, header):
        if list(header.leaves.items()) != list(wanted.items()):
            raise _other_tree(path, header.leaves, wanted)
        _check_payload(file, header, path)
        leaves = [_read_leaf(file, leaf) if isinstance(leaf, _STORED) else leaf for leaf in leaves]
    return jax.tree.unflatten(structure, leaves)


def _describe(tree: PyTree) -> dict[str, str]:
    named = jax.tree_util.tree_flatten_with_path(tree)[0]
    stored = [(jax.tree_util.keystr(path), x) for path, x in named if isinstance(x, _STORED)]
    return {name: f"{_kind(x, name)}[{','.join(map(str, x.shape))}]" for name, x in stored}


def _kind(leaf: Any, name: str) -> str:
    if _is_key(leaf):
        return f"key<{_key_impl(leaf)}>"
    with contextlib.suppress(TypeError):
        if leaf.dtype.kind != "O" and np.dtype(leaf.dtype.name) == leaf.dtype:
            return leaf.dtype.name
    raise CheckpointError(
        f"The leaf `{name}` has dtype {leaf.dtype!r}, which a checkpoint cannot hold. Keep to "
        "numbers and booleans in native byte order, and typed PRNG keys."
    )


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _key_impl(leaf: Any) -> str:
    # `jax.random.key_impl` refuses a `ShapeDtypeStruct`, but takes the tracer that stands for one.
    names = []
    jax.eval_shape(lambda key: names.append(str(jax.random.key_impl(key))), leaf)
    return names[0]


def _bytes_of(leaf: Any) -> memoryview:
    # JAX runs on little-endian machines only, and `_kind` has refused foreign byte orders.
    array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _first_line(second: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(second).hexdigest().encode() + b"\n"


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[io.BufferedReader, Header]]:
    try:
        with path.open("rb") as file:
            yield file, _parse_header(file, path)
    except OSError as error:
        raise CheckpointError(
            f"Could not read the checkpoint {path}: {error.strerror}. Check the path and its "
            "permissions; it must be one file that pathgrad saved."
        ) from error


def _parse_header(file: io.BufferedReader, path: Path) -> Header:
    first = file.read(len(_first_line(b"")))
    if not first.startswith(_MAGIC):
        why = "not a pathgrad checkpoint: it is another program's, or cut off at its very start"
        raise DamagedCheckpoint(path, why)
    second = file.readline()
    if first != _first_line(second):
        raise DamagedCheckpoint(
            path, "damaged: its header is cut short or does not match its checksum"
        )
    fields = json.loads(second)
    if fields["format"] != FORMAT:
        raise CheckpointError(
            f"{path} has checkpoint format {fields['format']}, written by pathgrad "
            f"{fields.get('library')}; this pathgrad reads format {FORMAT}. Use that version."
        )
    return Header(**fields)


def _check_payload(file: io.BufferedReader, header: Header, path: Path) -> None:
    start = file.tell()
    size = os.fstat(file.fileno()).st_size - start
    if size != header.payload_bytes:
        raise DamagedCheckpoint(
            path, f"damaged: {size} bytes of arrays instead of {header.payload_bytes}"
        )
    if hashlib.file_digest(file, "sha256").hexdigest() != header.sha256:
        raise DamagedCheckpoint(path, "damaged: its arrays do not match their checksum")
    file.seek(start)


def _read_leaf(file: io.BufferedReader, like: Any) -> Any:
    data = jax.eval_shape(jax.random.key_data, like) if _is_key(like) else like
    array = np.empty(data.shape, data.dtype)
    filled = file.readinto(array.reshape(-1).view(np.uint8).data)
    assert filled == array.nbytes
    if isinstance(like, np.ndarray | np.generic):
        return array if isinstance(like, np.ndarray) else array[()]
    if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
        raise CheckpointError(
            f"The checkpoint {file.name} holds 64-bit numbers and JAX is set to 32 bits. Call "
            '`jax.config.update("jax_enable_x64", True)` first, as the training did.'
        )
    leaf = jnp.asarray(array)
    if _is_key(like):
        leaf = jax.random.wrap_key_data(leaf, impl=_key_impl(like))
    # To pin an array that was free to move would make it clash with arrays pinned elsewhere.
    is_pinned = like.committed if isinstance(like, jax.Array) else like.sharding is not None
    return jax.device_put(leaf, like.sharding) if is_pinned else leaf


def is_intact(path: Path) -> bool:
    """Return whether both checksums of a file are right."""
    try:
        with _opened(path) as (file, header):
            _check_payload(file, header, path)
    except CheckpointError:
        return False
    return True


def _other_tree(path: Path, file: dict[str, str], here: dict[str, str]) -> CheckpointError:
    differing = [
        f"`{name}` is {file.get(name, 'absent')} in the file and {here.get(name, 'absent')} here"
        for name in file | here
        if file.get(name) != here.get(name)
    ]
    more = [f"and {len(differing) - 3} more"] if len(differing) > 3 else []
    shown = "; ".join(differing[:3] + more) or "the leaves come in another order"
    return CheckpointError(
        f"{path} belongs to a different model or configuration: {shown}. Build the same "
        "model and optimiser as the training did, with the same float precision."
    )
