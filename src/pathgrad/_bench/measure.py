"""Measure programs that do the same thing in different ways: compile them, and run them in turn."""

import functools
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.random as jr
from jax.stages import Compiled
from jaxtyping import Array, ArrayLike, PyTree

from .record import Record, Say, ratio, spread

T = TypeVar("T")

# Which estimator is compared with which.
RATIOS = (("path", "total"), ("two-copy", "path"))


class Work(NamedTuple):
    """Something to measure.

    Attributes:
        function: Function of `arrays` and a key. Returns any arrays, and the numbers of field evaluations in
            the forward and backward pass (`None` where they are not counted).
        arrays: Arrays that it works on.
    """

    function: Callable[[PyTree, Array], tuple[PyTree, tuple[ArrayLike, ArrayLike] | None]]
    arrays: PyTree


def measure(
    works: Mapping[str, Work],
    repetitions: int,
    say: Say,
    *,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> Record:
    """Return the cost of each program, and the ratios of those pairs that were both measured."""
    key = jr.key(seed)
    compiling: dict[str, float] = {}
    counts: dict[str, dict[str, int]] = {}
    runs = {}
    for name, work in works.items():
        say(f"compiling {name}")
        began = time.perf_counter()
        program = jax.jit(work.function).lower(work.arrays, key).compile()
        compiling[name], memory = time.perf_counter() - began, program.memory_analysis()
        assert memory is not None
        counts[name] = {
            "temporary_bytes": memory.temp_size_in_bytes,  # besides arguments and results
            "argument_bytes": memory.argument_size_in_bytes,
        }
        runs[name] = functools.partial(_run, program, work.arrays, key)
    if repetitions:
        say(f"{repetitions} rounds of {', '.join(works)}")
    costs: dict[str, Record] = {}
    for name, turns in take_turns(runs, repetitions, clock).items():
        seconds = [duration for duration, _ in turns]
        median = spread(seconds) or {"median": None, "spread": None}
        forward, backward = ([n[i] for _, n in turns if n is not None] for i in (0, 1))
        costs[name] = {
            "seconds": median["median"],
            "seconds_spread": median["spread"],
            **counts[name],
            "compile_seconds": compiling[name],
            "evaluations": statistics.mean(forward) if forward else None,
            "evaluations_backward": statistics.mean(backward) if backward else None,
            "seconds_all": seconds,
        }
    return {"estimators": costs, "ratios": ratios_of(costs, RATIOS, ("temporary_bytes", "argument_bytes"))}


def ratios_of(
    costs: Mapping[str, Record], pairs: Iterable[tuple[str, str]], counts: Sequence[str]
) -> dict[str, Record]:
    """Return the ratios of times and of these counts, for those pairs that were both measured."""
    both = [pair for pair in pairs if costs.keys() >= set(pair)]
    return {f"{one} / {other}": ratio(costs[one], costs[other], counts) for one, other in both}


def _run(program: Compiled, arrays: PyTree, key: Array, i: int) -> tuple[int, int] | None:
    _, counts = jax.block_until_ready(program(arrays, jr.fold_in(key, i)))
    return None if counts is None else (int(counts[0]), int(counts[1]))


def take_turns(
    runs: Mapping[str, Callable[[int], T]], repetitions: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[tuple[float, T]]]:
    """Return seconds and result of each program in each of several rounds.

    They run in turn, so that whatever else the machine does affects all of them. Round 0 warms up and does
    not count. Each program is called with the number of the round, and must finish before it returns.
    """
    turns: dict[str, list[tuple[float, T]]] = {name: [] for name in runs}
    for i in range(repetitions + 1 if repetitions else 0):
        for name, run in runs.items():
            began = clock()
            result = run(i)
            if i:
                turns[name].append((clock() - began, result))
    return turns
