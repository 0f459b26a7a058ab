"""Save a tree of arrays to one file, and get it back to the same bits or not at all.

A checkpoint is two lines of text and then bytes; the two checksums cover every one of them:

    pathgrad checkpoint <sha256 of the second line>
    {"format": 1, "step": 1000, ..., "sha256": <of the payload>, "leaves": [...]}
    <payload: the bytes of every array leaf, one after the other, little-endian>
"""

# The payload is a plain concatenation and not `equinox.tree_serialise_leaves`: that stream knows a
# leaf only by its place, so a file of another model fails somewhere in the middle with two shapes
# and no name, and it has no PRNG keys without a filter of our own. With the leaves described in the
# header, all are compared by name before the first byte of an array is read.

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .rundir import TEMPORARY, package_version, write_atomically

FORMAT = 1
_MAGIC = b"pathgrad checkpoint "
_FIRST_LINE_BYTES = len(_MAGIC) + 64 + 1
_NAME = re.compile(r"step-(\d{9,})\.ckpt")


class CheckpointError(Exception):
    """A checkpoint could not be written, read, or used for the tree that asked for it."""


@dataclasses.dataclass(frozen=True)
class LeafSpec:
    """Describe one stored array.

    Attributes:
        path: Where the leaf is in its tree, as `jax.tree_util.keystr` writes it.
        shape: Shape of the stored array; for a typed PRNG key, of its key data.
        dtype: Name of the stored dtype; for a typed PRNG key, of its key data.
        key_impl: Name of the random generator if the leaf is a typed PRNG key, else `None`.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    key_impl: str | None

    def __str__(self) -> str:
        kind = self.dtype if self.key_impl is None else f"key<{self.key_impl}>"
        return f"{kind}[{','.join(map(str, self.shape))}]"


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
        leaves: The stored arrays, in the order of the payload.
    """

    format: int
    library: str
    step: int
    meta: dict[str, Any]
    payload_bytes: int
    sha256: str
    leaves: tuple[LeafSpec, ...]


def save(path: str | os.PathLike[str], tree: PyTree, *, step: int, meta: dict[str, Any]) -> None:
    """Write the arrays of a tree to `path`, whole or not at all.

    The bytes go to a temporary file in the same folder, reach the disk, and only then take the
    name `path`: whenever the process dies, `path` is the old file or the new one.

    Stored are JAX and NumPy arrays, NumPy scalars and typed PRNG keys. Python numbers, functions and
    other leaves belong to the configuration; `load` takes them from its `like`.

    Args:
        path: File to write or replace. Its folder is made if need be.
        tree: Any pytree of concrete arrays.
        step: Training step that the tree belongs to.
        meta: Anything that JSON can hold (tuples come back as lists); `read_header` returns it.

    Raises:
        CheckpointError: The file cannot be written, or a leaf cannot be stored. A file that was at
            `path` before is untouched.
    """
    path = Path(path)
    leaves = _stored_leaves(tree)
    specs = tuple(_leaf_spec(name, leaf) for name, leaf in leaves)
    chunks = [_bytes_of(leaf) for _, leaf in leaves]
    checksum = hashlib.sha256()
    for chunk in chunks:
        checksum.update(chunk)
    library = package_version("pathgrad") or "unknown"
    size = sum(chunk.size for chunk in chunks)
    header = Header(FORMAT, library, step, meta, size, checksum.hexdigest(), specs)
    # Not-a-number is written in Python's dialect of JSON, so that `meta` comes back as it was.
    line = json.dumps(dataclasses.asdict(header)).encode() + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, [_first_line(line), line, *chunks])
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "Free some space there" if full else "Check that its folder is writable"
        raise CheckpointError(
            f"Could not write the checkpoint {path}: {error.strerror}. Nothing was changed: any "
            f"older checkpoint is untouched. {remedy}, then continue from the newest one."
        ) from error


def read_header(path: str | os.PathLike[str]) -> Header:
    """Read what a checkpoint says about itself; no tree is needed and no array is read.

    Raises:
        CheckpointError: The file cannot be read, is no checkpoint, or its header is damaged.
    """
    with _reading(Path(path)) as file:
        return _parse_header(file, Path(path))


