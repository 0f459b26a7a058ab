"""What can be chosen about a measurement. No JAX here: the command line reads it to answer for help."""

import dataclasses
from typing import Literal

from pathgrad._words.errors import ArgumentError, named
from pathgrad.experiments.options import Estimator


@dataclasses.dataclass(frozen=True)
class MeasureOptions:
    """The measurement."""

    estimators: tuple[Estimator, ...] = ("path", "total", "two-copy")
    """Which gradients to measure; they take turns."""
    repetitions: int = 7
    """Rounds that are timed, after one that warms up. 0 to time nothing: memory and compiling only."""
    dtype: Literal["float32", "float64"] = "float32"
    """Precision of everything; training has float32."""

    def check(self) -> None:
        """Raise unless this can be measured."""
        if self.repetitions < 0:
            raise ArgumentError(f"{named('repetitions')} must be at least 0, got {self.repetitions}.")
        if not self.estimators or len(set(self.estimators)) < len(self.estimators):
            raise ArgumentError(
                f"{named('estimators')} takes one or several of path, total, two-copy, each once."
            )
