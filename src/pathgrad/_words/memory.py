"""How much memory there is, and what would not fit into it."""

import contextlib
import math
import os
import sys
from pathlib import Path
from typing import Any

import jax

from .errors import ArgumentError, named
from .text import listed

try:
    import resource
except ImportError:  # Windows
    resource = None

_GROUP = Path("/sys/fs/cgroup/memory.max")  # the limit of a container, where it has one


def available() -> float:
    """Return the bytes that this program may use, on all its devices; infinity where nobody says."""
    if jax.default_backend() != "cpu":
        # Only its own process can ask a device.
        sizes = [(each.memory_stats() or {}).get("bytes_limit", math.inf) for each in jax.local_devices()]
        return float(sum(sizes)) * jax.process_count()
    limits = [math.inf]
    with contextlib.suppress(OSError, ValueError, AttributeError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with contextlib.suppress(OSError, ValueError):
        limits.append(int(_GROUP.read_text()))
    if resource is not None and sys.platform == "linux":
        allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
        limits.append(math.inf if allowed == resource.RLIM_INFINITY else allowed)
    return float(min(limits)) * jax.process_count()


def check_memory(numbers: float | int, **arguments: int) -> None:
    """Raise an `ArgumentError` if so many numbers, in single precision, fill the memory.

    Call it before they are made: a system may promise more memory than it has, and end the program later.
    The arguments are those that decide how many numbers there are.
    """
    if 4 * numbers <= (most := available()):
        return
    given = listed([f"{named(name)} {value}" for name, value in arguments.items()])
    raise ArgumentError(f"{given}: this takes at least {_gigabytes(4.0 * numbers)}, and {_there(most)}.")


def check_program(compiled: Any, what: str) -> None:
    """Raise a `MemoryError` if a compiled program needs more memory than there is."""
    with contextlib.suppress(NotImplementedError, jax.errors.JaxRuntimeError):  # not every device tells
        found = compiled.memory_analysis()
        size = 0 if found is None else found.temp_size_in_bytes + found.output_size_in_bytes
        most = available()
        if size > most:
            raise MemoryError(f"{what} takes {_gigabytes(float(size))}, and {_there(most)}")


def _there(most: float) -> str:
    return f"there are {_gigabytes(most)} of memory"


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:,.3g} GB" if size < 1e12 else f"{size / 1e9:,.0f} GB"
