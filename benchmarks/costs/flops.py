r"""Count the FLOPs of a program, with every loop body as often as it runs.

The compiler counts the body of a loop once, however often it runs: its number does not grow with the solver
steps, and work done once per solve counts as much as a step. Here a body is counted by difference: if the
program contains the body twice, the loop costs one body more. So

$$\text{flops} = F + \sum_i (n_i - 1)\, (F_i - F),$$

where $F$ is the compiler's count, $F_i$ the count with the body of loop $i$ doubled, and $n_i$ how often it
runs: known for a `scan`, counted by running the program for a `while`. Loops that run equally often are
doubled together. The body of a loop within a loop (Diffrax has one for its buffers) counts once.
"""

from collections.abc import Callable
from typing import Any

import jax

from .loops import Loops

# For faster compilation, which does not affect the count: no optimised machine code, and the older way of
# emitting fusions, which takes less than half the time.
_QUICKLY: dict[str, Any] = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


def flops_of(compiled: jax.stages.Compiled) -> float:
    """Return the compiler's count for a compiled program: loop bodies once."""
    costs = compiled.cost_analysis()
    assert costs is not None
    return float(costs["flops"])


def count_flops(function: Callable[..., Any], *arguments: Any) -> dict[str, float]:
    """Count the FLOPs of a function of arrays, run with these arguments.

    Returns:
        `flops`, with every loop body as often as it runs; `flops_of_program`, with loop bodies once, as the
        compiler counts; `flops_of_loop_bodies`, the bodies of all outermost loops that run more than once,
        once each: for the gradient of a flow, one step of each solve, forward and backward.
    """
    jaxpr = jax.make_jaxpr(function)(*arguments)
    flat = jax.tree.leaves(arguments)
    compiled, known = _compile(jaxpr, flat, frozenset())
    once, trips = flops_of(compiled), [n for n in known if n is not None]
    if len(trips) < len(known):  # a `while`: find out by running it
        trips = [int(n) for n in compiled(*flat)[1]]
    total, bodies = once, 0.0
    # (A loop that is never entered counts once: the compiler does not know that it is skipped.)
    for times in dict.fromkeys(n for n in trips if n > 1):
        members = frozenset(i for i, other in enumerate(trips) if other == times)
        more = flops_of(_compile(jaxpr, flat, members)[0]) - once
        bodies += more
        total += (times - 1) * more
    return {"flops": total, "flops_of_program": once, "flops_of_loop_bodies": bodies}


def _compile(
    jaxpr: Any, arguments: list[Any], doubled: frozenset[int]
) -> tuple[jax.stages.Compiled, list[int | None]]:
    """Compile with the bodies of some loops doubled; also return how often each loop runs, if known."""
    known: list[int | None] = []

    def run(*given: Any) -> tuple[list[Any], list[Any]]:
        loops = Loops(doubled)
        outputs = loops.evaluate(jaxpr.jaxpr, jaxpr.consts, given)
        known[:] = [n if isinstance(n, int) else None for n in loops.trips]
        return outputs, loops.trips

    lowered = jax.jit(run).lower(*arguments)
    try:
        return lowered.compile(_QUICKLY), known
    except jax.errors.JaxRuntimeError:  # a version of XLA without these options
        return lowered.compile(), known
