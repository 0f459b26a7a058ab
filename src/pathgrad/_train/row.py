"""One row of training metrics. No JAX here: reports and comparisons read it too."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from .._words.text import Number, is_number


@dataclasses.dataclass(frozen=True)
class Row:
    """Metrics of one block of training steps. Means are over the steps that were not skipped.

    What is not known (no good step, no importance weights, no validation data) is `None`.

    Attributes:
        step: Steps taken so far, skipped ones included.
        seconds: Training time so far, without compiling. NaN if it is not known: then it is neither before
            nor after any other time.
        skipped: Steps skipped so far because something was not finite.
        loss: Mean of the objective; lower is better.
        loss_err: Standard error of the loss, if it is a mean over draws.
        ess: Effective sample size of the block's draws, as a fraction.
        log_z: Log normaliser from the same draws.
        kl: Reverse KL divergence from them; for an autoencoder, the KL term of its bound.
        gradient_norm: Root mean square of the gradient's norm, before the optimiser.
        gradient_snr: Signal-to-noise ratio of the gradient.
        evaluations: Field evaluations of the forward solve.
        evaluations_backward: Field evaluations of the backward pass.
        below_bound: How far the loss is below its lower bound, if that is more than chance.
        epoch: Passes through the data so far.
        validation: Validation loss, if the block ended with a validation.
        best_validation: Best validation loss so far.
        waiting: Validations since the best one that count against patience.
        more: Further numbers of the objective or the method, by name.
    """

    step: int
    seconds: float = math.nan
    skipped: int = 0
    loss: float | None = None
    loss_err: float | None = None
    ess: float | None = None
    log_z: float | None = None
    kl: float | None = None
    gradient_norm: float | None = None
    gradient_snr: float | None = None
    evaluations: float | None = None
    evaluations_backward: float | None = None
    below_bound: float | None = None
    epoch: float | None = None
    validation: float | None = None
    best_validation: float | None = None
    waiting: int | None = None
    more: Mapping[str, Number] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, numbers: Mapping[str, Any]) -> "Row":
        """Make a row from numbers by name; raise a `ValueError` without a step.

        Anything but a finite number is left out, whatever a file may hold.
        """
        known = {name: value for name, value in numbers.items() if is_number(value)}
        if "step" not in known:
            raise ValueError("a row of metrics has no `step`.")
        kinds = dict.fromkeys(_FIELDS, float) | dict.fromkeys(_WHOLE, int)
        fields: dict[str, Any] = {n: kind(known.pop(n)) for n, kind in kinds.items() if n in known}
        return cls(**fields, more=known)

    def to_json(self) -> dict[str, Number]:
        """Return all known numbers in one flat mapping: as in a file, except that NaN is still there."""
        fields = {name: getattr(self, name) for name in _FIELDS}
        return {name: value for name, value in fields.items() if value is not None} | dict(self.more)

    def value(self, name: str) -> Number | None:
        """Return a number by its name; `None` if it is not known or not finite."""
        number = getattr(self, name) if name in _FIELDS else self.more.get(name)
        return number if number is None or math.isfinite(number) else None


_FIELDS = tuple(field.name for field in dataclasses.fields(Row) if field.name != "more")
_WHOLE = ("step", "skipped", "waiting")


def best_row(rows: Iterable[Row]) -> Row | None:
    """Return the row of the best validation, whose model is kept; `None` if there was no validation."""
    best, lowest = None, math.inf
    for row in rows:
        if (value := row.value("validation")) is None:
            continue
        # Not always the lowest so far: a training that becomes more accurate measures its best model again.
        held = min(lowest, value) if row.best_validation is None else row.best_validation
        if value == held != lowest:
            best = row
        lowest = held
    return best
