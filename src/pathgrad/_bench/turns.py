"""Time programs in turn, so that whatever else the machine does meets all of them."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Run = Callable[[int], Any]


def take_turns(
    runs: Mapping[str, Run], repetitions: int, clock: Callable[[], float] = time.perf_counter
) -> tuple[dict[str, list[float]], dict[str, list[Any]]]:
    """Run all programs in each of several rounds; the first round, of number 0, warms up and does not count.

    Args:
        runs: Called with the number of the round; what they return has been computed to the end.
        repetitions: Rounds that count.
        clock: In seconds.

    Returns:
        Seconds, and what was returned, of each program in each round that counts.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    returned: dict[str, list[Any]] = {name: [] for name in runs}
    for i in range(repetitions + 1 if repetitions else 0):
        for name, run in runs.items():
            began = clock()
            found = run(i)
            if i:
                seconds[name].append(clock() - began)
                returned[name].append(found)
    return seconds, returned


def median_and_spread(values: Sequence[float]) -> dict[str, Any]:
    """Return the median, and the smallest and largest value."""
    return {"median": statistics.median(values), "spread": [min(values), max(values)]}


def ratio(above: Sequence[float], below: Sequence[float]) -> dict[str, Any]:
    """Return median and spread of the ratios within each round: a slow moment slows both."""
    return median_and_spread([a / b for a, b in zip(above, below, strict=True)])