def load(path: str | os.PathLike[str], like: PyTree) -> PyTree:
    """Return the tree `like` with the arrays of a checkpoint in place of its own.

    Arrays go to the devices that those of `like` are committed to. They are never weakly typed, even
    if the saved ones were: JAX has no public way to make such an array from bytes.

    Args:
        path: File that `save` wrote. It is only read.
        like: Tree of the same structure; its array leaves may be `jax.ShapeDtypeStruct`.

    Raises:
        CheckpointError: The file cannot be read, is no checkpoint, is cut short or damaged, or
            belongs to a tree with other leaves than `like`.
    """
    path = Path(path)
    wanted = tuple(_leaf_spec(name, leaf) for name, leaf in _stored_leaves(like))
    with _reading(path) as file:
        header = _parse_header(file, path)
        if header.leaves != wanted:
            raise _other_tree(path, header.leaves, wanted)
        pairs = iter(zip(_read_arrays(file, header, path), wanted, strict=True))
    return jax.tree.map(lambda x: _restore(*next(pairs), x, path) if _is_stored(x) else x, like)


@dataclasses.dataclass(frozen=True)
class CheckpointFolder:
    """Keep the newest checkpoints of one training in a folder, one file per saved step.

    One process at a time may save into the folder (`RunDir.locked` sees to that); any number may
    read. Files with names that the folder does not give itself are never touched.

    Attributes:
        folder: Where the files are; made when first needed.
        keep: How many files to keep.
    """

    folder: Path
    keep: int = 2

    def __post_init__(self):
        if self.keep < 1:
            raise ValueError(f"`keep` must be at least 1; got {self.keep}.")

    def save(self, tree: PyTree, *, step: int, meta: dict[str, Any]) -> Path:
        """Write a checkpoint, then remove those older than the newest `keep`.

        Files of later steps than `step` are neither counted nor removed.

        Raises:
            CheckpointError: As `save`; then no older checkpoint has been removed.
        """
        if step < 0:
            raise ValueError(f"`step` counts from 0; got {step}.")
        path = self.folder / f"step-{step:09d}.ckpt"
        self._remove_temporaries()
        save(path, tree, step=step, meta=meta)
        past = [old for old in self.paths() if _step(old) <= step]
        for old in past[: -self.keep]:
            # A file too many is no reason to end a training; the next save tries again.
            with contextlib.suppress(OSError):
                old.unlink()
        return path

    def paths(self) -> list[Path]:
        """List the checkpoints, oldest first."""
        found = self.folder.glob("step-*.ckpt")
        return sorted((path for path in found if _NAME.fullmatch(path.name)), key=_step)

    def newest(self) -> Path | None:
        """Return the checkpoint of the latest step, damaged or not; `None` if there is none."""
        return next(reversed(self.paths()), None)

    def load_newest(self, like: PyTree) -> PyTree:
        """Load the checkpoint of the latest step; see `load`.

        Raises:
            CheckpointError: There is none, or it cannot be loaded. If it is damaged, the message
                names the newest intact one and how to continue from it: going back silently could
                hide a failing disk, so it is left to the user.
        """
        newest = self.newest()
        if newest is None:
            raise CheckpointError(
                f"There is no checkpoint in {self.folder}. The training ended before it saved one, "
                "or saved elsewhere: check the path, or start the training again."
            )
        try:
            return load(newest, like)
        except CheckpointError as error:
            if _is_intact(newest):
                raise
            raise CheckpointError(f"{error} {self._way_back()}") from error

    def _way_back(self) -> str:
        broken = []
        for path in reversed(self.paths()):
            if _is_intact(path):
                return (
                    f"The newest intact checkpoint is {path}. To continue from its step "
                    f"{_step(path)}, move {' and '.join(broken)} out of the folder and resume again."
                )
            broken.append(str(path))
        return "No intact checkpoint is beside it: this training must be started again."

    def _remove_temporaries(self) -> None:
        """Remove what a process that was killed while it saved has left behind."""
        for path in self.folder.glob(".step-*.tmp"):
            match = TEMPORARY.fullmatch(path.name)
            if match and _NAME.fullmatch(match["name"]):
                with contextlib.suppress(OSError):
                    path.unlink()


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-").removesuffix(".ckpt"))


def _is_stored(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)


def _stored_leaves(tree: PyTree) -> list[tuple[str, Any]]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves if _is_stored(leaf)]


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _leaf_spec(path: str, leaf: Any) -> LeafSpec:
    impl = []
    if _is_key(leaf):
        # `key_impl` refuses a `ShapeDtypeStruct`, but takes the tracer that stands for one.
        jax.eval_shape(lambda key: impl.append(str(jax.random.key_impl(key))), leaf)
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    with contextlib.suppress(TypeError):
        name = np.dtype(leaf.dtype).name
        if np.dtype(name) == leaf.dtype:
            return LeafSpec(path, tuple(leaf.shape), name, *impl or [None])
    raise CheckpointError(
        f"The leaf `{path}` has dtype {leaf.dtype!r}, which a checkpoint cannot hold. Nothing was "
        "written. Keep to numbers and booleans in native byte order, and typed PRNG keys."
    )


