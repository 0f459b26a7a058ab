"""What a default fit decided by the clock and by measurement, so that it can be repeated to the same bits."""

import dataclasses
from typing import Any

from .kinds import Kind


@dataclasses.dataclass(frozen=True)
class Plan:
    """The decisions of a fit. Given back as `plan=`, they are not made again.

    Attributes:
        kind: The kind of flow; `None` for a flow of the user's.
        n: Draws per step.
        first: Steps of the first round; each later one has twice as many.
        rounds: Rounds until the best flow.
        double: Whether the target is evaluated in double precision.
        defended: Whether the base has wider draws among its own.
        cut: Where the clock ended the warm start; `None` if it ended by itself.
    """

    kind: Kind | None
    n: int
    first: int
    rounds: int
    double: bool
    defended: bool
    cut: int | None = None

    @property
    def steps(self) -> int:
        """Steps of training in all."""
        return self.first * (2**self.rounds - 1)

    def to_json(self) -> dict[str, Any]:
        """Return the plan for a file."""
        return dataclasses.asdict(self) | {"kind": None if self.kind is None else self.kind.name.lower()}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "Plan":
        """Read what `to_json` wrote."""
        kind = stored["kind"]
        return cls(**{**stored, "kind": None if kind is None else Kind[kind.upper()]})
