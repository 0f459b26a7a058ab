"""The time that a fit may take, compiling included."""

import time


class Clock:
    """Counts wall time against a limit.

    Attributes:
        limit: Seconds in all.
    """

    def __init__(self, limit: float) -> None:
        self.limit, self._began = limit, time.perf_counter()

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self._began

    @property
    def left(self) -> float:
        """Seconds left; below zero when the limit is passed."""
        return self.limit - self.spent