def _bytes_of(leaf: Any) -> np.ndarray:
    # JAX runs on little-endian machines only, and `_leaf_spec` has refused foreign byte orders.
    array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _first_line(second: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(second).hexdigest().encode() + b"\n"


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise CheckpointError(
            f"Could not read the checkpoint {path}: {error.strerror}. Check the path and its "
            "permissions; it must be one file that pathgrad saved."
        ) from error


def _parse_header(file: BinaryIO, path: Path) -> Header:
    first = file.read(_FIRST_LINE_BYTES)
    if not first.startswith(_MAGIC):
        raise CheckpointError(
            f"{path} is not a pathgrad checkpoint: it does not begin like one. It is another "
            "program's file, or was cut off at its very start. Give the path of another file."
        )
    second = file.readline()
    if first != _first_line(second):
        raise _damaged(path, "its header is cut short or does not match its checksum")
    fields = json.loads(second)
    if fields["format"] != FORMAT:
        raise CheckpointError(
            f"{path} has checkpoint format {fields['format']}, written by pathgrad "
            f"{fields.get('library')}; this pathgrad reads format {FORMAT}. Use that version."
        )
    leaves = tuple(LeafSpec(**leaf | {"shape": tuple(leaf["shape"])}) for leaf in fields["leaves"])
    return Header(**fields | {"leaves": leaves})


def _read_arrays(file: BinaryIO, header: Header, path: Path) -> list[np.ndarray]:
    size = os.fstat(file.fileno()).st_size - file.tell()
    if size != header.payload_bytes:
        what = "cut short" if size < header.payload_bytes else "too long"
        raise _damaged(path, f"it is {what}, with {size} of {header.payload_bytes} bytes of arrays")
    checksum = hashlib.sha256()
    arrays = []
    for spec in header.leaves:
        array = np.empty(spec.shape, spec.dtype)
        chunk = array.reshape(-1).view(np.uint8)
        file.readinto(chunk)
        checksum.update(chunk)
        arrays.append(array)
    if checksum.hexdigest() != header.sha256:
        raise _damaged(path, "its arrays do not match their checksum")
    return arrays


def _restore(array: np.ndarray, spec: LeafSpec, like: Any, path: Path) -> Any:
    if isinstance(like, np.ndarray | np.generic):
        return array if isinstance(like, np.ndarray) else array[()]
    if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
        raise CheckpointError(
            f"{path} holds 64-bit numbers (`{spec.path}` is {spec}) and JAX is set to 32 bits. "
            'Call `jax.config.update("jax_enable_x64", True)` first, as the training did.'
        )
    leaf = jnp.asarray(array)
    if spec.key_impl is not None:
        leaf = jax.random.wrap_key_data(leaf, impl=spec.key_impl)
    # To pin an array that was free to move would make it clash with arrays pinned elsewhere.
    is_pinned = like.committed if isinstance(like, jax.Array) else like.sharding is not None
    return jax.device_put(leaf, like.sharding) if is_pinned else leaf


def _damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {why}. It was left as it is; do not use it.")


def _is_intact(path: Path) -> bool:
    try:
        with _reading(path) as file:
            _read_arrays(file, _parse_header(file, path), path)
    except CheckpointError:
        return False
    return True


def _other_tree(
    path: Path, stored: tuple[LeafSpec, ...], wanted: tuple[LeafSpec, ...]
) -> CheckpointError:
    here = {spec.path: str(spec) for spec in wanted}
    file = {spec.path: str(spec) for spec in stored}
    differing = [
        f"`{name}` is {file.get(name, 'absent')} in the file and {here.get(name, 'absent')} here"
        for name in file | here
        if file.get(name) != here.get(name)
    ]
    shown = "; ".join(differing[:3]) or "the leaves come in another order"
    more = f"; and {len(differing) - 3} more" if len(differing) > 3 else ""
    return CheckpointError(
        f"{path} belongs to a different model or configuration: {shown}{more}. Build the same "
        "model and optimiser as the training did, with the same float precision."
    )
