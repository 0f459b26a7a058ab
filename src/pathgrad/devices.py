"""Share the draws of a batch among devices: each computes its part, and all receive the result.

The same code runs on one device and on many. `spread` hands each device its part of the draws; `average`,
`gather` and the like bring the parts together again, and do nothing where there is only one. Since every
draw has its own key, the draws do not depend on the number of devices, and results depend on it only through
the order of summation (and, if `for_each_draw` cannot divide evenly, the tolerance of an adaptive solver).

`pathgrad.fit` and `pathgrad.evaluate` call these functions for you.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from ._words.errors import UserError, named

T = TypeVar("T")

_AXIS = "draws"
CONNECT_SECONDS = 120  # how long to wait for all processes to connect
_SILENT_SECONDS = 30  # a process silent for longer counts as dead, even if its connections are open


def mesh_for(n: int | None, devices: Sequence[Any] | None = None) -> Mesh | None:
    """Return as many devices as can share `n` draws evenly; `None` for the default device alone.

    With several processes every device must have a part, so `n` must be divisible by their number.

    Args:
        n: Number of draws; `None` if they need not be divided evenly (`for_each_draw`).
        devices: The devices to choose from. Default: all, of all processes.
    """
    devices = list(jax.devices() if devices is None else devices)
    if not devices:
        raise ValueError("`devices` is empty: at least one is needed.")
    available = len(devices)
    n = available if n is None else n
    if n % available and _of_several_processes(devices):
        lower = n // available * available
        nearest = f"{lower} or {lower + available}" if lower else f"{available}"
        raise UserError(
            f"{n} draws cannot be shared evenly by {available} devices of several processes. Use a batch of "
            f"{nearest}, or a number of devices that divides {n}."
        )
    count = next(k for k in range(min(available, n), 0, -1) if n % k == 0)
    if count == 1 and devices[0] == jax.local_devices()[0]:
        return None  # arrays are on this device by default
    return Mesh(np.asarray(devices[:count]), (_AXIS,))


def spread(fn: Callable[..., T], mesh: Mesh | None) -> Callable[..., T]:
    """Return `fn(common, *parts)` with the first axis of all `parts` split over the devices.

    `common` goes to every device unchanged. What `fn` returns must be the same on all of them: inside it, use
    `average`, `gather` and the like.
    """
    if mesh is None:
        return fn

    def spread_fn(common: PyTree, *parts: PyTree) -> T:
        one, split = PartitionSpec(), PartitionSpec(_AXIS)
        specs = (one, *[split] * len(parts))
        # Do not check what varies between devices: JAX cannot see through the custom gradient rules of the
        # solves. Gradients are taken inside `fn` and averaged by hand.
        return jax.shard_map(fn, mesh=mesh, in_specs=specs, out_specs=one, check_vma=False)(common, *parts)

    return spread_fn


def for_each_draw(fn: Callable[..., T], mesh: Mesh | None) -> Callable[..., T]:
    """Return `fn(common, *parts)`, with one result for each draw, computed by all devices together.

    Like `spread`, but for any number of draws: some are repeated to make it divisible, and dropped again. Of
    scalar results, such as the number of evaluations, the largest over all devices is returned.
    """
    if mesh is None:
        return fn

    def part(common, *parts):
        return jax.tree.map(lambda x: gather(x) if x.ndim else largest(x), fn(common, *parts))

    def shared_fn(common: PyTree, *parts: PyTree) -> T:
        n = jax.tree.leaves(parts)[0].shape[0]
        index = jnp.arange(-(-n // mesh.size) * mesh.size) % n
        results = spread(part, mesh)(common, *jax.tree.map(lambda x: x[index], parts))
        return jax.tree.map(lambda x: x[:n] if x.ndim else x, results)

    return shared_fn


def replicated(tree: T, mesh: Mesh | None) -> T:
    """Copy the arrays of a tree to all devices. Every process must already hold the same arrays."""
    if mesh is None:
        return tree
    everywhere = NamedSharding(mesh, PartitionSpec())

    def put(x):
        if isinstance(x, np.ndarray):
            return jax.make_array_from_callback(x.shape, everywhere, lambda index: x[index])
        if not isinstance(x, jax.Array) or x.sharding == everywhere:
            return x
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(put(jax.random.key_data(x)), impl=jax.random.key_impl(x))
        # (`device_put` only reaches the devices of its own process.)
        return put(np.asarray(x))

    return jax.tree.map(put, tree)


def on_one_device(tree: T) -> T:
    """Undo `replicated`: keep the copy on the first device of this process."""

    def take(x):
        return x.addressable_data(0) if isinstance(x, jax.Array) and len(x.sharding.device_set) > 1 else x

    return jax.tree.map(take, tree)


def _shared() -> bool:
    """Return whether this code is being traced inside `spread`, as one device's part."""
    return _AXIS in jax.sharding.get_abstract_mesh().manual_axes


