"""Save a tree of arrays to one file, and load it back bit for bit or not at all.

A checkpoint is a `.safetensors` file, which `safetensors.numpy.load_file` can read. Each leaf is named after
its place in the tree, such as `.model.layers[0].weight`, and PRNG keys are stored as their numbers. Two
checksums in `__metadata__` cover every byte, one the arrays and the other everything else:

    <length of the header, 8 bytes> {"__metadata__": {"pathgrad_header_sha256": ..., "format": "3",
    "step": "1000", ..., "payload_sha256": ...}, ".model.layers[0].weight": {"dtype": "F32", ...}}
    <payload: the bytes of every array leaf, one after the other, little-endian>
"""

# We write this layout ourselves. The `safetensors` package puts the metadata in random order (the checksum of
# the header needs a fixed place) and copies all arrays (400 MB took 760 MB more) unless it opens the file
# itself; the tests check that it reads our files. `equinox.tree_serialise_leaves` identifies a leaf only by
# its place in the stream.

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._words.errors import UserError
from .files import write_atomically
from .provenance import package_version

FORMAT = 3  # formats 1 and 2, written by pathgrad 0.1 and shortly after, had other layouts
_OLDER = re.compile(rb'pathgrad checkpoint \w{64}\n\{"format": (\d+), "library": "([^"]+)"')
# How a header begins. Its checksum follows, and covers everything before the payload except itself.
_MAGIC = b'{"__metadata__": {"pathgrad_header_sha256": "'
_LONGEST_HEADER = 100_000_000  # bytes, a limit of the safetensors format
_DTYPES = {"bool": "BOOL", "bfloat16": "BF16", "float16": "F16", "float32": "F32", "float64": "F64"}
_DTYPES |= {f"{x}int{n}": f"{x or 'i'}{n}".upper() for x in ("", "u") for n in (8, 16, 32, 64)}
_STORED = jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct


class CheckpointError(UserError):
    """A checkpoint could not be written or read, or does not fit the tree to be loaded."""


class DamagedCheckpoint(CheckpointError):
    """The file is truncated or its bytes have changed."""

    def __init__(self, path: Path, why: str):
        super().__init__(f"{path} is {why}. The file was not touched. Use another checkpoint.")


@dataclasses.dataclass(frozen=True)
class Header:
    """Describe a checkpoint without its arrays.

    Attributes:
        library: Version of pathgrad that wrote the file.
        step: Training step that the tree belongs to.
        meta: Anything that JSON can hold; tuples are read back as lists.
        leaves: The stored arrays in the order of the tree: path in the tree, and dtype and shape as in
            `float32[2,3]` or, for typed PRNG keys, `key<threefry2x32>[]`.
        begins: Offset of each array in the payload, in bytes.
        payload_bytes: Length of the payload, in bytes.
        sha256: Checksum of the payload, in hexadecimal.
    """

    library: str
    step: int
    meta: dict[str, Any]
    leaves: dict[str, str]
    begins: dict[str, int]
    payload_bytes: int
    sha256: str


def save(path: Path, tree: PyTree, *, step: int, meta: dict[str, Any]) -> None:
    """Write the arrays of a tree to a file, completely or not at all; create its folder if needed.

    It stores JAX and NumPy arrays, NumPy scalars and typed PRNG keys. Python numbers, functions and other
    leaves belong to the configuration; `load` takes them from its `like`. On failure it raises a
    `CheckpointError` and leaves an earlier file untouched.
    """
    leaves = _named_leaves(tree)
    descriptions = _describe(leaves)
    # Wide dtypes first, so that each array begins at a multiple of its item size: some readers need it.
    arrays = {name: _array_of(leaf) for name, leaf in leaves.items()}
    arrays = dict(sorted(arrays.items(), key=lambda item: -item[1].itemsize))
    chunks = [_bytes_of(array) for array in arrays.values()]
    checksum, table, end = hashlib.sha256(), {}, 0
    for chunk, (name, array) in zip(chunks, arrays.items(), strict=True):
        checksum.update(chunk)
        begin, end = end, end + array.nbytes
        dtype = _DTYPES[array.dtype.name]
        table[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [begin, end]}
    metadata = {
        "format": str(FORMAT),
        "library": package_version("pathgrad") or "unknown",
        "step": str(step),
        # NaN is written in Python's dialect of JSON, so that `meta` is read back unchanged.
        "meta": json.dumps(meta),
        "leaves": json.dumps(descriptions),
        "payload_sha256": checksum.hexdigest(),
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, [_header_bytes(metadata, table), *chunks])
    except OSError as error:
        raise CheckpointError(
            f"Could not write the checkpoint {path}: {error.strerror}. Older checkpoints are untouched. Free "
            "space on the disk or make the folder writable, and resume from them."
        ) from error


