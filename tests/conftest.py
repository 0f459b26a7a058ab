"""Arithmetic is 64-bit in tests unless a test says otherwise; shapes are checked by jaxtyping."""

import importlib.metadata
import os
import pathlib

# Compiling is what the suite costs. Unoptimised machine code and the older way of emitting fusions take a
# third of the time; the counts of FLOPs stay the same. XLA stops at a flag it does not know, so the second
# is for the version it was tried with.
flags = ["--xla_backend_optimization_level=0"]
if importlib.metadata.version("jaxlib").startswith("0.10."):
    flags.append("--xla_cpu_use_fusion_emitters=false")
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags])
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402 (after the flags that it reads)
import pytest  # noqa: E402

jax.config.update("jax_enable_x64", True)

# Compiled programs live in memory mappings. Linux grants a process 65,530 of them, and the compiler crashes
# at the limit, which a process that runs half of the suite reaches.
MOST_MAPPINGS = 20_000


@pytest.fixture(autouse=True, scope="module")
def _within_mappings():
    """Forget compiled programs between files once they take up much of what the system allows."""
    yield
    if _mappings() > MOST_MAPPINGS:
        jax.clear_caches()


def _mappings() -> int:
    """Return the number of memory mappings of this process; 0 where the system does not tell."""
    try:
        return pathlib.Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return 0