def average(tree: T) -> T:
    """Return the mean over devices."""
    return lax.pmean(tree, _AXIS) if _shared() else tree


def total(x: Array) -> Array:
    """Return the sum over devices."""
    return lax.psum(x, _AXIS) if _shared() else x


def gather(tree: T) -> T:
    """Join the parts of all devices along the first axis."""
    return lax.all_gather(tree, _AXIS, tiled=True) if _shared() else tree


def largest(tree: T) -> T:
    """Return the elementwise maximum over devices."""
    return lax.pmax(tree, _AXIS) if _shared() else tree


def several_processes(mesh: Mesh | None) -> bool:
    """Return whether a mesh has devices of more than one process."""
    return mesh is not None and _of_several_processes(mesh.devices.flat)


def _of_several_processes(devices: Iterable[Any]) -> bool:
    return len({device.process_index for device in devices}) > 1


def any_process(flag: bool) -> bool:  # noqa: FBT001
    """Return whether a flag is set in any process; all must call this, and all get the same answer."""
    return flag if is_alone() else bool(np.any(multihost_utils.process_allgather(np.asarray(flag))))


def of_first_process(number: int) -> int:
    """Return the first process's value of a number; all processes must call this."""
    return number if is_alone() else int(multihost_utils.broadcast_one_to_all(np.asarray(number)))


def is_first() -> bool:
    """Return whether this process is the one that writes files and prints: the only one, or the first."""
    return jax.process_index() == 0


def is_alone() -> bool:
    """Return whether this is the only process."""
    return jax.process_count() == 1


def number_in_all() -> int:
    """Return the number of devices of all processes."""
    return jax.device_count()


def kind() -> str:
    """Return the kind of the devices: `cpu`, `gpu`, ..."""
    return jax.default_backend()


def which_process() -> str:
    """Return the name of this process, such as `process 0 of 2`."""
    return f"process {jax.process_index()} of {jax.process_count()}"


def split_cpu(parts: int) -> None:
    """Let the CPU count as several devices, which share each batch. Call it before any other use of JAX.

    If the environment says how many there are (`JAX_NUM_CPU_DEVICES`, or `XLA_FLAGS`), it has the last word.
    """
    given = os.environ
    if "JAX_NUM_CPU_DEVICES" not in given and "device_count" not in given.get("XLA_FLAGS", ""):
        with contextlib.suppress(RuntimeError):  # JAX has been used: as many as there are
            jax.config.update("jax_num_cpu_devices", parts)


def cores() -> int:
    """Return how many cores this process may use."""
    own = getattr(os, "sched_getaffinity", None)
    return len(own(0)) if own else os.cpu_count() or 1


def join(coordinator: str | None, processes: int | None, process_id: int | None) -> None:
    """Connect to the other processes of a job, if there are any. Call it before any other use of JAX.

    `process_id` counts from 0 to `processes` - 1; process 0 is reached at the `coordinator`, `HOST:PORT`.
    """
    if jax.distributed.is_initialized():
        return
    # That service would intercept SIGTERM, the signal that asks a training run to save and stop.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            process_id,
            initialization_timeout=CONNECT_SECONDS,
            heartbeat_timeout_seconds=_SILENT_SECONDS,
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"The processes could not connect to each other: {error} Give {named('coordinator')}, "
            f"{named('processes')} and {named('process_id')}, or {named('processes')} 1 for a single process."
        ) from error
    # The first exchange opens connections, and fails if a process is 30 s late for it (a limit of XLA's). So
    # have it now, while all have just met, and not after each has compiled for as long as it takes.
    any_process(False)


def count() -> int:
    """Return how many devices share the draws: 1 outside `spread`."""
    return jax.sharding.get_abstract_mesh().shape[_AXIS] if _shared() else 1
