"""Arithmetic is 64-bit in tests unless a test says otherwise; shapes are checked by jaxtyping."""

import jax

jax.config.update("jax_enable_x64", True)
