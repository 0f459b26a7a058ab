"""Options of a measurement. No JAX here: the command line imports this even to show help."""

import dataclasses
from typing import Literal, get_args

from pathgrad._words.errors import ArgumentError, named
from pathgrad.experiments.options import Estimator


@dataclasses.dataclass(frozen=True)
class MeasureOptions:
    """The measurement."""

    estimators: tuple[Estimator, ...] = get_args(Estimator)
    """Gradient estimators to measure; they take turns."""
    repetitions: int = 7
    """Timed rounds, after one to warm up. 0 measures memory and compile time only."""
    dtype: Literal["float32", "float64"] = "float32"
    """Floating-point precision; training uses float32."""

    def check(self) -> None:
        """Raise if these options are not valid."""
        if self.repetitions < 0:
            raise ArgumentError(f"{named('repetitions')} must be at least 0, got {self.repetitions}.")
        if not self.estimators or len(set(self.estimators)) < len(self.estimators):
            raise ArgumentError(
                f"{named('estimators')} takes one or more of {', '.join(get_args(Estimator))}, each once."
            )