def read_header(path: Path) -> Header:
    """Read the header of a checkpoint, without a tree; raises the same errors as `load`."""
    with _opened(path) as (_, header):
        return header


def load(path: Path, like: PyTree) -> PyTree:
    """Return the tree `like` with the arrays of a checkpoint in place of its own.

    The array leaves of `like` may be `jax.ShapeDtypeStruct`. Arrays are put on the devices to which those of
    `like` are committed. They are never weakly typed, even if the saved ones were: JAX has no public way to
    make such an array from bytes. Raises a `CheckpointError` if the file cannot be read, is not a
    checkpoint, is damaged, or belongs to a tree with different leaves.
    """
    wanted = _named_leaves(like)
    expected = _describe(wanted)
    with _opened(path) as (file, header):
        if list(header.leaves.items()) != list(expected.items()):
            raise _other_tree(path, header.leaves, expected)
        start = _check_payload(file, header, path)
        arrays = iter([_read_leaf(file, start + header.begins[name], x) for name, x in wanted.items()])
    return jax.tree.map(lambda x: next(arrays) if isinstance(x, _STORED) else x, like)


def is_intact(path: Path) -> bool:
    """Return whether both checksums of a file match its bytes."""
    try:
        with _opened(path) as (file, header):
            _check_payload(file, header, path)
    except CheckpointError:
        return False
    return True


def _named_leaves(tree: PyTree) -> dict[str, Any]:
    paths = jax.tree_util.tree_flatten_with_path(tree)[0]
    stored = [(jax.tree_util.keystr(path), x) for path, x in paths if isinstance(x, _STORED)]
    if len(dict(stored)) < len(stored):
        raise CheckpointError("Two leaves of the tree have the same path. Rename one of them.")
    return dict(stored)


def _describe(leaves: dict[str, Any]) -> dict[str, str]:
    return {name: f"{_kind(x, name)}[{','.join(map(str, x.shape))}]" for name, x in leaves.items()}


def _kind(leaf: Any, name: str) -> str:
    if _is_key(leaf):
        return f"key<{_key_impl(leaf)}>"
    with contextlib.suppress(TypeError):
        if leaf.dtype.kind != "O" and np.dtype(leaf.dtype.name) == leaf.dtype:
            return leaf.dtype.name
    raise CheckpointError(
        f"The leaf `{name}` has dtype {leaf.dtype!r}, which a checkpoint cannot hold. Use only "
        "numbers and booleans in native byte order, and typed PRNG keys."
    )


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _key_impl(leaf: Any) -> str:
    # `jax.random.key_impl` refuses a `ShapeDtypeStruct`, but accepts a tracer made from one.
    names = []
    jax.eval_shape(lambda key: names.append(str(jax.random.key_impl(key))), leaf)
    return names[0]


def _array_of(leaf: Any) -> np.ndarray:
    # JAX runs on little-endian machines only, and `_kind` has refused foreign byte orders.
    array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf, order="C")
    if array.dtype.name in _DTYPES:
        return array
    # Dtypes that safetensors does not have are written as their parts: two real numbers, or bytes.
    return array[..., None].view(f"f{array.itemsize // 2}" if array.dtype.kind == "c" else np.uint8)


