r"""Count the FLOPs of a program whose loops run more than once.

The compiler counts the body of a loop once, however often it runs: its number does not grow with the steps of
a solver, and what is done once per solve weighs as much as a step. Here a body is counted by difference: with
its body written twice into the program, a loop costs one body more. So

$$\text{flops} = F + \sum_i (n_i - 1)\, (F_i - F),$$

where $F$ is the compiler's count, $F_i$ that with the body of loop $i$ doubled, and $n_i$ how often it runs:
known for a `scan`, counted by running the program for a `while`. Loops that run equally often are doubled
together. A loop within a loop (Diffrax has one for its buffers) counts as written once.
"""

from collections.abc import Callable
from typing import Any

import jax

from .loops import Loops

# Optimised machine code takes longer to make, and has no influence on the count; nor has the older way of
# emitting fusions, which takes less than half the time.
_QUICKLY: dict[str, Any] = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


def flops_of(compiled: jax.stages.Compiled) -> float:
    """Return the compiler's count for a compiled program: loop bodies once."""
    counted = compiled.cost_analysis()
    assert counted is not None
    return float(counted["flops"])


def count_flops(function: Callable[..., Any], *arguments: Any) -> dict[str, float]:
    """Count the FLOPs of a function of arrays, run with these arguments.

    Returns:
        `flops`, with every loop body as often as it runs; `flops_of_program`, as the compiler counts, loop
        bodies once; `flops_of_loop_bodies`, of the bodies of all (outermost) loops that run more than once,
        once: for the gradient of a flow, one step of each solve, there and back.
    """
    jaxpr = jax.make_jaxpr(function)(*arguments)
    flat = jax.tree.leaves(arguments)
    compiled, known = _compile(jaxpr, flat, frozenset())
    once, trips = flops_of(compiled), [n for n in known if n is not None]
    if len(trips) < len(known):  # a `while`: only a run tells
        trips = [int(n) for n in compiled(*flat)[1]]
    whole, bodies = once, 0.0
    # (One that is never entered is counted as if it ran: the compiler cannot know.)
    for each in dict.fromkeys(n for n in trips if n > 1):
        members = frozenset(i for i, other in enumerate(trips) if other == each)
        more = flops_of(_compile(jaxpr, flat, members)[0]) - once
        bodies += more
        whole += (each - 1) * more
    return {"flops": whole, "flops_of_program": once, "flops_of_loop_bodies": bodies}


def _compile(
    jaxpr: Any, arguments: list[Any], doubled: frozenset[int]
) -> tuple[jax.stages.Compiled, list[int | None]]:
    """Compile with the bodies of some loops doubled; also return how often each runs, where it is known."""
    known: list[int | None] = []

    def run(*given: Any) -> tuple[list[Any], list[Any]]:
        loops = Loops(doubled)
        outputs = loops.evaluate(jaxpr.jaxpr, jaxpr.consts, given)
        known[:] = [n if isinstance(n, int) else None for n in loops.trips]
        return outputs, loops.trips

    lowered = jax.jit(run).lower(*arguments)
    try:
        return lowered.compile(_QUICKLY), known
    except jax.errors.JaxRuntimeError:  # a version of XLA that has no such options
        return lowered.compile(), known
