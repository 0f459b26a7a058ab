"""Share the draws of a batch among devices: each makes its part, and all know the result.

The same code runs on one device and on many. `spread` hands each device its part of the draws; `average`,
`gather` and the like bring the parts together again, and do nothing where there is only one. Since every
draw has a key of its own, draws do not depend on the number of devices, and results only by the order of
summation (and, where `for_each_draw` cannot divide evenly, by the tolerance of an adaptive solver).

`pathgrad.fit` and `pathgrad.evaluate` do all this by themselves; here is what they do it with.
"""

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
CONNECT_SECONDS = 120  # for all processes to be there
_SILENT_SECONDS = 30  # after which a process counts as dead, where its connections do not tell


def mesh_for(n: int | None, devices: Sequence[Any] | None = None) -> Mesh | None:
    """Return the devices that share `n` draws evenly: as many as can, `None` for the default device alone.

    With several processes every one of them must have its part, so there the number has to be divisible.

    Args:
        n: Number of draws; `None` where it need not be divided evenly (`for_each_draw`).
        devices: Those that may be used. Default: all, of all processes.
    """
    devices = list(jax.devices() if devices is None else devices)
    if not devices:
        raise ValueError("`devices` is empty: training needs at least one.")
    there = len(devices)
    n = there if n is None else n
    if n % there and _of_several_processes(devices):
        lower = n // there * there
        nearest = f"{lower} or {lower + there}" if lower else f"{there}"
        raise UserError(
            f"{n} draws cannot be shared evenly by {there} devices of several processes. Take a batch of "
            f"{nearest}, or a number of devices that divides {n}."
        )
    count = next(k for k in range(min(there, n), 0, -1) if n % k == 0)
    if count == 1 and devices[0] == jax.local_devices()[0]:
        return None  # where everything is anyway
    return Mesh(np.asarray(devices[:count]), (_AXIS,))


def spread(fn: Callable[..., T], mesh: Mesh | None) -> Callable[..., T]:
    """Return `fn(whole, *parts)` with the first axis of all `parts` split over the devices.

    `whole` goes to every device as it is. What `fn` returns must be the same on all of them: it says how by
    `average`, `gather` and the like.
    """
    if mesh is None:
        return fn

    def spread_fn(whole: PyTree, *parts: PyTree) -> T:
        one, split = PartitionSpec(), PartitionSpec(_AXIS)
        specs = (one, *[split] * len(parts))
        # No check of what varies between devices: the solves have gradient rules of their own, which it
        # does not know. Gradients are taken inside and averaged by hand.
        return jax.shard_map(fn, mesh=mesh, in_specs=specs, out_specs=one, check_vma=False)(whole, *parts)

    return spread_fn


def for_each_draw(fn: Callable[..., T], mesh: Mesh | None) -> Callable[..., T]:
    """Return `fn(whole, *parts)`, whose results have one entry for each draw, shared by the devices.

    As `spread`, for any number of draws: some are repeated to make it even, and dropped again. Results
    without axes, such as the number of evaluations, come back as the largest of all devices.
    """
    if mesh is None:
        return fn

    def part(whole, *parts):
        return jax.tree.map(lambda x: gather(x) if x.ndim else largest(x), fn(whole, *parts))

    def shared_fn(whole: PyTree, *parts: PyTree) -> T:
        n = jax.tree.leaves(parts)[0].shape[0]
        index = jnp.arange(-(-n // mesh.size) * mesh.size) % n
        made = spread(part, mesh)(whole, *jax.tree.map(lambda x: x[index], parts))
        return jax.tree.map(lambda x: x[:n] if x.ndim else x, made)

    return shared_fn


def replicated(tree: T, mesh: Mesh | None) -> T:
    """Put the arrays of a tree on all devices, the same on each. Every process has them already."""
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
        # (`device_put` only knows the devices of its own process.)
        return put(np.asarray(x))

    return jax.tree.map(put, tree)


def on_one_device(tree: T) -> T:
    """Undo `replicated`: keep the copy on the first device of this process."""

    def take(x):
        return x.addressable_data(0) if isinstance(x, jax.Array) and len(x.sharding.device_set) > 1 else x

    return jax.tree.map(take, tree)


def _shared() -> bool:
    """Whether this is being traced as the part of one device among several."""
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
    """Return the largest over devices, of each number."""
    return lax.pmax(tree, _AXIS) if _shared() else tree


def several_processes(mesh: Mesh | None) -> bool:
    """Whether a mesh has devices of more than one process."""
    return mesh is not None and _of_several_processes(mesh.devices.flat)


def _of_several_processes(devices: Iterable[Any]) -> bool:
    return len({device.process_index for device in devices}) > 1


def any_process(flag: bool) -> bool:  # noqa: FBT001
    """Whether a flag is set in any of the processes; all must ask, and all get the same answer."""
    return flag if is_alone() else bool(np.any(multihost_utils.process_allgather(np.asarray(flag))))


def of_first_process(number: int) -> int:
    """Return the number that the first process has; all must ask."""
    return number if is_alone() else int(multihost_utils.broadcast_one_to_all(np.asarray(number)))


def is_first() -> bool:
    """Whether this process writes files and talks: the only one, or the first."""
    return jax.process_index() == 0


def is_alone() -> bool:
    """Whether this is the only process."""
    return jax.process_count() == 1


def number_in_all() -> int:
    """Return how many devices there are, of all processes."""
    return jax.device_count()


def kind() -> str:
    """Return what the devices are: `cpu`, `gpu`, ..."""
    return jax.default_backend()


def which_process() -> str:
    """Say which process this is."""
    return f"process {jax.process_index()} of {jax.process_count()}"


def join(coordinator: str | None, processes: int | None, process_id: int | None) -> None:
    """Connect to the other processes of a job, if there are any. Before JAX is used for anything else.

    The others reach the first of the `processes`, of `process_id` 0, at the `coordinator`, `HOST:PORT`.
    """
    if jax.distributed.is_initialized():
        return
    # It would take SIGTERM away from us, by which a training is asked to save and stop.
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
            f"The processes could not begin together: {error} Give {named('coordinator')}, "
            f"{named('processes')} and {named('process_id')}, or {named('processes')} 1 for one alone."
        ) from error


def count() -> int:
    """Return how many devices share the draws at hand."""
    return jax.sharding.get_abstract_mesh().shape[_AXIS] if _shared() else 1