def _bytes_of(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _header_bytes(metadata: dict[str, str], table: dict[str, Any]) -> bytes:
    text = json.dumps({"__metadata__": {"pathgrad_header_sha256": "0" * 64} | metadata} | table)
    text += " " * (-len(text) % 8)  # so that the payload is aligned
    if len(text) > _LONGEST_HEADER:
        raise CheckpointError("The tree has too many leaves, or `meta` is too long, for one file.")
    start, rest = len(text).to_bytes(8, "little") + _MAGIC, text[len(_MAGIC) + 64 :].encode()
    return start + hashlib.sha256(start + rest).hexdigest().encode() + rest


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
    start = file.read(8 + len(_MAGIC))
    if start[8:] != _MAGIC:
        if older := _OLDER.match(start + file.read(150)):
            raise _other_version(path, int(older[1]), older[2].decode(errors="replace"))
        raise DamagedCheckpoint(path, "not a pathgrad checkpoint, or damaged at its beginning")
    digest = file.read(64)
    # A corrupt length must not make us allocate more memory than the file has bytes.
    length = min(int.from_bytes(start[:8], "little"), _LONGEST_HEADER, os.fstat(file.fileno()).st_size)
    rest = file.read(max(length - len(_MAGIC) - 64, 0))
    if digest != hashlib.sha256(start + rest).hexdigest().encode():
        raise DamagedCheckpoint(path, "damaged: its header does not match its checksum")
    try:
        table = json.loads(_MAGIC + digest + rest)
        metadata = table.pop("__metadata__")
        number, library = int(metadata["format"]), str(metadata["library"])
        if number == FORMAT:
            leaves = dict(json.loads(metadata["leaves"]))
            begins = {name: int(table[name]["data_offsets"][0]) for name in leaves}
            size = max((int(entry["data_offsets"][1]) for entry in table.values()), default=0)
            meta, sha256 = json.loads(metadata["meta"]), metadata["payload_sha256"]
            return Header(library, int(metadata["step"]), meta, leaves, begins, size, sha256)
    except Exception as error:  # the checksum catches accidents, not a forged file
        raise DamagedCheckpoint(path, f"damaged: its header cannot be understood ({error!r})") from error
    raise _other_version(path, number, library)


def _other_version(path: Path, number: int, library: str) -> CheckpointError:
    age = "an older" if number < FORMAT else "a newer"
    return CheckpointError(
        f"{path} was written by {age} pathgrad: {library}, in format {number}; this one reads {FORMAT}. "
        f"Use pathgrad {library} for this run (its config.toml names the commit), or train again."
    )


def _other_tree(path: Path, file: dict[str, str], here: dict[str, str]) -> CheckpointError:
    differing = [
        f"`{name}` is {file.get(name, 'absent')} in the file and {here.get(name, 'absent')} here"
        for name in file | here
        if file.get(name) != here.get(name)
    ]
    more = [f"and {len(differing) - 3} more"] if len(differing) > 3 else []
    shown = "; ".join(differing[:3] + more) or "the leaves are in a different order"
    return CheckpointError(
        f"{path} belongs to a different model or configuration: {shown}. Build the same "
        "model and optimiser as the training did, with the same float precision."
    )


def _check_payload(file: io.BufferedReader, header: Header, path: Path) -> int:
    """Return the offset of the payload, after checking that it is what was written."""
    start = file.tell()
    size = os.fstat(file.fileno()).st_size - start
    if size != header.payload_bytes:
        raise DamagedCheckpoint(path, f"damaged: {size} array bytes, not {header.payload_bytes}")
    if hashlib.file_digest(file, "sha256").hexdigest() != header.sha256:
        raise DamagedCheckpoint(path, "damaged: its arrays do not match their checksum")
    return start


def _read_leaf(file: io.BufferedReader, begin: int, like: Any) -> Any:
    data = jax.eval_shape(jax.random.key_data, like) if _is_key(like) else like
    array = np.empty(data.shape, data.dtype)
    file.seek(begin)
    if file.readinto(_bytes_of(array)) != array.nbytes:
        raise DamagedCheckpoint(Path(file.name), "damaged: an array ends after the file")
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
    # Committing an array that was free to move would make it clash with arrays committed elsewhere.
    is_committed = like.committed if isinstance(like, jax.Array) else like.sharding is not None
    return jax.device_put(leaf, like.sharding) if is_committed else leaf
