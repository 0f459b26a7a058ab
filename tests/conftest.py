"""Arithmetic is 64-bit in tests unless a test says otherwise; shapes are checked by jaxtyping."""

import importlib.metadata
import os

# Compiling is what the suite costs. Unoptimised machine code and the older way of emitting fusions take a
# third of the time; the counts of FLOPs stay the same. XLA stops at a flag it does not know, so the second
# is for the version it was tried with.
flags = ["--xla_backend_optimization_level=0"]
if importlib.metadata.version("jaxlib").startswith("0.10."):
    flags.append("--xla_cpu_use_fusion_emitters=false")
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags])
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402 (after the flags that it reads)

jax.config.update("jax_enable_x64", True)
