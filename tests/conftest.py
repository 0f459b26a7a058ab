"""Arithmetic is 64-bit in tests unless a test says otherwise; shapes are checked by jaxtyping."""

import os

# Compiling is what the suite costs. Unoptimised machine code halves it; the HLO, and with it every
# count of FLOPs and bytes, stays the same.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax

jax.config.update("jax_enable_x64", True)
