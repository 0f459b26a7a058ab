"""How long a search may take, so that another one can end at the same place."""

import math
import time


class Budget:
    """Time that is used up at some moment, and stays so.

    A search asks whether it is used up at places that do not depend on the clock. So the number of the
    question at which it was tells where a search ended, and another one can be ended there.

    Attributes:
        cut: The number of the first question, from one, at which it was used up; `None` before that.
    """

    def __init__(self, seconds: float | None = None, cut: int | None = None) -> None:
        """Begin now, with so much time or until a question."""
        self.cut, self._asked, self._wanted = None, 0, cut
        self._deadline = math.inf if seconds is None else time.perf_counter() + seconds

    @property
    def is_used_up(self) -> bool:
        """Whether to stop. This is a question, and counts."""
        self._asked += 1
        if self.cut is None:
            is_time = time.perf_counter() > self._deadline
            if is_time if self._wanted is None else self._asked >= self._wanted:
                self.cut = self._asked
        return self.cut is not None

    def extend(self, seconds: float) -> None:
        """Add some time, for what is not counted."""
        self._deadline += seconds
