"""Run a traced program with the bodies of some loops doubled, and count the iterations of each loop."""

from collections.abc import Sequence
from typing import Any

import jax.extend.core as jex
import jax.numpy as jnp
from jax import lax


class Loops:
    """An interpreter for traced programs that enters calls and treats outermost loops specially.

    Attributes:
        doubled: Numbers of the loops, in program order, whose body runs twice per iteration.
        trips: Number of iterations of each loop without doubling, after `evaluate`: an `int` for a `scan`, an
            array for a `while`.
    """

    def __init__(self, doubled: frozenset[int] = frozenset()) -> None:
        self.doubled = doubled
        self.trips: list[Any] = []

    def evaluate(self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        """Return the outputs of the program."""
        known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        known |= zip(jaxpr.invars, arguments, strict=True)
        for eqn in jaxpr.eqns:
            given = [v.val if isinstance(v, jex.Literal) else known[v] for v in eqn.invars]
            known |= zip(eqn.outvars, self._run(eqn, given), strict=True)
        return [v.val if isinstance(v, jex.Literal) else known[v] for v in jaxpr.outvars]

    def _run(self, eqn: Any, given: list[Any]) -> Sequence[Any]:
        if eqn.primitive.name in ("scan", "while"):
            number = len(self.trips)
            return getattr(self, f"_{eqn.primitive.name}")(eqn, given, number in self.doubled)
        inner = _called(eqn)
        # Derivative rules are not needed any more: they were applied when the program was traced.
        custom = eqn.primitive.name.startswith("custom_")
        if inner is not None and (custom or _has_loops(inner[0])):
            return self.evaluate(*inner, given)
        outputs = eqn.primitive.bind(*given, **eqn.params)
        return outputs if eqn.primitive.multiple_results else [outputs]

    def _scan(self, eqn: Any, given: list[Any], doubled: bool) -> Sequence[Any]:  # noqa: FBT001
        length = eqn.params["length"]
        self.trips.append(length)
        if not doubled:
            return eqn.primitive.bind(*given, **eqn.params)
        # With an odd number of iterations the body would be written a third time, after the loop. And two
        # would be no loop at all: the compiler would merge what forward and backward pass have in common.
        longer = max(4, length + length % 2)
        carried = eqn.params["num_consts"] + eqn.params["num_carry"]
        last = [jnp.repeat(x[-1:], longer - length, axis=0) for x in given[carried:]]
        xs = [jnp.concatenate(pair) for pair in zip(given[carried:], last, strict=True)]
        changes = {"length": longer, "unroll": 2}
        outputs = eqn.primitive.bind(*given[:carried], *xs, **(eqn.params | changes))
        first = eqn.params["num_carry"]
        return [*outputs[:first], *(y[:length] for y in outputs[first:])]

    def _while(self, eqn: Any, given: list[Any], doubled: bool) -> Sequence[Any]:  # noqa: FBT001
        parameters = eqn.params
        first = parameters["cond_nconsts"]
        second = first + parameters["body_nconsts"]
        goes_on = jex.jaxpr_as_fun(parameters["cond_jaxpr"])
        body = jex.jaxpr_as_fun(parameters["body_jaxpr"])

        def step(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            count, *state = carry
            for _ in range(1 + doubled):
                state = body(*given[first:second], *state)
            return (count + 1, *state)

        count, *state = lax.while_loop(
            lambda carry: goes_on(*given[:first], *carry[1:])[0],
            step,
            (jnp.zeros((), jnp.int32), *given[second:]),
        )
        self.trips.append(count)
        return state


def _called(eqn: Any) -> tuple[Any, Sequence[Any]] | None:
    """Return the program that an equation calls once (`jit`, custom derivatives), with its constants."""
    if eqn.primitive.name in ("scan", "while", "cond"):
        return None
    for name in ("jaxpr", "call_jaxpr"):
        inner = eqn.params.get(name)
        if isinstance(inner, jex.ClosedJaxpr):
            return inner.jaxpr, inner.consts
        if isinstance(inner, jex.Jaxpr):
            return inner, ()
    return None


def _has_loops(jaxpr: Any) -> bool:
    return any(
        eqn.primitive.name in ("scan", "while")
        or ((inner := _called(eqn)) is not None and _has_loops(inner[0]))
        for eqn in jaxpr.eqns
    )
